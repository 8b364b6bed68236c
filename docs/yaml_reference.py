"""The reference of the YAML files, from the JSON Schemas of the models that read them.

Examples are the shortest that a file of conf/ has, else those of the model's field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fairfrontier.cli.catalog import make_schema
from fairfrontier.runtime.config import read_yaml
from fairfrontier.runtime.finder import FOLDERS

ROOT = Path(__file__).resolve().parents[1]
# One, and several of them.
TYPES = {
    "string": ("text", "texts"),
    "integer": ("a whole number", "whole numbers"),
    "number": ("a number", "numbers"),
    "boolean": ("true or false", "true or false"),
    "object": ("a map", "maps"),
    "array": ("a list", "lists"),
}
LEVEL = ["string", "number", "boolean"]
# Models that several kinds of files have, with the one that describes them.
HOMES = {"Origin": "dataset", **dict.fromkeys(("Terms", "Swap", "Context", "Link"), "vocabulary")}
LONGEST = 150
BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
}

Schema = Mapping[str, Any]
Use = tuple[str, str, Any, str]


class Reference:
    """What is known of one kind of file: its models and what files of conf/ give their keys."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        schema = make_schema(kind)
        self.models: dict[str, Schema] = dict(schema.get("$defs", {}))
        if "properties" in schema:
            self.models = {kind: schema, **self.models}
        # (model, key) -> (YAML on a line, file)
        self.examples: dict[tuple[str, str], tuple[str, str]] = {}
        for path in sorted((ROOT / FOLDERS[kind]).glob("*.yaml")):
            # Keys are text, as in JSON.
            data = json.loads(json.dumps(read_yaml(path)))
            for model, key, value, name in self._walk(schema, data, kind, path.stem):
                shown = write_yaml({key: value})
                if value not in ({}, [], "") and len(shown) < len(
                    self.examples.get((model, key), (" " * 1000,))[0]
                ):
                    self.examples[model, key] = shown, name

    def _walk(self, schema: Schema, data: Any, model: str, name: str) -> Iterator[Use]:
        """Yield every key that a value uses: its model, its name, what it holds, and the file."""
        if "$ref" in schema:
            model = schema["$ref"].rpartition("/")[2]
            yield from self._walk(self.models[model], data, model, name)
        elif "anyOf" in schema and "properties" not in schema:
            branch = next(each for each in schema["anyOf"] if self._fits(each, data))
            yield from self._walk(branch, data, model, name)
        elif isinstance(data, dict):
            known = schema.get("properties", {})
            for key, value in data.items():
                if key in known:
                    yield model, key, value, name
                if below := known.get(key, find_values(schema)):
                    yield from self._walk(below, value, model, name)
        elif isinstance(data, list) and isinstance(schema.get("items"), dict):
            for value in data:
                yield from self._walk(schema["items"], value, model, name)

    def _fits(self, schema: Schema, data: Any) -> bool:
        """Return whether data that is valid under one of several schemas may be so under this."""
        if "$ref" in schema:
            return self._fits(self.models[schema["$ref"].rpartition("/")[2]], data)
        if "anyOf" in schema:
            return any(self._fits(each, data) for each in schema["anyOf"])
        if isinstance(data, dict):
            known = set(data) <= set(schema.get("properties", {}))
            return schema.get("type") == "object" and (known or find_values(schema) is not None)
        return (schema.get("type") == "array") == isinstance(data, list)

    def show_type(self, schema: Schema, several: bool = False) -> str:
        """Return what a value may be, in Markdown."""
        if "$ref" in schema:
            model = schema["$ref"].rpartition("/")[2]
            return f"[{model}](#{HOMES.get(model, self.kind)}-{model.lower()})"
        if "anyOf" in schema:
            branches = [each for each in schema["anyOf"] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(self.show_type(each, several) for each in branches))
        if "const" in schema or "enum" in schema:
            *values, last = (f"`{each}`" for each in schema.get("enum") or [schema["const"]])
            return f"{', '.join(values)} or {last}" if values else last
        kind = schema.get("type")
        if kind == LEVEL:
            return "levels" if several else "a level"
        if isinstance(kind, list):
            return " or ".join(TYPES[each][several] for each in kind)
        if kind is None:
            return "values" if several else "any value"
        shown = TYPES[kind][several]
        if items := schema.get("items") or next(iter(schema.get("prefixItems", ())), None):
            return f"{shown} of {self.show_type(items, several=True)}"
        if values := find_values(schema):
            return f"{shown} to {self.show_type(values, several=True)}"
        bounds = [
            sign.format(f"{schema[bound]:,}") for bound, sign in BOUNDS.items() if bound in schema
        ]
        return " ".join([shown, *(" and ".join(bounds),) * bool(bounds)])

    def show_key(self, model: str, key: str) -> str:
        """Return a definition of a key, in Markdown."""
        schema = self.models[model]
        field = schema["properties"][key]
        facts = [self.show_type(field)]
        if key in schema.get("required", ()):
            facts.append("**required**")
        elif field.get("default") not in (None, "", [], {}) and not isinstance(
            field["default"], dict
        ):
            facts.append(f"`{write_yaml(field['default'])}` by default")
        below = self.models.get(field.get("$ref", "").rpartition("/")[2], {})
        about = field.get("description") or below.get("description", "").partition("\n")[0]
        lines = [f"`{key}`", f": {', '.join(facts)}. {about}"]
        shown, name = self.find_example(model, key)
        if shown:
            source = f" ({name})" if name else ""
            cut = shown if len(shown) < LONGEST else f"{shown[:LONGEST]} …"
            lines.append(f"\n  `` {cut} ``{source}")
        return "\n".join(lines)

    def find_example(self, model: str, key: str) -> tuple[str, str]:
        """Return an example of a key on a line, and the file that has it, or two empty texts."""
        if (model, key) in self.examples:
            return self.examples[model, key]
        stated = self.models[model]["properties"][key].get("examples")
        return (write_yaml({key: stated[0]}), "") if stated else ("", "")

    def write(self) -> str:
        """Return the reference in Markdown: the file's own keys, then a section for each model."""
        parts = []
        for model, schema in self.models.items():
            if HOMES.get(model, self.kind) != self.kind:
                continue
            heading = "Keys" if model == self.kind else model
            parts.append(f"({self.kind}-{heading.lower()})=\n## {heading}")
            parts.append(schema.get("description", ""))
            parts += [self.show_key(model, key) for key in schema["properties"]]
        return "\n\n".join(parts) + "\n"


def find_values(schema: Schema) -> Schema | None:
    """Return the schema of the values under keys that have no schema of their own."""
    named = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    return next(({} if each is True else each for each in named if each), None)


def write_yaml(value: Any) -> str:
    """Return a value as YAML on a line."""
    flow = {"default_flow_style": True, "allow_unicode": True, "sort_keys": False}
    text = yaml.safe_dump(value, width=10**9, **flow).removesuffix("\n...\n")
    text = " ".join(text.split())
    return text[1:-1] if isinstance(value, dict) else text
