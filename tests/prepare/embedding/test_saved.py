"""Encoders of texts that are taken along give the vectors that they gave before, from bytes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairfrontier.prepare.embedding import feature
from fairfrontier.prepare.embedding.encoder import (
    LatentSemantic,
    TransformerEncoder,
    load_encoder,
    save_encoder,
)
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.runtime.errors import ConfigError, FairfrontierError
from tests.prepare.embedding.graph import TOKEN, make_config, make_graph
from tests.prepare.embedding.sentence import SENTENCES
from tests.prepare.embedding.test_feature import COMMENTS, project
from tests.prepare.text.conftest import make_comments

__all__ = ["project"]


@pytest.fixture(params=["tfidf", "graph"])
def encoder(request, tmp_path):
    if request.param == "tfidf":
        return LatentSemantic(rank=8, home=tmp_path).fit(SENTENCES[:200])
    return TransformerEncoder(make_config(tmp_path), tmp_path, max_tokens=12)


def test_a_saved_encoder_gives_the_same_bytes_without_cache(encoder, tmp_path):
    wanted = encoder.encode(SENTENCES)
    save_encoder(encoder, tmp_path / "saved")
    again = load_encoder(tmp_path / "saved", threads=2)
    assert np.array_equal(again.encode(SENTENCES), wanted)
    # Neither others nor their order matter.
    assert np.array_equal(again.encode(SENTENCES[7:3:-1]), wanted[7:3:-1])
    assert again.encode([]).shape == (0, encoder.dimension)
    assert not [*(tmp_path / "saved").rglob("*.pkl")]


def test_a_saved_graph_needs_its_libraries(tmp_path, monkeypatch):
    encoder = TransformerEncoder(make_config(tmp_path), tmp_path, max_tokens=12)
    save_encoder(encoder, tmp_path / "saved")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError):
        load_encoder(tmp_path / "saved")


def encode_later(path, tmp_path):
    """Return a dataset's split, and its raw table encoded by what was saved."""
    table = fit_table(make_request(path, home=tmp_path))
    split = table.encode()
    (tmp_path / "rows").mkdir()
    RowEncoder.of(table).save(tmp_path / "rows")
    encoder = RowEncoder.load(tmp_path / "rows")
    raw = pd.read_csv(tmp_path / "comments.csv")
    return split, encoder, raw, encoder.encode(raw, encoder.names)


def test_raw_texts_are_prepared_and_encoded_as_in_the_study(project, tmp_path):
    text = {**COMMENTS["text"], "replace": {"e": "ee"}, "first": 12}
    split, encoder, raw, rows = encode_later(project(text=text), tmp_path)
    for part in (split.train, split.test):
        assert rows.refusals.accepted[part.ids].all()
        # Texts are not prepared twice: "e" would become "eeee".
        assert np.array_equal(rows.X[part.ids], part.X)
        assert np.array_equal(rows.groups[part.ids], part.groups)
        assert np.array_equal(encoder.read_labels(raw)[part.ids], part.y)
    assert encoder.features == ("comment",) == encoder.grouped
    assert encoder.described == ("text:words",)
    absent = encoder.encode(raw.head(3).assign(comment=[None, "", "  "]))
    assert absent.refusals.accepted.all()
    assert (absent.X == 0).all()
    with pytest.raises(ConfigError, match=r"no column 'comment'.*Did you mean 'Comment'"):
        encoder.encode(raw.rename(columns={"comment": "Comment"}))


def test_rows_without_the_word_to_be_masked_are_refused(project, tmp_path):
    words = make_comments().assign(word="The", LOUD="YES")
    words.to_csv(tmp_path / "comments.csv", index=False)
    path = project(
        text={"column": "comment", "mask": {"column": "word"}, "lower": ["LOUD"]},
        features={"text": "tfidf", "categorical": ["LOUD"]},
        groups={"opinion": {"column": "opinion"}},
    )
    split, encoder, raw, rows = encode_later(path, tmp_path)
    assert np.array_equal(rows.X[split.test.ids], split.test.X)
    assert encoder.features == ("LOUD", "comment", "word")
    raw["word"] = ["x", None, *["x"] * (len(raw) - 2)]
    later = encoder.encode(raw)
    assert later.refusals.reasons[:3].tolist() == ["", "word is missing", ""]


def test_vectors_of_ones_own_are_not_taken_along(project, tmp_path):
    np.save(tmp_path / "own.npy", np.eye(len(make_comments()), 4, dtype=np.float32))
    path = project(text={"column": "comment"}, features={"text": {"encoder": "own.npy"}}, groups={})
    table = fit_table(make_request(path, home=tmp_path))
    assert isinstance(table.encoder.blocks[-1], feature.SuppliedBlock)
    with pytest.raises(ConfigError, match="are read from a file, and later rows have none"):
        RowEncoder.of(table)


@pytest.fixture
def graph(tmp_path):
    """Return a function that saves an encoder with other files."""

    def save(name=None, content=b""):
        encoder = TransformerEncoder(make_config(tmp_path), tmp_path, max_tokens=12)
        save_encoder(encoder, tmp_path / "saved")
        if name is not None:
            (tmp_path / "saved" / name).write_bytes(content)
        return load_encoder(tmp_path / "saved")

    return save


def refuse(encoder, reason):
    with pytest.raises(FairfrontierError) as caught:
        encoder.encode(SENTENCES[:3])
    assert re.search(reason, str(caught.value))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"nonsense", "Protobuf parsing failed"),
        (make_graph(extra_input="pixels"), "wants pixels"),
        (make_graph(poison=True), "not finite"),
        (make_graph(location="../secret"), "External data path validation failed"),
        (make_graph(location="/etc/passwd"), "External data path validation failed"),
        (make_graph(location="link"), "External data path validation failed"),
    ],
    ids=["nonsense", "input", "poison", "above", "absolute", "link"],
)
def test_other_graphs_than_a_sentence_encoders_are_refused(graph, tmp_path, content, reason):
    # The same numbers: read, they would do.
    (tmp_path / "secret").write_bytes(TOKEN.tobytes())
    encoder = graph("model.onnx", content)
    (tmp_path / "saved" / "link").symlink_to(tmp_path / "secret")
    refuse(encoder, reason)


def test_an_encoder_of_a_relative_folder_stays_where_it_was(graph, tmp_path, monkeypatch):
    graph()
    monkeypatch.chdir(tmp_path)
    encoder = load_encoder(Path("saved"))
    monkeypatch.chdir("/")
    assert encoder.encode(SENTENCES[:3]).shape == (3, encoder.dimension)
