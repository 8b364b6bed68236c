"""Do the files of a bundle fit each other: anybody may have written them, digests included."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, Field, model_validator

from fairfrontier.choose.judgement import list_components
from fairfrontier.choose.reference import OTHER
from fairfrontier.prepare.config.text import WORDS
from fairfrontier.prepare.embedding.saved import TOKENIZER
from fairfrontier.prepare.table.column import LARGEST, used_columns
from fairfrontier.runtime.config import Model
from fairfrontier.runtime.errors import ConfigError, repeated
from fairfrontier.runtime.foreign.claim import require
from fairfrontier.runtime.text_file import read_json
from fairfrontier.study.config import MOST_BUDGETS
from fairfrontier.train.base import SHAPE, Classifier, Estimator, Regressor
from fairfrontier.train.baseline.linear import Linear
from fairfrontier.train.postprocess.base import PostProcessor
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.postprocess.rule import RampRule

if TYPE_CHECKING:
    from fairfrontier.choose.bundle import Bundle

MOST = 2**53
# Pairs that an audit certifies.
MOST_PAIRS = 10**10
# Sums of probabilities, to rounding.
SLACK = 1e-9
# Of each of our rules the probabilities, those of rows that add up to 1, and its other numbers,
# of which only NaN is none: comparisons with it decide 0.
RULES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "group_thresholds": ((), ("rule_.share",), ("rule_.threshold",)),
        "hardt": (("ignored_", "constant_"), ("share_",), ("threshold_",)),
        "reject_option": (("theta_",), (), ()),
        "shift_inference": (("prior_", "priors_"), (), ()),
    }
)
RAMPS = ("rule_.centre", "rule_.level", "rule_.slope")
# What is read is used as it stands: a number that is written as text is none.
Rows = Annotated[int, Field(ge=0, le=MOST, strict=True)]
Sum = Annotated[float, Field(ge=0, le=MOST, strict=True)]
Number = Annotated[float, Field(strict=True)]


class Counts(Model):
    """See `fairfrontier.choose.reference.count_decisions`."""

    rows: Rows
    selected: Sum
    labelled: Rows
    positive: Rows
    true_positive: Sum
    false_positive: Sum

    @model_validator(mode="after")
    def _check(self) -> Self:
        parts = (
            (self.positive, self.labelled),
            (self.labelled, self.rows),
            (self.selected, self.rows),
            (self.true_positive, self.positive),
            (self.false_positive, self.labelled - self.positive),
        )
        require(all(part <= whole * (1 + SLACK) + SLACK for part, whole in parts), "counts")
        return self


class NumberHistogram(Model):
    """See `fairfrontier.choose.reference.describe_column`."""

    edges: tuple[Number, ...]
    counts: tuple[Rows, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(len(self.counts) == len(self.edges) + 2, "counts")
        with np.errstate(over="ignore"):
            width = np.diff(self.edges)
        require(bool((width > 0).all() and (width <= LARGEST).all()), "bins")
        return self


class LevelHistogram(Model):
    """The same of levels."""

    levels: tuple[str, ...]
    counts: tuple[Rows, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(len(self.counts) == len(self.levels) + 2, "counts")
        require(not repeated(self.levels), "bins")
        return self


class OfClass(Model):
    """What a reference says of one class."""

    counts: Counts
    groups: dict[str, dict[str, Counts]]
    score: NumberHistogram


class Shared(Model):
    """What it says of all."""

    rows: Rows
    refused: dict[str, Rows]
    features: dict[str, NumberHistogram | LevelHistogram]


class OfTwo(Shared, OfClass):
    """The reference of two classes."""


class OfNumbers(OfTwo):
    """The reference of a regression."""

    cut: Number


class OfSeveral(Shared):
    """The reference of several classes."""

    classes: dict[str, OfClass]


class Certificate(BaseModel):
    """What bundle.json says of the study's certificates."""

    budgets: Annotated[tuple[Number, ...], Field(max_length=MOST_BUDGETS)]
    rows: Annotated[int, Field(gt=1, le=MOST, strict=True)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        # All pairs of rows are compared for each budget.
        require((self.rows or 0) ** 2 * len(self.budgets) <= MOST_PAIRS, "rows of certificates")
        return self


class Facts(BaseModel):
    """What bundle.json says that is read again."""

    study: str
    row_id: str | None
    minimum: int = Field(ge=1, le=MOST, strict=True)
    seed: Rows = 0
    accepted: str | None = None
    certificate: Certificate | None = None


def check_claims(manifest: Any, n_features: int) -> None:
    """Raise ValueError where a model's manifest claims sizes that loading it would make room for.

    ``n_features`` is how many the encoder makes; one, the score, for a rule.
    """
    require(manifest["facts"].get(SHAPE) == n_features, "features")


def list_facts(bundle: Bundle) -> dict[str, Any]:
    """Return what bundle.json says of the encoder and the model, for readers of it alone."""
    return {
        "classes": list(bundle.encoder.classes),
        "label": bundle.encoder.config.label.column,
        "randomized": bundle.randomized,
        "features": list(bundle.encoder.features),
        "groups": list(bundle.encoder.grouped),
        # The attributes that the rule looks at, beside the features.
        "needed_groups": list(bundle.needed_groups),
    }


def check_content(bundle: Bundle) -> None:
    """Raise ValueError, or what a library raises, unless all parts of a bundle fit each other."""
    encoder = bundle.encoder
    features, named = encoder.encoder.feature_names, encoder.classes
    facts = Facts.model_validate(bundle.manifest)
    for model in list_components(bundle.model):
        if isinstance(model, PostProcessed):
            require(len(named) == 2, "rule")
            check_rule(model.processor)
            columns = [*model.processor.cross(np.arange(len(encoder.attributes))[None, :])[0]]
            require(not repeated(columns), "attributes")
        inner = model.model if isinstance(model, PostProcessed) else model
        check_model(inner, features, len(named))
    # It raises for attributes that there are not.
    for name, value in list_facts(bundle).items():
        require(bundle.manifest[name] == value, name)
    described: Shared
    if len(named) > 2:
        described = OfSeveral.model_validate(bundle.reference)
        classes = described.classes
        require({*classes} == {*named} and facts.accepted in {None, *classes}, "classes")
    else:
        described = (OfTwo if named else OfNumbers).model_validate(bundle.reference)
        classes = {"": described}
    for each in classes.values():
        require({*each.groups} == {*encoder.names}, "groups")
        for attribute in encoder.attributes:
            levels = {*each.groups[attribute.name]}
            require(bool(levels) and levels <= {*attribute.names, OTHER}, "levels of groups")
    numbers = {*used_columns(encoder.config)[0], WORDS}
    require({*described.features} == {*encoder.described}, "features")
    for name, histogram in described.features.items():
        require(isinstance(histogram, NumberHistogram) == (name in numbers), "histograms")
    if (metric := bundle.metric) is not None:
        size = len(features)
        require(metric.sigma.shape == (size, size), "metric")
        for vectors in (metric.basis, metric.directions.T):
            fits = vectors.ndim == 2 and vectors.shape[0] == size >= vectors.shape[1]
            require(fits, "metric")


def check_model(model: Any, features: Sequence[str], classes: int) -> None:
    """Raise ValueError unless a model may be one of these features and so many classes."""
    _check_parameters(model)
    named = [*getattr(model, "feature_names_in_", features)]
    require(model.n_features_in_ == len(features) and named == [*features], "features")
    if hasattr(model, "probability_"):
        _check_chances(model.probability_)
        require(bool(np.isclose(np.sum(model.probability_), 1.0)), "probabilities")
    if isinstance(model, Classifier):
        codes = [*model.classes_]
        numbered = model.classes_.dtype.kind in "iu" and codes == sorted({*codes})
        fitted = numbered and all(0 <= code < classes for code in codes)
        require(fitted and (classes > 2 or len(codes) == classes), "classes")
        require(not math.isnan(model.cut_), "cut")
        if isinstance(model, Linear):
            numbers = (model.coefficient_, model.intercept_)
            finite = all(each.dtype.kind == "f" and np.isfinite(each).all() for each in numbers)
            require(finite, "coefficients")
        if (guesser := getattr(model, "guesser_", None)) is not None:
            # Trees have a margin for every group, or one for two.
            size = len(model.cells_)
            margins = size if size > 2 else 1
            require(guesser.group.coefficient.shape == (size, margins + 2), "groups")
    else:
        require(isinstance(model, Regressor) and not classes, "kind of model")


def check_rule(rule: Any) -> None:
    """Raise ValueError unless a rule decides in every group as one that was fitted may."""
    require(isinstance(rule, PostProcessor) and np.array_equal(rule.classes_, [0, 1]), "rule")
    _check_parameters(rule)
    require(not math.isnan(rule.cut_), "cut")
    chances, shares, numbers = RULES.get(rule.name, ((), (), ()))
    if isinstance(getattr(rule, "rule_", None), RampRule):
        numbers = RAMPS
    for name in (*chances, *shares):
        _check_chances(attrgetter(name)(rule))
    for name in shares:
        require(np.allclose(attrgetter(name)(rule).sum(axis=1), 1.0), "probabilities")
    for name in numbers:
        require(not np.isnan(attrgetter(name)(rule)).any(), "thresholds")
    if rule.name == "randomized_threshold":
        _check_calibration(rule)
    # An index without a row raises.
    code = np.arange(len(rule.cells_) + rule.takes_unseen)
    require(bool(np.isfinite(rule.probability(np.zeros(code.size), code)).all()), "rule")


def _check_calibration(rule: Any) -> None:
    """Raise ValueError unless a rule calibrates as its parameter says, by an increasing map."""
    found = rule.calibration_
    require(getattr(found, "kind", None) == rule.calibrate, "calibration")
    if found is not None:
        both = np.array([found.knots, found.values], dtype=np.float64)
        require(bool(np.isfinite(both).all()), "calibration")
        if rule.calibrate == "isotonic":
            require(bool((np.diff(both) >= 0).all()), "calibration")
            _check_chances(found.values)
        else:
            require(both.shape == (2, 1), "calibration")


def _check_chances(values: Any) -> None:
    """Raise ValueError unless all are probabilities."""
    numbers = np.asarray(values, dtype=np.float64)
    require(bool(((numbers >= -SLACK) & (numbers <= 1.0 + SLACK)).all()), "probabilities")


def _check_parameters(part: Estimator) -> None:
    """Raise ValueError for a parameter with which nothing is fitted, or no seed of draws."""
    require(type(getattr(part, "random_state", 0)) is int, "random_state")
    try:
        part.check()
    except ConfigError as error:
        raise ValueError(error.fault) from error


def check_json(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError for JSON that `read_json` refuses, before anything is made of it.

    Tokenizers are read in a process of their own.
    """
    for name in names:
        if name.endswith(".json") and not name.endswith(TOKENIZER):
            read_json(folder / name)
