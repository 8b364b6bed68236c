from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.frontier import list_fits
from papers.comparison import COLUMNS, compare
from papers.publication import read_publication
from tests.study.synthetic import make_plan, make_points, make_study

HOME = Path(__file__).parents[2]


def test_budro_is_complete_and_in_our_names():
    publication, table = read_publication("budro.table2", HOME)
    assert table == "table2"
    assert {name: len(each.rows) for name, each in publication.tables.items()} == {
        "table1": 4,
        "table2": 7,
        "table3": 7,
    }
    for each in publication.tables.values():
        assert {split_name(name)[0] for name in each.measures} <= set(MEASURES.all())
        for row in each.rows.values():
            assert all(0 <= value <= 1 for value in row.mean)


def test_numbers_spot_checked_against_the_paper():
    tables = read_publication("budro.table1", HOME)[0].tables
    adult = tables["table2"]
    budro = dict(zip(adult.measures, zip(*_numbers(adult.rows["budro"]), strict=True), strict=True))
    assert budro["consistency:gender_race"] == (0.957, 0.007)
    assert budro["gap_rms:race"] == (0.072, 0.017)
    assert adult.rows["sensr"].spread is None
    assert tables["table1"].rows["gbdt"].mean == (0.723, 0.920, 0.310, 0.241)
    # The largest gap is never below the root mean square: the columns are not swapped.
    for table in tables.values():
        for row in table.rows.values():
            value = dict(zip(table.measures, row.mean, strict=True))
            for name in table.measures:
                if name.startswith("gap_max"):
                    assert value[name] >= value[name.replace("max", "rms")]


def _numbers(row):
    return row.mean, row.spread


def test_ours_beside_the_paper():
    study = make_study(published={**_block(), "seeds": 4})
    plan = make_plan(study)
    points = make_points(plan)
    publication, table = read_publication("budro.table2", HOME)
    found = compare(points, list_fits(plan, "published"), publication, table, "paper")
    assert tuple(found.columns) == COLUMNS
    assert len(found) == 7 * 7
    row = found.set_index(["row", "measure"]).loc[("gbdt", "gap_rms:sex")]
    values = points.loc[
        (points["method"] == "gbdt")
        & (points["part"] == "test")
        & (points["measure"] == "gap_rms")
        & (points["group"] == "sex")
        & points["setting"].str.contains("train"),
        "value",
    ]
    assert len(values) == 4
    assert row["ours_mean"] == pytest.approx(values.mean())
    assert row["ours_sd"] == pytest.approx(values.std(ddof=1))
    assert (row["published_mean"], row["published_spread"], row["spread_kind"]) == (
        0.166,
        0.008,
        "sd",
    )
    assert (row["n_splits"], row["profile"], row["table"]) == (4, "paper", "budro.table2")


def test_rows_of_one_side_only_stay():
    study = make_study(published={**_block(), "methods": {"gbdt": {}, "budro-exact": {}}})
    plan = make_plan(study)
    publication, table = read_publication("budro.table2", HOME)
    found = compare(make_points(plan), list_fits(plan, "published"), publication, table, "default")
    by_row = found.set_index("row")
    assert by_row.loc["sensr", "ours_mean"].isna().all()
    assert (by_row.loc["sensr", "n_splits"] == 0).all()
    assert by_row.loc["budro-exact", "published_mean"].isna().all()
    assert np.isfinite(by_row.loc["budro-exact", "ours_mean"]).all()
    # One split has no spread.
    assert by_row.loc["gbdt", "ours_sd"].isna().all()


def test_a_derived_number_is_the_largest_mean_with_its_own_spread():
    study = make_study(published={**_block(), "seeds": 4})
    plan = make_plan(study)
    points = make_points(plan)
    publication, _ = read_publication("budro.table2", HOME)
    table = publication.tables["table2"]
    derived = {
        "error": {"largest_of": ["balanced_accuracy"], "factor": -1.0, "shift": 1.0},
        "violation": {"largest_of": ["gap_rms:race", "gap_rms:sex"], "shift": -0.05},
        "unknown": {"largest_of": ["gap_rms:race", "gap_rms:height"]},
    }
    content = table.model_dump() | {"measures": list(derived), "derived": derived}
    content["rows"] = {"gbdt": {"label": "GBDT", "mean": [0.1, 0.2, 0.3]}}
    made = publication.model_copy(update={"tables": {"one": type(table).model_validate(content)}})
    found = compare(points, list_fits(plan, "published"), made, "one", "paper")
    ours = found.set_index(["row", "measure"])
    plain = compare(points, list_fits(plan, "published"), publication, "table2", "paper")
    own = plain.set_index(["row", "measure"])
    error, violation = ours.loc[("gbdt", "error")], ours.loc[("gbdt", "violation")]
    assert error["ours_mean"] == pytest.approx(
        1 - own.loc[("gbdt", "balanced_accuracy"), "ours_mean"]
    )
    assert error["ours_sd"] == pytest.approx(own.loc[("gbdt", "balanced_accuracy"), "ours_sd"])
    gaps = own.loc["gbdt"].loc[["gap_rms:race", "gap_rms:sex"]]
    largest = gaps["ours_mean"].idxmax()
    assert violation["ours_mean"] == pytest.approx(gaps.loc[largest, "ours_mean"] - 0.05)
    assert violation["ours_sd"] == pytest.approx(gaps.loc[largest, "ours_sd"])
    assert (violation["published_mean"], violation["n_splits"]) == (0.2, 4)
    assert np.isnan(ours.loc[("gbdt", "unknown"), "ours_mean"])


