from __future__ import annotations

import json
import time
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from fairfrontier.audit import files as audit_result
from fairfrontier.audit import verb
from fairfrontier.audit.auditing import run_audit
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.figure import GROUPS_AT_MOST, draw_bounds
from fairfrontier.audit.files import say
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.text_file import read_csv
from tests.audit.noisy_rows import make_table

FILES = ("bounds.csv", "bounds.png", "conclusions.csv", "noise.csv", "report.html", "audit.json")
PNG = b"\x89PNG\r\n"
COLUMNS = {"decisions": "decision", "labels": "y", "group": "group"}
EVIL = '<script>alert("x")</script>'


def run(frame, folder, **options):
    """Audit a frame and return what stands in audit.json; the table lies beside the results."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "rows.parquet")
    given = {**COLUMNS, **(options or {"level": 0.05})}
    findings = run_audit(AuditConfig(table=str(folder / "rows.parquet"), **given))
    return verb.write(findings, folder, time.monotonic())


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "rows"
    folder.mkdir()
    make_table(300, seed=9).to_csv(folder / "pairs.csv", index=False)
    summary = run(make_table(), folder, auxiliary=str(folder / "pairs.csv"), true_group="true")
    return summary, folder


class Reader(HTMLParser):
    """Collects tags, and the text outside of styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def read_report(folder):
    reader = Reader()
    reader.feed((folder / "report.html").read_text(encoding="utf-8"))
    return reader


def test_everything_is_left_behind(done):
    summary, folder = done
    assert {path.name for path in folder.iterdir()} == {*FILES, "rows.parquet", "pairs.csv"}
    assert json.loads((folder / "audit.json").read_text(encoding="utf-8")) == summary
    assert (folder / "bounds.png").read_bytes().startswith(PNG)
    assert (
        summary["counts"] | {"rows": 600, "true_groups": 3, "noisy_groups": 3}
        == (summary["counts"])
    )
    assert summary["rests_on"] == "limit"
    assert summary["noise"]["rows"] == 300
    np.testing.assert_allclose(np.sum(summary["noise"]["posterior"], axis=1), 1)
    assert {"fairfrontier", "numpy"} <= set(summary["versions"])


def test_tables_and_json_say_the_same(done):
    summary, folder = done
    conclusions = pd.read_csv(folder / "conclusions.csv", keep_default_na=False)
    assert set(conclusions["noise"]) == {"model", "limit"}
    kept = conclusions.query("noise == 'limit'")
    assert len(kept) == summary["counts"]["conclusions"] == len(summary["conclusions"]) == 4 * 6
    assert (kept["verdict"] != "open").sum() == summary["counts"]["held"] > 0
    assert summary["counts"]["open"] > 0
    assert kept["verdict"].tolist() == [each["verdict"] for each in summary["conclusions"]]
    bounds = pd.read_csv(folder / "bounds.csv")
    assert set(bounds["bound"]) == {"overall", "assignment", "ball", "theorem_1", "theorem_3"}
    noise = pd.read_csv(folder / "noise.csv")
    assert noise["group"].tolist() == summary["noise"]["groups"] == ["blue", "green", "red"]
    assert (noise["valid_level"] <= noise["valid_level_limit"]).all()


def test_the_report_stands_alone_and_says_what_holds(done):
    summary, folder = done
    reader = read_report(folder)
    assert all(link.startswith("data:image/png;base64,") for link in reader.links)
    assert "script" not in reader.tags
    assert f"{summary['counts']['held']} of {summary['counts']['conclusions']}" in reader.text
    for word in ("Theorem 3", "discrete metric only", "Wasserstein", "treated as the population"):
        assert word in reader.text


def test_names_of_groups_are_escaped(tmp_path):
    frame = make_table(200)
    for name in ("group", "true"):
        frame[name] = frame[name].replace({"blue": EVIL, "green": "a&b $x_1$"})
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    run(
        frame,
        tmp_path / EVIL.replace("/", ""),
        auxiliary=str(tmp_path / "pairs.csv"),
        true_group="true",
    )
    reader = read_report(tmp_path / EVIL.replace("/", ""))
    assert "script" not in reader.tags
    assert EVIL in reader.text
    assert "a&b $x_1$" in reader.text


def test_the_order_of_rows_changes_no_file_but_for_the_seconds(tmp_path):
    frame = make_table(200)
    run(frame, tmp_path / "a" / "x")
    run(frame[::-1], tmp_path / "b" / "x")
    for name in set(FILES) - {"audit.json"}:
        first, second = (tmp_path / each / "x" / name for each in "ab")
        assert first.read_bytes() == second.read_bytes()


