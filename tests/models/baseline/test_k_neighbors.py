import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from fairfrontier.models.baseline.k_neighbors import BLOCK, KNeighbors
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.thread import limited_threads
from tests.models.tables import make_split


def make_codes(n, seed):
    """Rows of encoded categories: many lie at the same distance of each other."""
    generator = np.random.default_rng(seed)
    return np.eye(6)[generator.integers(6, size=(n, 4))].reshape(n, -1) / generator.permuted(
        np.linspace(0.3, 1.0, 24)
    )


def test_the_nearest_rows_vote():
    split = make_split(300)
    model = KNeighbors(n_neighbors=7).fit(split.train.X, split.train.y)
    distance = ((split.test.X[:, None] - split.train.X[None]) ** 2).sum(axis=2)
    nearest = np.argsort(distance, axis=1)[:, :7]
    expected = split.train.y[nearest].mean(axis=1)
    assert model.predict_proba(split.test.X)[:, 1] == pytest.approx(expected, abs=1e-12)


def test_several_classes():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 2))
    y = np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])
    model = KNeighbors().fit(X, y)
    peer = KNeighborsClassifier(10, algorithm="brute").fit(X, y)
    assert np.array_equal(model.predict_proba(X), peer.predict_proba(X))


@pytest.mark.parametrize("threads", [1, 2])
def test_answers_stay_in_any_batch(threads):
    X, asked = make_codes(2000, 0), make_codes(2 * BLOCK + 77, 0)
    y = np.random.default_rng(1).integers(2, size=len(X))
    model = KNeighbors().fit(X, y)
    with limited_threads(threads):
        whole = model.predict_proba(asked)
        for size in (1, 100, BLOCK):
            pieces = [model.predict_proba(asked[at : at + size]) for at in range(0, 64, size)]
            assert np.array_equal(np.concatenate(pieces)[:64], whole[:64])
        order = np.random.default_rng(2).permutation(len(asked))
        assert np.array_equal(model.predict_proba(asked[order]), whole[order])
    assert model.predict_proba(asked[:0]).shape == (0, 2)


def test_it_keeps_rows_of_its_own():
    split = make_split(60)
    X, y = split.train.X.copy(), split.train.y.copy()
    model = KNeighbors(n_neighbors=1).fit(X, y)
    before = model.predict_proba(split.test.X)
    X[:] = 0.0
    y[:] = 0
    assert np.array_equal(model.predict_proba(split.test.X), before)


def test_what_cannot_be():
    split = make_split(12)
    with pytest.raises(DataError, match="10 neighbours, and there are 6 rows"):
        KNeighbors().fit(split.train.X, split.train.y)
    with pytest.raises(ConfigError):
        KNeighbors(n_neighbors=0).fit(split.train.X, split.train.y)
