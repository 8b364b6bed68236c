"""What the keys of a dataset's YAML mean, written a second time from the documents alone."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fairfrontier import load
from fairfrontier.prepare.split import Part, Split, Variant
from fairfrontier.runtime.errors import FairfrontierError

# Tables that are drawn: about half of them are refused, which is no mistake.
CASES = 90
MARKS = ["NA", "N/A", "NaN", "nan", "null", "NULL"]
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
CODE = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
NUMERIC, ONE_HOT = ("numeric", "quantile", "cut", "passthrough"), ("categorical", "binary")
Config = dict[str, Any]
COMPARE: Config = {"at_least": np.greater_equal, "at_most": np.less_equal}
COMPARE |= {"above": np.greater, "below": np.less}


@dataclass
class Case:
    """A table and a dataset over it; ``quoted`` says whether a CSV quotes every cell."""

    columns: dict[str, list[Any]]
    config: Config
    options: Sequence[str] = ()
    quoted: bool = False
    typed: bool = False


class Meaning:
    """What a dataset makes of a table: one method for each thing that it promises."""

    def __init__(self, case: Case) -> None:
        self.case, self.config = case, case.config
        self.source: Config = case.config["source"]
        self.features, self.groups = (self.config.get(each, {}) for each in ("features", "groups"))
        self.marks = self.source.get("missing", MARKS)
        self.marked = [float(mark) for mark in self.marks if CODE.fullmatch(str(mark))]
        self.names = functools.cache(self.group_names)
        self.number = functools.cache(self.read_number)
        self.level = functools.cache(self.read_level)
        stated = self.config.get("protected", ())
        below = {group["column"] for group in self.groups.values() if "below" in group}
        numbers = {*self.uses(*NUMERIC), *below}
        kinds = stated if isinstance(stated, dict) else dict.fromkeys(stated, "auto")
        auto = {name for name, kind in kinds.items() if kind == "auto"}
        self.continuous = {k for k, v in kinds.items() if v == "continuous"} | (numbers & auto)
        self.numbers = {*numbers, *self.continuous, "w"}
        groups = {group["column"] for group in self.groups.values() if "column" in group}
        self.levels = {*self.uses(*ONE_HOT), *groups, *kinds} - self.numbers - {*self.groups}
        self.rows = [row for row in range(len(case.columns["y"])) if self.keeps(row)]

    def text(self, cell: str) -> str | None:
        """Return a cell of text as a number or level is read from it, None where it is missing."""
        cell = cell if self.case.typed or self.case.quoted else cell.lstrip(" ")
        if {cell, cell.rstrip(" ")} & {"", *map(str, self.marks)}:
            return None
        return self.point(cell.strip())

    def read_number(self, column: str, row: int) -> float:
        """Return a cell as a number, NaN where it is missing."""
        cell = self.case.columns[column][row]
        assert not isinstance(cell, bool)
        cell = self.text(cell) if isinstance(cell, str) else cell
        assert not isinstance(cell, str) or NUMBER.fullmatch(cell)
        return np.nan if cell is None or float(cell) in self.marked else float(cell)

    def read_level(self, column: str, row: int) -> str | None:
        """Return a cell as a level, None where it is missing."""
        cell = self.case.columns[column][row]
        cell = self.text(cell) if isinstance(cell, str) else cell
        if isinstance(cell, str) and CODE.fullmatch(cell) and float(cell) in self.marked:
            return None
        return None if cell is None else as_level(cell)

    def point(self, cell: str) -> str:
        """Return a number that is written with marks of the source's with a decimal point alone."""
        decimal, mark = self.source.get("decimal", "."), self.source.get("thousands")
        groups = rf"[1-9][0-9]{{0,2}}(?:{re.escape(mark)}[0-9]{{3}})+|" if mark else ""
        found = re.fullmatch(rf"([+-]?(?:{groups}[0-9]+))(?:{re.escape(decimal)}([0-9]+))?", cell)
        if not found:
            return cell
        whole = found[1].replace(mark or " ", "")
        return f"{whole}.{found[2]}" if found[2] else whole

    def passes(self, column: str, condition: Config, row: int) -> bool:
        """Return whether a row passes a condition; a missing cell passes none."""
        if "in" in condition or "not" in condition:
            level = self.level(column, row)
            listed = [as_level(each) for each in as_list(next(iter(condition.values())))]
            return level is not None and (level in listed) == ("in" in condition)
        return all(COMPARE[k](self.number(column, row), v) for k, v in condition.items())

    def keeps(self, row: int) -> bool:
        """Return whether a row is kept: by ``rows``, and without a missing cell that drops it."""
        if "rows" not in self.config:
            return True
        rules = self.config["rows"]
        lacks = [self.level(name, row) is None for name in rules.get("drop_missing", ())]
        drop = {name for name in self.numbers | self.levels if self.policy(name) == "drop"}
        lacks += [np.isnan(self.number(name, row)) for name in drop & self.numbers]
        lacks += [self.level(name, row) is None for name in drop & self.levels]
        keep = rules.get("keep", {}).items()
        return not any(lacks) and all(self.passes(name, each, row) for name, each in keep)

    def uses(self, *kinds: str) -> dict[str, str]:
        """Return the columns of some kinds of features, each with its kind, in their order."""
        found = {}
        for kind in kinds:
            listed = self.features.get(kind, ())
            listed = listed["columns"] if kind == "quantile" and listed else listed
            found |= dict.fromkeys(self.rest() if listed == "rest" else listed, kind)
        return found

    def rest(self) -> list[str]:
        """Return the columns that nothing else uses, in the table's order."""
        used = [self.features, *map(self.config.get, ("label", "groups", "protected", "split"))]
        found = {"w", *re.findall(r"'([a-z])'", repr(used))}
        return [name for name in self.case.columns if name not in found]

    def policy(self, column: str) -> str:
        """Return what a missing cell of a column means."""
        rules = self.config["missing"]
        default = rules["numeric" if column in self.numbers else "categorical"]
        return rules.get("columns", {}).get(column, default)

    def filled(self, column: str, row: int, train: list[int], edit: Config) -> float:
        """Return the number of a feature, with a fitted one for a missing cell."""
        number = float(edit[column]) if column in edit else self.number(column, row)
        if not np.isnan(number):
            return number
        known = [self.number(column, each) for each in train]
        return float({"mean": np.nanmean, "median": np.nanmedian}[self.policy(column)](known))

    def named(self, column: str, row: int, edit: Config) -> str:
        """Return the level of a feature, ``missing`` where that is one."""
        level = as_level(edit[column]) if column in edit else self.level(column, row)
        assert level is not None or self.policy(column) == "category"
        return "missing" if level is None else level

    def encode(self, train: list[int], rows: list[int], edit: Config) -> dict[str, list[float]]:
        """Return the features of rows by name, in their order, with columns set to levels."""
        made: dict[str, list[float]] = {}
        for column, kind in self.uses(*NUMERIC[:3], *ONE_HOT, "passthrough").items():
            if kind in NUMERIC:
                known = np.array([self.filled(column, row, train, {}) for row in train])
                values = np.array([self.filled(column, row, train, edit) for row in rows])
            if kind == "passthrough":
                made[column] = list(values)
            elif kind == "numeric":
                made[column] = list((values - known.mean()) / (known.std() or 1.0))
            elif kind == "cut":
                edges = np.array(self.features["cut"][column])
                place = [sum(value > edges) for value in values]
                made |= one_hot(f"{column}_bin", place, range(len(edges) + 1))
            elif kind == "quantile":
                bins = self.features["quantile"]["bins"]
                edges = np.unique(np.quantile(known, np.arange(1, bins) / bins))
                edges = edges[edges > known.min()]
                place = [sum(value >= edges) for value in values]
                made |= one_hot(f"{column}_q", place, range(len(edges) + 1))
            else:
                levels = in_order({self.named(column, row, {}) for row in train})
                levels = self.features.get("levels", {}).get(column, levels)
                levels = [self.features["binary"][column]] if kind == "binary" else levels
                names = [self.named(column, row, edit) for row in rows]
                made |= one_hot(f"{column}_", names, levels)
        for attribute in self.features.get("groups", ()):
            names = self.names(attribute)
            seen = [names[self.group(attribute, row, edit)] for row in rows]
            made |= one_hot(f"{attribute}_", seen, names)
        return made

    def group_names(self, attribute: str) -> list[str]:
        """Return the groups of an attribute, in the order of their codes."""
        group = self.groups[attribute]
        if "cross" in group:
            parts = [self.names(each) for each in group["cross"]]
            return ["×".join(each) for each in itertools.product(*parts)]
        if "below" in group:
            edges = [f"{edge:g}" for edge in as_list(group["below"])]
            between = [f"{low} to below {high}" for low, high in itertools.pairwise(edges)]
            return group.get("names") or [f"below {edges[0]}", *between, f"from {edges[-1]}"]
        seen = {self.named(group["column"], row, {}) for row in self.rows}
        return list(group.get("levels", in_order(seen)))

    def group(self, attribute: str, row: int, edit: Config) -> int:
        """Return the code of a row's group."""
        group = self.groups[attribute]
        if "cross" in group:
            codes = [self.group(each, row, edit) for each in group["cross"]]
            sizes = [len(self.names(each)) for each in group["cross"]]
            return int(np.ravel_multi_index(codes, sizes))
        if "below" in group:
            number = self.filled(group["column"], row, self.rows, edit)
            return sum(number >= edge for edge in as_list(group["below"]))
        level, names = self.named(group["column"], row, edit), self.names(attribute)
        listed = group.get("levels", dict(zip(names, names, strict=True)))
        found = [name for name, levels in listed.items() if level in as_list(levels)]
        return names.index((found or [name for name in listed if listed[name] == "others"])[0])

    def target(self, row: int) -> float:
        """Return the code of a row's class, or its target."""
        label = self.config["label"]
        column = label["column"]
        if "above" in label:
            return float(self.number(column, row) > label["above"])
        if "positive" in label:
            return float(self.level(column, row) in as_list(label["positive"]))
        if label["task"] == "multiclass":
            return self.code(column, row)
        low, high = label["range"]
        return min(max((self.number(column, row) - low) / (high - low), 0.0), 1.0)

    def code(self, column: str, row: int) -> int:
        """Return the place of a row's level among those of all rows that are kept."""
        levels = in_order({self.named(column, each, {}) for each in self.rows})
        return levels.index(self.named(column, row, {}))

    def protected(self, name: str, row: int) -> float:
        """Return what a fair metric takes a protected attribute for."""
        if name in self.continuous:
            return self.filled(name, row, [], {})
        return self.group(name, row, {}) if name in self.groups else self.code(name, row)

    def versions(self, name: str) -> dict[str, Config]:
        """Return what a counterfactual set sets, version by version."""
        columns = self.config["counterfactuals"][name]
        seen = {c: {self.named(c, row, {}) for row in self.rows} for c in columns if c != "h"}
        choices = [in_order(seen[c]) if k == "all" else k for c, k in columns.items()]
        edits = [dict(zip(columns, each, strict=True)) for each in itertools.product(*choices)]
        return {", ".join(f"{c}={v}" for c, v in edit.items()): edit for edit in edits}


