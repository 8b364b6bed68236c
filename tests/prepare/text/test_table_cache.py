from __future__ import annotations

import pandas as pd
import pytest

from fairfrontier.prepare.text import corpus, table_cache
from fairfrontier.prepare.text.table_cache import FOLDER, recall_table

MODULE = "fairfrontier.prepare.text.table_cache"
FRAME = pd.DataFrame(
    {"text": pd.array(["a", "", "Ünï – `x`"], dtype="str"), "number": [1.0, 2.5, float("nan")]}
)


def test_a_table_is_made_once_for_each_description(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return FRAME.copy()

    first = recall_table(make, {"files": ("x",)}, tmp_path, MODULE)
    again = recall_table(make, {"files": ("x",)}, tmp_path, MODULE)
    pd.testing.assert_frame_equal(first, again)
    pd.testing.assert_frame_equal(first, FRAME)
    recall_table(make, {"files": ("y",)}, tmp_path, MODULE)
    assert len(calls) == 2
    assert len(list((tmp_path / FOLDER).rglob("*.parquet"))) == 2


@pytest.mark.parametrize("name", ["source_digest", "version"])
def test_other_code_and_other_libraries_make_another_table(tmp_path, monkeypatch, name):
    recall_table(FRAME.copy, {}, tmp_path, MODULE)
    monkeypatch.setattr(table_cache, name, lambda _: "other")
    other = FRAME.assign(number=0.0)
    pd.testing.assert_frame_equal(recall_table(other.copy, {}, tmp_path, MODULE), other)


def test_a_damaged_or_forbidden_file_is_no_fault(tmp_path):
    recall_table(FRAME.copy, {}, tmp_path, MODULE)
    (path,) = (tmp_path / FOLDER).rglob("*.parquet")
    # A whole table, but not the one that was written.
    FRAME.assign(number=0.0).to_parquet(path)
    pd.testing.assert_frame_equal(recall_table(FRAME.copy, {}, tmp_path, MODULE), FRAME)
    pd.testing.assert_frame_equal(pd.read_parquet(path), FRAME)
    blocked = tmp_path / "blocked"
    (blocked / "data" / "cache").mkdir(parents=True)
    (blocked / FOLDER).write_text("in the way")
    pd.testing.assert_frame_equal(recall_table(FRAME.copy, {}, blocked, MODULE), FRAME)


def test_what_was_begun_and_not_finished_is_taken_away(tmp_path, monkeypatch):
    def fail(_, path):
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", fail)
    pd.testing.assert_frame_equal(recall_table(FRAME.copy, {}, tmp_path, MODULE), FRAME)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_large_sources_are_prepared_once_and_still_checked(tmp_path, monkeypatch):
    from fairfrontier.prepare.config.dataset import read_dataset
    from fairfrontier.runtime.errors import DataError

    monkeypatch.setattr(corpus, "WORTH_BYTES", 0)
    source = tmp_path / "texts.csv"
    pd.DataFrame({"s": ["one two three", "four  five"], "y": ["a", "b"]}).to_csv(
        source, index=False
    )
    described = (
        "dataset: d\nsource: {path: texts.csv%s}\ntext: {column: s, first: 2}\n"
        "label: {column: y, positive: a}\nfeatures: {text: tfidf}\n"
        "split: {kind: random, train: 0.5, test: 0.5}\n"
    )
    path = tmp_path / "d.yaml"
    path.write_text(described % "")
    config = read_dataset(path, tmp_path)
    table = corpus.read_corpus(config, tmp_path, path)
    assert table.frame["s"].tolist() == ["one two", "four five"]
    monkeypatch.setattr(corpus, "prepare_texts", lambda *_: pytest.fail("prepared again"))
    again = corpus.read_corpus(config, tmp_path, path)
    pd.testing.assert_frame_equal(table.frame, again.frame)
    assert table.digests == again.digests
    path.write_text(described % f", sha256: {'f' * 64}")
    with pytest.raises(DataError, match="expects ffffffffffff"):
        corpus.read_corpus(read_dataset(path, tmp_path), tmp_path, path)
