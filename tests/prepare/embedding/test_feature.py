"""Datasets of texts as splits: vectors, counterfactual texts, and what names them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import yaml

from fairfrontier import load
from fairfrontier.prepare.embedding.encoder import LatentSemantic
from fairfrontier.prepare.embedding.feature import TextVariants, encode_versions
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.conftest import fingerprint
from tests.prepare.text.conftest import HOME, make_comments

COMMENTS = {
    "dataset": "comments",
    "source": {"path": "comments.csv"},
    "text": {
        "column": "comment",
        "mentions": "identity",
        "versions": {
            "identity": {
                "terms": "identity",
                "known": 40,
                "draw": {"train": 2},
                "rows": {"test": 10},
            }
        },
    },
    "label": {"column": "opinion", "positive": "toxic"},
    "features": {"text": "tfidf", "passthrough": ["text:words"]},
    "groups": {"muslim": {"column": "mention:muslim"}},
    "split": {"kind": "stratified", "train": 0.7, "test": 0.3},
}


@pytest.fixture
def project(tmp_path):
    """Write comments of our own, and a function that writes their YAML."""
    for folder in ("conf/datasets", "conf/vocabularies"):
        (tmp_path / folder).mkdir(parents=True)
    text = (HOME / "conf/vocabularies/identity.yaml").read_text(encoding="utf-8")
    (tmp_path / "conf/vocabularies/identity.yaml").write_text(text, encoding="utf-8")
    make_comments().to_csv(tmp_path / "comments.csv", index=False)

    def write(drop=(), **sections):
        path = tmp_path / "conf/datasets/comments.yaml"
        data = {key: each for key, each in {**COMMENTS, **sections}.items() if key not in drop}
        path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        return path

    return write


def test_vectors_are_columns_fitted_on_training_texts(project, tmp_path):
    split = load(project(), home=tmp_path)
    texts = make_comments()["comment"]
    encoder = LatentSemantic(home=tmp_path).fit(texts[split.train.ids])
    assert split.text_encoder == "tfidf"
    for _, part in split.parts():
        assert part.X.shape[1] == 1 + encoder.dimension
        assert np.array_equal(part.X[:, 0], texts[part.ids].str.split().str.len())
        assert np.array_equal(part.X[:, 1:], encoder.encode(texts[part.ids]))
    assert split.feature_names[:2] == ("text:words", "comment_0")


def test_a_variant_has_other_vectors_in_its_rows_and_no_others(project, tmp_path):
    test = load(project(), home=tmp_path).test
    variants = test.counterfactuals["identity"]
    assert isinstance(variants, TextVariants)
    assert len(variants) == len(variants.names) == 50
    assert variants.rows.size == 10
    rest = np.setdiff1d(np.arange(test.n_samples), variants.rows)
    encoder = variants.encoder
    for variant, version in zip(variants, variants.versions.versions, strict=True):
        assert np.array_equal(variant.X[rest], test.X[rest])
        assert np.array_equal(variant.X[:, 0], test.X[:, 0])
        wanted = encoder.encode(version.write().texts)
        assert np.array_equal(variant.X[variants.rows, 1:], wanted)
        assert np.array_equal(variant.groups, test.groups)
    # A comment with one term is its own version of that term.
    own = make_comments()["term"].iloc[test.ids[variants.rows]]
    for row, term in zip(variants.rows, own, strict=True):
        (found,) = [each.X[row] for each in variants if each.name == term]
        assert np.array_equal(found, test.X[row])


def test_taking_rows_takes_them_from_every_variant(project, tmp_path):
    train = load(project(), home=tmp_path).train
    rows = np.random.default_rng(1).integers(train.n_samples, size=40)
    whole = train.counterfactuals["identity"]
    some = train.take(rows).counterfactuals["identity"]
    assert whole.names == some.names == ("drawn 1", "drawn 2")
    assert np.array_equal(some.rows, np.flatnonzero(np.isin(rows, whole.rows)))
    for one, other in zip(whole, some, strict=True):
        assert np.array_equal(one.X[rows], other.X)
    again = some.take(np.array([3, 1]))
    assert np.array_equal(next(iter(again)).X, next(iter(whole)).X[rows[[3, 1]]])


def test_versions_that_were_encoded_ahead_are_looked_up(project, tmp_path, monkeypatch):
    path = project()
    split = load(path, home=tmp_path)
    seen = []
    count = encode_versions(split, lambda *told: seen.append(told))
    sizes = [len(each) * each.rows.size for _, part in split.parts()
             for each in part.counterfactuals.values()]  # fmt: skip
    assert count == sum(sizes)
    assert seen[-1][1] == seen[-1][2]
    monkeypatch.setattr(LatentSemantic, "_learn", lambda *_: pytest.fail("fitted again"))
    again = load(path, home=tmp_path)
    for name, part in again.parts():
        assert np.array_equal(part.X, getattr(split, name).X)
        for _ in part.counterfactuals["identity"]:
            pass


def test_digest_and_fingerprint_follow_the_encoder_and_its_versions(project, tmp_path, monkeypatch):
    def name(**sections):
        path = project(**sections)
        return load(path, home=tmp_path).digest, fingerprint(path, home=tmp_path)

    plain = name()
    assert name() == plain
    rule = {**COMMENTS["text"]["versions"]["identity"], "known": 30}
    other = name(text={**COMMENTS["text"], "versions": {"identity": rule}})
    assert all(one != two for one, two in zip(plain, other, strict=True))
    monkeypatch.setattr("fairfrontier.prepare.embedding.encoder.version", lambda _: "99")
    newer = name()
    assert all(one != two for one, two in zip(plain, newer, strict=True))


def test_vectors_of_ones_own(project, tmp_path):
    n = len(make_comments())
    vectors = np.random.default_rng(0).normal(size=(n, 6)).astype(np.float32)
    np.save(tmp_path / "own.npy", vectors)
    features = {"text": {"encoder": "own.npy"}}
    text = {"column": "comment"}
    path = project(features=features, text=text, groups={})
    split = load(path, home=tmp_path)
    assert split.text_encoder == "file:own.npy"
    for _, part in split.parts():
        assert np.array_equal(part.X, vectors[part.ids])
        assert not part.counterfactuals
    # Rows that are left out have a vector, too.
    some = {"keep": {"text:words": {"at_most": 8}}}
    kept = load(project(features=features, text=text, groups={}, rows=some), home=tmp_path)
    assert sum(part.n_samples for _, part in kept.parts()) < n
    for _, part in kept.parts():
        assert np.array_equal(part.X, vectors[part.ids])
    path = project(features=features, text=text, groups={})
    before = fingerprint(path, home=tmp_path)
    np.save(tmp_path / "own.npy", vectors + 1)
    assert fingerprint(path, home=tmp_path) != before
    assert load(path, home=tmp_path).digest != split.digest
    np.save(tmp_path / "own.npy", vectors[1:])
    with pytest.raises(DataError, match="Save one row of numbers"):
        load(path, home=tmp_path)
    with pytest.raises(ConfigError):
        load(project(features=features), home=tmp_path)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"features": {"numeric": ["a"]}}, "make no difference"),
        ({"text": None, "groups": {}}, "needs a section text"),
        ({"counterfactuals": {"identity": {"term": "all"}}}, "under text.versions"),
        ({"features": {"text": {"encoder": "tfidf", "ids": "term"}}}, "Parquet file"),
    ],
)
def test_what_cannot_be_is_refused(project, tmp_path, sections, message):
    with pytest.raises(ConfigError, match=message):
        load(project(**sections), home=tmp_path)


def test_others_join_training_alone(project, tmp_path):
    rule = {
        "kind": "stratified",
        "of": {"mention:muslim": {"in": "yes"}},
        "train": 8,
        "test": "rest",
        "others": {"train": 30},
    }
    split = load(project(split=rule, groups={}), home=tmp_path)
    mentions = make_comments()["term"].eq("muslim")
    assert mentions[split.train.ids].sum() == 8
    assert split.train.n_samples == 38
    assert mentions[split.test.ids].all()
    assert np.unique(split.train.ids).size == 38
    other = load(project(split=rule, groups={}), seed=1, home=tmp_path)
    assert set(other.train.ids) != set(split.train.ids)
    with pytest.raises(DataError, match=r"split\.of leaves"):
        load(project(split={**rule, "others": {"train": 500}}, groups={}), home=tmp_path)


def test_vectors_of_ones_own_by_ids_of_the_table(project, tmp_path):
    table = make_comments().assign(key=lambda frame: [f"c{each}" for each in frame.index])
    table.to_csv(tmp_path / "comments.csv", index=False)
    vectors = np.random.default_rng(0).normal(size=(len(table), 3)).astype(np.float32)
    stored = pd.DataFrame(vectors, columns=["a", "b", "c"]).assign(key=table["key"])
    stored.sample(frac=1.0, random_state=0).to_parquet(tmp_path / "own.parquet")
    features = {"text": {"encoder": "own.parquet", "ids": "key"}}
    text = {"column": "comment", "mentions": "identity"}
    rows = {"keep": {"mention:muslim": {"not": "yes"}}}
    split = load(project(features=features, text=text, rows=rows, groups={}), home=tmp_path)
    assert split.train.n_samples + split.test.n_samples < len(table)
    for _, part in split.parts():
        assert np.array_equal(part.X, vectors[part.ids])