def one_hot(name: str, values: list[Any], each: Iterable[Any]) -> dict[str, list[float]]:
    """Return a column of ones and zeros for each level, or for each bin, counted from 1."""
    bins = {one: one + 1 if isinstance(one, int) else one for one in each}
    return {f"{name}{bins[one]}": [float(one == value) for value in values] for one in bins}


def as_list(value: Any) -> list[Any]:
    """Return one value, or several, as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def as_level(value: Any) -> str:
    """Return what a cell is called as a level: 2, 2.0 and "2.0 " are one, and True and TRUE."""
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.capitalize()
    return re.sub(r"^([+-]?[0-9]+)\.0+$", r"\1", text)


def in_order(levels: set[str]) -> list[str]:
    """Return levels in their order: that of numbers, if all of them are."""
    numbers = all(NUMBER.fullmatch(level) for level in levels)
    return sorted(sorted(levels), key=float if numbers else str)


POOLS = [
    ["a", "b", "e"], ["1", "1.0", "01", "2 ", "10"], ["True", "FALSE", "true"], ["é", "a b"],
    ["x", "X", "none", "-"], ['say "hi"', "a,b", "a;b"], ["1,5", "1,5 ", "2,0", "2"],
    ["1.234", "1.234 ", "1234", "1'234"], ["-9", "-9.0", "09", "9", "1E3"], ["1.50", "1.5", "+1"],
]  # fmt: skip
TYPED: list[list[Any]] = [
    ["a", " a", "b", "NA"], [1, 2, 10], [1.0, 2.0, 2.5], [True, False], ["01", "1", "1.0"],
    [date(2020, 1, 1), date(2021, 5, 5)],
]  # fmt: skip
# $c0 is a level of c, and $cs are all of them, the last one first, and one more.
SECTIONS = {
    "source": """{separator: ','}\n{separator: ;, decimal: ','}\n{separator: ',', thousands: ' '}
{separator: ;, decimal: ',', thousands: .}\n{separator: ;, thousands: "'", missing: ['?', 9, x]}
{separator: ',', thousands: ',', missing: [-9, ' ', '1.50']}""",
    "label": """{column: y, positive: [$y0], names: [lo, hi]}\n{column: t, above: 1000}
{column: y, positive: $y1, names: [lo, hi], favourable: lo}\n{column: y, task: multiclass}
{column: t, task: regression, range: [0, 2000], clip: true}
{column: y, task: regression, positive: $y0}""",
    "groups": """{sex: {column: g}}
{sex: {column: g, levels: {one: [$g0], two: others}}, age: {column: h, below: [20, 45]}}
{age: {column: h, below: 30, names: [lo, hi]}, sex: {column: g}, both: {cross: [age, sex]}}
{age: {column: h, below: 30}, sex: {column: g, levels: {z: $g1, a: others}}}""",
    "features": """{numeric: [m, h], categorical: [c, d]}
{passthrough: [h, m], categorical: [g], binary: {c: $c0}}
{numeric: [n], quantile: {columns: [m], bins: 3}, categorical: [d, g], levels: {d: $ds}}
{cut: {m: [0, 5, 100.5]}, quantile: {columns: [h, n], bins: 4}, binary: {c: $c0, g: $g1}}
{numeric: [n], cut: {h: [30]}, categorical: rest, drop: [w, t]}
{passthrough: [m], numeric: [h], categorical: [c], groups: [sex]}""",
    "missing": """{numeric: drop, categorical: drop}\n{numeric: mean, categorical: category}
{numeric: median, categorical: drop, columns: {m: drop, c: category}}
{numeric: drop, categorical: category, columns: {m: median, n: mean}}""",
    "rows": """{}\n{drop_missing: [j, d]}\n{keep: {j: {not: $j0}}}
{keep: {n: {above: 20, at_most: 2500}, c: {in: [$c0, $c1]}}}
{keep: {m: {at_least: 3, below: 2000}}, drop_missing: [m]}""",
    "split": """{kind: permutation, train: 0.6, test: rest}
{kind: random, train: 0.5, calibration: 0.2, test: 0.3, seeds: [77, 3]}
{kind: random, train: 0.6, test: rest, of: {j: {in: [$j0, $j1]}, n: {at_least: 1}}}
{kind: stratified, train: 0.5, test: 0.5}\n{kind: column, column: s, train: [v, u], test: w}
{kind: per_group, group: sex, train: 0.6, test: 0.4}""",
    "protected": """[]\n[sex]\n[h, c]\n{sex: auto, d: categorical}
{m: continuous, c: categorical}""",
    "counterfactuals": """{}\n{s: {c: [$c0, $c1]}}\n{s: {g: all, h: [10, 40]}}
{s: {c: all, g: all}}""",
}  # fmt: skip


def draw(number: int) -> Case:
    """Draw a table and a dataset over it."""
    rng = np.random.default_rng(number)
    n, typed, share = int(rng.integers(15, 60)), rng.random() < 0.35, rng.choice([0, 0.05])

    def pick(values: Sequence[Any]) -> Any:
        return values[rng.integers(len(values))]

    options = {key: pick(each.splitlines()) for key, each in SECTIONS.items()}
    source = {} if typed else yaml.safe_load(options["source"])
    point, mark = source.get("decimal", "."), source.get("thousands", "")
    marks = [None] if typed else ["", *map(str, source.get("missing", MARKS))]

    def numbers(low: int, high: int) -> list[Any]:
        values = rng.integers(low, high, n) % pick([high, high, 4 if low < 0 else high])
        if typed:
            return (values / pick([1, 2])).tolist() if rng.random() < 0.5 else values.tolist()
        whole = [f"{value:,}".replace(",", mark) for value in values]
        return [pick([w, f"{w}{point}5", f" {w} ", f"{w}{point}00"]) for w in whole]

    columns = {name: numbers(-20, 3000) for name in "mnt"}
    columns |= {"h": numbers(0, 90), "w": numbers(1, 9), "s": [pick("uvvw") for _ in range(n)]}
    for name in "cdgjy":
        pool = pick(TYPED if typed else POOLS)
        columns[name] = [pick(pool) for _ in range(n)]
    for name in "mncdgj":
        columns[name] = [pick(marks) if rng.random() < share else each for each in columns[name]]
    known = {}
    for name in "cdgjy":
        meaning = Meaning(Case({"y": columns[name]}, {"source": source}, typed=typed))
        seen = sorted({meaning.level("y", row) or "a" for row in range(0, n, 3)})
        shown = {"0": seen[0], "1": seen[-1], "s": [*seen, "other"][::-1]}
        known |= {f"{name}{key}": repr(value) for key, value in shown.items()}
    text = "{" + ", ".join(f"{key}: {each}" for key, each in options.items()) + "}"
    config = yaml.safe_load(Template(text).substitute(known))
    config |= {"dataset": "d", "source": source, "weight": "w"}
    return Case(columns, config, [*options.values()][typed:], rng.random() < 0.3, typed)


def write(case: Case, folder: Path) -> Path:
    """Write a table and its dataset; return the latter's path."""
    origin = {"path": str(folder / "t"), "format": "parquet" if case.typed else "csv"}
    source = case.config["source"] | origin
    frame = pd.DataFrame(case.columns, dtype=object)
    if case.typed:
        frame.infer_objects().to_parquet(source["path"])
    else:
        frame.to_csv(folder / "t", sep=source["separator"], quoting=int(case.quoted), index=False)
    path = folder / "d.yaml"
    path.write_text(yaml.safe_dump(case.config | {"source": source}, sort_keys=False), "utf-8")
    return path


