"""Small tables for the tests of training, made on the fly."""

import numpy as np

from fairfrontier.models.group import EVENTS
from fairfrontier.prepare.split import Part, Split


def make_split(n=300, seed=0, n_features=5):
    """A biased binary task: column 0 is the protected attribute, column 1 leans on it."""
    generator = np.random.default_rng(seed)
    group = generator.integers(2, size=n)
    X = generator.normal(size=(n, n_features))
    X[:, 0] = group
    X[:, 1] += 0.8 * group
    y = (X[:, 1] + X[:, 2] + generator.normal(size=n) > 0.5).astype(np.int64)

    def part(name, rows):
        return Part(
            dataset="made",
            name=name,
            ids=rows,
            X=X[rows],
            y=y[rows],
            groups=group[rows, None],
            protected=group[rows, None].astype(np.float64),
            weight=np.ones(len(rows)),
            attributes={"sex": ("Female", "Male")},
            classes=("no", "yes"),
        )

    half = n // 2
    return Split(
        dataset="made",
        seed=seed,
        task="binary",
        feature_names=tuple(f"x{i}" for i in range(n_features)),
        protected_columns={"sex": (0,)},
        protected_kinds={"sex": "categorical"},
        train=part("train", np.arange(half)),
        test=part("test", np.arange(half, n)),
    )


def measure_gap(decision, y, group, criterion):
    """Return the largest difference of two groups' rates that a criterion of `EVENTS` bounds."""
    gaps = []
    for label in EVENTS[criterion]:
        rows = np.full(len(y), True) if label is None else y == label
        rates = [decision[rows & (group == code)].mean() for code in np.unique(group)]
        gaps.append(max(rates) - min(rates))
    return max(gaps)
