from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairfrontier.prepare.config.text import read_encoder
from fairfrontier.prepare.embedding import transformer as module
from fairfrontier.prepare.embedding.transformer import TransformerEncoder
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.embedding.graph import DIMENSION, TOKEN, VOCABULARY, make_config
from tests.prepare.embedding.sentence import SENTENCES
from tests.prepare.fetched import require_files

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


def test_batches_hold_texts_of_one_length(encoder, monkeypatch):
    monkeypatch.setattr(module, "BATCH_TOKENS", 40)
    shapes = []
    run = encoder._run

    def watch(ids):
        shapes.append(ids.shape)
        assert (ids != VOCABULARY["[PAD]"]).all()
        return run(ids)

    assert encoder._independent
    monkeypatch.setattr(encoder, "_run", watch)
    encoder.encode(SENTENCES)
    assert sum(n for n, _ in shapes) == len(SENTENCES)
    assert max(length for _, length in shapes) == 16
    assert all(n * length <= 40 for n, length in shapes)
    assert [length for _, length in shapes] == sorted((each for _, each in shapes), reverse=True)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
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
    monkeypatch.setattr(module, "FLUSH_TEXTS", 10)
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
    assert found.sum() == 30


def test_progress_counts_different_texts(encoder):
    seen = []
    encoder.encode(SENTENCES[:3])
    encoder.encode((*SENTENCES[:10], SENTENCES[0]), progress=lambda *told: seen.append(told))
    assert seen == [("encoding by minilm", 10, 10)]


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


def test_what_cannot_be_is_refused(tmp_path):
    config = make_config(tmp_path)
    for wrong in ({"max_tokens": 2}, {"max_tokens": 41}, {"threads": 0, "max_tokens": 8}):
        with pytest.raises(ConfigError):
            TransformerEncoder(config, tmp_path, **wrong)
    encoder = TransformerEncoder(config, tmp_path, max_tokens=8)
    for texts in ([None], ["a", 3], ["\ud800"]):
        with pytest.raises(DataError, match=f"Text {len(texts) - 1} "):
            encoder.encode(texts)


def test_a_graph_with_other_inputs_or_no_numbers_is_refused(tmp_path):
    odd = TransformerEncoder(make_config(tmp_path, extra_input="pixels"), tmp_path, max_tokens=8)
    with pytest.raises(ConfigError, match="wants pixels"):
        odd.encode(["bread"])
    ill = TransformerEncoder(make_config(tmp_path, poison=True), tmp_path, max_tokens=8)
    with pytest.raises(DataError, match="not finite"):
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
    assert several.encode(SENTENCES).tobytes() == one.encode(SENTENCES).tobytes()


def test_texts_cut_to_the_same_tokens_are_run_once(tmp_path, monkeypatch):
    encoder = TransformerEncoder(make_config(tmp_path), tmp_path, max_tokens=5)
    long = [f"{SENTENCES[0]} and {each}" for each in SENTENCES[1:9]]
    assert encoder._independent
    run, rows = encoder._run, []

    def watch(ids):
        rows.append(len(ids))
        return run(ids)

    monkeypatch.setattr(encoder, "_run", watch)
    vectors = encoder.encode(long)
    assert sum(rows) == 1
    assert (vectors == vectors[0]).all()
