"""The sensitive subspace: unit vectors of protected columns and their linear predictors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace, is_dask_array
from sklearn.linear_model import LogisticRegression, RidgeCV

from fairfrontier.prepare.split import Split
from fairfrontier.runtime.cluster.executor import hold, open_rows
from fairfrontier.runtime.cluster.logistic import fit_logistic
from fairfrontier.runtime.errors import ConfigError, refuse_unknown
from fairfrontier.similarity.fair_metric import FairMetric
from fairfrontier.similarity.registry import fair_metric

Array = Any
TOLERANCE = 1e-10


@fair_metric("subspace")
def learn_subspace(
    split: Split,
    *,
    attributes: Sequence[str] | None = None,
    regress: Sequence[str] | None = None,
    columns: Sequence[str] = (),
    units: bool = True,
    penalty: float = 0.1,
    balanced: bool = True,
    solver: Literal["auto", "newton"] = "auto",
) -> FairMetric:
    """Learn Σ = I − proj(span A), with A the sensitive directions.

    A holds, for every protected attribute, the unit vectors of the columns that encode it, and
    the coefficient vectors of a linear model that predicts it from all other columns: logistic
    regression for two levels, multinomial for more, ridge regression with the penalty chosen by
    leave-one-out cross-validation for a continuous attribute. A coefficient vector is 0 in the
    attribute's own columns. For a classification the model solves

        min_w  Σ_i s_i log(1 + exp(−t_i ⟨w, x_i⟩)) / Σ_i s_i + (penalty/2) ‖w‖²,

    with s_i inversely proportional to the level's frequency when ``balanced``.

    Parameters
    ----------
    split : Split
        Its train part is used, with its case weights.
    attributes : sequence of str, optional
        The protected attributes; all that the dataset protects by default.
    regress : sequence of str, optional
        Those of them that a linear model is fitted to; all by default.
    columns : sequence of str
        Further features, by their encoded names, whose unit vectors belong to A.
    units : bool
        Whether the unit vectors of the attributes' own columns belong to A.
    penalty : float
        ℓ2 penalty on the *mean* loss; > 0. It affects BuDRO's published group gaps more than the
        solver does.
    balanced : bool
        Weight the levels of a categorical attribute equally.
    solver : {"auto", "newton"}
        ``auto`` takes L-BFGS, and Newton steps where X is a Dask array; ``newton`` takes these
        everywhere, for the same metric, whose coefficients are rounded to 24 bits of the largest.

    Returns
    -------
    FairMetric
        ``sigma`` is a projector, ``directions`` an orthonormal basis of span A.

    Raises
    ------
    ConfigError
        When nothing is protected, a name or the solver is unknown, or an attribute is constant in
        train.

    Notes
    -----
    O(n d) per iteration of L-BFGS, once a split; memory O(n d). A Newton step is O(n (K d)²) for K
    levels, by sums over partitions where X is a Dask array (`fit_logistic`). Coefficients differ by
    what L-BFGS leaves open, about 1e-4 of the largest.

    References
    ----------
    M. Yurochkin, A. Bower, Y. Sun. Training individually fair ML models with sensitive subspace
    robustness. ICLR 2020, Appendix B.1. A. Vargo et al. Individually fair gradient boosting.
    ICLR 2021, Appendix C.2.
    """
    protected = list(split.protected_kinds)
    chosen = protected if attributes is None else list(attributes)
    modelled = chosen if regress is None else list(regress)
    if not chosen:
        raise ConfigError(
            f"The dataset {split.dataset} protects no attribute.",
            "Name some under `protected:` in its YAML.",
        )
    after = f", which {split.dataset} does not protect"
    refuse_unknown(chosen, protected, "The metric `subspace` names", after)
    refuse_unknown(modelled, chosen, "The metric `subspace` regresses", ", which it leaves out")
    if penalty <= 0:
        raise ConfigError(f"The penalty of `subspace` is {penalty}.", "Give a number above 0.")
    refuse_unknown([solver], ("auto", "newton"), "The metric `subspace` has no solver")
    refuse_unknown(columns, split.feature_names, f"{split.dataset} has no feature")
    n_features = split.train.X.shape[1]
    identity = np.eye(n_features)
    rows = [identity[[split.feature_names.index(name) for name in columns]]]
    if units:
        rows += [identity[list(split.protected_columns[name])] for name in chosen]
    rows += [_coefficients(split, name, penalty, balanced, solver) for name in modelled]
    directions, basis = orthonormalise(np.vstack(rows))
    sigma = basis @ basis.T
    sigma[np.abs(sigma) < 1e-14] = 0.0
    return FairMetric(sigma=sigma, basis=basis, directions=directions)


def _coefficients(
    split: Split, name: str, penalty: float, balanced: bool, solver: str = "auto"
) -> np.ndarray:
    """Return the coefficient vectors of the model for one attribute, (r, n_features)."""
    part = split.train
    values = part.protected[:, list(split.protected_kinds).index(name)]
    if np.ptp(values) == 0:
        raise ConfigError(
            f"The protected attribute {name!r} of {split.dataset} is constant in train.",
            "Remove it from `protected:`, or keep rows of more than one level.",
        )
    n_features = part.X.shape[1]
    others = np.setdiff1d(np.arange(n_features), split.protected_columns[name])
    lazy = is_dask_array(part.X)
    if split.protected_kinds[name] == "continuous":
        if lazy:
            raise ConfigError(
                f"The metric `subspace` does not regress {name!r}, whose rows stay in partitions: "
                "it is continuous.",
                "Leave it out of the metric: regress: [], or a list of the others.",
            )
        model = RidgeCV().fit(part.X[:, others], values, sample_weight=part.weight)
        coefficients = np.atleast_2d(model.coef_)
    else:
        weight = np.asarray(part.weight)
        codes = np.unique(np.asarray(values), return_inverse=True)[1]
        if balanced:
            totals = np.bincount(codes, weights=weight)
            weight = weight * (weight.sum() / (len(totals) * totals))[codes]
        if lazy:
            held = open_rows(hold(part.X)[:, others], y=codes, weight=weight)
            coefficients = fit_logistic(held, int(codes.max()) + 1, penalty).coefficient
        else:
            model = LogisticRegression(
                C=1.0 / (penalty * float(weight.sum())),
                solver="newton-cholesky" if solver == "newton" else "lbfgs",
                max_iter=10_000,
                tol=1e-6,
            ).fit(part.X[:, others], values.astype(np.int64), sample_weight=weight)
            coefficients = np.atleast_2d(model.coef_)
        if lazy or solver == "newton":
            coefficients = _round(coefficients)
    rows = np.zeros((coefficients.shape[0], n_features))
    rows[:, others] = coefficients
    return rows


def _round(values: np.ndarray) -> np.ndarray:
    """Return multiples of 2⁻²⁴ times the power of two above the largest.

    Sums over partitions have other last bits than those in memory, from which a net trained against
    an adversary in double precision is another one after some hundred steps.
    """
    exponent = np.frexp(np.abs(values).max(initial=0.0))[1] - 24
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent))


def orthonormalise(vectors: Array) -> tuple[Array, Array]:
    """Return orthonormal bases of the span of some rows, (k, d), and of its complement, (d, d − k).

    Singular values below a share ``TOLERANCE`` of the largest count as zero. Entries of the
    complement that are zero but for rounding are exactly zero, so that a coordinate inside the span
    has no effect.
    """
    xp = array_namespace(vectors)
    _, sizes, right = xp.linalg.svd(vectors, full_matrices=True)
    largest = float(sizes[0]) if sizes.shape[0] else 0.0
    rank = int(xp.sum(xp.astype(sizes > TOLERANCE * largest, xp.int64))) if largest > 0 else 0
    right = xp.where(xp.abs(right) < 1e-12, xp.zeros_like(right), right)
    return right[:rank, :], right[rank:, :].T
