from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from fairfrontier.models.fit.training import read_scores, write_scores
from fairfrontier.models.prediction import Prediction


@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_components_are_stored_without_loss(tmp_path, width):
    rng = np.random.default_rng(0)
    components = rng.random((50, 3)).astype(width).astype(np.float64)
    probability = np.array([0.2, 0.3, 0.5])
    score = components @ probability
    drawn = Prediction(score, score, components=components, probability=probability)
    sure = Prediction(score, score)
    write_scores(tmp_path / "scores.npz", {"train": drawn, "test": sure})
    found = read_scores(tmp_path / "scores.npz")
    for name, each in {"components": components, "probability": probability}.items():
        assert getattr(found["train"], name).tobytes() == each.tobytes()
        assert getattr(found["train"], name).dtype == np.float64
        assert getattr(found["test"], name) is None
    with np.load(tmp_path / "scores.npz") as stored:
        assert stored["train/components"].dtype == width


@pytest.mark.parametrize("shape", [(40,), (40, 5)])
def test_scores_of_variants_are_stored_in_32_bits_and_read_as_they_were(tmp_path, shape):
    rng = np.random.default_rng(1)
    scores = tuple(rng.random(shape).astype(np.float32).astype(np.float64) for _ in range(3))
    # Not in the order of the alphabet, and of fewer rows than the part has.
    names = ("woman", "a/b", "man")
    decided = MappingProxyType({"who": tuple((name, np.ones(40)) for name in names)})
    wide = rng.random(60)
    asked = Prediction(wide, wide, decided, counterfactual_scores={"who": scores})
    write_scores(tmp_path / "scores.npz", {"test": asked, "train": Prediction(wide, wide)})
    found = read_scores(tmp_path / "scores.npz")
    assert [name for name, _ in found["test"].counterfactuals["who"]] == list(names)
    for mine, theirs in zip(found["test"].counterfactual_scores["who"], scores, strict=True):
        assert mine.dtype == np.float64
        assert mine.tobytes() == theirs.tobytes()
    assert not found["train"].counterfactual_scores
    with np.load(tmp_path / "scores.npz") as stored:
        assert stored["test/counterfactual_score/who/man"].dtype == np.float32


def test_files_without_scores_of_variants_are_read(tmp_path):
    score = np.linspace(0, 1, 7)
    path = tmp_path / "old.npz"
    np.savez(
        path, **{"test/score": score, "test/decision": score, "test/counterfactual/s/v": score}
    )
    found = read_scores(path)["test"]
    np.testing.assert_array_equal(found.counterfactuals["s"][0][1], score)
    assert dict(found.counterfactual_scores) == {}
