"""What tests of texts share: sentences of our own making, and the vocabularies of the project."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fairfrontier.runtime.home import find_home

HOME = find_home(Path(__file__))
BUNDLE = yaml.safe_load(Path(__file__).with_name("sentences.yaml").read_text(encoding="utf-8"))


def make_comments() -> pd.DataFrame:
    """Make 216 comments, with their opinion and the term that stands in each."""
    rows = [
        (template.replace("{}", term).replace("[]", word), opinion, term)
        for template, term in product(BUNDLE["templates"], BUNDLE["terms"])
        for opinion, words in BUNDLE["opinions"].items()
        for word in words
    ]
    return pd.DataFrame(rows, columns=["comment", "opinion", "term"])


def make_occupations() -> pd.DataFrame:
    """Make 108 sentences with an occupation and a pronoun."""
    rows = [
        (f"{sentence.format(job).replace('[]', word)[:-1]} {place}.", job.capitalize(), word)
        for job, sentences in BUNDLE["occupations"].items()
        for sentence, word, place in product(sentences, ("his", "her"), BUNDLE["places"])
    ]
    return pd.DataFrame(rows, columns=["sentence", "job", "pronoun"])


@pytest.fixture(scope="session")
def comments() -> pd.DataFrame:
    return make_comments()


@pytest.fixture(scope="session")
def occupations() -> pd.DataFrame:
    return make_occupations()
