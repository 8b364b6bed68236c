from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.prepare.config.dataset import lower, name_word
from fairfrontier.prepare.text.version import find_words, match_case

WORDS = ("gay", "african", "african american", "old", "older", "ma'am", "käse")
PATTERNS = {word: re.compile(re.escape(word).replace(r"\ ", r"(?:\s+|-)")) for word in WORDS}
# Pieces that make words, their neighbours, and texts in which they do not stand.
PIECES = st.sampled_from([*WORDS, "GAY", "Old", "gays", "bold", *"_- .és\nİſK", "\u00a0", "'s"])
TEXTS = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=30)


def brute_force(text: str) -> list[tuple[int, int, str]]:
    """Find words by trying every word at every place, the longest first."""
    found, place = [], 0
    lowered = lower(text)

    def is_letter(at: int) -> bool:
        return 0 <= at < len(text) and re.match(r"\w", lowered[at]) is not None

    while place < len(text):
        fits = []
        for word, pattern in PATTERNS.items():
            match = pattern.match(lowered, place)
            if match and not is_letter(place - 1) and not is_letter(match.end()):
                fits.append((place, match.end(), word))
        if fits:
            best = max(fits, key=lambda fit: fit[1])
            found.append(best)
            place = best[1]
        else:
            place += 1
    return found


@given(TEXTS)
def test_words_stand_where_brute_force_finds_them(text):
    found = find_words([text], WORDS)
    spans = zip(found.starts, found.ends, found.codes, strict=True)
    assert [(start, end, found.names[code]) for start, end, code in spans] == brute_force(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gay's anti-gay (gay) gay, GAY gAy", ["gay", "gay", "gay", "gay", "GAY", "gAy"]),
        ("gays gay_rights gay2 gayé begay", []),
        ("African-American, African", ["African-American", "African"]),
        ("Yes, ma'am! Käse KÄSE", ["ma'am", "Käse", "KÄSE"]),
        ("İ gay İold", ["gay"]),
    ],
)
def test_boundaries_case_and_gaps(text, words):
    assert list(find_words([text], WORDS).found) == words


def test_counts_over_texts():
    found = find_words(["gay, gay, old", "none", "older"], WORDS)
    assert found.counts.tolist() == [3, 0, 1]
    assert len(found.keep(found.codes == WORDS.index("gay"))) == 2
    assert len(find_words(["gay"], ())) == 0
    assert find_words([], WORDS).counts.tolist() == []


@given(st.lists(TEXTS, max_size=4))
def test_what_is_put_back_gives_the_texts(texts):
    found = find_words(texts, WORDS)
    rewritten = found.replace(["x"] * len(found))
    assert len(rewritten.texts) == len(texts)
    same = found.replace(found.found)
    pairs = zip(found.found, same.words, strict=True)
    # Mixed case has no pattern: "Gay" does, "gAy" stays as it is written.
    assert all(name_word(old) == name_word(new) for old, new in pairs if "ß" not in old)
    for row, text in enumerate(texts):
        if row not in found.rows:
            assert rewritten.texts[row] == text


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_nothing_changes_outside_the_words(texts):
    found = find_words(texts, WORDS)
    rewritten = found.replace(["⟂"] * len(found))
    for row, text in enumerate(texts):
        mine = found.rows == row
        outside, place = [], 0
        for start, end in zip(found.starts[mine], found.ends[mine], strict=True):
            outside.append(text[place:start])
            place = end
        outside.append(text[place:])
        assert "⟂".join(outside) == rewritten.texts[row]


@pytest.mark.parametrize(
    ("word", "model", "written"),
    [
        ("muslim", "gay", "muslim"),
        ("muslim", "Gay", "Muslim"),
        ("muslim", "GAY", "MUSLIM"),
        ("middle eastern", "AFRICAN-AMERICAN", "MIDDLE EASTERN"),
        ("middle-aged", "Old", "Middle-Aged"),
        ("Anna", "Paul", "Anna"),
        ("muslim", "X", "Muslim"),
    ],
)
def test_case_is_kept(word, model, written):
    assert match_case(word, model) == written


def test_the_table_says_what_was_changed():
    text = "A long beginning of the comment, then Gay and old people, who are older than you."
    found = find_words(["none", text], ("gay", "old", "muslim"))
    table = found.replace(["muslim", "old"]).table(ids=np.array([70, 71]))
    assert len(table) == 1
    row = table.iloc[0]
    assert (row["row"], row["position"], row["from"], row["to"]) == (71, 38, "Gay", "Muslim")
    assert row["before"] == f"…{text[8:71]}…"
    assert "Muslim and old" in row["after"]
    assert row["after"].replace("Muslim", "Gay") == row["before"]
    both = found.replace(["muslim", "muslim"])
    table = both.table()
    assert table["row"].tolist() == [1, 1]
    assert table["before"][1] == f"…{text[16:79]}…"
    # The first change has moved the second by three characters.
    assert table["after"][1] == f"…{both.texts[1][19:85]}…"
    assert list(find_words(["x"], ("gay",)).replace([]).table()) == list(table)
    # What moved in one text moves nothing in the next.
    table = find_words(["gay", text], ("gay",)).replace(["middle aged", "old"]).table()
    assert table["after"][1] == f"…{text.replace('Gay', 'Old')[8:71]}…"


@pytest.mark.parametrize("gap", [" ", "-", "\u2010", "\u2011", "\u2013", "  ", "\n"])
def test_words_of_a_term_are_joined_by_blanks_hyphens_and_dashes(gap):
    found = find_words([f"An African{gap}American, a{gap}b"], ["african american", "african"])
    assert found.codes.tolist() == [0]
    assert list(found.found) == [f"African{gap}American"]