def _table_of(publication, rows):
    table = publication.tables["table2"]
    content = table.model_dump() | {"measures": ["gap_rms:sex"], "rows": rows}
    return publication.model_copy(update={"tables": {"one": type(table).model_validate(content)}})


def test_rows_of_a_table_may_be_settings_of_one_method():
    plan = make_plan(make_study())
    points, fits = make_points(plan), list_fits(plan, "frontier")
    publication, _ = read_publication("budro.table2", HOME)
    rows = {
        "loose": {"label": "Loose", "method": "budro", "at": {"budget": 0.8}, "mean": [0.2]},
        "tight": {"label": "Tight", "method": "budro", "at": {"budget": 0.05}, "mean": [0.1]},
        "gbdt": {"label": "GBDT", "mean": [0.3]},
        "absent": {"label": "Absent", "method": "budro", "at": {"budget": 7}, "mean": [0.4]},
    }
    found = compare(points, fits, _table_of(publication, rows), "one", "paper").set_index("row")
    others = [f"budro, budget = {value}" for value in (0.1, 0.2, 0.4)]
    assert set(found.index) == {*rows, *others, "project", "reweigh", "logistic"}
    assert list(found.index[:4]) == list(rows)
    for row, budget in (("loose", 0.8), ("tight", 0.05), (others[1], 0.2)):
        values = points.loc[
            (points["method"] == "budro")
            & (points["part"] == "test")
            & (points["measure"] == "gap_rms")
            & (points["group"] == "sex")
            & points["setting"].str.contains(f'"budget":{budget}[,}}]')
            & points["setting"].str.contains("8000"),
            "value",
        ]
        assert len(values) == 3
        assert found.loc[row, "ours_mean"] == pytest.approx(values.mean())
    assert np.isnan(found.loc["absent", "ours_mean"])


def test_a_row_that_several_settings_fit_is_refused():
    plan = make_plan(make_study())
    publication, _ = read_publication("budro.table2", HOME)
    made = _table_of(publication, {"budro": {"label": "BuDRO", "mean": [0.2]}})
    with pytest.raises(ConfigError, match="row budro is of one setting, and budro has 5"):
        compare(make_points(plan), list_fits(plan, "frontier"), made, "one", "paper")


def test_two_rows_of_one_setting_are_refused():
    plan = make_plan(make_study())
    publication, _ = read_publication("budro.table2", HOME)
    rows = {
        "gbdt": {"label": "GBDT", "mean": [0.2]},
        "boosting": {"label": "Boosting", "method": "gbdt", "mean": [0.3]},
    }
    made = _table_of(publication, rows)
    with pytest.raises(ConfigError, match="rows gbdt and boosting are of one setting of gbdt"):
        compare(make_points(plan), list_fits(plan, "frontier"), made, "one", "paper")


def _block() -> dict[str, object]:
    return {"reproduces": "budro.table2", "methods": {"gbdt": {}, "budro": {}}}


def test_unknown_tables_and_incomplete_files(tmp_path):
    with pytest.raises(ConfigError, match=r"no publication 'bodro'.*'budro'"):
        read_publication("bodro.table2", HOME)
    with pytest.raises(ConfigError, match="no table 'table9'"):
        read_publication("budro.table9", HOME)
    content = yaml.safe_load((HOME / "data/reference/budro.yaml").read_text())
    content["tables"]["table1"]["rows"]["gbdt"]["mean"].pop()
    folder = tmp_path / "data" / "reference"
    folder.mkdir(parents=True)
    (folder / "short.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"tables\.table1.*gbdt needs 4 numbers"):
        read_publication("short.table1", tmp_path)


def test_the_curve_of_fair_classification_falls():
    publication, table = read_publication("fair-regression.adult", HOME)
    found = publication.tables[table]
    loss, disparity = np.array([row.mean for row in found.rows.values()]).T
    assert found.measures == ("logistic_loss_nats", found.along)
    assert (np.diff(loss) > 0).all()
    assert (np.diff(disparity) < 0).all()
    assert (loss[[0, -1]].tolist(), disparity[[0, -1]].tolist()) == ([0.297, 0.342], [0.27, 0.044])
    assert {row.spread[0] for row in found.rows.values() if row.spread} == {0.0041}
