"""A tiny sentence encoder: an ONNX graph written byte by byte, and a tokenizer of words."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from fairfrontier.prepare.config.dataset import EncoderConfig
from tests.prepare.embedding.sentence import SENTENCES

INT64, FLOAT, BOOL = 7, 1, 9
# The type of an attribute.
GRAPH = 5
WORDS = sorted({word for text in SENTENCES for word in text.lower().strip(".").split()})
VOCABULARY = {
    word: place for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])
}
DIMENSION = 12
TOKEN = np.random.default_rng(3).normal(size=(len(VOCABULARY), DIMENSION)).astype(np.float32)


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, value: int | bytes | str) -> bytes:
    """Write one field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def node(kind: str, inputs: list[str], *outputs: str) -> bytes:
    """Write a NodeProto."""
    names = [field(1, name) for name in inputs] + [field(2, name) for name in outputs]
    return b"".join(names) + field(4, kind)


def value(name: str, kind: int, shape: list[str | int]) -> bytes:
    """Write a ValueInfoProto; a step of the shape is a number or a name."""
    steps = b"".join(field(1, field(1 if isinstance(s, int) else 2, s)) for s in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, steps)))


def number(name: str, kind: int, content: np.ndarray) -> bytes:
    """Write a TensorProto."""
    shape = b"".join(field(1, size) for size in content.shape)
    return shape + field(2, kind) + field(8, name) + field(9, content.tobytes())


def repeat() -> bytes:
    """Write a Loop around nothing, which ends after some rounds."""
    states = ["batch", "sequence", DIMENSION]
    body = field(1, node("Identity", ["go"], "still")) + field(2, "body")
    body += field(1, node("Identity", ["before"], "after"))
    inputs = [value("round", INT64, []), value("go", BOOL, []), value("before", FLOAT, states)]
    body += b"".join(field(11, each) for each in inputs)
    body += field(12, value("still", BOOL, [])) + field(12, value("after", FLOAT, states))
    loop = node("Loop", ["rounds", "yes", "states"], "last_hidden_state")
    return loop + field(5, field(1, "body") + field(6, body) + field(20, GRAPH))


def make_graph(
    extra_input: str | None = None,
    poison: bool = False,
    quantised: bool = False,
    location: str | None = None,
    rounds: int = 0,
    numbers: int = 0,
) -> bytes:
    """Return a model whose states are the rows of TOKEN.

    Quantised ones take their scale from the whole batch. TOKEN may be at another ``location``; the
    graph may do nothing for so many ``rounds``, or add up so many ``numbers``.
    """
    table = TOKEN * np.float32(np.nan if poison else 1.0)
    tensors = [number("table", FLOAT, table)]
    if location is not None:
        shape = b"".join(field(1, size) for size in table.shape)
        place = field(13, field(1, "location") + field(2, location))
        tensors = [shape + field(2, FLOAT) + field(8, "table") + place + field(14, 1)]
    names = ["input_ids", "attention_mask", *([extra_input] if extra_input else [])]
    output = "last_hidden_state"
    whole = not (quantised or rounds or numbers)
    nodes = [node("Gather", ["table", "input_ids"], output if whole else "states")]
    if rounds:
        nodes.append(repeat())
        tensors.append(number("rounds", INT64, np.array(rounds)))
        tensors.append(number("yes", BOOL, np.array(True)))
    if numbers:
        nodes.append(node("ConstantOfShape", ["size"], "zeros"))
        nodes.append(node("ReduceSum", ["zeros"], "sum"))
        nodes.append(node("Add", ["states", "sum"], output))
        tensors.append(number("size", INT64, np.array([numbers])))
    if quantised:
        coded = ["codes", "scale", "zero"]
        nodes.append(node("DynamicQuantizeLinear", ["states"], *coded))
        nodes.append(node("DequantizeLinear", coded, output))
    graph = (
        b"".join(field(1, each) for each in nodes)
        + field(2, "tiny")
        + b"".join(field(5, each) for each in tensors)
        + b"".join(field(11, value(name, INT64, ["batch", "sequence"])) for name in names)
        + field(12, value(output, FLOAT, ["batch", "sequence", DIMENSION]))
    )
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


def make_tokenizer() -> dict[str, object]:
    """Return what a tokenizer.json holds; it pads to 9 and cuts at 7 tokens unless told not to."""
    special = {
        name: {"id": name, "ids": [VOCABULARY[name]], "tokens": [name]}
        for name in ("[CLS]", "[SEP]")
    }
    return {
        "version": "1.0",
        "truncation": {
            "max_length": 7,
            "strategy": "LongestFirst",
            "stride": 0,
            "direction": "Right",
        },
        "padding": {
            "strategy": {"Fixed": 9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": special,
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"},
    }


def make_config(home: Path, **graph: object) -> EncoderConfig:
    """Write the tiny encoder into a project, with its YAML, and return its configuration."""
    files = {
        "weights": ("tiny.onnx", make_graph(**graph)),
        "tokenizer": ("tokenizer.json", json.dumps(make_tokenizer()).encode()),
    }
    sections = {"encoder": "minilm", "dimension": DIMENSION, "positions": 40}
    for key, (name, content) in files.items():
        (home / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        sections[key] = {"sha256": digest, "sources": [{"path": name}]}
    folder = home / "conf" / "encoders"
    folder.mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    (folder / "minilm.yaml").write_text(json.dumps(sections))
    return EncoderConfig.model_validate(sections)
