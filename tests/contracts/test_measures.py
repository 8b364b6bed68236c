"""What every registered measure keeps to, on made-up predictions with every field filled."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import get_args

import numpy as np
import pytest

from fairfrontier.metrics.certificate.certificate import (
    Certificate,
    GapCertificate,
    Loss,
    centre_logits,
    certify_rows,
    tabulate_loss,
    trace_gap,
)
from fairfrontier.metrics.measure.registry import CERTIFIED, MEASURES, Audit, MeasureRow, Need
from fairfrontier.metrics.verb import list_groups
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.split import Part, Split

TASKS = ("binary", "multiclass", "regression")
# A bound over the box is made from a net, not from predictions: see test_box.py.
CASES = [
    (name, task)
    for name, each in MEASURES.all().items()
    if "box" not in each.needs
    for task in sorted(each.task)
]

every_measure = pytest.mark.parametrize("name", MEASURES.all())
every_case = pytest.mark.parametrize(("name", "task"), CASES)


def predict(part: Part, seed: int = 0) -> Prediction:
    """Draw scores that follow the label, and decisions that follow the scores."""
    generator = np.random.default_rng(seed)
    n_samples, classes = part.n_samples, len(part.classes)
    if classes == 0:
        score = np.clip(part.y + generator.normal(0, 0.2, n_samples), 0, 1)
        decision = score
    elif classes == 2:
        score = generator.beta(2 + 2 * part.y, 3 - part.y)
        decision = (score >= 0.5).astype(np.float64)
    else:
        score = generator.dirichlet(np.ones(classes), n_samples)
        score = 0.8 * score + 0.2 * np.eye(classes)[part.y]
        decision = score.argmax(axis=1).astype(np.float64)
    changed = {
        name: tuple(
            (variant, np.where(generator.random(n_samples) < 0.1, decision[::-1], decision))
            for variant in variants.names
        )
        for name, variants in part.counterfactuals.items()
    }
    scores = {
        name: tuple(
            score + share * (score[::-1] - score)
            for share in generator.random((len(variants.names), *np.ones(score.ndim, dtype=int)))
        )
        for name, variants in part.counterfactuals.items()
    }
    return Prediction(
        score, decision, MappingProxyType(changed), counterfactual_scores=MappingProxyType(scores)
    )


def add_memberships(part: Part) -> Part:
    """Let rows belong to three families, one of which has rows of the last class only."""
    last = part.y == part.y.max()
    member = np.column_stack([part.groups == 0, last]).astype(np.int64)
    names = (*(f"is-{name}" for name in part.attributes), "is-last")
    return replace(part, groups=member, attributes=dict.fromkeys(names, ("no", "yes")))


def compute(name: str, part: Part, prediction: Prediction) -> list[MeasureRow]:
    certificates: tuple[Certificate, ...] = ()
    if "certificate" in MEASURES.all()[name].needs:
        logits, z = centre_logits(prediction.score), part.X[:, :2]
        certificates = (certify_rows(logits, z, 0.3, weight=part.weight, tolerance=1e-13),)
    gaps: tuple[GapCertificate, ...] = ()
    if "gap" in MEASURES.all()[name].needs:
        losses = [(loss, tabulate_loss(prediction, part, loss)) for loss in get_args(Loss)]
        gaps = tuple(
            trace_gap(
                each, part.y, part.X[:, :2], [0.3, 0.0], loss=loss,
                weight=part.weight, tolerance=1e-13, replicates=100,
            )
            for loss, each in losses
        )  # fmt: skip
    # One row is enough for a level: more of the same rows then make no further level estimable.
    audit = Audit(prediction, part, minimum=1, certificates=certificates, gaps=gaps)
    return [MeasureRow(*row) for row in MEASURES.all()[name].compute(audit)]


def take(prediction: Prediction, rows: np.ndarray) -> Prediction:
    return Prediction(
        prediction.score[rows],
        prediction.decision[rows],
        MappingProxyType(
            {
                key: tuple((name, decision[rows]) for name, decision in variants)
                for key, variants in prediction.counterfactuals.items()
            }
        ),
        counterfactual_scores=MappingProxyType(
            {
                key: tuple(score[rows] for score in scores)
                for key, scores in prediction.counterfactual_scores.items()
            }
        ),
    )


def values(rows: list[MeasureRow]) -> dict[str, float]:
    return {row.group: row.value for row in rows}


@pytest.fixture
def case(request: pytest.FixtureRequest, tiny: dict[str, Split]) -> tuple[str, Part, Prediction]:
    """Return the measure's name, the rows it is computed on, and predictions for them."""
    name = request.getfixturevalue("name")
    part = tiny[request.getfixturevalue("task")].train
    # What counts groups that lack something needs some that do.
    needs = MEASURES.all()[name].needs
    if "membership" in needs or ("group" in needs and not {"score", "decision"} & needs):
        part = add_memberships(part)
    part = replace(part, true_groups=np.roll(part.groups, 1, axis=0))
    return name, part, predict(part)


def test_there_are_measures():
    assert {"accuracy", "balanced_accuracy", "gap_rms", "consistency"} <= set(MEASURES.all())


