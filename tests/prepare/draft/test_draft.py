"""What is guessed about a table's columns, and what is said of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import yaml

from fairfrontier.prepare.draft.column import Column
from fairfrontier.prepare.draft.config import DraftOptions
from fairfrontier.prepare.draft.draft import draft_dataset, read_raw, write_dataset
from fairfrontier.prepare.draft.guess import draft_attribute
from fairfrontier.prepare.loader import load
from fairfrontier.runtime.errors import ConfigError, DataError

N = 600


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    income = rng.gamma(4, 10, N)
    hired = np.where(income + rng.normal(0, 20, N) > 40, "yes", "no")
    return pd.DataFrame(
        {
            "applicantId": np.arange(N) + 7,
            "Sex": rng.choice(["f", "m"], N),
            "age": rng.integers(18, 80, N),
            "income": income,
            "applied": pd.date_range("2020-01-01", periods=N),
            "letter": [f"dear {row}" for row in range(N)],
            "country": "FR",
            "wage": np.where(hired == "yes", rng.integers(1, 9, N), 0),
            "zip": rng.choice(["01099", "80331"], N),
            "hired": hired,
        }
    )


def draft(table, **options):
    return draft_dataset(read_raw(table), DraftOptions(**options))


def test_every_column_finds_its_place(table):
    found = draft(table)
    assert (found.label.column, found.label.keys) == ("hired", {"positive": "yes"})
    assert [attribute.column for attribute in found.attributes] == ["Sex", "age"]
    assert found.numeric == ["age", "income"]
    assert found.categorical == ["Sex", "zip"]
    assert found.left_out == {
        "applicantId": "an identifier",
        "applied": "a date",
        "letter": "text with 600 different values",
        "country": "the same value in every row",
        "wage": "it tells the label nearly alone (1.000)",
    }
    assert [w for w in found.warnings if w.startswith("wage tells the label nearly alone (1.000)")]
    assert "country is left out: the same value in every row" in found.warnings
    assert "letter is left out: text with 600 different values" in found.warnings
    # What is left out rightly is not worth a word.
    assert not [w for w in found.warnings if "applied" in w or "applicantId" in w]


def test_the_yaml_holds_the_reasons(table):
    text = write_dataset(draft(table), "t.parquet")
    assert "# - applied: a date\n" in text
    content = yaml.safe_load(text)
    assert content["groups"]["age"] == {"column": "age", "below": [25, 40, 60]}
    assert content["counterfactuals"] == {"Sex": {"Sex": ["f", "m"]}}
    assert list(content["split"]) == ["kind", "train", "calibration", "validation", "test"]


@pytest.mark.parametrize(
    ("name", "levels", "keys"),
    [
        ("label", ["approved", "denied"], {"positive": "approved"}),
        ("default", ["0", "1"], {"positive": "1", "favourable": "0"}),
        ("target", ["bad", "good"], {"positive": "good"}),
        ("loan_status", ["paid", "charged off"], {"positive": "paid"}),
        ("two_year_recid", ["no", "yes"], {"positive": "yes", "favourable": "no"}),
        ("outcome", ["blue", "green"], {"positive": "green"}),
        ("class", ["a", "b", "c"], {"task": "multiclass"}),
        ("y", [str(level) for level in range(30)], {"task": "regression"}),
    ],
)
def test_labels(table, name, levels, keys):
    values = np.random.default_rng(0).choice(levels, N)
    found = draft(table.drop(columns=["hired", "wage"]).assign(**{name: values}))
    assert found.label.column == name
    assert keys.items() <= found.label.keys.items()


def test_a_label_is_asked_for_where_it_is_not_clear(table):
    both = table.assign(promoted=table["hired"].to_numpy()[::-1])
    with pytest.raises(
        ConfigError, match=r"More than one.*--label; candidates are hired, promoted"
    ):
        draft(both[["Sex", "income", "hired", "promoted", "zip"]])
    assert draft(both, label="promoted").label.column == "promoted"
    with pytest.raises(ConfigError, match="No column looks like a label"):
        draft(table[["Sex", "income"]])


def make_pupils():
    rng = np.random.default_rng(2)
    grade = rng.integers(0, 20, N)
    return pd.DataFrame(
        {
            "sex": rng.choice(["F", "M"], N),
            "paid": rng.choice(["no", "yes"], N),
            "absences": rng.integers(0, 30, N),
            "grade1": np.clip(grade + rng.integers(-3, 4, N), 0, 20),
            "final_grade": grade,
        }
    )


def test_a_vague_name_alone_makes_no_label():
    pupils = make_pupils()
    with pytest.raises(ConfigError, match=r"--label") as raised:
        draft(pupils)
    for name in ("paid", "final_grade (cut by --above 9)", "grade1"):
        assert name in str(raised.value)
    assert "absences" not in str(raised.value)
    # A number at the end may be meant whatever its name.
    with pytest.raises(ConfigError, match=r"paid.*G3"):
        draft(pupils.rename(columns={"final_grade": "G3", "grade1": "G1"}))
    assert draft(pupils, label="final_grade", above=9).label.column == "final_grade"


def test_what_else_could_be_the_label_is_said(table):
    other = table.drop(columns="wage").assign(passed=table["hired"].to_numpy()[::-1])
    found = draft(other[["passed", *table.columns.drop("wage")]])
    assert found.label.column == "hired"
    assert any("hired is taken for the label" in w and "passed" in w for w in found.warnings)
    assert not any("taken for the label" in w for w in draft(table).warnings)


def test_columns_that_give_the_label_away_together_are_said(table):
    rng = np.random.default_rng(3)
    known = table.drop(columns=["wage"])
    yes = (known["hired"] == "yes").to_numpy()
    # Each is right in three of four rows.
    later = {f"later{k}": np.where(rng.random(N) < 0.75, yes, ~yes) * 9.5 + rng.normal(size=N)
             for k in range(12)}  # fmt: skip
    found = draft(known.assign(**later)[[*later, *known]])
    assert not any("nearly alone" in w for w in found.warnings)
    (said,) = (w for w in found.warnings if "nearly surely together (0.9" in w)
    assert "later" in said
    assert "income" not in said
    assert set(later) <= set(found.numeric)
    assert draft(known.assign(**later)[[*later, *known]]).warnings == found.warnings
    assert not any("together" in w for w in draft(known).warnings)


def test_protected_columns_that_are_not_compared_are_said(table):
    odd = table.assign(
        ethnicity="A", religion=[f"r{row}" for row in range(N)], age_group=table["age"] // 20
    )
    warnings = draft(odd[["ethnicity", "religion", "age_group", *table.columns]]).warnings
    said = {w.split()[0]: w for w in warnings if "looks protected" in w}
    assert said == {
        "ethnicity": "ethnicity looks protected (ethnicity), and is not compared: "
        "the same value in every row",
        "religion": "religion looks protected (religion), and is not compared: "
        "text with 600 different values",
        "age_group": "age_group looks protected (age), and is not compared: age stands for it",
    }
    assert not any("looks protected" in w for w in draft(table).warnings)


def test_a_label_by_its_levels_or_by_a_number(table):
    found = draft(table, label="income", above=40)
    assert found.label.keys == {"above": 40.0}
    assert draft(table, positive="no").label.keys["positive"] == "no"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "hird"}, "no column 'hird'. Did you mean 'hired'"),
        ({"label": "country"}, "is the same value in every row"),
        ({"label": "letter"}, "has 600 different texts"),
        ({"positive": "maybe"}, "'hired' never is 'maybe'"),
        ({"label": "Sex", "above": 3}, "'Sex' holds text"),
        ({"label": "income", "above": 3e6}, "is at most 3e\\+06 in every row"),
        ({"protected": "gender"}, "no column 'gender'"),
        ({"protected": "country"}, "makes no groups: it is the same value"),
        ({"protected": "hired"}, "'hired' is the label"),
        ({"protected": "letter"}, "no two groups of 20 rows"),
    ],
)
def test_options_that_do_not_suit_the_table(table, options, message):
    with pytest.raises((ConfigError, DataError), match=message):
        draft(table, **options)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "has no column"),
        (["hired"], "has one column"),
        (["income", "hired"], "looks protected"),
    ],
)
def test_tables_of_which_no_study_can_be_made(table, columns, message):
    with pytest.raises(DataError, match=message):
        draft(table[columns])
    with pytest.raises(DataError, match="has 49 rows with a label"):
        draft(table.head(49))


def test_what_is_to_be_known_is_said(table):
    changed = table.assign(hired=table["hired"].where(table.index > 30))
    changed = pd.concat([changed, changed.tail(9)])
    changed.loc[changed.index[100:120], "Sex"] = "x"
    warnings = "\n".join(draft(changed).warnings)
    assert "31 rows without a label are left out" in warnings
    assert "9 of 578 rows repeat others" in warnings
    assert "Sex: fewer than 10 rows in the smallest part, 15% of all, of x (about 3 of 20)" in (
        warnings
    )


def test_groups_that_a_part_has_few_rows_of_are_said(table):
    # The smallest parts have 15% of the rows: 334 rows leave 50.1 there, 333 less than 50.
    sex = np.repeat(["m", "f", "x"], [334, 333, 40])
    large = pd.concat([table, table]).head(len(sex)).reset_index(drop=True).assign(Sex=sex)
    warnings = draft(large, protected=["Sex"]).warnings
    said, small = (w for w in warnings if "smallest part" in w)
    assert small.startswith("Sex: fewer than 10 rows in the smallest part")
    assert said.startswith(
        "Sex: fewer than 50 rows in the smallest part, 15% of all, of f (about 49 of 333)"
    )
    assert "m (" not in said
    assert "x (" not in said


def test_a_tiny_table_has_folds_for_calibration_and_rates_of_fewer_rows(table, tmp_path):
    race = np.repeat(["w", "b", "h"], [68, 27, 23])
    tiny = table.head(len(race)).assign(race=race)[["race", "income", "zip", "hired"]]
    found = draft(tiny)
    assert found.minimum == 5
    assert "calibration" not in found.split
    path = tmp_path / "conf/datasets/table.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(write_dataset(found, "t.parquet"))
    tiny.to_parquet(path.parent / "t.parquet")
    split = load(path, home=tmp_path)
    for part in (split.validation, split.test):
        assert np.bincount(part.group("race")).min() >= found.minimum
    # Three times as many rows leave each part ten.
    assert draft(pd.concat([tiny] * 3)).minimum == 10


def test_free_text_is_left_out_with_the_lines_that_use_it(table, tmp_path):
    letters = [f"Dear all, I am number {row} and would like to work" for row in range(N)]
    found = draft(table.assign(letter=letters))
    assert found.text == "letter"
    assert draft(table).text is None
    text = write_dataset(found, "t.parquet")
    assert "letter is free text: to learn from it, take the # off:" in text
    used = text.replace("#  text:", "  text:").replace("#text:", "text:").replace("auto", "tfidf")
    (tmp_path / "conf/datasets").mkdir(parents=True)
    path = tmp_path / "conf/datasets" / f"{found.name}.yaml"
    path.write_text(used)
    table.assign(letter=letters).to_parquet(tmp_path / "conf/datasets/t.parquet")
    assert any(name.startswith("letter_") for name in load(path, home=tmp_path).feature_names)


@pytest.mark.parametrize(
    ("sizes", "groups", "keep"),
    [
        ({"f": 300, "m": 200}, {"f": 300, "m": 200}, []),
        ({"a": 300, "b": 200, "c": 30, "d": 10}, {"a": 300, "b": 200, "other": 40}, []),
        ({"a": 300, "b": 200, "c": 100, "d": 5}, {"a": 300, "b": 200, "other": 105}, []),
        ({"f": 300, "m": 200, "x": 3}, {"f": 300, "m": 200}, ["f", "m"]),
        ({"f": 300, "m": 200, None: 60}, {"f": 300, "m": 200, "missing": 60}, []),
        ({"f": 300, "m": 200, None: 60, "x": 3}, {"f": 300, "m": 200, "other": 63}, []),
        ({"f": 300, "m": 25}, {"f": 300, "m": 25}, []),
        ({"a": 300, "b": 200, "c": 30}, {"a": 300, "b": 200, "c": 30}, []),
        (
            {f"k{number}": 200 - number for number in range(12)},
            {**{f"k{number}": 200 - number for number in range(7)}, "other": 955},
            [],
        ),
    ],
)
def test_rare_levels_are_pooled(sizes, groups, keep):
    cells = pd.Series([level for level, rows in sizes.items() for _ in range(rows)], dtype="str")
    found = draft_attribute("g", Column("g", cells))
    assert (found.sizes, found.keep) == (groups, keep)
    assert bool(found.comment) == ("other" in groups or bool(keep))


def test_ages_come_in_bands_that_have_rows():
    ages = pd.Series(np.r_[np.full(60, 19.0), np.arange(20, 50).repeat(20), np.full(60, 59.0)])
    assert draft_attribute("age", Column("age", ages)).group["below"] == [25.0, 40.0]
    days = draft_attribute("age", Column("age", ages * 365)).group["below"]
    assert len(days) == 2
    assert min(days) > 60


def test_bands_are_of_what_varies():
    years = pd.Series(np.arange(2_000_001.0, 2_000_031.0).repeat(20))
    found = draft_attribute("g", Column("code", years))
    assert found.group["below"] == [2_000_010.7, 2_000_020.3]
    assert set(found.sizes.values()) == {200}


def test_the_plainest_name_stands_for_its_kind(table):
    other = table.assign(account_age=table["age"] % 47, age_group=table["age"] // 20)
    assert [each.column for each in draft(other).attributes] == ["Sex", "age"]
    before = other[["account_age", "age_group", *table.columns]]
    assert [each.column for each in draft(before).attributes] == ["Sex", "age"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.arange(100), "an identifier"),
        (np.arange(100) * 3, None),
        ([np.nan] * 100, "empty"),
        ([1.0] * 100, "the same value in every row"),
        ([1.0, 2.0, *[np.nan] * 98], "missing in 98% of the rows"),
        (["2020-01-31 10:00"] * 50 + ["2020-02-01 11:00"] * 50, "a date"),
        (["31.1.2020"] * 50 + ["1.2.2020"] * 50, "a date"),
        ([f"t{row}" for row in range(100)], "text with 100 different values"),
        ([1.0, np.inf] * 50, "infinite in 50 rows"),
        ([[1]] * 100, "lists or records"),
        ([1e17, 2e17] * 50, "floats of 2^53 or more"),
        ([10**17 + 1, 10**17 + 2] * 50, None),
        # Of several files, one of which has floats.
        (pd.Series([1.5, 10**17 + 1] * 50, dtype=object), None),
        (pd.Series([1e17, 10**17 + 1] * 50, dtype=object), "floats of 2^53 or more"),
        (["a", "b"] * 50, None),
    ],
)
def test_columns_of_no_use(values, reason):
    assert Column("c", pd.Series(values)).fault == reason
