from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer

from fairfrontier.prepare.embedding import latent as module
from fairfrontier.prepare.embedding.latent import LatentSemantic
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.embedding.sentence import SENTENCES

TRAIN, TEST = SENTENCES[::2], SENTENCES[1::2]


def make_tables():
    words = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode")
    return words.fit_transform(TRAIN).toarray(), words.transform(TEST).toarray()


@pytest.mark.parametrize("rank", [1, 15, 384])
def test_vectors_are_coordinates_on_the_largest_directions_of_the_training_texts(rank):
    train, test = make_tables()
    _, values, directions = np.linalg.svd(train)
    there = min(rank, int((values > 1e-7 * values[0]).sum()))
    # The next one is clearly smaller, so that the space of the first is the only one.
    assert values[there - 1] > 1.4 * values[there]
    exact = test @ directions[:there].T
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    vectors = LatentSemantic(rank=rank).fit(TRAIN).encode(TEST)
    assert vectors.shape == (len(TEST), there)
    assert vectors.dtype == np.float32
    # Cosines do not depend on the signs of directions, nor on turning equal ones.
    np.testing.assert_allclose(vectors @ vectors.T, exact @ exact.T, atol=1e-5)


def test_it_is_scikit_learns_truncated_svd():
    words = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode")
    svd = TruncatedSVD(6, random_state=0).fit(words.fit_transform(TRAIN))
    exact = svd.transform(words.transform(TEST))
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    np.testing.assert_allclose(LatentSemantic(rank=6).fit(TRAIN).encode(TEST), exact, atol=1e-6)


def test_test_texts_change_nothing():
    encoder = LatentSemantic(rank=6).fit(TRAIN)
    before = encoder.encode(TEST), encoder.digest
    encoder.encode(["entirely new words", *TEST])
    assert encoder.encode(TEST).tobytes() == before[0].tobytes()
    assert encoder.digest == before[1]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([*TEST[:9], "", "unknown"]), max_size=20), st.integers(1, 7))
def test_a_text_has_the_same_bytes_whatever_is_beside_it(texts, chunk):
    encoder = FITTED
    alone = [encoder.encode([text])[0] for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        vectors = encoder.encode(texts)
    assert vectors.shape == (len(texts), encoder.dimension)
    assert [row.tobytes() for row in vectors] == [row.tobytes() for row in alone]
    length = np.linalg.norm(vectors, axis=1)
    known = np.array([text not in ("", "unknown") for text in texts], dtype=float)
    np.testing.assert_allclose(length, known, atol=1e-6)


FITTED = LatentSemantic(rank=8).fit(TRAIN)


def test_vectors_of_other_code_are_not_taken(monkeypatch):
    before = LatentSemantic(rank=4).fit(TRAIN).digest
    monkeypatch.setattr("fairfrontier.prepare.embedding.latent.source_digest", lambda _: "other")
    assert LatentSemantic(rank=4).fit(TRAIN).digest != before


def test_digest_names_texts_and_parameters():
    digests = {
        LatentSemantic(rank=4).fit(TRAIN).digest,
        LatentSemantic(rank=5).fit(TRAIN).digest,
        LatentSemantic(rank=4).fit(TRAIN[:-1]).digest,
        LatentSemantic(rank=4, words=20).fit(TRAIN).digest,
        LatentSemantic(rank=4, random_state=1).fit(TRAIN).digest,
    }
    assert len(digests) == 5
    assert LatentSemantic(rank=4).fit(list(TRAIN)).digest in digests
    assert FITTED.name == "tfidf"


@pytest.mark.parametrize(
    ("texts", "dimension"),
    [
        (["bread"], 1),
        (["bread butter"], 1),
        (["bread", "bread"], 1),
        (["bread butter", "bread butter", "river"], 2),
        (["bread", "butter", "river bread"], 3),
    ],
)
def test_few_texts_have_few_directions(texts, dimension):
    encoder = LatentSemantic().fit(texts)
    assert encoder.dimension == dimension
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(texts), axis=1), 1.0, atol=1e-6)


def test_what_cannot_be_is_refused():
    for wrong in ({"rank": 0}, {"words": 0}, {"threads": 0}):
        with pytest.raises(ConfigError):
            LatentSemantic(**wrong)
    for texts in ([], ["", "a !"], ["bread", None]):
        with pytest.raises(DataError):
            LatentSemantic().fit(texts)
    for ask in ("dimension", "digest"):
        with pytest.raises(NotFittedError):
            getattr(LatentSemantic(), ask)


def test_progress_counts_texts(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    seen = []
    FITTED.encode(TEST[:10], progress=lambda *told: seen.append(told))
    assert seen == [("encoding by tfidf", done, 10) for done in (4, 8, 10)]
