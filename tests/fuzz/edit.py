"""Valid files and one edit of each: what a user, or an attacker, could hand to the product.

Trees are YAML or JSON as Python reads them. An edit puts raw text where a value was, so that text
that no dumper would write (tags, aliases, thousand brackets) arrives too.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import strategies as st

MARK = "EDITED"

# Scalars on which constructors of YAML and Python stumble, and shapes that nobody expects.
YAML_VALUES = (
    *("null", "true", "-1", "0", "1", "1e23", "1e400", ".inf", "-.inf", ".nan", "9" * 5000),
    *("2020-13-45", "2020-01-01", "12:99:99", "0x", "0b2", "0o8", "1_000", "=", "<<", "~", "''"),
    *("!!int abc", "!!float x", "!!map x", "!!seq x", "!!timestamp x", "!!binary '*'", "!!set x"),
    *("!!python/object:os.system x", "!unknown x", "&a [*a]", "*nowhere", "[" * 3000, "{" * 3000),
    *("[]", "{}", "[[]]", "[{}]", "{a: 1}", "[x]", "[[x]]", "[a, a]", "{a: {b: {c: d}}}", "[null]"),
    *("a/b", "../../etc/passwd", "/", "~nosuchuser/x", "x" * 300, "/" + "x/" * 3000, '"\\0"'),
    *(
        '"\\uD800"',
        '"\\n"',
        '"\\e]52;c;x\\a"',
        '"=1+1"',
        "nan",
        "NAN",
        "é",
        '"\\u202e"',
        "? a\n: b",
    ),
    *(
        "300000000",
        "-9223372036854775809",
        "{? [a] : 1}",
        "- a\n- b",
        "|\n  text",
        "%x",
        "@x",
        "`x",
    ),
)
JSON_VALUES = (
    *("null", "true", "-1", "0", "1e23", "1e400", "-1e400", "NaN", "Infinity", "-Infinity"),
    *("9" * 5000, '""', '"x"', '"\\ud800"', '"\\u0000"', "[]", "{}", "[[]]", '[{"a": 1}]'),
    *('{"a": 1}', "[" * 100_000, '{"a":' * 100_000, "tru", "'x'", '"2020-13-45"', '"nan"', "1.5"),
)
CELLS = (
    *("", " ", "nan", "NaN", "NAN", "inf", "-inf", "1_000", "1e400", "9" * 400, "0x10", "1,5", "é"),
    *("=1+1", "+1", "-1", "@x", "\t1", '"', '""', '"a', "a\nb", "a\r", "\x00", "\x1b]52;c;x\x07"),
    *("[link=file:///x]x[/link]", "<script>alert(1)</script>", "null", "None", "true", "x" * 9000),
    *("1e-400", "-0", "２", "1 ", "a;b", "a,b", "2020-13-45", "\u202e", "\ufeff1"),
)
# What a shell can pass: names that exist in the project of the fuzzer, and what may not be one.
ARGUMENTS = (
    *("", " ", "-", "--", "--help", "x", "0", "-1", "1.5", "1e400", "nan", "inf", "9" * 5000),
    *(",", "a,b", "=", "a=1", "north=.5,south=.5,island=0", "..", "/", "/dev/null", "/dev/zero"),
    *("~", "~nosuchuser/x", "x" * 300, "/" + "x/" * 3000, "a/b", "\x00", "\ud800", "\udcff.csv"),
    *("\x1b]52;c;x\x07", "[red]", "[/x]", "é\u202e", "=1+1", "%s", "{x}", "*", "conf", "data/raw"),
    *("loans", "paper", "default", "short", "inline", "loans.yaml", "conf/studies/loans.yaml"),
    *("scores.csv", "empty.csv", "folder.csv", "pipe.csv", "pipe.yaml", "thresholds.json"),
    *("score", "origin", "outcome", "decision", "repaid", "region", "origin,region", "age"),
    *("tpr,fpr", "exact", "probability", "train", "300000000", "18446744073709551616"),
)


def paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every node below the root."""
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield (*path, key)
            yield from paths(value, (*path, key))


@st.composite
def edited_tree(draw: st.DrawFn, tree: Any, language: str = "yaml") -> str:
    """Draw the text of a tree with one edit: a value, a key, or a node gone, doubled or moved."""
    tree = copy.deepcopy(tree)
    *parents, key = draw(st.sampled_from(sorted(paths(tree), key=str)))
    parent = tree
    for step in parents:
        parent = parent[step]
    values = YAML_VALUES if language == "yaml" else JSON_VALUES
    token = ""
    match draw(st.sampled_from(("value", "value", "value", "key", "gone", "text", "shape"))):
        case "value":
            token, parent[key] = draw(st.sampled_from(values)), MARK
        case "key" if isinstance(parent, dict):
            token = draw(st.sampled_from(values if language == "yaml" else ('"x"', '""')))
            parent[MARK] = parent.pop(key)
        case "text":
            parent[key] = draw(st.text(max_size=20))
        case "shape":
            parent[key] = draw(st.sampled_from(([parent[key]], {"a": parent[key]}, [], {}, None)))
        case _:
            del parent[key]
    text = (
        yaml.dump(tree, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False)
        if language == "yaml"
        else json.dumps(tree, ensure_ascii=False)
    )
    return text.replace(f'"{MARK}"', token).replace(MARK, token)


@st.composite
def edited_table(draw: st.DrawFn, text: str) -> bytes:
    """Draw a CSV file with one edit: of a cell, a column's name, a line, or the bytes."""
    lines = text.splitlines()
    row = draw(st.integers(0, min(len(lines) - 1, 20)))
    cells = lines[row].split(",")
    column = draw(st.integers(0, len(cells) - 1))
    match draw(
        st.sampled_from(("cell", "cell", "header", "short", "long", "bytes", "none", "twice"))
    ):
        case "cell":
            cells[column] = draw(st.one_of(st.sampled_from(CELLS), st.text(max_size=8)))
            lines[row] = ",".join(cells)
        case "header":
            names = lines[0].split(",")
            name = draw(st.sampled_from((*CELLS, names[0])))
            lines[0] = ",".join([name if k == column else each for k, each in enumerate(names)])
        case "short":
            lines[row] = ",".join(cells[:column])
        case "long":
            lines[row] += "," * draw(st.sampled_from((1, 7, 5000)))
        case "bytes":
            data = bytearray("\n".join(lines).encode())
            place = draw(st.integers(0, min(len(data) - 1, 2000)))
            data[place : place + 1] = draw(st.binary(min_size=1, max_size=6))
            return bytes(data)
        case "none":
            lines = lines[: draw(st.integers(0, 2))]
        case "twice":
            lines = [line + "," + line.split(",")[0] for line in lines]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


@st.composite
def edited_arguments(draw: st.DrawFn, arguments: tuple[str, ...], options: list[str]) -> list[str]:
    """Draw a command's arguments with one edit: a value, a further option, one gone or doubled."""
    edited = list(arguments)
    place = draw(st.integers(0, len(edited) - 1))
    value = draw(st.one_of(st.sampled_from(ARGUMENTS), st.text(max_size=12)))
    match draw(st.sampled_from(("value", "value", "option", "option", "gone", "twice"))):
        case "value":
            edited[place] = value
        case "option":
            edited += [draw(st.sampled_from(options)), value]
        case "gone":
            del edited[place]
        case "twice":
            edited.insert(place, edited[place])
    return edited
