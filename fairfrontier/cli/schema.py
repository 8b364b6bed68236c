"""JSON Schemas of the YAML files, from the models that read them."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.text import EncoderConfig, Swap, Terms
from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.study.config import MethodFile, StudyConfig
from fairfrontier.study.reproduction import load_laboratory

MODELS: dict[str, Any] = {
    "dataset": DatasetConfig,
    "study": StudyConfig,
    "cluster": ClusterConfig,
    "method": MethodFile,
    "encoder": EncoderConfig,
    "vocabulary": Terms | Swap,
}


class _Untitled(GenerateJsonSchema):
    """Leaves out titles: they would repeat the keys."""

    def field_title_should_be_set(self, _: Any) -> bool:
        return False


def make_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a kind of YAML file: a key of `MODELS`."""
    schema = TypeAdapter(MODELS[kind]).json_schema(schema_generator=_Untitled)
    laboratory = load_laboratory() if kind == "study" else None
    if laboratory is not None:
        claim = laboratory.describe_claim(_Untitled)
        schema["$defs"] |= claim.pop("$defs") | {"Claim": claim}
        schema["properties"]["claims"]["items"] = {"$ref": "#/$defs/Claim"}
    dialect = {"$schema": GenerateJsonSchema.schema_dialect}
    return dialect | schema | {"title": f"A {kind} of fairfrontier"}
