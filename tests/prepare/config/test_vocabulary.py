from __future__ import annotations

import pytest
import yaml

from fairfrontier.prepare.config.dataset import Swap, Terms
from fairfrontier.runtime.errors import ConfigError
from tests.prepare.conftest import read_vocabulary

SWAP = {"vocabulary": "v", "pairs": {"he": "she"}}
TERMS = {"vocabulary": "v", "terms": ["a b", "c"]}


def write(folder, content):
    (folder / "v.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return "v.yaml"


def test_the_vocabularies_of_the_project(identity, gender):
    assert len(identity.terms) == 50
    assert len(identity.families) == 9
    assert {len(names) for names in gender.names.values()} == {50}
    assert gender.changes["she"] == "he"
    assert gender.changes["mrs"] == "mr"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terms": ["a"]}, "at least 2"),
        ({"terms": ["a b", "A-B"]}, "'A-B' is listed twice"),
        ({"terms": ["a", ""]}, "pattern"),
        ({"terms": ["a", True]}, "put the word in quotes"),
        ({"words": ["a"]}, "there is no key 'words'"),
    ],
)
def test_terms_that_cannot_be(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        read_vocabulary(Terms, write(tmp_path, {**TERMS, **change}), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"one_way": {"she": "it"}}, "is listed twice"),
        ({"context": {"he": {"alone": "x", "otherwise": "y"}}}, "is listed twice"),
        ({"names": {"male": ["Paul"]}}, "two lists"),
        ({"names": {"male": ["Kim"], "female": ["Kim"]}}, "is listed twice"),
    ],
)
def test_swaps_that_cannot_be(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        read_vocabulary(Swap, write(tmp_path, {**SWAP, **change}), tmp_path)


def test_vocabularies_are_found_by_name_or_path(tmp_path):
    folder = tmp_path / "conf" / "vocabularies"
    folder.mkdir(parents=True)
    write(folder, TERMS)
    assert read_vocabulary(Terms, "v", tmp_path).terms == ("a b", "c")
    assert read_vocabulary(Terms, folder / "v.yaml", tmp_path).terms == ("a b", "c")
    with pytest.raises(ConfigError, match="no vocabulary 'w'"):
        read_vocabulary(Terms, "w", tmp_path)
    with pytest.raises(ConfigError):
        read_vocabulary(Terms, "w.yaml", tmp_path)


def test_terms_are_drawn_by_seed(identity):
    drawn = [identity.draw(25, seed).terms for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 25
    assert set(identity.draw(50, 3).terms) == set(identity.terms)