@every_measure
def test_says_what_it_is(name):
    measure = MEASURES.all()[name]
    assert measure.name == name
    assert measure.what
    assert not measure.what.endswith(".")
    assert measure.task
    assert measure.task <= set(TASKS)
    assert measure.needs
    assert measure.needs <= set(get_args(Need))
    assert measure.direction in ("higher", "lower", "zero", "none")


@every_case
def test_groups_are_named_as_everywhere(name, task, case):
    name, part, prediction = case
    rows = compute(name, part, prediction)
    groups = [row.group for row in rows]
    assert len(set(groups)) == len(groups) > 0
    crossed = {"×".join(pair) for pair in [("sex", "region"), ("region", "sex")]}
    inside = {" inside ".join(pair) for pair in [("sex", "region"), ("region", "sex")]}
    known = {"", "budget", *part.attributes, *part.counterfactuals, *crossed, *inside}
    for group in groups:
        attribute, is_level, level = group.partition("=")
        assert attribute in known
        if is_level and attribute in part.attributes:
            assert level in part.attributes[attribute]


@every_case
def test_its_groups_are_known_before_it_is_computed(name, task, case):
    name, part, prediction = case
    named = {*CERTIFIED, "counterfactuals", "counterfactual_score", "membership"}
    if not MEASURES.all()[name].needs & named:
        shapes = [
            {(group.partition("=")[0], "=" in group) for group in groups}
            for groups in (
                list_groups(MEASURES.all()[name], task, list(part.attributes)),
                [row.group for row in compute(name, part, prediction)],
            )
        ]
        # A signed gap has two levels, and regions are three.
        signed = MEASURES.all()[name].direction == "zero"
        assert shapes[1] < shapes[0] if signed else shapes[1] == shapes[0]


@every_case
def test_values_lie_in_their_intervals(name, task, case):
    name, part, prediction = case
    for row in compute(name, part, prediction):
        assert 0 <= row.n <= part.n_samples
        if math.isnan(row.value):
            assert math.isnan(row.low)
            assert math.isnan(row.high)
        elif not math.isnan(row.low):
            assert row.low <= row.high
    assert any(math.isfinite(row.value) for row in compute(name, part, prediction))


@every_case
def test_order_of_rows_does_not_matter(name, task, case):
    name, part, prediction = case
    rows = np.random.default_rng(3).permutation(part.n_samples)
    first = values(compute(name, part, prediction))
    second = values(compute(name, part.take(rows), take(prediction, rows)))
    assert first == pytest.approx(second, nan_ok=True, abs=1e-12)


@every_case
def test_repeated_rows_count_twice(name, task, case):
    name, part, prediction = case
    rows = np.repeat(np.arange(part.n_samples), 2)
    once = {row.group: row for row in compute(name, part, prediction)}
    for twice in compute(name, part.take(rows), take(prediction, rows)):
        if not math.isnan(once[twice.group].value):
            assert twice.value == pytest.approx(once[twice.group].value, abs=1e-12)
            assert twice.n == 2 * once[twice.group].n


@every_case
def test_weights_count_rows(name, task, case):
    name, part, prediction = case
    counts = np.random.default_rng(4).integers(1, 4, part.n_samples)
    rows = np.repeat(np.arange(part.n_samples), counts)
    repeated = values(compute(name, part.take(rows), take(prediction, rows)))
    weighted = values(compute(name, replace(part, weight=counts.astype(float)), prediction))
    for group, value in weighted.items():
        if not math.isnan(value):
            assert repeated[group] == pytest.approx(value, abs=1e-12)


@every_case
def test_uses_what_it_declares_and_nothing_else(name, task, case):
    name, part, prediction = case
    # Certificates are made from scores.
    needs = {"score" if each == "certificate" else each for each in MEASURES.all()[name].needs}
    needs -= {"gap", "membership", "costs"}
    expected = values(compute(name, part, prediction))
    moved = set()
    for seed in (7, 8):
        other = predict(part, seed)
        rows = np.random.default_rng(seed).permutation(part.n_samples)
        for need, changed, predicted in (
            ("score", part, replace(prediction, score=other.score)),
            ("decision", part, replace(prediction, decision=other.decision)),
            ("counterfactuals", part, replace(prediction, counterfactuals=other.counterfactuals)),
            (
                "counterfactual_score",
                part,
                replace(prediction, counterfactual_scores=other.counterfactual_scores),
            ),
            ("group", replace(part, groups=part.groups[rows]), prediction),
            ("true_group", replace(part, true_groups=part.groups[rows]), prediction),
        ):
            if need in moved:
                continue
            found = values(compute(name, changed, predicted))
            # A measure that needs no groups may tell of them, but not let them into the rest.
            whole = need == "group" and need not in needs
            same = found.get("") == pytest.approx(expected.get(""), nan_ok=True)
            if not (same if whole else found == pytest.approx(expected, nan_ok=True)):
                moved.add(need)
    # The decisions behind a counterfactual measure are those on the variants.
    optional = {"decision"} if "counterfactuals" in needs else set()
    assert moved | optional == needs | optional


@every_case
def test_input_stays_as_it_is(name, task, case):
    name, part, prediction = case
    # A copy, for the other tests share the part.
    part = part.take(np.arange(part.n_samples))
    for array in (part.y, part.groups, part.weight, prediction.score, prediction.decision):
        array.flags.writeable = False
    first = compute(name, part, prediction)
    assert repr(first) == repr(compute(name, part, prediction))
