from __future__ import annotations

import pandas as pd
import pytest

from benchmarks.reproduce import END, count_rows, make_project, make_records, time_studies


def test_studies_are_timed_by_their_titles(capsys):
    lines = [
        "Skipped, without a profile: x.\n",
        "           german: published / ours ± sd\n",
        " row   measure\n",
        "law: claims\n",
    ]
    seconds = time_studies(iter(lines), 0.0)
    assert list(seconds) == ["german", "law", END]
    assert seconds["german"] > seconds["law"] >= 0.0
    assert capsys.readouterr().out == "".join(lines)


def test_the_first_run_is_the_peer_of_the_second():
    first, again = {"german": 8.0, END: 2.0}, {"german": 1.0, END: 1.0}
    study, end, total = make_records(first, again, {"german": 1000})
    assert (study.case, study.n, study.ratio) == ("german", 1000, 8.0)
    assert (end.case, end.n) == (END, 0)
    assert (total.peer_seconds, total.ours_seconds, total.ratio) == (10.0, 2.0, 5.0)


def test_rows_are_those_of_all_parts_of_a_split(tmp_path):
    rows = [(seed, part, n) for seed in (0, 1) for part, n in (("train", 80), ("test", 20))]
    points = pd.DataFrame(rows, columns=["seed", "part", "n"])
    points = points.assign(dataset="german", method="gbdt", setting="{}", group="")
    level = points.assign(group="sex=Male", n=1000)
    # A fit that selects leaves some of the training rows out.
    inside = pd.DataFrame({"part": ["train", "validation", "test"], "n": [60, 20, 20]})
    inside = inside.assign(dataset="german", method="gbdt", setting="select", group="", seed=0)
    pd.concat([points, level, inside]).to_parquet(tmp_path / "points.parquet")
    assert count_rows(tmp_path) == 100


@pytest.mark.parametrize("downloads", [True, False])
def test_a_project_has_nothing_but_downloads_of_another_ones_cache(tmp_path, downloads):
    home, folder = tmp_path / "home", tmp_path / "folder"
    for name in ("conf", "data/raw", "data/reference", "data/cache/store"):
        (home / name).mkdir(parents=True)
    if downloads:
        (home / "data" / "cache" / "downloads").mkdir()
    folder.mkdir()
    make_project(folder, home)
    assert (folder / "data" / "raw").is_dir()
    cached = [path.name for path in folder.glob("data/cache/*")]
    assert cached == ["downloads"] * downloads
