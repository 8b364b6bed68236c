from __future__ import annotations

import importlib.util
import json
import logging
import sys
from pathlib import Path

import pytest

from fairfrontier.prepare.config.text import read_encoder
from fairfrontier.prepare.embedding.choice import choose_encoder
from fairfrontier.prepare.embedding.latent import LatentSemantic
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.embedding.graph import make_config
from tests.prepare.embedding.sentence import SENTENCES

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
    encoder = choose_encoder(home=home, max_tokens=8, rank=5)
    assert isinstance(encoder, LatentSemantic)
    assert encoder.name == "tfidf"
    assert encoder.fit(SENTENCES).encode(SENTENCES[:4]).shape == (4, 5)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "by TF-IDF instead of minilm, because " in record.getMessage()
    assert "fairfrontier[text]" in record.getMessage()
    with pytest.raises(ConfigError, match="fairfrontier"):
        choose_encoder("minilm", home=home, max_tokens=8)


@needs_extra
def test_without_the_weights_likewise(home, caplog):
    (home / "tiny.onnx").unlink()
    assert choose_encoder(home=home, max_tokens=8).name == "tfidf"
    assert "There is no file tiny.onnx" in caplog.text
    with pytest.raises(DataError, match="no file"):
        choose_encoder("minilm", home=home, max_tokens=8)


@needs_extra
@pytest.mark.parametrize("name", ["auto", "minilm"])
def test_other_weights_than_stated_are_no_reason_to_use_tfidf(home, caplog, name):
    (home / "tiny.onnx").write_bytes(b"other")
    with pytest.raises(DataError, match="has sha256"):
        choose_encoder(name, home=home, max_tokens=8)
    assert not caplog.records


def test_tfidf_by_name_says_nothing(home, caplog):
    assert choose_encoder("tfidf", home=home).name == "tfidf"
    assert not caplog.records


def test_unknown_names_and_wrong_numbers_are_errors(home):
    with pytest.raises(ConfigError, match="Did you mean 'minilm'"):
        choose_encoder("minlim", home=home)
    with pytest.raises(ConfigError, match="rank is 0"):
        choose_encoder(home=home, rank=0)


def test_an_encoder_is_named_as_its_file(home):
    folder = home / "conf" / "encoders"
    (folder / "other.yaml").write_text((folder / "minilm.yaml").read_text())
    with pytest.raises(ConfigError, match="calls itself 'minilm'"):
        read_encoder("other", home)
    with pytest.raises(ConfigError, match="There is no encoder"):
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
