"""EXPLORE: the metric that maximises the likelihood of given judgements of comparability."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from fairfrontier.prepare.split import Split
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError, refuse_unknown
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.similarity.fair_metric import FairMetric
from fairfrontier.similarity.registry import fair_metric

Array = Any

# Lower bound of distances: 1/sinh d is unbounded at 0.
FLOOR = 1e-10
# In units of √d, the norm of the start; on Adult no gradient comes near it.
GRADIENT_LIMIT = 5.0
# The step of the descent falls after this many iterations.
ITERATIONS_PER_STEP = 100
# Eigenvalues below this share of the largest count as zero.
TOLERANCE = 1e-10


@fair_metric("explore")
def learn_explore(
    split: Split,
    *,
    attribute: str | None = None,
    comparable: int = 10_000,
    incomparable: int = 5_000,
    batch: int = 1_000,
    iterations: int = 10_000,
    floor: float = FLOOR,
    gradient_limit: float | None = GRADIENT_LIMIT,
    bins: int = 4,
    seed: int = 0,
) -> FairMetric:
    """Learn Σ by maximum likelihood from pairs of training rows.

    Two rows of the same label and different levels of the attribute are comparable, two rows of
    different labels are not; see `descend` for the likelihood.

    Parameters
    ----------
    split : Split
        Its train part is used; pairs are drawn in proportion to the rows' case weights.
    attribute : str, optional
        The group attribute in which comparable rows differ; the first by default.
    comparable : int
        Comparable pairs to draw in each class; the default is the paper's for Adult.
    incomparable : int
        Incomparable pairs to draw in all.
    batch : int
        Pairs in each step.
    iterations : int
        Steps.
    floor : float
        Lower bound of distances; > 0.
    gradient_limit : float or None
        Longest gradient, see `descend`; None for the published descent.
    bins : int
        A regression's target is cut at quantiles into this many labels (an extension of ours).
    seed : int
        Of the pairs and batches, which also depend on the dataset and the split's seed.

    Returns
    -------
    FairMetric
        ``directions`` span the null space of Σ.

    Raises
    ------
    ConfigError
        When there is no such attribute, or a number is out of range.
    DataError
        When a class has rows of one level only, or all rows one label.

    Notes
    -----
    O(iterations · (batch · d² + d³)): four seconds for Adult (d = 41) on one core, whatever n;
    a quarter of an hour for embeddings of 384 dimensions.
    Along directions in which no two rows differ (the sum of a one-hot block) Σ stays at its start,
    the identity.

    References
    ----------
    D. Mukherjee, M. Yurochkin, M. Banerjee, Y. Sun. Two simple ways to learn individual fairness
    metrics from data. ICML 2020, Section 2.2.
    """
    part = split.train
    attributes = list(part.attributes)
    if not attributes:
        raise ConfigError(
            f"The dataset {split.dataset} has no group attribute.",
            "Describe one under `groups:` in its YAML.",
        )
    name = attributes[0] if attribute is None else attribute
    refuse_unknown([name], attributes, f"{split.dataset} has no group attribute")
    for key, value, least in (
        ("comparable", comparable, 1),
        ("incomparable", incomparable, 1),
        ("bins", bins, 2),
    ):
        if value < least:
            raise ConfigError(f"{key} of `explore` is {value}.", f"Give {least} or more.")
    generator = derive_generator(split.dataset, split.seed, "explore", seed)
    labels = part.y
    if split.task == "regression":
        edges = np.quantile(part.y, np.arange(1, bins) / bins)
        labels = np.searchsorted(edges, part.y, side="right")
    pairs = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        where = f"label {label} of {split.dataset}, by {name}"
        codes, weight = part.group(name)[rows], part.weight[rows]
        pairs.append(rows[draw_pairs(codes, comparable, generator, weight=weight, where=where)])
    where = f"the labels of {split.dataset}"
    pairs.append(draw_pairs(labels, incomparable, generator, weight=part.weight, where=where))
    first, second = np.concatenate(pairs).T
    alike = np.arange(len(first)) < len(first) - incomparable
    return learn_from_labelled_pairs(
        part.X[first],
        part.X[second],
        alike,
        batch=batch,
        iterations=iterations,
        floor=floor,
        gradient_limit=gradient_limit,
        generator=generator,
    )


def learn_from_labelled_pairs(
    x: Array, other: Array, comparable: Array, *, generator: np.random.Generator, **descent: Any
) -> FairMetric:
    """Learn an EXPLORE metric from pairs that were judged comparable or not.

    Parameters
    ----------
    x, other : arrays of shape (n, d)
        Row i of one is paired with row i of the other. NumPy or CuPy arrays, whose device is used:
        a GPU is worthwhile from some hundred features on.
    comparable : array of bool, shape (n,)
        Whether the pair is comparable.
    batch, iterations, floor, gradient_limit, generator
        As in `descend`.

    Raises
    ------
    ConfigError
        When a number is out of range.
    DataError
        When shapes differ, numbers are not finite, all pairs are of one kind, or the descent
        ended worse than it began.
    """
    if x.ndim != 2 or x.shape != other.shape or comparable.shape != x.shape[:1]:
        raise DataError(
            f"Pairs have the shapes {x.shape} and {other.shape}, their judgements "
            f"{comparable.shape}.",
            "Give both sides the same shape, and one judgement for each row.",
        )
    xp = array_namespace(x, other)
    z = xp.astype(comparable, xp.float64)
    difference = xp.astype(x, xp.float64) - xp.astype(other, xp.float64)
    if not bool(xp.all(xp.isfinite(difference))):
        raise DataError("Pairs have numbers that are not finite.", "Fill or drop missing values.")
    if not 0 < float(xp.sum(z)) < z.shape[0]:
        raise DataError("All pairs are of one kind.", "Give comparable and incomparable pairs.")
    sigma, start_loss, end_loss = descend(difference, z, generator=generator, **descent)
    # A descent that merely jitters about the identity has not failed: it stays within one nat.
    if not end_loss < start_loss + 1:
        raise DataError(
            f"EXPLORE ended worse than it began: {start_loss:.3g} nats a pair became "
            f"{end_loss:.3g}.",
            f"Take more iterations, or a gradient_limit such as {GRADIENT_LIMIT:g}.",
        )
    return make_metric(to_numpy(sigma))


def descend(
    difference: Array,
    comparable: Array,
    *,
    batch: int = 1_000,
    iterations: int = 10_000,
    floor: float = FLOOR,
    gradient_limit: float | None = GRADIENT_LIMIT,
    generator: np.random.Generator,
) -> tuple[Array, float, float]:
    """Maximise the likelihood of comparability over Σ ⪰ 0 by projected stochastic descent.

        min_Σ  −mean_i log P(z_i),   P(z = 1) = 2σ(−d),   d = (x − x')ᵀ Σ (x − x')

    from the identity, by steps of 1/(1 + ⌊iteration/100⌋), with negative eigenvalues set to 0 after
    every step. Returns Σ and the mean negative log-likelihood of all pairs at the identity and at
    Σ.

    Parameters
    ----------
    difference : float64 array of shape (n, d)
        x − x' of each pair; its sign does not matter.
    comparable : float64 array of shape (n,)
        z: 1 for a comparable pair, 0 for another.
    batch : int
        Pairs in each step, drawn without replacement; all pairs, without a draw, if there are no
        more.
    iterations : int
        Steps.
    floor : float
        Lower bound of distances; > 0.
    gradient_limit : float or None
        Gradients with a Frobenius norm above ``gradient_limit`` · √d are scaled down to it: a guard
        of ours. A pair with z = 0 in the null space of Σ makes a gradient of the order of
        1/(batch · floor), from which falling steps do not recover. None for no guard.
    generator : numpy.random.Generator
        Draws the batches.

    Notes
    -----
    O(iterations · (batch · d² + d³)), O(n d) memory. The problem is convex in Σ, but steps of 1 are
    initially far too long for features of unit variance; it takes hundreds of iterations for the
    falling steps to settle.
    """
    given = {"batch": batch, "iterations": iterations, "floor": floor}
    for key, value in {**given, "gradient_limit": gradient_limit}.items():
        if value is not None and not value > 0:
            raise ConfigError(f"{key} of `explore` is {value}.", "Give a number above 0.")
    xp = array_namespace(difference, comparable)
    n, d = difference.shape
    where = device(difference)
    sigma = xp.eye(d, dtype=difference.dtype, device=where)
    start_loss = float(loss(sigma, difference, comparable, floor=floor))
    longest = float("inf") if gradient_limit is None else gradient_limit * d**0.5
    pairs, z = difference, comparable
    for iteration in range(iterations):
        if batch < n:
            chosen = generator.choice(n, batch, replace=False, shuffle=False)
            drawn = xp.asarray(chosen, device=where)
            pairs = xp.take(difference, drawn, axis=0)
            z = xp.take(comparable, drawn, axis=0)
        step = 1.0 / (1 + iteration // ITERATIONS_PER_STEP)
        slope = gradient(sigma, pairs, z, floor=floor)
        length = float(xp.linalg.matrix_norm(slope))
        if length > longest:
            slope = slope * (longest / length)
        sigma = clip(sigma - step * slope)
    return sigma, start_loss, float(loss(sigma, difference, comparable, floor=floor))


def loss(sigma: Array, difference: Array, comparable: Array, *, floor: float = FLOOR) -> Array:
    """Return the mean of −log P(z) in nats, without overflow; P(z = 0) = tanh(d/2)."""
    xp = array_namespace(sigma, difference, comparable)
    d = _distance(sigma, difference, floor)
    small = xp.exp(-d)
    soft = xp.log1p(small)
    alike = d + soft - float(np.log(2))
    unlike = soft - xp.log(-xp.expm1(-d))
    return xp.mean(comparable * alike + (1 - comparable) * unlike)


def gradient(sigma: Array, difference: Array, comparable: Array, *, floor: float = FLOOR) -> Array:
    """Return the gradient of `loss` in Σ: mean of (z σ(d) − (1 − z)/sinh d) (x − x')(x − x')ᵀ.

    1/sinh d is computed as 2e^{−d}/(1 − e^{−2d}), which neither overflows for large d nor cancels
    for small.
    """
    xp = array_namespace(sigma, difference, comparable)
    d = _distance(sigma, difference, floor)
    small = xp.exp(-d)
    slope = comparable / (1 + small) + (1 - comparable) * 2 * small / xp.expm1(-2 * d)
    return (difference * slope[:, None]).T @ difference / difference.shape[0]


def _distance(sigma: Array, difference: Array, floor: float) -> Array:
    xp = array_namespace(sigma, difference)
    d = xp.sum((difference @ sigma) * difference, axis=-1)
    return xp.where(d > floor, d, xp.full_like(d, floor))


def clip(sigma: Array) -> Array:
    """Return the nearest positive semidefinite matrix: negative eigenvalues become 0.

    The result is exactly symmetric. O(d**3). On tables Σ is singular from the first steps on, so
    that a cheaper test for positive definiteness would never avoid the decomposition.
    """
    xp = array_namespace(sigma)
    symmetric = (sigma + sigma.T) / 2
    try:
        sizes, vectors = xp.linalg.eigh(symmetric)
    except np.linalg.LinAlgError:
        # LAPACK's divide and conquer fails on some harmless matrices (seen on Adult, split 1), but
        # not with their rows and columns reversed.
        sizes, vectors = xp.linalg.eigh(xp.flip(symmetric))
        vectors = xp.flip(vectors, axis=0)
    root = vectors * xp.sqrt(xp.where(sizes > 0, sizes, xp.zeros_like(sizes)))
    return root @ root.T


def draw_pairs(
    codes: np.ndarray,
    n_pairs: int,
    generator: np.random.Generator,
    *,
    weight: np.ndarray,
    where: str,
) -> np.ndarray:
    """Draw positions of pairs of rows with different codes, with replacement, shape (n_pairs, 2).

    P(i, j) ∝ w_i w_j 1{code_i ≠ code_j}. DataError, about ``where``, when no two rows with
    different codes have weight. O(n log n + n_pairs log n): rows are sorted by code, so that the
    rows of a code are an interval of cumulative weight that the second draw skips.
    """
    order = np.argsort(codes, kind="stable")
    kinds, starts, code = np.unique(codes[order], return_index=True, return_inverse=True)
    mass = weight[order]
    total = np.concatenate([[0.0], np.cumsum(mass)])
    bounds = total[np.append(starts, len(codes))]
    others = bounds[:-1] + (bounds[-1] - bounds[1:])
    share = mass * others[code]
    if len(kinds) < 2 or not share.sum() > 0:
        raise DataError(
            f"No two rows differ in {where}.", "Keep rows of two levels or more with weight."
        )
    first = generator.choice(len(codes), n_pairs, p=share / share.sum())
    own = code[first]
    point = generator.random(n_pairs) * others[own]
    beyond = point >= bounds[own]
    point = np.where(
        beyond, np.maximum(point + (bounds[own + 1] - bounds[own]), bounds[own + 1]), point
    )
    second = np.minimum(np.searchsorted(total, point, side="right") - 1, len(codes) - 1)
    pairs: np.ndarray = order[np.stack([first, second], axis=1)]
    return pairs


def make_metric(sigma: np.ndarray) -> FairMetric:
    """Return the metric d(x, x') = (x − x')ᵀ Σ (x − x') of a symmetric positive semidefinite Σ.

    With Σ = Σ_j λ_j v_j v_jᵀ, the basis has the columns √λ_j v_j of the positive eigenvalues, and
    the free directions are the other v_j. The metric's Σ is ``basis @ basis.T``, without rounding
    below zero. ConfigError when Σ is not square, not finite, not symmetric, or has a negative
    eigenvalue.
    """
    sigma = np.asarray(sigma, dtype=np.float64)
    square = sigma.ndim == 2 and sigma.shape[0] == sigma.shape[1] > 0
    scale = np.abs(sigma).max(initial=0.0)
    if not (square and np.isfinite(scale) and np.abs(sigma - sigma.T).max() <= 1e-8 * scale):
        raise ConfigError(
            "The matrix of a fair metric is not finite or not symmetric.", "Give (Σ + Σᵀ) / 2."
        )
    sizes, vectors = np.linalg.eigh((sigma + sigma.T) / 2)
    if sizes[0] < -1e-8 * scale:
        raise ConfigError(
            f"The matrix of a fair metric has the eigenvalue {sizes[0]:.3g}, below zero.",
            "Set its negative eigenvalues to 0.",
        )
    kept = sizes > TOLERANCE * sizes[-1]
    basis = vectors[:, kept] * np.sqrt(sizes[kept])
    return FairMetric(sigma=basis @ basis.T, basis=basis, directions=vectors[:, ~kept].T)
