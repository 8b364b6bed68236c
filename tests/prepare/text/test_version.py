from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.prepare.config.text import VersionRule
from fairfrontier.prepare.text.occurrence import find_words
from fairfrontier.prepare.text.version import AS_WRITTEN, SWAPPED, known_terms, make_versions
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError


@pytest.fixture
def texts(comments):
    return ["Nobody is mentioned here.", *comments["comment"]]


@pytest.fixture
def ids(texts):
    return np.arange(len(texts)) + 1000


def make_rule(identity, **sections):
    return VersionRule(terms=identity, **sections)


def test_at_test_every_term_has_its_version(identity, texts, ids):
    found = make_versions("identity", make_rule(identity, known=5), texts, ids, "test", 0)
    assert found.names == identity.terms
    assert np.array_equal(found.rows, np.arange(1, len(texts)))
    assert np.array_equal(found.ids, ids[1:])
    for version in found.versions[::7]:
        written = version.write().texts
        assert len(written) == found.rows.size
        terms = find_words(written, identity.terms)
        assert {terms.names[code] for code in terms.codes} == {version.name}


def test_in_training_only_known_terms_are_seen_and_put_in(identity, texts, ids):
    rule = make_rule(identity, known=20, draw={"train": 3})
    known = known_terms(rule, "train", 1)
    assert len(known.terms) == 20
    assert known_terms(rule, "test", 1) == identity
    assert known_terms(rule, "train", 2).terms != known.terms
    found = make_versions("identity", rule, texts, ids, "train", 1)
    assert found.names == ("drawn 1", "drawn 2", "drawn 3")
    holding = np.flatnonzero(find_words(texts, known.terms).counts)
    assert np.array_equal(found.rows, holding)
    assert 0 < holding.size < len(texts) - 1
    old = find_words([texts[row] for row in holding], known.terms)
    for version in found.versions:
        new = find_words(version.write().texts, known.terms)
        # Another known term stands where one stood, never the same.
        assert np.array_equal(new.rows, old.rows)
        assert (new.codes != old.codes).all()


def test_a_sample_of_rows_and_draws_follow_ids_and_not_places(identity, texts, ids):
    rule = make_rule(identity, draw={"test": 1}, rows={"test": 30})
    found = make_versions("identity", rule, texts, ids, "test", 0)
    assert found.rows.size == 30
    order = np.random.default_rng(0).permutation(len(texts))
    moved = make_versions("identity", rule, [texts[each] for each in order], ids[order], "test", 0)
    first = dict(zip(found.ids.tolist(), found.versions[0].write().texts, strict=True))
    second = dict(zip(moved.ids.tolist(), moved.versions[0].write().texts, strict=True))
    assert first == second
    other = make_versions("identity", rule, texts, ids, "test", 1)
    assert set(other.ids.tolist()) != set(found.ids.tolist())


def test_a_swap_is_a_pair_but_alone_in_training(gender, occupations):
    texts = ["Rain fell.", *occupations["sentence"]]
    ids = np.arange(len(texts))
    rule = VersionRule(swap=gender)
    pair = make_versions("gender", rule, texts, ids, "test", 0)
    assert pair.names == (AS_WRITTEN, SWAPPED)
    assert 0 not in pair.rows
    old, new = (each.write().texts for each in pair.versions)
    assert list(old) == texts[1:]
    assert all(one != other for one, other in zip(old, new, strict=True))
    alone = make_versions("gender", rule, texts, ids, "train", 0)
    assert alone.names == (SWAPPED,)
    assert alone.versions[0].write().texts == new


def test_names_follow_ids_and_not_places(gender):
    texts = [f"Paul has {n} sheep." for n in range(60)]
    ids = np.arange(60) + 500
    rule = VersionRule(swap=gender, rows={"train": 40})
    first, second = (
        make_versions("gender", rule, texts[::step], ids[::step], "train", 0) for step in (1, -1)
    )
    written = [
        dict(zip(each.ids.tolist(), each.versions[0].write().texts, strict=True))
        for each in (first, second)
    ]
    assert written[0] == written[1]
    assert len(written[0]) == 40


def test_the_table_of_changes_names_rows_and_versions(identity, texts, ids):
    rule = make_rule(identity, rows={"test": 2})
    found = make_versions("identity", rule, texts, ids, "test", 0)
    table = found.table()
    assert set(table["row"]) == set(found.ids.tolist())
    # A comment with one term is one of its own versions.
    assert len(table) == 2 * (len(identity.terms) - 1)
    assert (table["from"] != table["to"]).all()


def test_without_a_term_there_are_no_versions(identity, ids):
    found = make_versions("identity", make_rule(identity), ["Rain."], ids[:1], "test", 0)
    assert found.rows.size == 0
    assert list(found.texts) == []
    assert found.table().empty


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "give either terms"),
        ({"terms": {"vocabulary": "v", "terms": ["a", "b"]}, "known": 3}, "has 2 terms"),
        ({"swap": {"vocabulary": "v"}, "known": 3}, "belong to terms"),
        ({"swap": {"vocabulary": "v"}, "draw": {"train": 3}}, "belong to terms"),
        ({"swap": {"vocabulary": "v"}, "rows": {"tset": 3}}, "tset"),
    ],
)
def test_rules_that_cannot_be(rule, message):
    with pytest.raises(ConfigError, match=message):
        parse(VersionRule, rule, "f")
