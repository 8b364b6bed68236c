from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from fairfrontier.metrics.measure.registry import MEASURES, Audit
from fairfrontier.models.prediction import Prediction
from fairfrontier.models.registry import create
from tests.metrics.made import make_part

LEVELS = ("a", "b", "c")
KINDS = [("tpr_shortfall", 1, 1.0), ("fpr_excess", 0, -1.0)]


def made(n=60, seed=0, *, weighted=False, whole=True, levels=LEVELS, share=0.3, minimum=1) -> Audit:
    rng = np.random.default_rng(seed)
    true = rng.integers(len(levels), size=n)
    moved = rng.random(n) < share
    noisy = np.where(moved, (true + rng.integers(1, len(levels), n)) % len(levels), true)
    y = (rng.random(n) < 0.5).astype(np.int64)
    weight = rng.uniform(0.5, 2.0, n) if weighted else None
    part = make_part(y, noisy[:, None], {"race": levels}, weight=weight)
    part = replace(part, true_groups=true[:, None])
    decision = np.clip(0.3 + 0.3 * y + 0.1 * true + rng.normal(0, 0.3, n), 0, 1)
    decision = (decision > 0.5).astype(np.float64) if whole else decision.round(2)
    return Audit(Prediction(decision, decision), part, minimum=minimum)


def table(audit: Audit, name: str) -> dict[str, float]:
    return {row.group: row.value for row in MEASURES.find(name).compute(audit)}


def overall_rate(audit: Audit, label: int) -> float:
    kept = audit.part.y == label
    return np.average(audit.prediction.decision[kept], weights=audit.part.weight[kept])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "label", "sign"), KINDS)
def test_assignment_is_the_worst_of_all_true_groups_with_the_same_table(name, label, sign, seed):
    audit = made(11, seed, levels=("a", "b"))
    part, h = audit.part, audit.prediction.decision
    noisy, true = part.groups[:, 0], part.true_groups[:, 0]
    places = [np.flatnonzero(noisy == k) for k in (0, 1)]
    numbers = [int((true[rows] == 0).sum()) for rows in places]
    worst = np.full(2, -np.inf)
    for chosen in itertools.product(
        *(itertools.combinations(rows, n) for rows, n in zip(places, numbers, strict=True))
    ):
        assigned = np.ones(11, dtype=int)
        assigned[[row for rows in chosen for row in rows]] = 0
        for j in (0, 1):
            own = (assigned == j) & (part.y == label)
            if own.any():
                worst[j] = max(worst[j], sign * (overall_rate(audit, label) - h[own].mean()))
    found = table(audit, f"{name}_assignment")
    assert list(found) == ["race=a", "race=b"]
    np.testing.assert_allclose(list(found.values()), worst, atol=1e-12)


def least_rate(outcome, among, centre, level):
    """Return min Σ p d a / Σ p d over the ball, by Charnes and Cooper's linear programme."""
    n = len(outcome)
    one, eye = np.ones(n), np.eye(n)
    # q = t p, then s ≥ |q − t p̂|, then t.
    upper = np.block([[eye, -eye, -centre[:, None]], [-eye, -eye, centre[:, None]]])
    upper = np.vstack([upper, np.concatenate([0 * one, one, [-2 * level]])])
    equal = np.array([np.concatenate([among, 0 * one, [0]]), np.concatenate([one, 0 * one, [-1]])])
    cost = np.concatenate([among * outcome, 0 * one, [0]])
    found = linprog(cost, A_ub=upper, b_ub=np.zeros(2 * n + 1), A_eq=equal, b_eq=[1, 0])
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("name", "label", "sign"), KINDS)
def test_ball_is_the_optimum_of_a_linear_programme(name, label, sign, whole, seed):
    audit = made(40, seed, weighted=True, whole=whole)
    part, h = audit.part, audit.prediction.decision
    outcome = h if sign > 0 else 1 - h
    found = table(audit, f"{name}_ball")
    overall = overall_rate(audit, label)
    for j, level in enumerate(LEVELS):
        own = part.true_groups[:, 0] == j
        astray = np.average(part.groups[own, 0] != j, weights=part.weight[own])
        centre = part.weight * (part.groups[:, 0] == j)
        among = (part.y == label).astype(float)
        least = least_rate(outcome, among, centre / centre.sum(), astray)
        expected = overall - least if sign > 0 else (1 - least) - overall
        assert found[f"race={level}"] == pytest.approx(expected, abs=1e-7)