def compare(case: Case, split: Split) -> None:
    """Compare a split with what the documents say of it."""
    meaning = Meaning(case)
    parts = {name: [int(row) for row in np.asarray(part.ids)] for name, part in split.parts()}
    check_parts(meaning, parts)
    attributes = {each: tuple(meaning.names(each)) for each in meaning.groups}

    def same(found: Part | Variant, rows: list[int], edit: Config) -> None:
        made = meaning.encode(parts["train"], rows, edit)
        assert split.feature_names == tuple(made)
        expected = np.array(list(made.values())).T
        np.testing.assert_allclose(np.asarray(found.X), expected, atol=1e-9)
        groups = [[meaning.group(each, row, edit) for each in attributes] for row in rows]
        assert np.asarray(found.groups).tolist() == groups

    for (_, part), rows in zip(split.parts(), parts.values(), strict=True):
        same(part, rows, {})
        assert dict(part.attributes) == attributes
        np.testing.assert_allclose(np.asarray(part.y), [meaning.target(row) for row in rows])
        assert np.asarray(part.weight).tolist() == [meaning.number("w", row) for row in rows]
        stated = case.config["protected"]
        protected = [[meaning.protected(each, row) for each in stated] for row in rows]
        assert np.asarray(part.protected).tolist() == protected
        for key, versions in part.counterfactuals.items():
            for variant, (name, edit) in zip(versions, meaning.versions(key).items(), strict=True):
                assert variant.name == name
                same(variant, rows, edit)
    if names := case.config["label"].get("names"):
        assert split.train.classes == tuple(names)
        assert split.favourable == int("favourable" not in case.config["label"])


