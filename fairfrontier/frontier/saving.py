"""The chosen model of a frontier as a bundle: what its fit remembers, and the files made of it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.deployment.bundle import (
    FORMAT,
    Bundle,
    describe_reference,
    list_facts,
    make_bundle,
)
from fairfrontier.deployment.estimator import TRIED, UNSEEN, FrameEstimator, Layout, Origin
from fairfrontier.models.group import Codes
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.splitting.encoder import Attribute, Block, Encoder, Raw
from fairfrontier.prepare.table.column import as_levels
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import DataError, FairfrontierError

NAME, SCORE = "frontier", "score"
# Scores that are restored are those before up to rounding, of sums in another order too.
ROUNDING = 1e-6


class ShippedApartWarning(UserWarning):
    """A bundle that holds the rule, and not the model behind it."""


def save(
    model: Any,
    folder: str | Path,
    X: Any,
    y: np.ndarray,
    groups: pd.DataFrame,
    trusted: Collection[str] = (),
) -> Path:
    """Write the bundle of a FrontierModel; rows X with codes y and groups are its reference."""
    origin, candidate = model.origin, model.candidate
    scores = candidate.score(X)
    rows = {
        origin.columns[str(name)]: column.reset_index(drop=True) for name, column in groups.items()
    }
    rows[origin.label] = pd.Series(model.classes_[y])
    try:
        if isinstance(origin.layout, FairfrontierError):
            raise origin.layout
        layout = origin.layout.reduce(X, candidate.score)
        table = layout.tabulate(X).assign(**rows)
        kept = FrameEstimator(
            candidate.estimator,
            # Blocks have those that are needed.
            replace(layout, columns=tuple(replace(each, levels=()) for each in layout.columns)),
            list(candidate.estimator.classes_).index(candidate.positive),
            candidate.cut,
            tuple(trusted),
        ).restored()
        bundle = _make_bundle(model, kept, _list_blocks(kept, layout, table[:TRIED]))
        decided = bundle.decide(table)[SCORE].to_numpy(dtype=np.float64, na_value=np.nan)
        if not np.allclose(decided, scores, rtol=ROUNDING, atol=ROUNDING):
            raise DataError(
                "It scores rows otherwise when it is read again.", "Give columns of plain types."
            )
    except FairfrontierError as error:
        warnings.warn(
            f"{candidate.method} is yours to ship, and the bundle {folder} decides from a column "
            f"{SCORE!r}, which model.predict_proba(X)[:, 1] gives: {error}",
            ShippedApartWarning,
            stacklevel=3,
        )
        table = pd.DataFrame({SCORE: scores, **rows})
        bundle = _make_bundle(model, FrameEstimator(cut_=candidate.cut), [Block(SCORE, (SCORE,))])
    minimum = int(origin.facts["minimum"])
    bundle.reference = describe_reference(bundle, table, bundle.encode(table), minimum)
    return bundle.write(folder)


def _list_blocks(kept: FrameEstimator, layout: Layout, table: pd.DataFrame) -> list[Raw]:
    """Return how cells are passed on; what the estimator fails at is refused, as tried on rows."""
    blocks = [Raw(each.name, (each.name,), numeric=each.numeric) for each in layout.columns]
    plain = table.assign(
        **{each.name: as_levels(table[each.name]) for each in layout.columns if not each.numeric}
    )
    X = Encoder(tuple(blocks)).encode(plain)
    made = []
    for k, (block, column) in enumerate(zip(blocks, layout.columns, strict=True)):
        accepted = column.lacking or kept.answers(X, k, None)
        # Of a column of other values than text a new level's value is not known.
        text = all(isinstance(value, str) for value in column.values.values())
        new = column.numeric or (text and kept.answers(X, k, UNSEEN))
        made.append(replace(block, accepted=accepted, levels=() if new else column.levels))
    return made


def _make_bundle(model: Any, kept: FrameEstimator, blocks: Sequence[Block]) -> Bundle:
    """Return the bundle of an estimator with the rule behind it, without a reference."""
    origin, candidate = model.origin, model.candidate
    names = tuple(map(str, model.classes_))
    levels = tuple(as_levels(pd.Series(model.classes_, name=origin.label)))
    attributes = []
    for name, values in origin.values.items():
        texts = as_levels(pd.Series(values, name=name))
        codes = {text: code for code, text in enumerate(texts)}
        attributes.append(Attribute(name, tuple(codes), origin.columns[name], codes))
    numeric = [each.column for each in blocks if getattr(each, "numeric", True)]
    config = parse(
        DatasetConfig,
        {
            "dataset": NAME,
            "source": {"path": f"{NAME}.csv", "missing": []},
            "label": {"column": origin.label, "positive": [levels[1]], "names": names},
            "features": {
                "passthrough": numeric,
                "categorical": [each.column for each in blocks if each.column not in numeric],
            },
            "groups": {name: {"column": column} for name, column in origin.columns.items()},
            "split": {"kind": "random", "train": "rest"},
            "limits": {"features": max(len(blocks), 10_000)},
        },
        "The bundle",
    )
    encoder = RowEncoder(config, Encoder(tuple(blocks)), tuple(attributes), names, levels, "refuse")
    decider = kept if candidate.rule is None else _number(candidate.rule, origin).behind(kept)
    bundle = make_bundle(decider, encoder, {"row_id": None})
    bundle.manifest = {
        "format": FORMAT,
        "study": NAME,
        "dataset": NAME,
        "models": [
            {"method": model.method, "setting": {"rule": model.setting}, "probability": 1.0}
        ],
        **origin.facts,
        **list_facts(bundle),
        "accepted": names[1],
        "row_id": None,
        "missing_columns": "error",
        "missing_groups": "refuse" if bundle.needed_groups else "ignore",
        "unseen_levels": "refuse where the estimator does",
        "estimator": kept.layout is not None,
        "measures": model.measures_.astype(object)
        .where(model.measures_.notna(), None)
        .to_dict("records"),
    }
    return bundle


def _number(rule: PostProcessor, origin: Origin) -> PostProcessor:
    """Return a rule of named levels as one of a bundle's codes."""
    known = rule.sensitive_features_in_
    names = known.names or tuple(origin.values)
    taken = rule.cross(Codes.of(np.arange(len(names))[None], names))[0].tolist()
    cells = rule.cells_.copy()
    for place, column in enumerate(taken):
        levels, values = known.levels[column], origin.values[names[column]]
        own = [values.index(code if levels is None else levels[code]) for code in cells[:, place]]
        cells[:, place] = own
    made = copy(rule)
    del made.sensitive_features_in_
    made.attributes = [list(origin.values).index(names[column]) for column in taken]
    made.cells_ = cells
    return made
