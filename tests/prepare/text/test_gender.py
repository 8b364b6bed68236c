from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.prepare.config.text import Swap
from fairfrontier.prepare.text import gender
from fairfrontier.prepare.text.gender import swap_gender
from tests.prepare.conftest import read_vocabulary
from tests.prepare.text.conftest import BUNDLE

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


def test_a_long_chain_of_links_is_walked_once(monkeypatch):
    steps = []
    true_lower = gender.lower
    monkeypatch.setattr(gender, "lower", lambda word: steps.append(word) or true_lower(word))
    pairs = 400
    # Each word of the chain is as its end is: before a noun, or alone.
    for end, one, other in ((" life", "his", "her"), (".", "him", "hers")):
        steps.clear()
        text = "her or his or " * pairs + "her" + end
        (done,) = swap_gender([text], GENDER).texts
        words = done.removesuffix(end).split(" or ")
        assert words == [one if position % 2 == 0 else other for position in range(2 * pairs + 1)]
        assert len(steps) < 20 * pairs
