from __future__ import annotations

import subprocess
import sys

from tests.faults.job import Scene, count_differences
from tests.project import make_project


def test_what_is_left_is_seen(tmp_path):
    scene = Scene(tmp_path / "scene", make_project(tmp_path / "template"))
    assert scene.leftovers() == []
    (scene.home / "data" / ".unfinished@0").mkdir()
    (scene.temporary / "socket").touch()
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep, env=scene.settings) as process:
        assert scene.processes() == [process.pid]
        process.kill()
    assert scene.leftovers() == ["home/data/.unfinished@0", "tmp/socket"]


def test_results_are_compared_without_their_seconds(tmp_path):
    scene = Scene(tmp_path / "scene", make_project(tmp_path / "template"))
    folder = scene.home / "data" / "results"
    folder.mkdir()
    (folder / "summary.json").write_text('{"rows": 1, "seconds": 1.5}')
    (folder / "report.html").write_text("<p>1 row</p><b>1.5</b> seconds")
    before = scene.results()
    (folder / "summary.json").write_text('{"rows": 1, "seconds": 2.5}')
    (folder / "report.html").write_text("<p>1 row</p><b>2.5</b> seconds")
    assert count_differences(scene.results(), before) == 0
    (folder / "report.html").write_text("<p>2 rows</p><b>2.5</b> seconds")
    (folder / "more.csv").touch()
    assert count_differences(scene.results(), before) == 2