def check_parts(meaning: Meaning, parts: dict[str, list[int]]) -> None:
    """Compare the rows of parts with what the documents say of them."""
    rule, rows = meaning.config["split"], meaning.rows
    of = rule.get("of", {}).items()
    drawn = [row for row in rows if all(meaning.passes(name, each, row) for name, each in of)]
    assert sorted(itertools.chain(*parts.values())) == sorted(drawn)
    if rule["kind"] == "column":
        for name, part in parts.items():
            assert {meaning.level("s", row) for row in part} <= set(as_list(rule[name]))
        return
    makers = {"permutation": np.random.RandomState, "random": np.random.default_rng}
    if make := makers.get(rule["kind"]):
        first = make(rule.get("seeds", [0])[0]).permutation(len(drawn))[: len(parts["train"])]
        assert set(parts["train"]) == {drawn[place] for place in first}
    within: Callable[[int], float] = {
        "stratified": meaning.target,
        "per_group": lambda row: meaning.group("sex", row, {}),
    }.get(rule["kind"], lambda _: 0.0)
    for value in {within(row) for row in drawn}:
        size = sum(within(row) == value for row in drawn)
        for name, part in parts.items():
            found = sum(within(row) == value for row in part)
            assert rule[name] == "rest" or abs(found - rule[name] * size) <= 1 + 1e-9


def check(number: int, folder: Path) -> Sequence[str]:
    """Draw a case, prepare it and compare; return what was chosen, nothing if it is refused."""
    case, backend = draw(number), "dask" if number % 8 == 0 else "numpy"
    try:
        split = load(write(case, folder), home=folder, backend=backend)
    except FairfrontierError:
        return ()
    compare(case, split)
    return case.options


def test_keys_mean_what_the_documents_say(tmp_path: Path) -> None:
    compared = {option for number in range(CASES) for option in check(number, tmp_path)}
    assert compared == {option for each in SECTIONS.values() for option in each.splitlines()}
