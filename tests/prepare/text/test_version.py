"""Counterfactual versions of texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.prepare.config.dataset import Swap, Terms, VersionRule
from fairfrontier.prepare.text.version import (
    AS_WRITTEN,
    SWAPPED,
    draw_version,
    find_words,
    known_terms,
    make_versions,
    match_case,
    set_term,
    swap_gender,
)
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError
from tests.prepare.conftest import read_vocabulary
from tests.prepare.text.conftest import BUNDLE

IDENTITY = read_vocabulary(Terms, "identity")


def take(*terms):
    """Return the vocabulary of some of its terms."""
    return IDENTITY.model_copy(update={"terms": tuple(t for t in IDENTITY.terms if t in terms)})


TERMS = st.sampled_from(IDENTITY.terms)
CASES = st.sampled_from([str, str.upper, lambda word: match_case(word, "Xx")])
FILLERS = st.lists(
    st.sampled_from(["we", "Are,", "goldfish", "\n", "ÉTÉ", "oldest", "5"]), max_size=4
)


def list_versions(text, vocabulary):
    found = find_words([text], vocabulary.terms)
    return {term: set_term(found, term).texts[0] for term in found.names}


@given(TERMS, TERMS, CASES, FILLERS, FILLERS)
def test_there_and_back_again(term, other, case, left, right):
    text = " ".join([*left, case(term), *right])
    there = list_versions(text, IDENTITY)[other]
    assert list_versions(there, IDENTITY)[term] == text
    assert list_versions(text, IDENTITY)[term] == text


@given(TERMS, TERMS, FILLERS)
def test_all_terms_of_a_text_become_the_same(one, two, filler):
    text = " ".join([one, ";", *filler, ";", two])
    versions = list_versions(text, IDENTITY)
    assert list(versions) == list(IDENTITY.terms)
    assert len(set(versions.values())) == 50
    for term, version in versions.items():
        found = find_words([version], IDENTITY.terms)
        assert set(np.array(found.names)[found.codes]) == {term}
        assert len(found) == 2


def test_versions_of_the_bundled_comments(comments, identity):
    found = find_words(comments["comment"], identity.terms)
    assert found.counts.tolist() == [1] * len(comments)
    made = {term: set_term(found, term).texts for term in found.names}
    assert len(made) == 50
    for row, (comment, term) in enumerate(zip(comments["comment"], comments["term"], strict=True)):
        assert len({texts[row] for texts in made.values()}) == 50
        assert made[term][row] == comment
    assert list_versions(comments["comment"][0], identity)["queer"] == made["queer"][0]


def test_a_text_without_terms_has_one_version():
    assert set(list_versions("goldfish are bold", IDENTITY).values()) == {"goldfish are bold"}


def test_drawn_terms_belong_to_the_row(comments, identity):
    texts = comments["comment"].tolist()
    ids = np.arange(len(texts)) * 7
    found = find_words(texts, identity.terms)
    drawn = draw_version(found, ids, seed=3)
    assert draw_version(found, ids, seed=3).texts == drawn.texts
    assert draw_version(found, ids, seed=4).texts != drawn.texts
    assert len(drawn.table()) == len(texts)
    order = np.arange(len(texts))[::-1][:40]
    some = draw_version(
        find_words([texts[row] for row in order], identity.terms), ids[order], seed=3
    )
    assert some.texts == tuple(drawn.texts[row] for row in order)


def test_drawn_terms_are_others_and_uniform():
    small = take("gay", "old", "muslim", "white")
    texts = ["gay and old and gay"] * 4000 + ["none", "gay old muslim white"]
    found = find_words(texts, small.terms)
    drawn = draw_version(found, np.arange(len(texts)), seed=0).texts
    kinds, counts = np.unique(drawn[:4000], return_counts=True)
    assert kinds.tolist() == ["muslim and muslim and muslim", "white and white and white"]
    assert abs(counts[0] - 2000) < 4 * np.sqrt(1000)
    assert drawn[4000] == "none"
    assert len(set(drawn[4001].split())) == 1


def test_terms_drawn_before_are_drawn_again_only_when_no_other_is_left():
    small = take("gay", "old", "muslim", "white")
    texts = ["gay"] * 300 + ["gay old muslim white"] * 50
    found = find_words(texts, small.terms)
    seeds = [11, 12, 13, 14]
    drawn = [
        draw_version(found, np.arange(len(texts)), seed, seeds[:position]).texts
        for position, seed in enumerate(seeds)
    ]
    for row in range(300):
        assert {each[row] for each in drawn[:3]} == {"old", "muslim", "white"}
        assert drawn[3][row] in {"old", "muslim", "white"}
    for row in range(300, 350):
        assert len({each[row] for each in drawn}) == 4
    # Each is uniform by itself.
    for each in drawn[:3]:
        counts = np.unique(each[:300], return_counts=True)[1]
        assert (abs(counts - 100) < 4 * np.sqrt(300 * 2 / 9)).all()


def test_only_known_terms_are_found_and_put_in():
    known = take("gay", "muslim")
    assert known.terms == ("gay", "muslim")
    assert list_versions("gay, straight", known) == {
        "gay": "gay, straight",
        "muslim": "muslim, straight",
    }


GENDER = read_vocabulary(Swap, "gender")
NAMELESS = GENDER.model_copy(update={"names": {}})
# What a rule can undo: no him or hers before an arbitrary word, no mrs, no name.
SURE = ["he", "she", "her", "his", "himself", "herself", "mr", "ms", "Sir", "MADAM", "Her", "HIS"]
OTHERS = [
    "book",
    "and",
    "or",
    "/",
    ".",
    ",",
    "the",
    "was",
    "“",
    '"',
    "(",
    "5",
    "and her",
    "\n",
    "There",
    "😀",
    "& ",
]


@pytest.mark.parametrize(("text", "swapped"), BUNDLE["swaps"])
def test_bundled_sentences(text, swapped):
    assert swap_gender([text], GENDER).texts == (swapped,)


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        ("I love her 😀", "I love him 😀"),
        ("I love her❤️ so", "I love him❤️ so"),
        ("told her & me", "told him & me"),
        ("her &quot;Blue&quot; and her & his maps", "his &quot;Blue&quot; and his & her maps"),
        ('the word "her" sounds', 'the word "him" sounds'),
    ],
)
def test_signs_that_end_a_phrase(text, swapped):
    assert swap_gender([text], GENDER).texts == (swapped,)


@given(st.lists(st.sampled_from(SURE + OTHERS), max_size=10))
def test_swapping_twice_gives_the_text_back(pieces):
    text = " ".join(pieces)
    once = swap_gender([text], GENDER)
    assert swap_gender(once.texts, GENDER).texts == (text,)
    assert len(once.words) == sum(
        each.lower() in map(str.lower, SURE) for piece in pieces for each in piece.split()
    )


@given(st.lists(st.sampled_from(["the", "a", "was", ".", "yesterday", "him", "hers"]), max_size=8))
def test_him_and_hers_come_back_where_they_stand_alone(pieces):
    text = " . ".join(pieces)
    assert swap_gender(swap_gender([text], GENDER).texts, GENDER).texts == (text,)


def test_what_a_rule_cannot_know():
    assert swap_gender(["saw her leave"], GENDER).texts == ("saw his leave",)
    assert swap_gender(["Mrs. Hill"], GENDER).texts == ("Mr. Hill",)


def test_names_become_names_of_the_other_gender():
    text = "Paul met Peter and Susan; Paul left. PAUL! paul, Pauls, Paul's"
    ids = np.array([5])
    done = swap_gender([text], GENDER, ids, seed=1)
    table = done.table(ids)
    female, male = set(GENDER.names["female"]), set(GENDER.names["male"])
    new = dict(zip(table["from"], table["to"], strict=True))
    assert new["Paul"] in female
    assert new["Peter"] in female - {new["Paul"]}
    assert new["Susan"] in male
    assert new["PAUL"] == new["Paul"].upper()
    assert (table["from"] == "Paul").sum() == 3
    assert set(table.loc[table["from"] == "Paul", "to"]) == {new["Paul"]}
    assert "paul, Pauls" in done.texts[0]


def test_names_depend_on_row_and_seed_alone():
    texts = ["Paul sings."] * 300
    ids = np.arange(300)
    done = swap_gender(texts, GENDER, ids, seed=0).texts
    assert swap_gender(texts[::-1], GENDER, ids[::-1], seed=0).texts == done[::-1]
    assert swap_gender(texts, GENDER, ids, seed=1).texts != done
    assert len(set(done)) == 50


def test_names_of_a_text_stay_apart_whatever_names_of_the_other_gender_it_holds():
    names = {"male": ["Paul", "Peter"], "female": ["Anna", "Emma"]}
    small = Swap(vocabulary="v", names=names)
    for row in range(20):
        done = swap_gender(["Paul Anna Peter Emma"], small, np.array([row])).texts[0].split()
        assert set(done[::2]) == set(names["female"])
        assert set(done[1::2]) == set(names["male"])


def test_what_a_name_becomes_in_one_text_says_nothing_of_the_next():
    ids = np.arange(200)
    done = swap_gender(["Paul met Peter.", "Peter sings."] * 100, GENDER, ids).texts
    alone = swap_gender(["Peter sings."] * 200, GENDER, ids).texts
    assert done[1::2] == alone[1::2]


def test_more_names_than_the_list_has():
    small = Swap(vocabulary="v", names={"male": ["Paul"], "female": ["Anna", "Emma"]})
    assert swap_gender(["Anna, Emma"], small).texts == ("Paul, Paul",)
    assert set(swap_gender(["Paul Paul"], small).texts[0].split()) < {"Anna", "Emma"}


def test_occupations_keep_all_but_the_pronoun(occupations):
    texts = occupations["sentence"].tolist()
    done = swap_gender(texts, NAMELESS)
    assert done.occurrences.counts.tolist() == [1] * len(texts)
    for text, new, word in zip(texts, done.texts, occupations["pronoun"], strict=True):
        assert new == text.replace(f" {word} ", f" {'her' if word == 'his' else 'his'} ")


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
        ({"swap": {"vocabulary": "v"}, "draw": {"train": 3}}, "belong to terms"),
    ],
)
def test_rules_that_cannot_be(rule, message):
    with pytest.raises(ConfigError, match=message):
        parse(VersionRule, rule, "f")
