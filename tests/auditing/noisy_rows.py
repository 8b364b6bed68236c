"""Small tables of decisions whose groups are noisy, and all assignments of their rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

# COUNTS[k][j]: rows of the true group j in the noisy group k.
COUNTS = np.array([[5, 1], [2, 4]])
NAMES = ("a", "b")


def make_twelve(seed: int = 0) -> pd.DataFrame:
    """Return twelve rows, six in each noisy group."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "decision": rng.integers(0, 2, 12),
            "label": np.where(rng.random(12) < 0.6, "yes", "no"),
            "group": np.repeat(NAMES, 6),
        }
    )


def write_confusion(path: Path, counts: np.ndarray = COUNTS) -> Path:
    """Write P(Ĝ=k | G=j) of the counts: with the noisy shares it gives P(G=j | Ĝ=k) back."""
    chance = counts.T / counts.sum(axis=0)[:, None]
    frame = pd.DataFrame(chance, index=pd.Index(NAMES, name="true"), columns=NAMES)
    frame.to_csv(path)
    return path


def deal(codes: np.ndarray, counts: Sequence[Sequence[int]] | np.ndarray) -> Iterator[np.ndarray]:
    """Yield all true groups of the rows, of two, with counts[k][j] of group j in noisy group k."""
    places = [np.flatnonzero(codes == k) for k in range(len(counts))]
    chosen = [itertools.combinations(p, c[1]) for p, c in zip(places, counts, strict=True)]
    for ones in itertools.product(*chosen):
        true = np.zeros(codes.size, dtype=int)
        true[[row for rows in ones for row in rows]] = 1
        yield true


def find_rate(name: str, decision: np.ndarray, y: np.ndarray, rows: np.ndarray) -> float:
    """Return a rate of some rows by counting them."""
    right = np.where(y == 1, decision, 1 - decision) if name == "accuracy" else decision
    among = {"tpr": y == 1, "fpr": y == 0}.get(name, np.ones(y.size, dtype=bool)) & rows
    return float(right[among].mean()) if among.any() else float("nan")


def make_table(n: int = 600, seed: int = 0) -> pd.DataFrame:
    """Return decisions, labels, true and noisy groups of three kinds, and scores."""
    rng = np.random.default_rng(seed)
    names = np.array(["blue", "green", "red"])
    true = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    noisy = np.where(rng.random(n) < 0.05, (true + rng.integers(1, 3, n)) % 3, true)
    y = (rng.random(n) < 0.4).astype(int)
    score = np.clip(0.2 + 0.35 * y + 0.3 * (true == 0) + rng.normal(0, 0.2, n), 0, 1)
    return pd.DataFrame(
        {
            "score": score,
            "decision": (score >= 0.5).astype(int),
            "y": y,
            "group": names[noisy],
            "true": names[true],
        }
    )
