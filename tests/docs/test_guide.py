"""The manual's pages have what is public and registered, and each has an example."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import FunctionType
from typing import get_args, get_type_hints

import pytest
import typer

import fairfrontier as ff
from docs.registered import read_documented, write_commands, write_figure, write_remaining
from fairfrontier.auditing.subject import Findings
from fairfrontier.cli.command import app
from fairfrontier.deployment.bundle import Bundle
from fairfrontier.models.registry import METHODS
from fairfrontier.study.check import load_study
from fairfrontier.study.drawing import FIGURES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "notebooks" not in path.parts)
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
# Code, what a cell returns, keys with their examples, or a figure with the line that draws it.
EXAMPLE = re.compile(r"(python|yaml|\{code-cell\}|\{(yaml-reference|registered-figure)\} .+)?")
SHOWN = re.compile(r"^```\{registered-figure\} (\w+) ([\w-]+)\n(.+)\n```$", re.M)
# A package can be called as its verb, which stands in a module of another name.
VERBS = {
    "audit": "auditing.audit.audit",
    "debias": "auditing.debias.fit_debiasing",
    "evaluate": "metrics.verb.evaluate",
    "monitor": "deployment.monitoring.run_monitor",
}

# The methods' classes and their bases, by name.
BASES = {
    base.__name__: base
    for method in METHODS.all().values()
    for base in method.__mro__
    if base.__module__.startswith("fairfrontier.")
}


def test_every_public_name_is_in_the_reference():
    wanted = {f"fairfrontier.{VERBS.get(name, name)}" for name in ff.__all__}
    assert wanted <= read_documented(DOCS / "api")


def test_what_public_names_return_is_in_the_reference_with_its_methods():
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    shown = set(re.findall(r"^\.\. autoclass:: (\S+)\n   :members:$", text, re.M))
    for name in ff.__all__:
        verb = inspect.unwrap(getattr(ff, name))
        returned = verb if inspect.isclass(verb) else get_type_hints(verb)["return"]
        for cls in get_args(returned) or (returned,):
            for each in (cls, *cls.__subclasses__()) if cls in (Bundle, Findings) else (cls,):
                if each.__module__.startswith("fairfrontier."):
                    path = f"{each.__module__}.{each.__qualname__}"
                    # Study is shown by its public name.
                    assert shown & {path, f"fairfrontier.{each.__name__}"}, name
                    # Members without a docstring are left out.
                    members = {key for key, value in vars(each).items() if _is_public(key, value)}
                    assert not {key for key in members if not getattr(each, key).__doc__}, path


def _is_public(name: str, value: object) -> bool:
    return not name.startswith("_") and isinstance(value, FunctionType | classmethod | property)


@pytest.mark.parametrize("name", METHODS.all())
def test_every_parameter_of_a_method_is_in_the_guide(name):
    documented = read_documented(DOCS / "guide")
    method = METHODS.find(name)
    # A class documents its own parameters, and names the classes that document the others.
    classes, known = [method], set()
    for each in classes:
        text = inspect.getdoc(each)
        lines = re.findall(r"^((?:\w+, )*\w+)(?: :|$)", text, re.M)
        if each is method or f"{each.__module__}.{each.__qualname__}" in documented:
            known |= {parameter for line in lines for parameter in line.split(", ")}
        named = {BASES[word] for word in re.findall(r"`(\w+)`", text) if word in BASES}
        classes += named - set(classes)
    assert set(inspect.signature(method).parameters) <= known


def test_every_command_is_in_the_reference_with_its_options():
    text = write_commands()
    assert re.findall(r"^## (.+)$", text, re.M) == list(typer.main.get_command(app).commands)
    assert "`--alpha`\n: Probability of any false alarm" in text
    assert "by default;  by default" not in text


def test_a_method_without_a_page_is_documented_all_the_same(tmp_path):
    line = ".. autoclass:: fairfrontier.models.baseline.gbdt.GBDT\n"
    assert line in write_remaining(tmp_path)
    assert "autofunction:: fairfrontier.similarity.face.learn_face\n" in write_remaining(tmp_path)
    (tmp_path / "page.md").write_text(line)
    assert line not in write_remaining(tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_no_page_is_without_an_example(path):
    text = path.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    # The first page of a chapter leads to others.
    assert "{toctree}" in dict(blocks) or any(
        EXAMPLE.fullmatch(kind) or body.startswith(".. plot::") for kind, body in blocks
    )


def test_the_page_of_figures_has_every_one_as_a_study_draws_it():
    shown = SHOWN.findall((DOCS / "figures.md").read_text(encoding="utf-8"))
    assert sorted(name for name, *_ in shown) == sorted(FIGURES.all())
    for name, study, alt in shown:
        assert name in load_study(study, home=DOCS.parent).study.figures
        image = DOCS.parent / "data" / "reference" / "figures" / f"{name}.png"
        assert image.read_bytes().startswith(b"\x89PNG")
        assert f"[![{alt}](../data/reference/figures/{name}.png)]" in write_figure(name, study, alt)
