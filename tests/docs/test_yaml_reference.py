"""The reference has every key, with an example."""

from __future__ import annotations

import pytest

from docs.yaml_reference import HOMES, Reference
from fairfrontier.cli.catalog import MODELS


@pytest.fixture(scope="module")
def references():
    return {kind: Reference(kind) for kind in MODELS}


def read_sections(text, kind):
    """Return the section of every model, by name."""
    sections = {each.partition("\n")[0]: each for each in text.split("\n## ")}
    return sections | {kind: sections.get("Keys")}


def test_every_key_that_a_file_uses_is_there(references):
    assert len(references["dataset"].examples) > 60
    for kind, reference in references.items():
        sections = read_sections(reference.write(), kind)
        for model, key in reference.examples:
            home = HOMES.get(model, kind)
            if home == kind:
                assert f"\n`{key}`\n: " in sections[model], (kind, model, key)
            else:
                assert key in references[home].models[model]["properties"]


def test_every_key_has_an_example(references):
    for kind, reference in references.items():
        for model, schema in reference.models.items():
            for key in schema["properties"] if HOMES.get(model, kind) == kind else ():
                assert reference.find_example(model, key)[0].startswith(f"{key}:"), (model, key)


def test_a_key_shows_type_bounds_default_and_example(references):
    dataset = references["dataset"]
    assert dataset.show_key("Quantile", "bins") == (
        "`bins`\n: a whole number ≥ 2 and ≤ 256, `4` by default. Bins of each column."
        "\n\n  `` bins: 4 `` (adult-binned)"
    )
    assert "[SourceFile](#dataset-sourcefile)" in dataset.show_key("Source", "path")
    assert "`'median'`" not in dataset.show_key("Missing", "numeric")
    assert "**required**" in dataset.show_key("SplitRule", "kind")
