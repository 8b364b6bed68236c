"""Tables of texts: cleaned, masked, kept and searched."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier import load
from fairfrontier.prepare.config.dataset import Text, read_dataset
from fairfrontier.prepare.source.fetch import find_source
from fairfrontier.prepare.text import corpus
from fairfrontier.prepare.text.corpus import (
    FOLDER,
    cached_table,
    clean_texts,
    locate_token,
    mask_word,
    prepare_texts,
    read_corpus,
    unwrap,
)
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.conftest import fingerprint
from tests.prepare.text.conftest import HOME

TOKENS = st.lists(st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1), min_size=1)


@given(TOKENS, st.data())
def test_tokens_are_located_whatever_blanks_are_between(tokens, data):
    gaps = data.draw(st.lists(st.sampled_from(["", " ", "\n  "]), min_size=len(tokens)))
    text = "".join(gap + token for gap, token in zip(gaps, tokens, strict=False))
    index = data.draw(st.integers(0, len(tokens) - 1))
    start, end = locate_token(text, tokens, index)
    assert text[start:end] == tokens[index]
    assert "".join(text[:start].split()) == "".join(tokens[:index])


@pytest.mark.parametrize(
    ("tokens", "index", "message"),
    [
        (["a", "c"], 1, "'c' is not in its text at character 2"),
        (["a"], 1, "no token 1 among 1"),
        (["a"], -1, "no token -1"),
    ],
)
def test_tokens_of_another_text(tokens, index, message):
    with pytest.raises(DataError, match=message):
        locate_token("a b", tokens, index)


@pytest.mark.parametrize(
    ("text", "word", "masked"),
    [
        ("Nurses and a nurse's nursery", "nurse", "# and a #'s nursery"),
        ("secretaries, SECRETARY", "secretary", "#, #"),
        ("bosses boss bossy", "boss", "# # bossy"),
        ("boys, boies and a boy", "boy", "#, boies and a #"),
        ("co-author, author_id", "author", "co-#, author_id"),
        ("a c++ x", "c++", "a # x"),
        ("vice  presidents, Vice-President", "vice president", "#, #"),
        ("a police officer", " police_officer ", "a #"),
        ("public secretaries", "public-secretary", "#"),
        ("so. it's - no s", " ", "so. it's - no s"),
    ],
)
def test_words_are_masked_whole(text, word, masked):
    assert mask_word(text, word, "#") == masked


def test_each_text_has_its_own_word(occupations):
    masked = list(map(mask_word, occupations["sentence"], occupations["job"]))
    assert [text.count("[MASK]") for text in masked] == [1] * len(masked)
    # A mask is put in as it is written.
    assert mask_word("a b", "a", r"\1") == r"\1 b"


FRAME = pd.DataFrame(
    {"text": pd.array(["a", "", "Ünï – `x`"], dtype="str"), "number": [1.0, 2.5, float("nan")]}
)


def test_a_table_is_made_once_for_each_description(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return FRAME.copy()

    first = cached_table(make, {"files": ("x",)}, tmp_path)
    again = cached_table(make, {"files": ("x",)}, tmp_path)
    pd.testing.assert_frame_equal(first, again)
    pd.testing.assert_frame_equal(first, FRAME)
    cached_table(make, {"files": ("y",)}, tmp_path)
    assert len(calls) == 2
    assert len(list((tmp_path / FOLDER).rglob("*.parquet"))) == 2


@pytest.mark.parametrize("name", ["source_digest", "version"])
def test_other_code_and_other_libraries_make_another_table(tmp_path, monkeypatch, name):
    cached_table(FRAME.copy, {}, tmp_path)
    monkeypatch.setattr(corpus, name, lambda _: "other")
    other = FRAME.assign(number=0.0)
    pd.testing.assert_frame_equal(cached_table(other.copy, {}, tmp_path), other)


def test_a_damaged_or_forbidden_file_is_no_fault(tmp_path):
    cached_table(FRAME.copy, {}, tmp_path)
    (path,) = (tmp_path / FOLDER).rglob("*.parquet")
    # A whole table, but not the one that was written.
    FRAME.assign(number=0.0).to_parquet(path)
    pd.testing.assert_frame_equal(cached_table(FRAME.copy, {}, tmp_path), FRAME)
    pd.testing.assert_frame_equal(pd.read_parquet(path), FRAME)
    blocked = tmp_path / "blocked"
    (blocked / "data" / "cache").mkdir(parents=True)
    (blocked / FOLDER).write_text("in the way")
    pd.testing.assert_frame_equal(cached_table(FRAME.copy, {}, blocked), FRAME)


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
    with pytest.raises(DataError):
        corpus.read_corpus(read_dataset(path, tmp_path), tmp_path, path)


COMMENTS = {
    "dataset": "comments",
    "source": {
        "path": "comments.tsv",
        "separator": "\t",
        "missing": [],
        "votes": {"path": "votes.tsv", "by": "id", "column": "toxic", "tie": 0},
    },
    "text": {"column": "comment", "replace": {"NEWLINE_TOKEN": " "}, "mentions": "identity"},
    "rows": {"keep": {"text:terms": {"at_least": 1}, "text:words": {"at_most": 100}}},
    "label": {"column": "toxic", "positive": 1},
    "features": {"passthrough": ["text:words"]},
    "groups": {"muslim": {"column": "mention:muslim"}, "black": {"column": "mention:black"}},
    "split": {"kind": "stratified", "train": 0.7, "test": 0.3},
}


@pytest.fixture
def project(tmp_path, comments):
    """Write the comments, three votes on each, and a function that writes their YAML."""
    folder = tmp_path / "conf" / "vocabularies"
    folder.mkdir(parents=True)
    name = "identity.yaml"
    (folder / name).write_text((HOME / "conf/vocabularies" / name).read_text(encoding="utf-8"))
    ids = np.arange(len(comments))
    texts = "NEWLINE_TOKENSo:NEWLINE_TOKEN " + comments["comment"].str.replace('"', "")
    table = pd.DataFrame({"id": [f"{each}.0" for each in ids], "comment": texts})
    table.loc[len(table)] = [str(len(table)), "No term, no vote"]
    table.to_csv(tmp_path / "comments.tsv", sep="\t", index=False)
    toxic = (comments["opinion"] == "toxic").astype(int).to_numpy()
    votes = pd.DataFrame({"id": np.repeat(ids, 3), "toxic": np.repeat(toxic, 3)})
    votes.loc[::3, "toxic"] = 1 - votes.loc[::3, "toxic"]
    votes.to_csv(tmp_path / "votes.tsv", sep="\t", index=False)

    def write(**sections):
        (tmp_path / "conf" / "datasets").mkdir(exist_ok=True)
        path = tmp_path / "conf" / "datasets" / "comments.yaml"
        path.write_text(yaml.safe_dump({**COMMENTS, **sections}), encoding="utf-8")
        return path

    return write


def test_comments_come_with_their_votes_and_mentions(project, tmp_path, comments):
    path = project()
    frame = read_corpus(read_dataset(path, tmp_path), tmp_path, path).frame
    assert len(frame) == len(comments) + 1
    frame = frame.iloc[:-1]
    wanted = "So: " + comments["comment"].str.replace('"', "")
    assert frame["comment"].tolist() == wanted.tolist()
    toxic = comments["opinion"] == "toxic"
    assert frame["toxic"].tolist() == toxic.map({True: "1", False: "0"}).tolist()
    assert frame["text:terms"].tolist() == [1.0] * len(comments)
    assert frame["text:words"].tolist() == wanted.str.split().str.len().tolist()
    for family in ("muslim", "white", "black"):
        terms = {"black": "african american"}.get(family, family)
        mentioned = (comments["term"] == terms).map({True: "yes", False: "no"})
        assert frame[f"mention:{family}"].tolist() == mentioned.tolist()


def test_comments_load_as_a_split(project, tmp_path, comments):
    split = load(project(), home=tmp_path)
    assert split.train.n_samples + split.test.n_samples == len(comments)
    assert split.train.attributes["muslim"] == ("no", "yes")
    assert split.train.y.mean() == pytest.approx(0.5, abs=0.01)
    with pytest.raises(ConfigError):
        load(project(), home=tmp_path, backend="dask")
    # A row without votes has no label.
    with pytest.raises(DataError, match="'toxic' is missing in 1 rows"):
        load(project(rows={}), home=tmp_path)


def test_digests_follow_votes_and_vocabulary_but_not_prose(project, tmp_path):
    path = project()
    whole = load(path, home=tmp_path).digest
    mark = fingerprint(path, home=tmp_path)
    vocabulary = tmp_path / "conf/vocabularies/identity.yaml"
    content = yaml.safe_load(vocabulary.read_text(encoding="utf-8"))
    vocabulary.write_text(yaml.safe_dump({**content, "notes": "x"}, sort_keys=False))
    assert load(path, home=tmp_path).digest == whole
    vocabulary.write_text(
        yaml.safe_dump({**content, "terms": [*content["terms"], "purple"]}, sort_keys=False)
    )
    assert load(path, home=tmp_path).digest != whole
    vocabulary.write_text(yaml.safe_dump(content, sort_keys=False))
    assert fingerprint(path, home=tmp_path) == mark
    votes = tmp_path / "votes.tsv"
    votes.write_text(votes.read_text() + "0\t1\n")
    assert load(path, home=tmp_path).digest != whole
    assert fingerprint(path, home=tmp_path) != mark


def test_votes_are_fetched_like_the_table(project, tmp_path):
    raw = (tmp_path / "votes.tsv").read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    file = {"sources": [{"url": "http://127.0.0.1:9/votes.tsv"}], "sha256": digest}
    votes = {**COMMENTS["source"]["votes"], "path": file}
    path = project(source={**COMMENTS["source"], "votes": votes})
    config = read_dataset(path, tmp_path)
    assert find_source(config.source, path, tmp_path) is None
    kept = tmp_path / "data/cache/downloads" / digest
    kept.mkdir(parents=True)
    (kept / "votes.tsv").write_bytes(raw)
    found = find_source(config.source, path, tmp_path)
    assert found is not None
    assert found.votes.path.path == str(kept / "votes.tsv")
    assert load(path, home=tmp_path).train.n_samples > 0


def test_texts_are_cleaned_in_blocks_and_progress_is_told(identity, monkeypatch):
    frame = pd.DataFrame({"text": [f"a  {word}" for word in ("gay", "red", "GAY cat")] * 3})
    told = []
    text = Text.model_validate({"column": "text", "first": 2, "mentions": identity.model_dump()})
    whole = prepare_texts(frame, text, "x.yaml")
    monkeypatch.setattr(corpus, "BLOCK_TEXTS", 4)
    blocks = prepare_texts(frame, text, "x.yaml", lambda *each: told.append(each[1:]))
    pd.testing.assert_frame_equal(blocks, whole)
    assert blocks["text:terms"].tolist() == [1, 0, 1] * 3
    assert told == [(0, 9), (4, 9), (8, 9)]


def test_occupations_are_masked_and_written_in_lower_case(tmp_path, occupations):
    occupations.to_csv(tmp_path / "jobs.csv", index=False)
    config = {
        "dataset": "jobs",
        "source": {"path": "jobs.csv"},
        "text": {"column": "sentence", "lower": ["job"], "mask": {"column": "job", "by": "X"}},
        "label": {"column": "job", "task": "multiclass"},
        "features": {"passthrough": ["text:words"]},
        "groups": {"gender": {"column": "pronoun", "levels": {"female": ["her"], "male": ["his"]}}},
        "split": {"kind": "stratified", "train": 0.7, "test": 0.3},
    }
    path = tmp_path / "jobs.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    frame = read_corpus(read_dataset(path, tmp_path), tmp_path, path).frame
    assert set(frame["job"]) == {"nurse", "pilot", "author"}
    assert frame["sentence"].str.count(r"\bX\b").eq(1).all()
    assert not frame["sentence"].str.contains("nurse|pilot|author", case=False).any()
    (tmp_path / "conf" / "datasets").mkdir(parents=True)
    assert load(path, home=tmp_path).train.attributes["gender"] == ("female", "male")


def test_biographies_in_parquet(tmp_path, occupations):
    # The layout of LabHC/bias_in_bios: whole numbers for both, one file per part.
    bios = pd.DataFrame(
        {
            "hard_text": occupations["sentence"] + " ",
            "profession": occupations["job"].map({"Nurse": 13, "Pilot": 2, "Author": 0}),
            "gender": (occupations["pronoun"] == "her").astype(int),
        }
    )
    for part, rows in (("train", bios[::2]), ("test", bios[1::2])):
        rows.to_parquet(tmp_path / f"{part}.parquet", index=False)
    config = {
        "dataset": "bios",
        "source": {
            "format": "parquet",
            "path": [{"path": f"{part}.parquet", "part": part} for part in ("train", "test")],
        },
        "text": {"column": "hard_text", "lower": ["profession"]},
        "label": {"column": "profession", "task": "multiclass"},
        "features": {"passthrough": ["text:words"]},
        "groups": {"gender": {"column": "gender", "levels": {"male": [0], "female": [1]}}},
        "split": {"kind": "column", "column": "part", "train": "train", "test": "test"},
    }
    path = tmp_path / "bios.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    (tmp_path / "conf" / "datasets").mkdir(parents=True)
    split = load(path, home=tmp_path)
    assert split.train.classes == ("0", "2", "13")
    frame = read_corpus(read_dataset(path, tmp_path), tmp_path, path).frame
    assert frame["hard_text"].tolist()[:2] == occupations["sentence"].tolist()[:3:2]
    assert frame["part"].tolist() == ["train"] * 54 + ["test"] * 54


def test_one_token_is_masked_by_its_position():
    frame = pd.DataFrame(
        {"s": ["A  nurse saw a nurse ."], "t": [repr(["A", "nurse", "saw", "a", "nurse", "."])]}
    )
    text = Text(column="s", mask={"tokens": "t", "index": "i"})
    for index, masked in ((1, "A [MASK] saw a nurse ."), ("4.0", "A nurse saw a [MASK] .")):
        done = prepare_texts(frame.assign(i=[index]), text, "f")
        assert done["s"].tolist() == [masked]
    # Tokens are those of the text before anything is replaced in it.
    replaced = text.model_copy(update={"replace": {"nurse": "cook"}})
    done = prepare_texts(frame.assign(i=["1"]), replaced, "f")
    assert done["s"].tolist() == ["A [MASK] saw a cook ."]
    with pytest.raises(DataError, match=r"f: text\.mask: row 0: There is no token 9"):
        prepare_texts(frame.assign(i=[9]), text, "f")
    for index in ("x", "1.5", "inf", "nan."):
        with pytest.raises(DataError, match=f"row 0 holds '{index}', which is no position"):
            prepare_texts(frame.assign(i=[index]), text, "f")


def test_the_longest_is_replaced_once():
    replace = {"``": '"', "`": "'", "'": "#", "TAB": " "}
    assert clean_texts(["``a` TAB\n b'", " "], replace) == ["\"a' b#", ""]
    assert clean_texts([" a \u00a0\t b "], {}) == ["a b"]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("`he said ``no`` to it`", "he said `no` to it"),
        ("```no`` he said`", "`no` he said"),
        ("no `mark` at the ends", "no `mark` at the ends"),
        ("`one end", "`one end"),
        ("`", "`"),
        ("``", ""),
        ("", ""),
    ],
)
def test_marks_around_a_cell_are_no_part_of_its_text(cell, text):
    assert unwrap(cell, "`") == text
    made = prepare_texts(
        pd.DataFrame({"text": [cell]}), Text(column="text", enclosed="`", replace={"`": "'"}), "x"
    )
    assert made["text"].tolist() == [text.replace("`", "'")]


def test_letters_and_their_marks_are_one_character():
    assert clean_texts(["cafe\u0301 s\u0327"], {}) == ["caf\u00e9 \u015f"]


def test_tables_that_do_not_fit():
    frame = pd.DataFrame({"s": pd.array(["a", None], dtype="str"), "w": ["a", None]})
    assert prepare_texts(frame, Text(column="s"), "f")["s"].tolist() == ["a", ""]
    with pytest.raises(ConfigError, match="f: text: the table has no column 'z'"):
        prepare_texts(frame, Text(column="z"), "f")
    with pytest.raises(DataError, match="column 'w' has 1 missing cells, first in row 1"):
        prepare_texts(frame, Text(column="s", mask={"column": "w"}), "f")
    blank = frame.assign(w=["a", " "])
    with pytest.raises(DataError, match="column 'w' has 1 missing cells, first in row 1"):
        prepare_texts(blank, Text(column="s", mask={"column": "w"}), "f")


def test_texts_are_no_rest(tmp_path, occupations):
    occupations.assign(size=1.5).to_csv(tmp_path / "jobs.csv", index=False)
    config = {
        "dataset": "jobs",
        "source": {"path": "jobs.csv"},
        "text": {"column": "sentence", "lower": ["job"]},
        "label": {"column": "job", "task": "multiclass"},
        "features": {"numeric": "rest", "drop": ["pronoun"]},
        "split": {"kind": "stratified", "train": 0.7, "test": 0.3},
    }
    path = tmp_path / "jobs.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    (tmp_path / "conf" / "datasets").mkdir(parents=True)
    assert load(path, home=tmp_path).feature_names == ("size",)