# Lemma 1's premise fails on these rows; the measure takes the paper's γ all the same.
@pytest.mark.filterwarnings("ignore:.*need not bound the distance")
@pytest.mark.parametrize(("approach", "kind"), [("dro", "ball"), ("soft_assignment", "assignment")])
def test_is_what_the_trained_approach_constrains(approach, kind):
    audit = made(300, 5, weighted=True)
    part = audit.part
    X = np.random.default_rng(1).normal(size=(300, 3)) + part.y[:, None]
    model = create(
        f"noisy_{approach}",
        criterion="equalized_odds",
        budget=0.02,
        inner="exact",
        iterations=20,
        learning_rate=0.1,
        backend="numpy",
    )
    fitted = {
        "sensitive_features": part.groups,
        "true_groups": part.true_groups,
        "sample_weight": part.weight,
    }
    model.fit(X, part.y, **fitted)
    constraints = model.constraints(X, part.y, part.groups, sample_weight=part.weight)
    decision = model.decide(X)[:, 0]
    assert 0 < decision.mean() < 1
    same = Audit(Prediction(decision, decision), part, minimum=1)
    for (name, _, _), expected in zip(KINDS, constraints, strict=True):
        found = list(table(same, f"{name}_{kind}").values())
        np.testing.assert_allclose(np.array(found) - 0.02, expected, atol=1e-9)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("name", "label", "sign"), KINDS)
def test_the_truth_is_one_of_the_assignments_and_all_there_is_without_noise(
    name, label, sign, whole
):
    for seed in range(5):
        audit = made(200, seed, weighted=True, whole=whole)
        bound, truth = table(audit, f"{name}_assignment"), table(audit, f"true_{name}")
        assert all(truth[group] <= bound[group] + 1e-12 for group in bound)
    clear = made(200, 7, weighted=True, whole=True, share=0.0)
    for kind in ("assignment", "ball"):
        assert table(clear, f"{name}_{kind}") == pytest.approx(table(clear, f"true_{name}"))


def test_more_noise_is_a_worse_worst_case():
    audit = made(400, 3, share=0.0)
    true = audit.part.true_groups
    worst = []
    for share in (0.0, 0.05, 0.2, 0.5):
        step = np.where(np.arange(400) < 400 * share, 1, 0)[:, None]
        noisy = replace(audit.part, groups=(true + step) % 3)
        found = replace(audit, part=noisy)
        worst.append([*table(found, "tpr_shortfall_ball").values()])
    assert (np.diff(np.max(worst, axis=1)) > 0).all()


@pytest.mark.parametrize("kind", ["assignment", "ball"])
def test_few_rows_and_absent_groups_are_not_estimable(kind):
    audit = made(150, 0, minimum=10)
    part = audit.part
    part.true_groups[part.true_groups[:, 0] == 2] = 0
    part.true_groups[np.flatnonzero(part.y == 1)[:3]] = 2
    rows = {row.group: row for row in MEASURES.find(f"tpr_shortfall_{kind}").compute(audit)}
    assert rows["race=c"].n == 3
    assert np.isnan(rows["race=c"].value)
    assert np.isfinite(rows["race=a"].value)
    # Nobody is seen in group b any more.
    unseen = replace(part, groups=np.where(part.groups == 1, 0, part.groups))
    gone = table(replace(audit, part=unseen), f"tpr_shortfall_{kind}")
    assert np.isfinite(gone["race=a"])
    assert np.isnan(gone["race=b"]) == (kind == "ball")
    one_label = replace(part, y=np.zeros_like(part.y))
    assert np.isnan(
        [*table(replace(audit, part=one_label), f"tpr_shortfall_{kind}").values()]
    ).all()
