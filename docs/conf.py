"""How the manual is built: `make docs`."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
# Of the kernels that run pages; each fit has a thread, and no figure a screen.
os.environ |= {
    "FAIRFRONTIER_DOCS": str(ROOT),
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}

from docs.links import check_links  # noqa: E402
from docs.registered import write_commands, write_figure, write_remaining  # noqa: E402
from docs.yaml_reference import Reference  # noqa: E402

project = "fairfrontier"
version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
copyright = "The authors of fairfrontier"  # noqa: A001 - Sphinx's name

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinxcontrib.bibtex",
]
bibtex_bibfiles = ["references.bib"]
bibtex_reference_style = "author_year"
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath", "fieldlist"]
myst_heading_anchors = 3
# Pages run; notebooks are committed as they ran, and run by tests/test_notebooks.py.
nb_execution_excludepatterns = ["notebooks/*"]
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_show_tb = True

plot_pre_code = "import matplotlib.pyplot as plt\nimport numpy as np"
plot_rcparams = {"figure.autolayout": True, "axes.spines.top": False, "axes.spines.right": False}
plot_apply_rcparams = True
plot_formats = [("png", 130)]
plot_html_show_formats = False
plot_html_show_source_link = False

autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = f"fairfrontier {version}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["manual.css"]
# Pages without pages below them need no second list of pages.
html_sidebars = {"*": []}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "navbar_align": "left",
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}

# A line of a docstring that is a formula, and no sentence.
FORMULA = re.compile(r"^( {4,}\S|(min|max)[_ ]|[^\s.,]+(\([^)]*\))? = |.*\)\] = )")


class YamlReference(SphinxDirective):
    """``yaml-reference``: the keys of a kind of file."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the reference as nodes."""
        text = Reference(self.arguments[0]).write()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class RemainingMethods(SphinxDirective):
    """``remaining-methods``: the registered methods and metrics that no page of the guide has."""

    def run(self) -> list[nodes.Node]:
        """Return their documentation as nodes."""
        text = write_remaining(ROOT / "docs" / "guide")
        return self.parse_text_to_nodes(f"```{{eval-rst}}\n{text}```\n") if text else []


class RegisteredFigure(SphinxDirective):
    """``registered-figure``: a figure's name, the study that drew it, and the same in words."""

    required_arguments = 2
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the figure and how to draw it as nodes."""
        return self.parse_text_to_nodes(write_figure(*self.arguments, " ".join(self.content)))


class CommandReference(SphinxDirective):
    """``command-reference``: every command with its options."""

    def run(self) -> list[nodes.Node]:
        """Return the sections as nodes."""
        return self.parse_text_to_nodes(write_commands(), allow_section_headings=True)


def set_formulas(*event: Any) -> None:
    """Set the formulas of a docstring as they stand there: they are not reStructuredText."""
    lines = event[-1]
    paragraphs = "\n".join(lines).split("\n\n")
    summary = True
    for i, paragraph in enumerate(paragraphs):
        summary = summary and "\n---" not in paragraph
        if summary and FORMULA.match(paragraph):
            body = paragraph.replace("\n", "\n    ")
            paragraphs[i] = f".. code-block:: none\n\n    {body}"
        else:
            # Bars make no substitutions, but in literals they stand as they are.
            paragraphs[i] = re.sub(r"(``.*?``)|\|", lambda bar: bar[1] or r"\|", paragraph)
    lines[:] = "\n\n".join(paragraphs).split("\n")


def skip_requests(*event: Any) -> bool | None:
    """Leave out the methods that scikit-learn makes of signatures, with links into its manual."""
    return True if re.fullmatch(r"set_\w+_request", event[2]) else None


def visit_math(writer: Any, node: nodes.math) -> None:
    """Write mathematics as MathML, which browsers show without a script."""
    block = isinstance(node, nodes.math_block)
    mathml = latex2mathml.tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div class="math">{mathml}</div>' if block else mathml)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register what this manual adds to Sphinx."""
    app.add_directive("yaml-reference", YamlReference)
    app.add_directive("remaining-methods", RemainingMethods)
    app.add_directive("registered-figure", RegisteredFigure)
    app.add_directive("command-reference", CommandReference)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    # Before numpydoc, which has the priority 500.
    app.connect("autodoc-process-docstring", set_formulas, priority=400)
    app.connect("autodoc-skip-member", skip_requests)
    app.connect("build-finished", check_links)
