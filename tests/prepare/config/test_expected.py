"""What datasets expect of their tables; and made tables for those whose own is not committed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from fairfrontier.prepare.config.dataset import DatasetConfig, mention_columns, read_dataset
from fairfrontier.prepare.config.section import OTHERS
from fairfrontier.prepare.loader import load
from fairfrontier.prepare.table.rows import list_numbers
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.conftest import HOME
from tests.prepare.fetched import FETCHED, OWN

ROWS = 120


def read(name: str) -> DatasetConfig:
    return read_dataset(HOME / "conf" / "datasets" / f"{name}.yaml", HOME)


# Texts have tests of their own.
ELSEWHERE = [name for name in sorted(FETCHED | OWN) if read(name).text is None]


def list_levels(config: DatasetConfig, column: str) -> list[str]:
    """Return the levels of a column that a definition names, without those that it leaves out."""
    label, split, keep = config.label, config.split, config.rows.keep.get(column)
    if keep and keep.is_in:
        return [*keep.is_in]
    groups = [each.levels for each in config.groups.values() if each.column == column]
    named = [level for each in groups if each for levels in each.values() for level in levels]
    named += [level for each in config.counterfactuals.values() for level in each.get(column) or ()]
    if column == label.column and label.above is None:
        named += [*(label.positive or [label.favourable or "1"]), "other"]
    if column == split.column:
        named += [level for levels in split.parts.values() for level in levels]
    if column in config.features.binary and not named:
        named += [config.features.binary[column], "other"]
    left_out = (keep and keep.is_not) or ()
    # Of the others one stands for all.
    named = [level if level != OTHERS else "other" for level in named]
    return [level for level in dict.fromkeys(named) if level not in left_out]


def list_values(config: DatasetConfig, column: str) -> list[float]:
    """Return numbers on both sides of every edge of a column that the definition keeps."""
    keep = config.rows.keep.get(column)
    edges = [
        edge for each in config.groups.values() if each.column == column for edge in each.edges
    ]
    edges += [config.label.above or 0] if column == config.label.column else []
    edges += config.features.cut.get(column, ())
    if keep:
        bounds = (keep.at_least, keep.above, keep.at_most, keep.below)
        edges += [bound for bound in bounds if bound is not None]
    values = {edge + step for edge in edges or [1] for step in (-1, 0, 1)}
    if keep:
        values = {
            value
            for value in values
            if (keep.at_least is None or value >= keep.at_least)
            and (keep.above is None or value > keep.above)
            and (keep.at_most is None or value <= keep.at_most)
            and (keep.below is None or value < keep.below)
        }
    return sorted(values)


def make_table(config: DatasetConfig, seed: int) -> pd.DataFrame:
    """Return a table of a definition's columns, with every level and number equally often."""
    draw = np.random.default_rng(seed)

    def spread(values: list[Any]) -> np.ndarray:
        return draw.permutation(np.resize(np.array(values, dtype=object), ROWS))

    dummies, numbers = config.source.dummies, list_numbers(config)
    mentioned = {name for names in mention_columns(config).values() for name in names}
    columns = {}
    for name in config.source.columns or sorted(mentioned.difference(dummies, ["part"])):
        values = list_values(config, name) if name in numbers else [*"abc"]
        columns[name] = spread(list_levels(config, name) or values)
    for each in dummies.values():
        level = spread([*each])
        columns |= {dummy: (level == dummy).astype(int) for dummy in each}
    return pd.DataFrame(columns)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_made_table_of_the_same_schema_is_prepared(name, tmp_path):
    config = read(name)
    source = config.source.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    source["path"] = []
    for i, file in enumerate(config.source.path):
        header = config.source.columns is None
        make_table(config, i).to_csv(tmp_path / f"{i}.csv", index=False, header=header)
        source["path"].append({"path": f"{i}.csv", **({"part": file.part} if file.part else {})})
    made = {"dataset": "made", "extends": name, "source": source}
    path = tmp_path / "made.yaml"
    path.write_text(yaml.safe_dump(made, sort_keys=False), encoding="utf-8")
    split = load(path, home=HOME)
    assert {*config.split.parts} <= {part for part, _ in split.parts()}
    for _, part in split.parts():
        assert np.isfinite(part.X).all()
        assert part.n_samples > 0
    for attribute, levels in split.train.attributes.items():
        assert np.unique(split.train.group(attribute)).size == len(levels) > 1
    assert set(split.protected_kinds) == set(config.protected)


def test_another_table_than_the_expected_one_is_refused(project, people, tmp_path):
    kept = people.dropna(subset=["age"])
    share = float((kept["verdict"] == "granted").mean())
    expected = {"rows": len(kept), "positive": round(share, 3)}
    path = project(expected=expected)
    assert load(path, home=tmp_path).train.n_samples > 0
    for wrong in ({"rows": len(kept) - 1}, {"positive": round(share + 0.01, 3)}):
        with pytest.raises(DataError, match="expected"):
            load(project(expected=wrong), home=tmp_path)
    # What extends it has another table, or other rows.
    project(expected={"rows": 1})
    other = tmp_path / "other.yaml"
    other.write_text("dataset: other\nextends: housing\n", encoding="utf-8")
    assert load(other, home=tmp_path).train.n_samples > 0
    with pytest.raises(ConfigError, match="positive"):
        load(
            project(expected=expected, label={"column": "verdict", "task": "multiclass"}),
            home=tmp_path,
        )
