from __future__ import annotations

import pytest
import yaml

from fairfrontier.prepare.config.dataset import Text, VersionRule, resolve_vocabulary
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({}, "give either column"),
        ({"column": "a", "tokens": "t", "index": "i"}, "give either column"),
        ({"tokens": "t"}, "go together"),
        ({"colum": "a"}, "Did you mean 'column'"),
    ],
)
def test_masks_that_cannot_be(mask, message):
    with pytest.raises(ConfigError, match=message):
        parse(Text, {"column": "s", "mask": mask}, "f")


TERMS = {"vocabulary": "v", "terms": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"replace": {"e": "x" * 101}}, "replace.e: .* at most 100 characters"),
        ({"versions": {"v": {"terms": TERMS, "draw": {"test": 4}}}}, "draw is 4 for test, of 3"),
        ({"column": "s" * 4097}, "column: .* at most 4096 characters"),
    ],
)
def test_nothing_in_the_place_of_a_letter_is_longer_than_a_word(section, message):
    with pytest.raises(ConfigError, match=message):
        parse(Text, {"column": "s", **section}, "f")


def test_versions_are_drawn_in_the_square_of_their_number():
    terms = {"vocabulary": "v", "terms": [f"w{number}" for number in range(300)]}
    assert VersionRule(terms=terms, draw={"test": 256}).draw == {"test": 256}
    with pytest.raises(ConfigError, match="at most 256 versions are drawn"):
        parse(VersionRule, {"terms": terms, "draw": {"test": 257}}, "f")


def test_columns_that_are_read_and_made():
    content = {"vocabulary": "v", "terms": ["a", "b"], "families": {"first": ["a"]}}
    text = Text(column="s", lower=["w"], mask={"column": "w"}, mentions=content)
    assert text.reads == ("s", "w", "w")
    assert text.makes == ("text:words", "text:terms", "mention:first")
    assert text.claims == ("s", "w", *text.makes)


def test_a_vocabulary_is_named_or_written_out(tmp_path):
    content = {"vocabulary": "v", "terms": ["a", "b"]}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(content))
    named = {"text": {"column": "s", "mentions": "own.yaml"}}
    written = {"text": {"column": "s", "mentions": content}}
    path = tmp_path / "data.yaml"
    assert resolve_vocabulary(named, path, None) == written
    assert resolve_vocabulary(written, path, None) == written
    for plain in ({}, {"text": None}, [1], {"text": {"column": "s"}}):
        assert resolve_vocabulary(plain, path, None) == plain
    with pytest.raises(ConfigError, match="no vocabulary 'own'"):
        resolve_vocabulary({"text": {"mentions": "own"}}, path, tmp_path)
