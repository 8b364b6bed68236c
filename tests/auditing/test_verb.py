"""The verb on frames, and its tables cell for cell against aedt-audit in its own environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fairfrontier as ff
from fairfrontier.auditing.option import AuditConfig, DebiasConfig
from fairfrontier.runtime.errors import FairfrontierError
from tests.auditing.hiring import make_applicants
from tests.project import ROOT

PYTHON = ROOT / ".peers" / "aedt" / "bin" / "python"
# Their column -> ours.
SAME = {
    "n": "n",
    "selected": "selected",
    "above_median": "selected",
    "rate": "rate",
    "share": "share",
    "impact_ratio": "ratio",
    "adverse_impact_eeoc": "four_fifths",
    "z_score": "deviations",
    "p_value": "p_value",
    "significant_2sd": "two_deviations",
    "small_sample": "small_sample",
    "selections_to_four_fifths": "to_four_fifths",
}
FILES = {"sex": "sex", "race_ethnicity": "race", "intersectional": "sex×race"}


def summarise(table: Path, option: str, column: str) -> dict[str, pd.DataFrame]:
    """Return their tables by attribute, with the names of ours."""
    folder = table.parent / option
    command = [PYTHON, "-m", "aedt_audit.cli", "summary", table, f"--{option}", column]
    command += ["--race", "race", "--significance", "--format", "csv", "--out", folder]
    subprocess.run(command, check=True, capture_output=True)
    kind = "selection" if option == "outcome" else "scoring"
    tables = {}
    for name, attribute in FILES.items():
        found = pd.read_csv(folder / f"ll144_{kind}_{name}.csv")
        found["level"] = found[attribute.split("×")].agg("×".join, axis=1)
        tables[attribute] = found.set_index("level")
    return tables


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="`make peers` makes the environment")
@pytest.mark.parametrize("n", [120, 800, 5000])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tables_are_equal_cell_for_cell(n, seed, tmp_path):
    path = tmp_path / "applicants.csv"
    make_applicants(n, seed).to_csv(path, index=False)
    found = ff.audit(
        AuditConfig(table=path, decisions="hired", scores="score", group="sex,race", minimum=1)
    ).impact
    for measure, option, column in (
        ("selection_rate", "outcome", "hired"),
        ("scoring_rate", "score", "score"),
    ):
        for attribute, theirs in summarise(path, option, column).items():
            ours = found[(found["measure"] == measure) & (found["attribute"] == attribute)]
            ours = ours.set_index("level")
            assert set(ours.index) == set(theirs.index)
            ours = ours.loc[theirs.index]
            for name in theirs.columns.intersection(list(SAME)):
                np.testing.assert_allclose(
                    ours[SAME[name]].astype(float),
                    theirs[name].astype(float),
                    rtol=1e-12,
                    atol=1e-12,
                    err_msg=f"{measure} by {attribute}: {name}",
                )
            known = ours["status"] != "unknown"
            assert (ours["status"] == "excluded")[known].tolist() == (
                theirs["excluded"][known].tolist()
            )


def test_frames_and_paths_are_audited_alike(tmp_path):
    frame = make_applicants(400).set_index("score")
    path = tmp_path / "applicants.csv"
    frame.to_csv(path)
    asked = {"decisions": "hired", "groups": ["sex", "race"]}
    expected = ff.audit(path, **asked)
    for given in (frame, pa.table(frame)):
        pd.testing.assert_frame_equal(ff.audit(given, **asked).impact, expected.impact)
    noisy = ff.audit(frame, decisions="hired", labels="success", group="race", level=0.001)
    assert noisy.rests_on == "model"


def test_columns_that_are_not_audited_may_hold_anything():
    frame = make_applicants(100)
    expected = ff.audit(frame, decisions="hired", groups="sex").impact
    other = frame.assign(notes=[1, "x", object(), None] * 25)
    pd.testing.assert_frame_equal(ff.audit(other, decisions="hired", groups="sex").impact, expected)


TWICE = pa.table([[1, 0], ["a", "b"], ["a", "b"]], ["hired", "sex", "sex"])


@pytest.mark.parametrize(
    ("frame", "options", "told"),
    [
        (make_applicants(20), {"decisions": "hird"}, "no column 'hird'.*Did you mean 'hired'"),
        (make_applicants(20), {"decision": "hired"}, "ff.audit: .*Did you mean 'decisions'"),
        (make_applicants(20), {}, "needs decisions or scores, and groups"),
        (7, {"decisions": "hired"}, "A int is no table"),
        (pd.DataFrame({"hired": [1, "x"], "sex": 0}), {"decisions": "hired"}, "no type for"),
        (pd.DataFrame({"hired": [10**30, 1], "sex": 0}), {"decisions": "hired"}, "no type for"),
        (TWICE, {"decisions": "hired"}, "more than one column named 'sex'"),
    ],
)
def test_what_is_no_table_is_said(frame, options, told):
    with pytest.raises(FairfrontierError, match=told):
        ff.audit(frame, groups="sex", **options)


def test_errors_about_the_cells_of_a_frame_name_no_file():
    frame = make_applicants(20).assign(hired=[*["1"] * 19, "perhaps"])
    with pytest.raises(FairfrontierError) as caught:
        ff.audit(frame, decisions="hired", groups="sex")
    assert "parquet" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_debias_takes_frames_of_any_kind_as_a_file(kind, tmp_path):
    draw = np.random.default_rng(0)
    sex, score = draw.choice(["f", "m"], 400), draw.random(400)
    repaid = draw.random(400) < score + 0.1 * (sex == "m")
    frame = pd.DataFrame({"score": score, "sex": sex, "repaid": repaid.astype(int)})
    frame.to_parquet(tmp_path / "loans.parquet")
    options = {"scores": "score", "labels": "repaid", "groups": "sex", "budget": 0.1}
    kinds = {"pandas": frame, "polars": pl.from_pandas(frame), "arrow": pa.table(frame)}
    found = ff.debias(kinds[kind], **options)
    of_file = ff.debias(tmp_path / "loans.parquet", **options)
    pd.testing.assert_frame_equal(found.groups, of_file.groups)
    configured = ff.debias(DebiasConfig(table=tmp_path / "loans.parquet", **options))
    pd.testing.assert_frame_equal(found.groups, configured.groups)
    assert len(found.decisions) == len(frame)
    with pytest.raises(FairfrontierError, match="The frame"):
        ff.debias(kinds[kind], **{**options, "groups": "race"})
