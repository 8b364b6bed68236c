"""Schemas agree with the models that read the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from fairfrontier.cli.catalog import MODELS, make_schema
from fairfrontier.runtime.config import read_yaml
from fairfrontier.runtime.finder import FOLDERS
from tests.project import call_here

ROOT = Path(__file__).resolve().parents[2]
FILES = [(kind, path) for kind in MODELS for path in sorted((ROOT / FOLDERS[kind]).glob("*.yaml"))]
LOANS = {
    "dataset": "loans",
    "source": {"path": "loans.csv"},
    "label": {"column": "repaid", "positive": 1},
    "features": {"numeric": ["income"], "categorical": "rest", "text": "tfidf"},
    "groups": {"age": {"column": "age", "below": [25, 60]}, "sex": {"column": "sex"}},
    "protected": ["sex"],
    "counterfactuals": {"sex": {"sex": "all"}},
    "text": {"column": "essay", "mentions": "identity"},
    "split": {"kind": "stratified", "train": 0.7, "test": "rest"},
}
STUDY = {
    "dataset": "loans.yaml",
    "seeds": 3,
    "methods": {"gbdt": None, "linear": {"C": [0.1, 1], "then": "hardt", "noise": 0.1}},
    "frontier": {"fairness": ["gap_rms:sex"]},
}


@pytest.fixture(scope="module")
def validators():
    return {kind: Draft202012Validator(make_schema(kind)) for kind in MODELS}


def as_json(data):
    """Return YAML's values as an editor sees them: keys are text."""
    return json.loads(json.dumps(data))


@pytest.mark.parametrize(("kind", "path"), FILES, ids=lambda each: getattr(each, "stem", each))
def test_every_file_of_conf_is_valid(validators, kind, path):
    faults = [fault.message for fault in validators[kind].iter_errors(as_json(read_yaml(path)))]
    assert not faults


@pytest.mark.parametrize(
    ("kind", "given", "key", "value"),
    [
        ("dataset", LOANS, "protectd", ["sex"]),
        ("dataset", LOANS, "protected", "sex"),
        ("dataset", LOANS, "label", {"column": "repaid", "task": "ranking"}),
        ("dataset", LOANS, "split", {"kind": "stratified"}),
        ("dataset", LOANS, "features", {"numeric": "all"}),
        ("study", STUDY, "profile", "paper"),
        ("study", STUDY, "seeds", -1),
        ("study", STUDY, "search", {"trials": 0}),
        ("study", STUDY, "minimum", 0),
        ("cluster", {"kind": "local"}, "kind", "locl"),
        ("cluster", {"kind": "local"}, "workers", 0),
    ],
)
def test_a_schema_refuses_what_the_model_refuses(validators, kind, given, key, value):
    assert validators[kind].is_valid(as_json(given))
    assert not validators[kind].is_valid(as_json({**given, key: value}))
    if key != "profile":  # refused when the study is read
        # Vocabularies are given by name in the file only.
        read = {name: each for name, each in given.items() if name != "text"}
        with pytest.raises(ValidationError):
            TypeAdapter(MODELS[kind]).validate_python({**read, key: value})


def test_a_dataset_without_the_sections_of_another(validators):
    validator = validators["dataset"]
    assert validator.is_valid({"dataset": "more", "extends": "loans"})
    assert not validator.is_valid({"dataset": "more"})


def test_every_key_is_described_and_its_examples_are_valid(validators):
    for kind, validator in validators.items():
        models = validator.schema.get("$defs", {})
        for model in (validator.schema, *models.values()):
            for key, described in model.get("properties", {}).items():
                where = (kind, model["title"], key)
                # A section says what it is.
                section = models.get(described.get("$ref", "").rpartition("/")[2], {})
                assert {**section, **described}.get("description", "").endswith("."), where
                for example in described.get("examples", ()):
                    assert validator.evolve(schema=described).is_valid(example), where


def test_the_command_prints_it():
    done = call_here(ROOT, "schema", "study")
    assert json.loads(done.stdout) == make_schema("study")
    wrong = call_here(ROOT, "schema", "stdy")
    assert wrong.returncode == 2
    assert "study" in wrong.stderr