def test_what_fails_leaves_the_results_as_they_were(tmp_path, monkeypatch):
    run(make_table(100), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit_result, "render", fail)
    with pytest.raises(StoreError, match="No space left"):
        run(make_table(100), tmp_path, level=0.2)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_rate_without_rows_is_not_known(tmp_path):
    summary = run(make_table(100).assign(y=0), tmp_path)
    assert summary["overall"]["tpr"] is None
    tpr = [each for each in summary["conclusions"] if each["measure"] == "tpr"]
    assert {each["verdict"] for each in tpr} == {"open"}
    assert "may have too few such rows" in tpr[0]["sentence"]
    assert "nan" not in read_report(tmp_path).text


def test_groups_with_few_rows_have_no_bounds(tmp_path):
    frame = make_table(300)
    frame.loc[:8, "group"] = "=1+1"
    summary = run(frame, tmp_path)
    bounds = read_csv(tmp_path / "bounds.csv")
    assert set(bounds["group"].dropna()) == {"blue", "green", "red", "=1+1"}
    small = bounds[bounds["group"].notna() & bounds["n"].lt(10)]
    assert {*small["group"]} == {"=1+1"}
    assert small[["value", "low", "high"]].isna().all(axis=None)
    assert (small["n"] == 0).all()
    assert bounds.drop(small.index)[["value", "low", "high"]].notna().all(axis=None)
    rests = [each for each in summary["conclusions"] if "=1+1" in (each["group"], each["other"])]
    assert (
        {each["verdict"] for each in rests} == {each["seen_verdict"] for each in rests} == {"open"}
    )
    assert {each["low"] for each in rests} == {each["seen"] for each in rests} == {None}
    assert "nan" not in read_report(tmp_path).text
    cells = (tmp_path / "bounds.csv").read_text().replace("\n", ",").split(",")
    assert "'=1+1" in cells
    assert "=1+1" not in cells


def test_nothing_open_and_nothing_held_are_said(tmp_path):
    run(make_table(200), tmp_path / "a", level=0.0)
    assert "leaves no comparison open" in read_report(tmp_path / "a").text
    frame = pd.DataFrame({"decision": [0, 1] * 4, "y": [0, 0, 1, 1] * 2, "group": list("aaaabbbb")})
    run(frame, tmp_path / "b", level=0.45, budget=0.01)
    assert "leaves every comparison open" in read_report(tmp_path / "b").text


def test_many_groups_are_drawn_without_the_smallest():
    # Group k has k + 1 rows.
    codes = np.repeat(np.arange(30), np.arange(30) + 1)
    rows = pd.DataFrame(
        {
            "measure": "tpr",
            "group": [""] + [f"a very long name of a group, {k}" for k in range(30)] * 2,
            "bound": ["overall"] + ["assignment"] * 30 + ["ball"] * 30,
            "noise": [""] + ["model"] * 60,
            "value": 0.5,
            "n": [len(codes)] + [k + 1 for k in range(30)] * 2,
            "low": 0.4,
            "high": 0.6,
        }
    )
    picture = draw_bounds(rows, 0.05, "model")
    assert picture.png.startswith(PNG)
    assert picture.alt.count("0.400 to 0.600") == GROUPS_AT_MOST
    assert "group, 29 " in picture.alt
    assert "group, 13 " not in picture.alt


@pytest.mark.parametrize(
    ("low", "high", "other", "verdict", "told"),
    [
        (-0.3, -0.1, "", "below", "lower than that of all rows by more than 0.05: by 0.100 to"),
        (0.1, 0.3, "", "above", "higher than that of all rows by more than 0.05: by 0.100 to"),
        (0.1, 0.3, "b", "above", "TPR of a is higher than that of b: by 0.100 to 0.300."),
        (-0.01, 0.02, "", "within", "within 0.05 of that of all rows: -0.010 to +0.020."),
        (0.0, 0.0, "b", "within", "TPR of a equals that of b."),
        (-0.3, 0.3, "b", "open", "against that of b stays open: -0.300 to +0.300."),
        (None, None, "b", "open", "stays open: a group may have too few such rows."),
    ],
)
def test_conclusions_in_words(low, high, other, verdict, told):
    row = {"measure": "tpr", "group": "a", "other": other, "low": low, "high": high}
    assert told in say({**row, "verdict": verdict}, 0.05)
