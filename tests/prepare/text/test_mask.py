from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.prepare.text.mask import (
    locate_token,
    mask_span,
    mask_word,
    mask_words,
    split_tokens,
)
from fairfrontier.runtime.errors import DataError

TOKENS = st.lists(st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1), min_size=1)


@given(TOKENS, st.data())
def test_tokens_are_located_whatever_blanks_are_between(tokens, data):
    gaps = data.draw(st.lists(st.sampled_from(["", " ", "\n  "]), min_size=len(tokens)))
    text = "".join(gap + token for gap, token in zip(gaps, tokens, strict=False))
    index = data.draw(st.integers(0, len(tokens) - 1))
    start, end = locate_token(text, tokens, index)
    assert text[start:end] == tokens[index]
    assert "".join(text[:start].split()) == "".join(tokens[:index])
    assert mask_span(text, start, end, "⟂") == text[:start] + "⟂" + text[end:]


@given(st.lists(st.text()))
def test_lists_are_read_as_python_writes_them(tokens):
    assert split_tokens(repr(tokens)) == tokens


def test_escapes_that_python_does_not_write_stay_letters():
    assert split_tokens(r"['\q', '\U00999999', '\xg', 'a\\b']") == ["q", "U00999999", "xg", r"a\b"]


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
    masked = mask_words(occupations["sentence"], occupations["job"])
    assert [text.count("[MASK]") for text in masked] == [1] * len(masked)
    # A mask is put in as it is written.
    assert mask_words(["a b"], ["a"], r"\1") == [r"\1 b"]
