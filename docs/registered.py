"""What is registered: what no page of the guide has yet, figures of the gallery, and commands."""

from __future__ import annotations

import re
from pathlib import Path

import typer
from rich.text import Text

from fairfrontier.cli.command import app
from fairfrontier.models.registry import METHODS
from fairfrontier.similarity.registry import METRICS
from fairfrontier.study.drawing import FIGURES

DOCUMENTED = re.compile(r"^\.\. auto(?:class|function):: ((?:fairfrontier|papers)\.[\w.]+)$", re.M)


def read_documented(folder: Path) -> set[str]:
    """Return the paths of what the pages below a folder document."""
    return {
        path
        for page in folder.rglob("*.md")
        for path in DOCUMENTED.findall(page.read_text(encoding="utf-8"))
    }


def write_remaining(folder: Path) -> str:
    """Return reStructuredText that documents the methods and metrics of no page of a folder."""
    documented = read_documented(folder)
    return "".join(
        f".. auto{kind}:: {path}\n"
        for kind, registry in (("class", METHODS), ("function", METRICS))
        for each in registry.all().values()
        if (path := f"{each.__module__}.{each.__qualname__}") not in documented
    )


def write_figure(name: str, study: str, alt: str) -> str:
    """Return Markdown that shows a registered figure as a study drew it, and how to draw it."""
    figure = FIGURES.find(name)
    path = f"../data/reference/figures/{name}.png"
    return (
        f"[![{alt}]({path})]({path})\n\n**{figure.title}.** {figure.what}\n\n"
        f"```yaml\nfigures: [{name}]    # fairfrontier run {study}\n```\n"
    )


def write_commands() -> str:
    """Return Markdown with a section for each command: what it does, its arguments and options."""
    parts = []
    for name, command in typer.main.get_command(app).commands.items():
        # A command is built of its model when it is called.
        built = command.make_context(name, [], resilient_parsing=True).command
        parts.append(f"## {name}\n\n{built.help}")
        for parameter in built.params:
            spelt = ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))
            about = Text.from_markup(parameter.help or "").plain
            needed = " **Required.**" if parameter.required else ""
            parts.append(f"{spelt}\n: {about}{needed}")
    return "\n\n".join(parts) + "\n"
