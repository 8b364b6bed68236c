"""Amounts, open ends, dates of birth and spellings: as they are drafted, and as they are read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairfrontier import init, load
from fairfrontier.prepare.config.section import Source
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.table.column import clean_cells
from fairfrontier.prepare.table.rows import join_dummies
from fairfrontier.runtime.config import parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.project import call_here

N = 200


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], N),
            "income": np.round(rng.uniform(1000, 90_000, N), 2),
            "rate": np.round(rng.uniform(1, 30, N), 1),
            "balance": rng.integers(-50_000, 50_000, N),
            "age": rng.integers(20, 80, N),
            "approved": rng.choice(["no", "yes"], N),
        }
    )


def as_written(table):
    return table.assign(
        income=[f"${income:,.2f}" for income in table["income"]],
        rate=[f"{rate}%" for rate in table["rate"]],
        balance=[f"({-each:,})" if each < 0 else f"{each:,}" for each in table["balance"]],
    )


@pytest.mark.parametrize("kind", ["csv", "frame"])
def test_amounts_are_numbers_to_whatever_reads_the_dataset(table, tmp_path, kind):
    written = as_written(table)
    if kind == "csv":
        written.to_csv(tmp_path / "loans.csv", index=False)
        draft = init(tmp_path / "loans.csv", out=tmp_path)
    else:
        draft = init(written, out=tmp_path, name="loans")
    source = read_yaml(draft.dataset)["source"]
    assert source["units"] == {"income": "$", "rate": "%", "balance": "()"}
    assert any("income ($), rate (%), balance" in warning for warning in draft.warnings)
    table.to_csv(tmp_path / "plain.csv", index=False)
    plain = init(tmp_path / "plain.csv", out=tmp_path)
    ours, theirs = (load(each.dataset, home=tmp_path) for each in (draft, plain))
    assert ours.feature_names == theirs.feature_names
    np.testing.assert_array_equal(ours.train.X, theirs.train.X)


@pytest.mark.parametrize("kind", ["csv", "frame"])
def test_rows_to_come_are_read_as_the_table_was(table, tmp_path, kind):
    dates = [pd.Timestamp(2020 - age, 3, 15) for age in table["age"]]
    written = as_written(table).drop(columns="age")
    if kind == "csv":
        days = [day.strftime("%d.%m.%Y") for day in dates]
        written.assign(dob=days, sex=table["sex"].str.upper()).to_csv(
            tmp_path / "loans.csv", index=False
        )
        draft = init(tmp_path / "loans.csv", label="approved", out=tmp_path)
        later = pd.read_csv(tmp_path / "loans.csv", dtype=str)
    else:
        later = written.assign(dob=dates)
        draft = init(later, label="approved", out=tmp_path, name="loans")
    fitted = fit_table(make_request(draft.dataset, home=tmp_path))
    split = fitted.encode()
    RowEncoder.of(fitted).save(tmp_path)
    rows = RowEncoder.load(tmp_path).encode(later, ["sex", "age"])
    ids = split.test.ids
    assert rows.refusals.accepted.all()
    np.testing.assert_array_equal(rows.X[ids], split.test.X)
    np.testing.assert_array_equal(rows.groups[ids], split.test.groups)


@pytest.mark.parametrize(
    ("unit", "cells", "numbers"),
    [
        ("$", ["$5", "-$5", "$-5", "($1,234.50)", "$(5)", "$ 5", "0"],
         [5, -5, -5, -1234.5, -5, 5, 0]),
        ("EUR", ["5 EUR", "EUR 5", "5EUR"], [5, 5, 5]),
        ("%", ["12%", "12 %", "-1.5%"], [12, 12, -1.5]),
        ("()", ["(1,234)", "1,234", "-7", "(7.5)"], [-1234, 1234, -7, -7.5]),
        ("+", ["90+", "90 and over", ">89", ">=90", "<18", "under 18", "45"],
         [90, 90, 90, 90, 17, 17, 45]),
    ],
)  # fmt: skip
def test_units(unit, cells, numbers):
    source = Source(path="t.csv", thousands=",", units={"a": unit})
    read = clean_cells(pd.Series(cells, dtype="str", name="a"), source)
    assert list(map(float, read)) == numbers


@pytest.mark.parametrize(
    ("unit", "cell"), [("$", "€5"), ("$", "5"), ("%", "0.12"), ("$", "5$3"), ("()", "(-5)")]
)
def test_what_may_be_another_amount_is_no_number(unit, cell):
    source = Source(path="t.csv", units={"a": unit})
    read = clean_cells(pd.Series([cell], dtype="str", name="a"), source)
    assert pd.to_numeric(read, errors="coerce").isna().all()
    # Other columns are left alone.
    assert list(clean_cells(pd.Series([cell], dtype="str", name="b"), source)) == [cell]


def test_columns_of_several_units_stay_text_and_are_named(table, tmp_path):
    both = table.assign(
        rate=np.where(table.index % 2, table["rate"].astype("str") + "%", table["rate"] / 100),
        income=np.where(table.index == 7, "n.d.", table["income"].astype("str")),
    )
    both.to_csv(tmp_path / "loans.csv", index=False)
    draft = init(tmp_path / "loans.csv", out=tmp_path)
    assert "units" not in read_yaml(draft.dataset)["source"]
    (rate,) = (warning for warning in draft.warnings if warning.startswith("rate is left out"))
    (income,) = (warning for warning in draft.warnings if warning.startswith("income is left out"))
    assert "numbers but for n.d." in income
    assert "numbers but" not in rate


def test_ages_with_an_open_end_are_compared_in_bands(table, tmp_path):
    ages = table["age"].astype("str").mask(table["age"] > 75, "75+")
    table.assign(age=ages).to_csv(tmp_path / "loans.csv", index=False)
    draft = init(tmp_path / "loans.csv", out=tmp_path)
    content = read_yaml(draft.dataset)
    assert content["source"]["units"] == {"age": "+"}
    assert content["groups"]["age"]["column"] == "age"
    assert "age" in content["features"]["numeric"]


def born(table, written):
    return [f"{2020 - age}-03-15" if not written else pd.Timestamp(2020 - age, 3, 15).strftime(
        written) for age in table["age"]]  # fmt: skip


@pytest.mark.parametrize("written", [None, "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y"])
def test_dates_of_birth_are_ages_on_the_last_day_of_the_table(table, tmp_path, written):
    dated = table.drop(columns="age").assign(
        date_of_birth=born(table, written), applied=["2020-03-14", "2019-12-31"] * (N // 2)
    )
    dated.to_csv(tmp_path / "loans.csv", index=False)
    draft = init(tmp_path / "loans.csv", label="approved", out=tmp_path)
    content = read_yaml(draft.dataset)
    assert content["source"]["ages"]["date_of_birth"]["at"] == "2020-03-14"
    assert content["source"]["ages"]["date_of_birth"].get("format") == written
    assert any("2020-03-14" in warning for warning in draft.warnings)
    # Nobody has had this year's birthday.
    younger = table["age"] - 1
    sizes = [((younger >= low) & (younger < high)).sum() for low, high in ((0, 40), (40, 999))]
    group = content["groups"]["age"]
    assert group["column"] == "date_of_birth"
    split = load(draft.dataset, home=tmp_path)
    edges = group["below"] if isinstance(group["below"], list) else [group["below"]]
    counts = np.histogram(younger, [0, *edges, 200])[0]
    found = sum(np.bincount(part.groups[:, list(content["groups"]).index("age")],
                            minlength=len(counts)) for _, part in split.parts())  # fmt: skip
    assert found.tolist() == counts.tolist()
    assert sum(sizes) == N


def test_ages_are_counted_on_the_one_day_of_an_extract(table, tmp_path):
    dated = table.drop(columns="age").assign(dob=born(table, None), extracted="2021-06-30")
    dated.to_csv(tmp_path / "loans.csv", index=False)
    draft = init(tmp_path / "loans.csv", label="approved", out=tmp_path)
    assert read_yaml(draft.dataset)["source"]["ages"]["dob"]["at"] == "2021-06-30"


def test_days_that_may_be_months_are_said(table, tmp_path):
    days = [f"0{1 + age % 9}/0{1 + age % 7}/{2000 - age}" for age in table["age"]]
    table.drop(columns="age").assign(dob=days).to_csv(tmp_path / "loans.csv", index=False)
    draft = init(tmp_path / "loans.csv", label="approved", out=tmp_path)
    assert any("days and months exchanged" in warning for warning in draft.warnings)


def test_a_date_of_birth_of_no_known_century_is_said(table, tmp_path):
    days = [f"15/03/{(2020 - age) % 100:02}" for age in table["age"]]
    table.drop(columns="age").assign(dob=days).to_csv(tmp_path / "loans.csv", index=False)
    draft = init(tmp_path / "loans.csv", label="approved", out=tmp_path)
    assert "dob looks protected (age), and is not compared: a date" in draft.warnings


def test_a_day_after_the_ages_are_counted_is_refused(table, tmp_path):
    table.drop(columns="age").assign(dob=born(table, None)).to_csv(
        tmp_path / "loans.csv", index=False
    )
    draft = init(tmp_path / "loans.csv", label="approved", out=tmp_path)
    text = draft.dataset.read_text()
    assert "at: '2018-03-15'" in text
    draft.dataset.write_text(text.replace("at: '2018-03-15'", "at: '1999-03-15'"))
    with pytest.raises(DataError):
        load(draft.dataset, home=tmp_path)


def test_levels_that_differ_by_case_are_read_as_one_and_said(table, tmp_path):
    sex = table["sex"].replace({"f": "Female", "m": "Male"})
    mixed = sex.mask(table.index % 5 == 0, sex.str.upper()).mask(table.index % 7 == 0, " male ")
    table.assign(sex=mixed).to_csv(tmp_path / "loans.csv", index=False)
    draft = init(tmp_path / "loans.csv", out=tmp_path)
    (said,) = (warning for warning in draft.warnings if "by case or blanks" in warning)
    assert "Male = MALE = male" in said or "Male = male = MALE" in said
    content = read_yaml(draft.dataset)
    assert set(content["source"]["spellings"]["sex"]) == {"Female", "Male"}
    split = load(draft.dataset, home=tmp_path)
    assert split.train.attributes["sex"] == ("Female", "Male")
    source = parse(Source, content["source"], "t")
    later = pd.Series(["FEMALE", "fe male", "x"], dtype="str", name="sex")
    assert list(clean_cells(later, source)) == ["Female", "fe male", "x"]


def test_dummies_of_one_attribute_are_one_attribute(table, tmp_path):
    rng = np.random.default_rng(1)
    race = rng.choice(["asian", "black", "white"], N)
    dummies = {f"race_{each}": (race == each).astype(int) for each in ("black", "white", "asian")}
    written = table.assign(**dummies)[[*dummies, *table]]
    written.to_csv(tmp_path / "loans.csv", index=False)
    draft = init(tmp_path / "loans.csv", out=tmp_path)
    content = read_yaml(draft.dataset)
    made = {f"race_{each}": each for each in ("black", "white", "asian")}
    assert content["source"]["dummies"] == {"race": made}
    assert content["groups"]["race"] == {"column": "race"}
    assert not {*made} & {*content["features"]["numeric"], *content["features"]["categorical"]}
    assert any("race_black, race_white, race_asian are read as one" in w for w in draft.warnings)
    fitted = fit_table(make_request(draft.dataset, home=tmp_path))
    split = fitted.encode()
    names = split.train.attributes["race"]
    place = list(content["groups"]).index("race")
    for _, part in split.parts():
        assert [names[code] for code in part.groups[:, place]] == race[part.ids].tolist()
    RowEncoder.of(fitted).save(tmp_path)
    encoder = RowEncoder.load(tmp_path)
    assert {*made} <= {*encoder.features}
    rows = encoder.encode(pd.read_csv(tmp_path / "loans.csv", dtype=str), ["race"])
    np.testing.assert_array_equal(rows.X[split.test.ids], split.test.X)
    np.testing.assert_array_equal(rows.groups[split.test.ids], split.test.groups)
    stored = load(draft.dataset, home=tmp_path, backend="dask")
    assert stored.feature_names == split.feature_names


def test_dummies_of_none_and_several(tmp_path):
    frame = pd.DataFrame(
        {"a": ["1", "0", "0", "1", None, "2"], "b": ["0", "True", "false", "1", "0", "0"]},
        dtype="str",
    )
    source = Source(path="t.csv", dummies={"g": {"a": "A", "b": "B"}})
    made = join_dummies(frame, source, "t")["g"]
    assert made.tolist()[:4] == ["A", "B", "none", "several"]
    assert made.isna().tolist() == [False] * 4 + [True] * 2
    with pytest.raises(ConfigError, match="no column 'a'"):
        join_dummies(frame[["b"]], source, "t")


# Spelling -> rows, and approved ones.
SPELT = {
    "Male": (360, 218),
    "male": (82, 47),
    "MALE": (45, 22),
    "Female": (287, 144),
    "female": (74, 40),
    "FEMALE": (52, 26),
}


def test_rates_are_those_of_the_levels_that_are_meant(tmp_path):
    sex = np.repeat([*SPELT], [rows for rows, _ in SPELT.values()])
    approved = np.concatenate([np.arange(rows) < ones for rows, ones in SPELT.values()]).astype(int)
    income = np.random.default_rng(0).normal(size=len(sex)).round(3)
    table = pd.DataFrame({"income": income, "sex": sex, "approved": approved})
    table.to_csv(tmp_path / "c.csv", index=False)
    split = load(init(tmp_path / "c.csv", out=tmp_path).dataset, home=tmp_path)
    parts = [part for _, part in split.parts()]
    groups = np.concatenate([part.groups[:, 0] for part in parts])
    y = np.concatenate([part.y for part in parts])
    female, male = (y[groups == code].mean() for code in range(2))
    assert (round(female, 3), round(male, 3), round(female / male, 3)) == (0.508, 0.589, 0.863)


@pytest.mark.parametrize("command", ["audit", "debias"])
def test_groups_that_differ_by_case_are_said_in_one_line(tmp_path, command):
    sex = np.repeat([*SPELT, "x"], 40)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sex": sex, "score": rng.random(sex.size).round(3)})
    table.assign(approved=rng.integers(0, 2, sex.size)).to_csv(tmp_path / "t.csv", index=False)
    used = "--decisions approved" if command == "audit" else "--scores score --labels approved"
    done = call_here(tmp_path, command, "t.csv", *used.split(), "--groups", "sex")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if "by case or blanks" in line)
    assert "FEMALE = Female = female; MALE = Male = male" in line


def test_ages_are_counted_on_no_day_to_come(table, tmp_path):
    days = {"applied": "2021-06-30", "valid_until": ["9999-12-31", "2150-01-01"] * (N // 2)}
    dated = table.drop(columns="age").assign(dob=born(table, None), **days)
    dated.to_csv(tmp_path / "loans.csv", index=False)
    draft = init(tmp_path / "loans.csv", label="approved", out=tmp_path)
    assert read_yaml(draft.dataset)["source"]["ages"]["dob"]["at"] == "2021-06-30"
