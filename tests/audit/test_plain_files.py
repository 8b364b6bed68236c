from __future__ import annotations

import json
import time

import pandas as pd
import pytest

from fairfrontier.audit import verb
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.plain_figure import draw_impact
from fairfrontier.runtime.text_file import read_csv
from tests.audit.hiring import make_applicants
from tests.audit.test_files import PNG, read_report

FILES = (
    *("impact.csv", "impact.png", "scores.csv", "measures.csv"),
    *("calibration.csv", "calibration.png", "report.html", "audit.json"),
)
EVIL = '<script>alert("x")</script>'
SCORED = {"scores": "score", "threshold": 0.6, "labels": "success", "groups": ("sex", "race")}


def run(frame, folder, **options):
    """Audit a frame; the table lies beside the results."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "rows.parquet")
    findings = verb.audit(AuditConfig(table=folder / "rows.parquet", **options))
    return verb.write(findings, folder, time.monotonic()), findings


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "rows"
    limit = "selection_rate_ratio:sex=0.8"
    return *run(make_applicants(1500), folder, limit=limit, **SCORED), folder


def test_everything_is_left_behind(done):
    summary, findings, folder = done
    assert {path.name for path in folder.iterdir()} == {*FILES, "rows.parquet"}
    assert json.loads((folder / "audit.json").read_text(encoding="utf-8")) == summary
    for name in ("impact", "calibration"):
        assert (folder / f"{name}.png").read_bytes().startswith(PNG)
    for name in ("impact", "measures", "scores", "calibration"):
        table = getattr(findings, name)
        read = read_csv(folder / f"{name}.csv")
        assert read.columns.tolist() == table.columns.tolist()
        assert len(read) == len(table)
    counts = summary["counts"]
    assert counts["rows"] == 1500
    assert (
        counts["compared"] + counts["excluded"] + counts["unknown"] + counts["too_few"]
        == (counts["categories"])
    )
    assert counts["exceeded"] == 1
    assert summary["limits"][0]["verdict"] == "exceeded"


def test_the_report_stands_alone_and_says_what_is_compared(done):
    summary, _, folder = done
    reader = read_report(folder)
    assert all(link.startswith("data:image/png;base64,") for link in reader.links)
    assert "script" not in reader.tags
    for words in ("6 RCNY 5-301", "29 CFR 1607.4(D)", "counted apart", "below 4/5", "exceeded"):
        assert words in reader.text
    assert f"{summary['counts']['compared']} of {summary['counts']['categories']}" in reader.text


@pytest.mark.parametrize("power", [700, 1020])
def test_scores_of_any_size_are_compared_as_small_ones(tmp_path, power):
    plain = make_applicants(200).assign(score=lambda rows: rows["score"] - rows["score"].mean())
    asked = {"scores": "score", "labels": "success", "groups": ("race",), "threshold": 0.0}
    small, _ = run(plain, tmp_path / "small", **asked)
    large, _ = run(plain.assign(score=plain["score"] * 2.0**power), tmp_path / "large", **asked)
    assert len(small["scores"]) >= 4
    for one, other in zip(small["scores"], large["scores"], strict=True):
        for name in ("difference", "low", "high"):
            assert other[name] == pytest.approx(one[name])
        for name in ("mean", "deviation"):
            wanted = None if one[name] is None else one[name] * 2.0**power
            assert other[name] == pytest.approx(wanted)


def test_names_of_categories_are_escaped_and_guarded(tmp_path):
    frame = make_applicants(400).replace({"race": {"Black": EVIL, "White": "=1+1 $x_1$"}})
    run(frame, tmp_path, decisions="hired", group="race")
    reader = read_report(tmp_path)
    assert "script" not in reader.tags
    assert EVIL in reader.text
    assert "'=1+1" in (tmp_path / "impact.csv").read_text()


def test_an_audit_with_noise_replaces_one_without(tmp_path):
    frame = make_applicants(400).fillna({"sex": "male"})
    asked = {"decisions": "hired", "labels": "success", "group": "sex"}
    run(frame, tmp_path, **asked)
    run(frame, tmp_path, level=0.05, **asked)
    names = {path.name for path in tmp_path.iterdir()}
    assert "bounds.csv" in names
    assert "impact.csv" not in names
    run(frame, tmp_path, **asked)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "rows.parquet",
        "impact.csv",
        "impact.png",
        "measures.csv",
        "report.html",
        "audit.json",
    }


def test_the_picture_tells_what_is_below_four_fifths(done):
    _, findings, _ = done
    impact = findings.impact
    women = impact.query("level == 'female' and measure == 'selection_rate'").iloc[0]
    assert women["four_fifths"]
    picture = draw_impact(impact)
    assert f"sex female {women['rate']:.3f}" in picture.alt
    # The look depends on the flag.
    flags = pd.array([False] * len(impact), dtype="boolean")
    assert draw_impact(impact.assign(four_fifths=flags)).png != picture.png
