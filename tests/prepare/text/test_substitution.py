from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.prepare.config.text import Terms
from fairfrontier.prepare.text.occurrence import find_words, match_case
from fairfrontier.prepare.text.substitution import draw_version, set_term
from tests.prepare.conftest import read_vocabulary

IDENTITY = read_vocabulary(Terms, "identity")
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
    small = IDENTITY.take(["gay", "old", "muslim", "white"])
    texts = ["gay and old and gay"] * 4000 + ["none", "gay old muslim white"]
    found = find_words(texts, small.terms)
    drawn = draw_version(found, np.arange(len(texts)), seed=0).texts
    kinds, counts = np.unique(drawn[:4000], return_counts=True)
    assert kinds.tolist() == ["muslim and muslim and muslim", "white and white and white"]
    assert abs(counts[0] - 2000) < 4 * np.sqrt(1000)
    assert drawn[4000] == "none"
    assert len(set(drawn[4001].split())) == 1


def test_terms_drawn_before_are_drawn_again_only_when_no_other_is_left():
    small = IDENTITY.take(["gay", "old", "muslim", "white"])
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
    known = IDENTITY.take(["Gay", "muslim"])
    assert known.terms == ("gay", "muslim")
    assert list_versions("gay, straight", known) == {
        "gay": "gay, straight",
        "muslim": "muslim, straight",
    }
