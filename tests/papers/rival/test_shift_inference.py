import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from fairfrontier.models.objective import choose_cut
from fairfrontier.models.prediction import predict_part
from fairfrontier.runtime.errors import ConfigError, DataError
from papers.rival.shift_inference import ShiftInference, estimate_priors
from tests.models.thresholds.made import make_part

# Group 0: one positive of four; group 1: three of four.
LABELS = np.array([1, 0, 0, 0, 1, 1, 1, 0])
GROUPS = np.repeat([0, 1], 4)[:, None]


def test_the_formula_by_hand():
    score = np.array([0.4, 0.2, 0.3, 0.1, 0.6, 0.8, 0.7, 0.5])
    model = ShiftInference().fit(score, LABELS, sensitive_features=GROUPS)
    assert model.prior_ == 0.5
    assert model.priors_ == pytest.approx([0.25, 0.75])
    # Odds of .4 are 2/3; times (1/1) / (1/3): 2, a probability of 2/3. Of .6: 3/2 / 3 = 1/2: 1/3.
    found = model.predict_proba(score, sensitive_features=GROUPS)
    assert found[[0, 4], 1] == pytest.approx([2 / 3, 1 / 3])
    margin = logit(score) + logit(0.5) - logit(np.where(GROUPS[:, 0] == 0, 0.25, 0.75))
    assert found[:, 1] == pytest.approx(expit(margin))
    assert found.sum(axis=1) == pytest.approx(np.ones(8))
    assert model.predict(score, sensitive_features=GROUPS).tolist() == [1, 0, 1, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("objective", ["balanced_accuracy", "f1"])
def test_the_cut_of_what_was_corrected_serves_an_objective(objective, tmp_path):
    part, fresh = make_part(0, 400), make_part(1, 300, "validation")
    plain = ShiftInference().fit(part.X, part.y, sensitive_features=part.groups)
    assert plain.cut_ == 0.5
    model = ShiftInference(objective=objective)
    for rows, judges in ((part, {}), (fresh, {"validation": fresh})):
        model.fit(part.X, part.y, sensitive_features=part.groups, **judges)
        score = plain.predict_proba(rows.X, sensitive_features=rows.groups)[:, 1]
        assert model.cut_ == choose_cut(score, rows.y, rows.weight, objective) != 0.5
        decided = model.predict(rows.X, sensitive_features=rows.groups)
        assert np.array_equal(decided, score >= model.cut_)
        assert (
            model.score(rows.X, rows.y, sensitive_features=rows.groups)
            == (decided == rows.y).mean()
        )
        assert np.array_equal(predict_part(model, rows).decision, decided)
    loaded = ShiftInference.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict(fresh.X, sensitive_features=fresh.groups), decided)
    model.set_params(objective=None).fit(part.X, part.y, sensitive_features=part.groups)
    assert model.cut_ == 0.5


def test_weights_enter_the_base_rates():
    score = np.full(8, 0.5)
    weight = np.array([3.0, 1, 1, 1, 1, 1, 1, 6])
    model = ShiftInference().fit(score, LABELS, sensitive_features=GROUPS, sample_weight=weight)
    assert model.priors_ == pytest.approx([3 / 6, 3 / 9])
    assert model.prior_ == pytest.approx(6 / 15)


def test_certain_scores_stay_certain():
    score = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    model = ShiftInference().fit(score, LABELS, sensitive_features=GROUPS)
    assert np.array_equal(model.predict_proba(score, sensitive_features=GROUPS)[:, 1], score)


def make_mixture(rate, prior, n=4000, seed=0):
    """Posteriors under the base rate ``prior`` of rows whose classes are N(±1, 1)."""
    generator = np.random.default_rng(seed)
    y = (generator.uniform(size=n) < rate).astype(np.int64)
    x = generator.normal(size=n) + 2.0 * y - 1.0
    return expit(2.0 * x + logit(prior)), y, x


def test_scores_of_one_base_rate_become_those_of_another():
    # Posteriors that knew the group's base rate become the posteriors of all groups' rate.
    parts = [make_mixture(rate, rate, seed=k) for k, rate in enumerate([0.2, 0.6])]
    score, y, x = (np.concatenate(each) for each in zip(*parts, strict=True))
    groups = np.repeat([0, 1], 4000)[:, None]
    model = ShiftInference().fit(score, y, sensitive_features=groups)
    found = model.predict_proba(score, sensitive_features=groups)[:, 1]
    assert found == pytest.approx(expit(2.0 * x + logit(model.prior_)), abs=0.02)


def likelihood(rate, posterior, weight, prior):
    ratio = rate / prior * posterior + (1 - rate) / (1 - prior) * (1 - posterior)
    return float((weight * np.log(ratio)).sum())


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), prior=st.floats(0.1, 0.9), rate=st.floats(0.05, 0.95))
def test_em_finds_the_maximum_of_the_likelihood(seed, prior, rate):
    posterior, _, _ = make_mixture(rate, prior, 120, seed)
    code = np.arange(120) % 2
    weight = np.random.default_rng(seed).exponential(size=120)
    priors, _, converged = estimate_priors(posterior, code, weight, prior)
    assert converged
    for k in (0, 1):
        rows = code == k
        best = minimize_scalar(
            lambda value, rows=rows: -likelihood(value, posterior[rows], weight[rows], prior),
            bounds=(0.0, 1.0),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert priors[k] == pytest.approx(best.x, abs=1e-5)


def test_em_recovers_base_rates_without_labels():
    parts = [make_mixture(rate, 0.45, n=20_000, seed=k) for k, rate in enumerate([0.2, 0.7])]
    score, y, _ = (np.concatenate(each) for each in zip(*parts, strict=True))
    groups = np.repeat([0, 1], 20_000)[:, None]
    model = ShiftInference(priors="em").fit(score, y, sensitive_features=groups)
    assert model.prior_ == pytest.approx(0.45, abs=0.01)
    assert model.priors_ == pytest.approx([0.2, 0.7], abs=0.02)


def test_em_ends_at_an_end_where_the_likelihood_does():
    posterior = np.array([0.05, 0.1, 0.2, 0.9, 0.95, 0.8, 0.0, 1.0])
    code = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    priors, _, _ = estimate_priors(posterior, code, np.ones(8), 0.5)
    assert priors == pytest.approx([0.0, 1.0, 0.5])
    # Rows without weight have no say.
    weight = np.array([1.0, 1, 1, 1, 1, 1, 1, 0])
    assert estimate_priors(posterior, code, weight, 0.5)[0].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(("priors", "mend"), [("labels", "Merge"), ("em", "priors to labels")])
def test_a_base_rate_of_0_is_refused(priors, mend):
    score = np.array([0.01, 0.01, 0.01, 0.01, 0.6, 0.8, 0.7, 0.5])
    with pytest.raises(DataError, match=r"base rate 0 in the group \[0\]") as refused:
        ShiftInference(priors=priors).fit(score, LABELS * GROUPS[:, 0], sensitive_features=GROUPS)
    assert mend in refused.value.mend


def test_one_label_everywhere_is_refused():
    with pytest.raises(DataError, match="base rate 1"):
        ShiftInference(priors="em").fit(np.full(8, 0.5), np.ones(8, int), sensitive_features=GROUPS)


def test_priors_are_from_labels_or_em():
    with pytest.raises(ConfigError, match="no objective 'tpr'"):
        ShiftInference(objective="tpr").fit(np.full(8, 0.5), LABELS, sensitive_features=GROUPS)
    with pytest.raises(ConfigError):
        ShiftInference(priors="guess").fit(np.full(8, 0.5), LABELS, sensitive_features=GROUPS)
