"""Shapley values of a model's score: what every column of a table adds to it, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost

from fairfrontier.choose.mixture import Mixture
from fairfrontier.train.base import Regressor
from fairfrontier.train.baseline.gbdt_regression import GBDTRegression
from fairfrontier.train.baseline.linear import Linear
from fairfrontier.train.baseline.project import Project
from fairfrontier.train.individual.budro.estimator import BuDRO
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.tree.boosting import BoostedTrees

# Orders of the columns that are drawn where there is no formula; each is walked both ways.
ORDERS, SEED = 32, 0
TREES = (BoostedTrees, BuDRO, GBDTRegression)
# Of a regression's scores.
UNITS = "units of the label"


@dataclass(frozen=True, eq=False)
class Attribution:
    """What columns add to the score of rows.

        score(x_i) = base + Σ_j values_ij

    ``values`` is float64 (n_samples, n_columns), and ``unit`` that of the score: ``log-odds`` of
    P(Y=1|x), ``probability``, P(Y=1|x) itself, or ``units of the label``, a regression's.
    """

    values: np.ndarray
    base: float
    unit: str


def attribute_score(model: Any, X: np.ndarray, spans: Sequence[Sequence[slice]]) -> Attribution:
    """Attribute the score of every row to columns of the table, by Shapley values.

        φ_j(x) = mean over the orders of the columns of v(those before j, and j) − v(those before j)

    where v(S) is the expected score when the columns S are those of x. Trees of XGBoost average
    over the training rows of each node, by their second derivatives (TreeSHAP). Elsewhere the
    columns outside S are those of a row of X, in logistic regression of its mean:
    φ_j = w_j (x_j − mean x_j). Both are exact on log-odds, and a column has the sum over the
    features that it is encoded as. All other models are asked for probabilities, which may be 0 or
    1, and of a regression for predictions, along drawn orders of the columns.

    Parameters
    ----------
    model : estimator, PostProcessed or Mixture
        Of two classes, or a regression. Of a post-processed model the score is attributed, not the
        rule.
    X : ndarray of float64, shape (n_samples, n_features)
        Encoded rows, at least one.
    spans : sequence of sequences of slice
        The features that each column is encoded as; together all of them.

    Notes
    -----
    TreeSHAP costs O(n T L D²) for T trees of L leaves and depth D, logistic regression O(n d), all
    others 2 · ORDERS · (n_columns + 1) predictions of n rows. Drawn values add up exactly; their
    own error falls with the root of ORDERS.

    References
    ----------
    S. Lundberg, G. Erion, S.-I. Lee. Consistent individualized feature attribution for tree
    ensembles. arXiv 1802.03888, Algorithm 2. E. Štrumbelj, I. Kononenko. Explaining prediction
    models and individual predictions with feature contributions. KAIS 41, 2014, equation 10 and
    Algorithm 1; R. Mitchell et al. Sampling permutations for Shapley value estimation. JMLR 23,
    2022 (an order and its reverse).
    """
    if isinstance(model, PostProcessed):
        model = model.model
    number = isinstance(model, Regressor)
    # Trees on x Σ do not split by columns, and a margin of the logistic loss is no prediction. What
    # methods of other packages keep as their booster may be anybody's, and of other inputs.
    split = not isinstance(model, Project) and getattr(model, "loss", "square") == "square"
    if isinstance(model, TREES) and split:
        rows = xgboost.DMatrix(X, nthread=model.n_jobs)
        found = model.booster_.predict(rows, pred_contribs=True).astype(np.float64)
        unit = UNITS if number else "log-odds"
        return Attribution(_add_up(found[:, :-1], spans), float(found[0, -1]), unit)
    if number:
        return _draw(model.predict, X, spans, UNITS)
    if isinstance(model, Linear):
        coefficient = model.coefficient_[1] - model.coefficient_[0]
        mean = X.mean(axis=0)
        base = coefficient @ mean + model.intercept_[1] - model.intercept_[0]
        return Attribution(_add_up(coefficient * (X - mean), spans), float(base), "log-odds")
    return _draw(lambda rows: _predict(model, rows), X, spans)


def _add_up(values: np.ndarray, spans: Sequence[Sequence[slice]]) -> np.ndarray:
    """Return the sums of features' values by column."""
    sums = [sum(values[:, span].sum(axis=1) for span in each) for each in spans]
    return np.column_stack(sums)


def _predict(model: Any, X: np.ndarray) -> np.ndarray:
    """Return P(Y=1|x), of a mixture the mean over its models, without the rules behind them."""
    if isinstance(model, Mixture):
        first, second = _predict(model.first, X), _predict(model.second, X)
        return (1.0 - model.share) * first + model.share * second
    if isinstance(model, PostProcessed):
        model = model.model
    return np.asarray(model.predict_proba(X), dtype=np.float64)[:, 1]


def _draw(
    predict: Callable[[np.ndarray], np.ndarray],
    X: np.ndarray,
    spans: Sequence[Sequence[slice]],
    unit: str = "probability",
) -> Attribution:
    """Attribute along drawn orders, each from a row of X; all rows share them, and so the base."""
    generator = np.random.default_rng(SEED)
    references = X[np.resize(generator.permutation(len(X)), ORDERS)]
    values = np.zeros((len(X), len(spans)))
    for reference in references:
        order = generator.permutation(len(spans))
        start = predict(np.tile(reference, (len(X), 1)))
        for path in (order, order[::-1]):
            rows, before = np.tile(reference, (len(X), 1)), start
            for column in path:
                for span in spans[column]:
                    rows[:, span] = X[:, span]
                after = predict(rows)
                values[:, column] += (after - before) / (2 * ORDERS)
                before = after
    return Attribution(values, float(predict(references).mean()), unit)
