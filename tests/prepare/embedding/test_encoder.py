"""Encoders of texts: which one is used, and that neither order nor batches matter."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from fairfrontier.prepare.config.dataset import read_encoder
from fairfrontier.prepare.embedding import encoder as module
from fairfrontier.prepare.embedding.encoder import (
    LatentSemantic,
    TransformerEncoder,
    choose_encoder,
)
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.embedding.graph import DIMENSION, TOKEN, VOCABULARY, make_config
from tests.prepare.embedding.sentence import SENTENCES
from tests.prepare.fetched import require_files

ROOT = Path(__file__).resolve().parents[3]
EXTRA = all(importlib.util.find_spec(name) for name in ("onnxruntime", "tokenizers"))
needs_extra = pytest.mark.skipif(not EXTRA, reason="needs the extra 'text'")


@pytest.fixture
def home(tmp_path):
    make_config(tmp_path)
    return tmp_path


@needs_extra
def test_auto_takes_the_sentence_encoder_that_is_there(home, caplog):
    encoder = choose_encoder(home=home, max_tokens=8)
    assert (encoder.name, encoder.dimension) == ("minilm", 12)
    assert encoder.digest == choose_encoder("minilm", home=home, max_tokens=8).digest
    assert not caplog.records


@pytest.mark.parametrize("library", ["onnxruntime", "tokenizers"])
def test_without_the_extra_texts_are_encoded_by_tfidf_and_that_is_said(
    home, library, monkeypatch, caplog
):
    # None in there makes an import fail as a missing package does.
    for name in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, name, None)
        if name == library:
            break
    encoder = choose_encoder(home=home, max_tokens=8)
    assert isinstance(encoder, LatentSemantic)
    assert encoder.name == "tfidf"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "by TF-IDF instead of minilm, because " in record.getMessage()
    assert "fairfrontier[text]" in record.getMessage()
    with pytest.raises(ConfigError):
        choose_encoder("minilm", home=home, max_tokens=8)


@needs_extra
def test_without_the_weights_likewise(home, caplog):
    (home / "tiny.onnx").unlink()
    assert choose_encoder(home=home, max_tokens=8).name == "tfidf"
    assert "There is no file tiny.onnx" in caplog.text
    with pytest.raises(DataError):
        choose_encoder("minilm", home=home, max_tokens=8)


@needs_extra
@pytest.mark.parametrize("name", ["auto", "minilm"])
def test_other_weights_than_stated_are_no_reason_to_use_tfidf(home, caplog, name):
    (home / "tiny.onnx").write_bytes(b"other")
    with pytest.raises(DataError, match="has sha256"):
        choose_encoder(name, home=home, max_tokens=8)
    assert not caplog.records


def test_an_encoder_is_named_as_its_file(home):
    folder = home / "conf" / "encoders"
    (folder / "other.yaml").write_text((folder / "minilm.yaml").read_text())
    with pytest.raises(ConfigError, match="calls itself 'minilm'"):
        read_encoder("other", home)
    with pytest.raises(ConfigError):
        read_encoder("../minilm", home)
    broken = json.loads((folder / "minilm.yaml").read_text()) | {"dimensions": 3}
    (folder / "minilm.yaml").write_text(json.dumps(broken))
    with pytest.raises(ConfigError, match="Did you mean 'dimension'"):
        read_encoder("minilm", home)


def test_every_bundled_encoder_is_pinned():
    names = [each.stem for each in (ROOT / "conf" / "encoders").glob("*.yaml")]
    assert "minilm" in names
    for name in names:
        config = read_encoder(name, ROOT)
        for file in (config.weights, config.tokenizer):
            assert all(origin.path or origin.sha256 for origin in file.sources)


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


def test_digest_names_texts_and_parameters():
    digests = {
        LatentSemantic(rank=4).fit(TRAIN).digest,
        LatentSemantic(rank=5).fit(TRAIN).digest,
        LatentSemantic(rank=4).fit(TRAIN[:-1]).digest,
        LatentSemantic(rank=4, words=20).fit(TRAIN).digest,
    }
    assert len(digests) == 4
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
    for texts in ([], ["", "a !"]):
        with pytest.raises(DataError):
            LatentSemantic().fit(texts)


pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def encoder(tmp_path):
    return TransformerEncoder(make_config(tmp_path), tmp_path, max_tokens=16)


def encode_by_hand(text, max_tokens):
    """Mean of the rows of TOKEN, in float64."""
    words = text.lower().replace(".", " . ").replace(",", " , ").split()
    numbers = [VOCABULARY.get(word, VOCABULARY["[UNK]"]) for word in words]
    rows = [VOCABULARY["[CLS]"], *numbers[: max_tokens - 2], VOCABULARY["[SEP]"]]
    mean = TOKEN[rows].astype(np.float64).mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("max_tokens", [3, 9, 40])
def test_vectors_are_the_mean_of_the_tokens_and_of_unit_length(tmp_path, max_tokens):
    encoder = TransformerEncoder(make_config(tmp_path), tmp_path, max_tokens=max_tokens)
    vectors = encoder.fit(SENTENCES).encode(SENTENCES)
    assert vectors.shape == (len(SENTENCES), DIMENSION)
    assert vectors.dtype == np.float32
    by_hand = np.array([encode_by_hand(text, max_tokens) for text in SENTENCES])
    # Half precision keeps 11 bits.
    np.testing.assert_allclose(vectors, by_hand, atol=2.0**-12, rtol=2.0**-11)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    requests=st.lists(st.lists(st.sampled_from([*SENTENCES[::23], ""]), max_size=12), max_size=4)
)
def test_order_duplicates_and_earlier_requests_change_no_byte(tmp_path_factory, requests):
    home = tmp_path_factory.mktemp("home")
    encoder = TransformerEncoder(make_config(home), home, max_tokens=16)
    alone = {}
    for texts in requests:
        vectors = encoder.encode(texts)
        assert vectors.shape == (len(texts), DIMENSION)
        for text, vector in zip(texts, vectors, strict=True):
            alone.setdefault(text, vector.tobytes())
            assert vector.tobytes() == alone[text]


def test_a_graph_that_quantises_its_activations_runs_every_text_alone(tmp_path):
    encoder = TransformerEncoder(make_config(tmp_path, quantised=True), tmp_path, max_tokens=16)
    texts = SENTENCES[::5]
    lengths = [len(encoder._tokenizer.encode(text).ids) for text in texts]
    alike = [text for text, length in zip(texts, lengths, strict=True) if length == max(lengths)]
    ids = np.array([encoder._tokenizer.encode(text).ids for text in alike])
    alone = np.vstack([encoder._run(row[None]) for row in ids])
    # The fault is there: together they get other bytes.
    assert (encoder._run(ids) != alone).any()
    assert encoder.encode(alike).tobytes() == alone.astype(np.float32).tobytes()


def test_a_text_that_was_encoded_is_looked_up(encoder, monkeypatch):
    first = encoder.encode(SENTENCES[:20])
    monkeypatch.setattr(encoder, "_run", lambda ids: pytest.fail("encoded again"))
    again = encoder.encode(SENTENCES[19::-1])
    assert again.tobytes() == first[::-1].tobytes()


def test_what_was_written_before_a_stop_stays(encoder, monkeypatch):
    monkeypatch.setattr(module, "BATCH_TOKENS", 16)
    run, calls = encoder._run, []

    def stop(ids):
        calls.append(ids)
        if len(calls) > 35:
            raise KeyboardInterrupt
        return run(ids)

    assert encoder._independent
    monkeypatch.setattr(encoder, "_run", stop)
    with pytest.raises(KeyboardInterrupt):
        encoder.encode(SENTENCES)
    _, found = encoder.cache.read([encoder.cache.key(text) for text in SENTENCES])
    assert found.sum() == 35


def test_progress_counts_different_texts(encoder):
    seen = []
    encoder.encode(SENTENCES[:3])
    encoder.encode((*SENTENCES[:10], SENTENCES[0]), progress=lambda *told: seen.append(told))
    assert seen[-1] == ("encoding by minilm", 10, 10)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_settings_and_files_have_their_own_digest(tmp_path, monkeypatch):
    config = make_config(tmp_path)
    other = config.model_copy(
        update={"weights": config.weights.model_copy(update={"sha256": "0" * 64})}
    )
    digests = {
        TransformerEncoder(config, tmp_path, max_tokens=8).digest,
        TransformerEncoder(config, tmp_path, max_tokens=9).digest,
    }
    assert len(digests) == 2
    # A thread more or less rounds nothing differently.
    assert TransformerEncoder(config, tmp_path, max_tokens=8, threads=2).digest in digests
    with pytest.raises(DataError, match=r"has sha256 .* is expected"):
        TransformerEncoder(other, tmp_path, max_tokens=8)
    monkeypatch.setattr(module, "source_digest", lambda _: "other")
    assert TransformerEncoder(config, tmp_path, max_tokens=8).digest not in digests


def test_a_graph_with_other_inputs_or_no_numbers_is_refused(tmp_path):
    odd = TransformerEncoder(make_config(tmp_path, extra_input="pixels"), tmp_path, max_tokens=8)
    with pytest.raises(ConfigError):
        odd.encode(["bread"])
    ill = TransformerEncoder(make_config(tmp_path, poison=True), tmp_path, max_tokens=8)
    with pytest.raises(DataError):
        ill.encode(["bread"])
    _, found = ill.cache.read([ill.cache.key("bread")])
    assert not found.any()


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    require_files("minilm")
    encoder = TransformerEncoder(read_encoder("minilm", ROOT), ROOT)
    cache = module.VectorCache(tmp_path_factory.mktemp("cache"), encoder.digest, 384)
    encoder.cache = cache
    return encoder


@pytest.mark.fetched
def test_minilm_gives_a_text_the_same_bytes_alone_and_in_any_batch(minilm):
    texts = SENTENCES[::7]
    tokens = [np.array(minilm._tokenizer.encode(text).ids, dtype=np.int64) for text in texts]
    together = np.empty((len(texts), 384), dtype=np.float16)
    sizes = set()
    for positions, vectors in minilm._batches(texts):
        together[positions] = vectors
        sizes.add(len(positions))
    assert minilm._independent
    assert max(sizes) > 4
    alone = np.vstack([minilm._run(each[None]) for each in tokens])
    assert together.tobytes() == alone.tobytes()


@pytest.mark.fetched
def test_minilm_knows_what_sentences_are_about(minilm):
    vectors = minilm.encode(
        ["A cat sat on the mat.", "A kitten rests on a rug.", "Shares fell in New York."]
    )
    near, far, _ = (vectors @ vectors.T)[[0, 0, 1], [1, 2, 2]]
    assert near > 0.5 > 0.3 > far


def test_batches_that_run_at_once_give_the_same_bytes(tmp_path, monkeypatch):
    config = make_config(tmp_path)
    one = TransformerEncoder(config, tmp_path, max_tokens=16)
    several = TransformerEncoder(config, tmp_path, max_tokens=16, threads=4)
    # A cache of its own, or everything would be looked up.
    several.cache = module.VectorCache(tmp_path / "other", several.digest, DIMENSION)
    monkeypatch.setattr(module, "BATCH_TOKENS", 24)
    texts = SENTENCES[::4]
    assert several.encode(texts).tobytes() == one.encode(texts).tobytes()
