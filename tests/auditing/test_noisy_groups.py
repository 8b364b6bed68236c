from __future__ import annotations

import json
import time
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.auditing import audit as verb
from fairfrontier.auditing import noisy_groups
from fairfrontier.auditing.figure import GROUPS_AT_MOST, draw_bounds
from fairfrontier.auditing.noisy_groups import RATES, run_noisy_audit, say
from fairfrontier.auditing.option import AuditConfig
from fairfrontier.runtime.errors import ConfigError, DataError, FairfrontierError, StoreError
from fairfrontier.runtime.text_file import read_csv
from tests.auditing.noisy_rows import (
    COUNTS,
    deal,
    find_rate,
    make_table,
    make_twelve,
    write_confusion,
)

COLUMNS = {"decisions": "decision", "labels": "y", "group": "group"}


def audit(frame, folder, **options):
    """Audit a frame; options that are frames are written beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "table.parquet")
    for name in ("confusion", "auxiliary"):
        if isinstance(options.get(name), pd.DataFrame):
            path = folder / f"{name}.csv"
            options[name].to_csv(path, index=False)
            options[name] = str(path)
    given = {name: value for name, value in {**COLUMNS, **options}.items() if value is not None}
    return run_noisy_audit(AuditConfig(table=str(folder / "table.parquet"), **given))


def bounds_of(findings, bound="assignment", noise="model"):
    table = findings.bounds
    kept = table[(table["bound"] == bound) & (table["noise"] == noise)]
    return kept.set_index(["measure", "group"])[["low", "high"]]


def test_a_table_that_is_replaced_meanwhile_is_refused(tmp_path):
    path, other = tmp_path / "table.csv", tmp_path / "other.csv"
    make_table().to_csv(path, index=False)
    make_table(seed=1).to_csv(other, index=False)

    def replace(*_):
        if other.exists():
            other.replace(path)

    with pytest.raises(DataError):
        run_noisy_audit(AuditConfig(table=str(path), level=0.1, **COLUMNS), replace)


@pytest.mark.parametrize("seed", range(4))
def test_a_table_agrees_with_brute_force_over_all_assignments(seed, tmp_path):
    frame = make_twelve(seed)
    confusion = str(write_confusion(tmp_path / "confusion.csv"))
    options = {"labels": "label", "positive": "yes", "confusion": confusion, "budget": 0.1}
    findings = audit(frame, tmp_path / "t", minimum=1, **options)
    decision, y = frame["decision"].to_numpy(), (frame["label"] == "yes").to_numpy().astype(int)
    codes = (frame["group"] == "b").to_numpy().astype(int)
    every = list(deal(codes, COUNTS))
    assert len(every) == 6 * 15
    found = bounds_of(findings)
    values = {}
    for name in RATES:
        for j, group in enumerate("ab"):
            rates = np.array([find_rate(name, decision, y, true == j) for true in every])
            values[name, group] = rates
            low, high = found.loc[(name, group)]
            assert (low, high) == pytest.approx(
                (np.nanmin(rates), np.nanmax(rates)), nan_ok=True, abs=1e-9
            )
    for row in findings.verdicts().to_dict("records"):
        overall = find_rate(row["measure"], decision, y, np.ones(12, dtype=bool))
        other = values[row["measure"], row["other"]] if row["other"] else overall
        gap = values[row["measure"], row["group"]] - other
        margin = 0.0 if row["other"] else 0.1
        if np.isnan(gap).any():
            continue
        expected = "open"
        if (gap < -margin - 1e-9).all():
            expected = "below"
        elif (gap > margin + 1e-9).all():
            expected = "above"
        elif (np.abs(gap) <= margin + 1e-9).all():
            expected = "within"
        assert row["verdict"] == expected


def test_the_order_of_rows_changes_nothing_to_the_bit(tmp_path):
    frame = make_table().assign(w=np.random.default_rng(1).random(600))
    shuffled = frame.sample(frac=1, random_state=3)
    for options in ({"level": 0.05}, {"auxiliary": frame, "true_group": "true"}):
        first = audit(frame, tmp_path / "a", weights="w", **options)
        second = audit(shuffled, tmp_path / "b", weights="w", **options)
        pd.testing.assert_frame_equal(first.bounds, second.bounds, check_exact=True)
        pd.testing.assert_frame_equal(first.conclusions, second.conclusions, check_exact=True)


def test_rows_twice_are_rows_of_double_weight(tmp_path):
    frame = make_table(120)
    weight = np.random.default_rng(2).integers(1, 4, 120)
    weighted = audit(frame.assign(w=weight), tmp_path / "a", level=0.05, weights="w")
    repeated = audit(frame.loc[frame.index.repeat(weight)], tmp_path / "b", level=0.05)
    for name in ("value", "low", "high"):
        np.testing.assert_allclose(weighted.bounds[name], repeated.bounds[name], atol=1e-12)
    assert weighted.conclusions["verdict"].equals(repeated.conclusions["verdict"])


def test_names_of_groups_are_names(tmp_path):
    frame = make_table(300)
    other = {"blue": "9", "green": "10", "red": "1"}
    renamed = frame.assign(group=frame["group"].map(other), true=frame["true"].map(other))
    first = audit(frame, tmp_path / "a", auxiliary=frame, true_group="true")
    second = audit(renamed, tmp_path / "b", auxiliary=renamed, true_group="true")
    assert second.noise.names == ("1", "9", "10")
    for noise in ("model", "limit"):
        for bound in ("assignment", "ball", "theorem_1", "theorem_3"):
            ours = bounds_of(first, bound, noise).rename(index=other)
            pd.testing.assert_frame_equal(
                ours, bounds_of(second, bound, noise).loc[ours.index], atol=1e-12
            )


def test_noise_that_is_given_in_three_ways_is_the_same(tmp_path):
    frame = make_twelve(1).assign(y=lambda f: (f["label"] == "yes").astype(int))
    level = audit(frame, tmp_path, level=0.25)
    confusion = pd.DataFrame(
        {"true": ["b", "a"], "b": [0.75, 0.25], "a": [0.25, 0.75]}  # in no order
    )
    given = audit(frame, tmp_path, confusion=confusion)
    pd.testing.assert_frame_equal(level.bounds, given.bounds)
    told = audit(frame, tmp_path, level=0.25, prior={"b": 0.5, "a": 0.5})
    pd.testing.assert_frame_equal(bounds_of(told), bounds_of(level))
    pairs = pd.DataFrame({"group": list("aaab" * 5 + "bbba" * 5), "t": ["a"] * 20 + ["b"] * 20})
    counted = audit(frame, tmp_path, auxiliary=pairs, true_group="t")
    pd.testing.assert_frame_equal(bounds_of(counted), bounds_of(level))
    assert counted.rests_on == "limit"
    assert level.rests_on == "model"


def test_the_truth_lies_within_the_bounds(tmp_path):
    frame = make_table(2000, seed=5)
    findings = audit(frame, tmp_path, auxiliary=frame, true_group="true")
    y, decision = frame["y"].to_numpy(), frame["decision"].to_numpy()
    for bound in ("assignment", "ball", "theorem_1", "theorem_3"):
        for (name, group), (low, high) in bounds_of(findings, bound).iterrows():
            truth = find_rate(name, decision, y, (frame["true"] == group).to_numpy())
            assert low - 1e-12 <= truth <= high + 1e-12


def test_conclusions_say_what_the_noisy_groups_would(tmp_path):
    frame = make_table()
    found = audit(frame, tmp_path, level=0.05, criterion=["equal_opportunity"]).conclusions
    assert set(found["measure"]) == {"tpr"}
    decision, y = frame["decision"].to_numpy(), frame["y"].to_numpy()
    for row in found.to_dict("records"):
        own, other = (
            find_rate("tpr", decision, y, (frame["group"] == each).to_numpy() | (each == ""))
            for each in (row["group"], row["other"])
        )
        assert row["seen"] == pytest.approx(own - other)
        margin = 0.0 if row["other"] else 0.05
        expected = "below" if row["seen"] < -margin else "above" if row["seen"] > margin else ""
        assert row["seen_verdict"] == (expected or "within")


def test_scores_names_and_probabilities(tmp_path):
    frame = make_table().assign(named=lambda f: np.where(f["decision"] == 1, "take", "leave"))
    plain = bounds_of(audit(frame, tmp_path, level=0.05))
    scores = {"decisions": None, "scores": "score", "level": 0.05}
    pd.testing.assert_frame_equal(plain, bounds_of(audit(frame, tmp_path, threshold=0.5, **scores)))
    named = audit(frame, tmp_path, decisions="named", accepted="take", level=0.05)
    pd.testing.assert_frame_equal(plain, bounds_of(named))
    drawn = audit(frame, tmp_path, randomised=True, **scores)
    overall = drawn.bounds.query("measure == 'selection_rate' and bound == 'overall'")
    assert overall["value"].item() == pytest.approx(frame["score"].mean())


@pytest.mark.parametrize(
    ("change", "options", "told"),
    [
        ({}, {"group": "grp"}, r"no column 'grp' \(--groups\). Did you mean 'group'"),
        ({}, {"labels": "nothing"}, r"no column 'nothing' \(--labels\)"),
        ({"y": 2}, {}, r"'y' holds 2 in row 0, which is neither 0 nor 1.*--positive"),
        ({"y": None}, {}, "'y' is missing in row 0"),
        ({"decision": 0.5}, {}, r"'decision' holds 0.5 in row 0.*--accepted"),
        ({"decision": np.nan}, {}, "'decision' is missing in row 0"),
        ({"group": None}, {}, "'group' is missing in row 0"),
        ({"group": " "}, {}, "'group' is missing in row 0"),
        ({"group": "violet"}, {"confusion": True}, "does not know the noisy group 'violet'"),
        ({"group": "violet"}, {"auxiliary": True}, "does not know the noisy group 'violet'"),
        ({}, {"positive": "yes"}, "column 'y' never is 'yes'"),
        ({}, {"decisions": "decision", "accepted": "2"}, "'decision' never is '2'"),
        ({"score": np.inf}, {"scores": "score", "threshold": 0.5}, "'score' holds inf in row 0"),
        ({"score": 1.5}, {"scores": "score", "randomised": True}, "holds 1.5.*--threshold"),
        ({"w": -1.0}, {"weights": "w"}, "'w' holds -1 in row 0.*leave --weights out"),
        ({"w": 0.0}, {"weights": "w"}, "all weights in column 'w' are 0"),
        ({}, {"level": 0.6}, "cannot arise.*with --prior"),
        ({}, {"level": 2 / 3}, "same noisy shares.*with --prior"),
        ({}, {"level": 0.05, "prior": {"blau": 1.0}}, "'blau'.*Did you mean 'blue'"),
        ({}, {"level": 0.05, "prior": {"blue": 0.5}}, "sum to 1"),
    ],
)
def test_what_cannot_be_audited_is_said(change, options, told, tmp_path):
    frame = make_table(60).assign(w=1.0)
    for name, value in change.items():
        rest = frame[name].tolist()[1:] if value != 0 else [value] * 59
        frame[name] = [value, *rest]
    if options.get("confusion"):
        names = ["blue", "green", "red"]
        options = {"confusion": pd.DataFrame(np.eye(3), columns=names).assign(true=names)}
        options["confusion"] = options["confusion"][["true", *names]]
    elif options.get("auxiliary"):
        options = {"auxiliary": make_table(60), "true_group": "true"}
    elif "level" not in options:
        options = {**options, "level": 0.05}
    if "scores" in options:
        options = {**options, "decisions": None}
    with pytest.raises((ConfigError, DataError), match=told):
        audit(frame, tmp_path, **options)


def test_what_was_asked_stands_beside_what_was_found(tmp_path):
    asked = {"decisions": None, "scores": "score", "threshold": 0.0, "level": 0.05}
    subject = audit(make_table(), tmp_path, **asked).subject
    told = {"labels": "y", "groups": ["group"], "scores": "score", "threshold": 0.0}
    assert {
        name: value for name, value in subject.items() if name not in ("table", "sha256")
    } == told


def test_more_groups_than_can_be_compared_are_refused(tmp_path):
    frame = make_table(303)
    many = frame.assign(group=[str(row % 101) for row in range(303)])
    with pytest.raises(DataError, match=r"101 noisy groups.*at most 100"):
        audit(many, tmp_path, level=0.001)
    pairs = frame.assign(true=many["group"])[["true", "group"]]
    with pytest.raises(DataError, match="101 true groups"):
        audit(frame, tmp_path, auxiliary=pairs, true_group="true")
    assert audit(many[many["group"] != "100"], tmp_path, level=0.001).noise.names[-1] == "99"


def test_lists_records_and_empty_tables_are_said(tmp_path):
    frame = make_table(4)
    nested = frame.assign(group=[["a"]] * 4)
    with pytest.raises(DataError):
        audit(nested, tmp_path, level=0.1)
    with pytest.raises(DataError):
        audit(frame.assign(y=[{"a": 1}] * 4), tmp_path, level=0.1)
    with pytest.raises(DataError, match="holds no rows"):
        audit(frame[:0], tmp_path, level=0.1)
    with pytest.raises(DataError, match="All rows are of the group 'blue'"):
        audit(frame.assign(group="blue"), tmp_path, level=0.1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "of a table or of a model"),
        ({"table": "t", "model": "m", "decisions": "d"}, "--decisions is not for the audit of a b"),
        ({"table": "t", "model": "m", "level": 0.1}, "audit the table that `fairfrontier score`"),
        (
            {"table": "t", "model": "m", "dataset": "d"},
            "--dataset is not for the audit of a bundle",
        ),
        ({"model": "m", "dataset": "d", "criterion": "tpr"}, "which ones with --attribute"),
        ({"model": "m", "dataset": "d", "attribute": "a", "group": "a"}, "--groups is not for"),
        ({"table": "t", "dataset": "adult"}, "--dataset is not for the audit of a table"),
        ({"model": "m", "labels": "y"}, "--labels is not for the audit of a model"),
        ({"model": "m", "randomised": True}, "--randomised is not for the audit of a model"),
        ({"table": "t", "part": "train"}, "--part is not for the audit of a table"),
        ({"table": "t", "seed": 1}, "--seed is not for the audit of a table"),
        ({"model": "m"}, "a model alone decides on nothing"),
        ({"table": "t", "labels": "y", "group": "g"}, "needs decisions or scores, and groups"),
        ({"table": "t", "decisions": "d"}, "needs decisions or scores, and groups"),
        ({"labels": None}, "noisy groups needs labels and one column of groups"),
        ({"group": "a,b"}, "noisy groups needs labels and one column of groups"),
        ({"limit": {"tpr_ratio": 0.8}}, "--limit is not for noisy groups"),
        ({"groups": "a"}, "no key 'group' here|Extra inputs"),
        ({"scores": "s"}, "both given"),
        ({"decisions": None, "scores": "s"}, "one of --threshold and --randomised"),
        (
            {"decisions": None, "scores": "s", "threshold": 0.5, "randomised": True},
            "both say what was decided",
        ),
        ({"labels": "decision"}, "the column 'decision' is named twice"),
        ({"table": "t", "decisions": "d", "group": "sex=f"}, "'sex=f' has = in its name"),
        ({"threshold": 0.5}, "threshold is given without scores"),
        ({"decisions": None, "scores": "s", "threshold": 1, "accepted": "a"}, "without decisions"),
        ({"level": None, "budget": 0.1}, "--budget is of an audit of noisy groups"),
        ({"level": None, "threshold": 0.1, "scores": "s"}, "both say what was decided"),
        ({"confusion": "c"}, "level and confusion are both given"),
        ({"level": None, "auxiliary": "a"}, "go together"),
        ({"true_group": "t"}, "go together"),
        (
            {"level": None, "auxiliary": "a", "true_group": "t", "prior": {"a": 1.0}},
            "prior is given",
        ),
        ({"level": 1.0}, "less than 1"),
        ({"level": -0.1}, "greater than or equal to 0"),
        ({"level": float("nan")}, "finite number"),
        ({"criterion": ["tpt"]}, "no criterion 'tpt'.*Did you mean 'tpr'"),
        ({"confidence": 1.0}, "less than 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options, told):
    whole = {"table", "model"} & set(options) or not options
    given = options if whole else {"table": "t", **COLUMNS, "level": 0.1, **options}
    with pytest.raises(ValueError, match=told):
        AuditConfig(**{name: value for name, value in given.items() if value is not None})


# Mostly such that can be used, or nothing would be audited.
cells = st.one_of(
    *[st.integers(0, 1)] * 9,
    st.none(),
    st.integers(-1, 2),
    st.floats(width=16),
    st.sampled_from(["a", " ", "é"]),
)


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=6),
    options=st.sampled_from([{"level": 0.1}, {"level": 0.0}, {"auxiliary": True}]),
)
def test_odd_tables_are_audited_or_refused_in_words(rows, options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    text = [["" if cell is None else str(cell) for cell in row] for row in rows]
    path = folder / "table.csv"
    pd.DataFrame(text, columns=["decision", "y", "group"]).to_csv(path, index=False)
    if options.get("auxiliary"):
        options = {"auxiliary": str(path), "true_group": "y"}
    try:
        findings = run_noisy_audit(AuditConfig(table=str(path), **COLUMNS, **options))
    except FairfrontierError:
        return
    found = findings.bounds[["low", "high"]].dropna()
    assert (found["low"] <= found["high"] + 1e-12).all()
    assert ((found >= -1e-12) & (found <= 1 + 1e-12)).all(axis=None)


FILES = ("bounds.csv", "bounds.png", "conclusions.csv", "noise.csv", "report.html", "audit.json")
PNG = b"\x89PNG\r\n"


def run(frame, folder, **options):
    """Audit a frame and return what stands in audit.json; the table lies beside the results."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "rows.parquet")
    given = {**COLUMNS, **(options or {"level": 0.05})}
    findings = run_noisy_audit(AuditConfig(table=str(folder / "rows.parquet"), **given))
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

    monkeypatch.setattr(noisy_groups.NoisyFindings, "context", fail)
    with pytest.raises(StoreError):
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
