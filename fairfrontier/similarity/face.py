"""FACE: a fair metric must ignore what varies inside groups of comparable samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_dask_array

from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError, refuse_unknown
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.similarity.fair_metric import FairMetric
from fairfrontier.similarity.registry import fair_metric

Array = Any

# Singular values below this share of the largest count as zero.
TOLERANCE = 1e-10
# Numbers of unit vectors, and of their products, that are zero up to rounding.
ROUNDING = 1e-12
# Rows of one decomposition: bounds memory, whatever the size of the stack.
BLOCK_ROWS = 8192
# Triangles that one task of a tree joins.
FAN_IN = 8


@fair_metric("face")
def learn_face(
    split: Split,
    *,
    counterfactuals: str | Sequence[str] | None = None,
    directions: int | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> FairMetric:
    """Learn Σ = I − proj(span A), with A the main directions inside groups of comparable rows.

    A comparable group is a training row with its variants in a counterfactual set. Every group is
    centred by its mean, and A holds the top right singular vectors of all centred rows:

        A = argmax over k orthonormal directions of  Σ_groups s_g Σ_{i in g} ‖A (x_i − x̄_g)‖²,

    with s_g the row's case weight.

    Parameters
    ----------
    split : Split
        Its train part is used; a Dask-backed part is reduced on its workers.
    counterfactuals : str or sequence of str, optional
        Sets of the train part; all of them by default. Each set forms separate groups.
    directions : int, optional
        k. By default every direction in which comparable rows differ at all, so that each variant
        is at distance 0: a table's counterfactuals change a few columns and span few directions.
    rows : int, optional
        Draw that many training rows; all by default.
    seed : int
        Of that draw.

    Returns
    -------
    FairMetric
        ``sigma`` is a projector, ``directions`` holds A, the largest variation first.

    Raises
    ------
    ConfigError
        When there is no such set, or k is not in 1, …, d − 1.
    DataError
        When comparable rows differ along fewer than k directions.

    Notes
    -----
    Rows without versions are skipped. A variant that equals its row counts as a member: it changes
    the weights of the group's other members, not the directions that they span. Where singular
    values k and k + 1 are equal, the choice between the two directions is arbitrary. One pass over
    the variants, of which two are in memory at a time; O(n m d²) for m variants, O(n d) memory.

    References
    ----------
    D. Mukherjee, M. Yurochkin, M. Banerjee, Y. Sun. Two simple ways to learn individual fairness
    metrics from data. ICML 2020, Section 2.1 and Algorithm 1.
    """
    part = split.train
    sets = _choose_sets(split, counterfactuals)
    if rows is not None:
        if rows < 1:
            raise ConfigError(f"rows of `face` is {rows}.", "Give a number of rows above 0.")
        generator = derive_generator(split.dataset, split.seed, "face", seed)
        drawn = generator.choice(part.n_samples, min(rows, part.n_samples), replace=False)
        part = part.take(np.sort(drawn))
    stack = (contrast for name in sets for contrast in _weigh_contrasts(part, name))
    return _metric(_compress(stack), directions)


def _choose_sets(split: Split, wanted: str | Sequence[str] | None) -> list[str]:
    known = list(split.train.counterfactuals)
    if not known:
        raise ConfigError(
            f"The dataset {split.dataset} has no counterfactuals.",
            "Describe some under `counterfactuals:` in its YAML, or use another metric.",
        )
    sets = known if wanted is None else [wanted] if isinstance(wanted, str) else list(wanted)
    refuse_unknown(sets, known, f"{split.dataset} has no counterfactuals")
    return sets


def _weigh_contrasts(part: Part, name: str) -> Iterator[Array]:
    """Yield the weighted contrasts of one set, of the rows that have versions."""
    rows = part.counterfactuals[name].rows
    having = part if rows is None else part.take(rows)
    weight = having.weight[:, None] ** 0.5
    variants = (variant.X for variant in having.counterfactuals[name])
    for contrast in contrasts(chain((having.X,), variants)):
        yield weight * contrast


def learn_from_versions(
    versions: Iterable[Array], directions: int | None = 25, *, client: Any = None
) -> FairMetric:
    """Learn a FACE metric from versions of the same samples.

    Row i of every array is a version of sample i: the rows i together are a comparable group.

    Parameters
    ----------
    versions : iterable of arrays of shape (n, d)
        Two or more, e.g. the embeddings of all comments with each identity term in turn. They are
        taken one at a time and may be generated. NumPy, CuPy or Dask arrays.
    directions : int or None
        k, the number of directions to ignore; None for all in which versions differ.
    client : distributed.Client, optional
        Where Dask arrays are reduced; Dask's present scheduler by default.

    Raises
    ------
    ConfigError
        When k is not in 1, …, d − 1.
    DataError
        When there is one version only, shapes differ, numbers are not finite, or versions differ
        along fewer than k directions.

    Notes
    -----
    O(n m d²) for m versions; memory of two versions, or of two blocks per task for Dask arrays.

    References
    ----------
    D. Mukherjee et al. Two simple ways to learn individual fairness metrics from data. ICML 2020,
    Algorithm 1.
    """
    return _metric(_compress(contrasts(versions), client), directions)


def learn_from_pairs(
    x: Array, other: Array, directions: int | None = 25, *, client: Any = None
) -> FairMetric:
    """Learn a FACE metric from comparable pairs: the top right singular vectors of x − x'.

    Row i of ``x`` is comparable to row i of ``other``. Parameters and errors are otherwise those of
    `learn_from_versions`, of which this is the case of two.
    """
    return learn_from_versions((x, other), directions, client=client)


def learn_from_groups(groups: Iterable[Array], directions: int | None = 25) -> FairMetric:
    """Learn a FACE metric from groups of comparable samples, which may differ in size.

    ``groups`` are NumPy or CuPy arrays of shape (m, d), with two rows or more, and may be generated
    one at a time: O(n d²) for n rows in all, O(d² + BLOCK_ROWS · d) memory. Directions and errors
    are those of `learn_from_versions`.
    """
    return _metric(_compress(_gather(_centre(groups))), directions)


def contrasts(versions: Iterable[Array]) -> Iterator[Array]:
    """Yield m − 1 orthogonal contrasts of m versions, whose scatter is that of the centred groups.

    Σ_j h_j h_jᵀ = Σ_j (x_j − x̄)(x_j − x̄)ᵀ  for  h_j = √(j/(j+1)) (x_{j+1} − mean(x_1, …, x_j)),

    so that centring takes no second pass. A coordinate in which all versions agree is exactly zero.
    B. P. Welford. Note on a method for calculating corrected sums of squares and products.
    Technometrics 4(3), 1962.
    """
    mean: Array = None
    seen = 0
    for version in versions:
        xp = array_namespace(version)
        x = xp.astype(version, xp.float64)
        if mean is None:
            mean = x
        elif x.ndim != 2 or x.shape != mean.shape:
            raise DataError(
                f"Version {seen + 1} of the samples has shape {x.shape}, the first {mean.shape}.",
                "Give every version the same rows and features.",
            )
        else:
            gap = x - mean
            yield math.sqrt(seen / (seen + 1)) * gap
            mean = mean + gap / (seen + 1)
        seen += 1
    if seen < 2:
        raise DataError(f"Comparable samples have {seen} version(s).", "Give two versions or more.")


def _centre(groups: Iterable[Array]) -> Iterator[Array]:
    for number, group in enumerate(groups):
        xp = array_namespace(group)
        if group.ndim != 2 or group.shape[0] < 2:
            raise DataError(
                f"Group {number} of comparable samples has the shape {group.shape}.",
                "Give every group one row per member, and two members or more.",
            )
        # Relative to the first member, coordinates in which all agree are exactly zero.
        moved = xp.astype(group, xp.float64)
        moved = moved - moved[:1, :]
        yield moved - xp.mean(moved, axis=0, keepdims=True)


def _gather(pieces: Iterable[Array]) -> Iterator[Array]:
    """Join small arrays until a decomposition has enough rows to be worthwhile."""
    waiting: list[Array] = []
    n_rows = 0
    for piece in pieces:
        if waiting and piece.shape[1] != waiting[0].shape[1]:
            raise DataError(
                f"A group of comparable samples has {piece.shape[1]} features, the first "
                f"{waiting[0].shape[1]}.",
                "Give every group the same features.",
            )
        waiting.append(piece)
        n_rows += piece.shape[0]
        if n_rows >= BLOCK_ROWS:
            # The next piece is checked against the one that remains.
            yield array_namespace(piece).concat(waiting, axis=0)
            waiting, n_rows = [piece[:0, :]], 0
    if n_rows:
        yield array_namespace(waiting[0]).concat(waiting, axis=0)


def compress(blocks: Iterable[Array]) -> Array:
    """Return R, (min(n, d), d), with the singular values and right vectors of stacked blocks.

    R of the QR decomposition of [R of all blocks before; block]: singular values are not squared,
    as they would be in the Gram matrix, and small ones keep their digits. O(n d²), and O(d² +
    BLOCK_ROWS · d) memory besides the block. DataError when there is no row at all.
    """
    triangle: Array = None
    for block in blocks:
        xp = array_namespace(block)
        n_rows = int(block.shape[0])
        for start in range(0, n_rows, BLOCK_ROWS):
            piece = block[start : min(start + BLOCK_ROWS, n_rows), :]
            if triangle is not None:
                piece = xp.concat([triangle, piece], axis=0)
            triangle = xp.linalg.qr(piece, mode="reduced")[1]
    if triangle is None:
        raise DataError("There are no comparable samples.", "Give one group or more.")
    return triangle


def _compress(stack: Iterable[Array], client: Any = None) -> Array:
    """Compress arrays in memory in sequence, or Dask arrays by a tree over their blocks."""
    stack = iter(stack)
    first = next(stack, None)
    if first is None:
        return compress(())
    if not is_dask_array(first):
        return compress(chain((first,), stack))
    import dask

    triangles = [
        dask.delayed(_compress_one)(block)
        for array in chain((first,), stack)
        for block in array.rechunk({1: -1}).to_delayed().ravel()
    ]
    while len(triangles) > 1:
        triangles = [
            dask.delayed(compress)(triangles[start : start + FAN_IN])
            for start in range(0, len(triangles), FAN_IN)
        ]
    (root,) = triangles
    return root.compute() if client is None else client.compute(root).result()


def _compress_one(block: Array) -> Array:
    return compress((block,)) if block.shape[0] else block


def _metric(triangle: Array, directions: int | None) -> FairMetric:
    """Split the space into the top singular vectors and their complement."""
    xp = array_namespace(triangle)
    d = int(triangle.shape[1])
    if directions is not None and not 0 < directions < d:
        raise ConfigError(
            f"The metric `face` is to ignore {directions} of {d} directions.",
            f"Give a number from 1 to {d - 1}.",
        )
    if not bool(xp.all(xp.isfinite(triangle))):
        raise DataError(
            "Comparable samples have numbers that are not finite.", "Fill or drop missing values."
        )
    _, sizes, right = xp.linalg.svd(triangle, full_matrices=True)
    rank = int(xp.sum(xp.astype(sizes > TOLERANCE * sizes[0], xp.int64)))
    k = rank if directions is None else directions
    if rank < k or rank == 0:
        raise DataError(
            f"Comparable samples differ along {rank} direction(s) only, {max(k, 1)} are to be "
            "ignored.",
            "Ask for fewer directions, or give groups that differ in more ways.",
        )
    if k == d:
        raise DataError(
            f"Comparable samples differ along all {d} directions: none would remain.",
            "Set how many directions are to be ignored.",
        )
    # Zeros up to rounding become zero: a coordinate inside the span has no effect.
    vectors = to_numpy(xp.where(xp.abs(right) < ROUNDING, xp.zeros_like(right), right))
    basis = vectors[k:].T
    sigma = basis @ basis.T
    sigma[np.abs(sigma) < ROUNDING] = 0.0
    return FairMetric(sigma=sigma, basis=basis, directions=vectors[:k])
