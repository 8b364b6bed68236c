"""Broken links between pages are found, and links of pages to code name what is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs.links import find_broken_links

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"\[`(\w+)`\]\(([^)]+\.py)\)")


def find_lost_names(page: Path) -> Iterator[str]:
    """Yield every link [`name`](file.py) of a page whose file does not define the name."""
    for name, target in CODE.findall(page.read_text(encoding="utf-8")):
        path = page.parent / target
        if not path.is_file() or name not in list_names(path):
            yield f"{name} in {target}"


def list_names(path: Path) -> set[str]:
    """Return the functions, methods and classes of a file, and the variables of its module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_links_to_code_name_what_is_there(tmp_path):
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    assert not [(page.name, lost) for page in pages for lost in find_lost_names(page)]
    # Every stage of a run is on the page that follows a row.
    text = (ROOT / "docs" / "where.md").read_text()
    linked = set(CODE.findall(text))
    assert len(linked) > 40
    assert {"run_stages", "learn_metric", "fit_group", "measure_group"} <= {
        name for name, _ in linked
    }
    (tmp_path / "code.py").write_text("LIMIT: int = 1\nclass Thing:\n    def act(self): ...\n")
    page = tmp_path / "page.md"
    page.write_text("".join(f"[`{name}`](code.py)" for name in ("LIMIT", "act", "lost")))
    assert list(find_lost_names(page)) == ["lost in code.py"]


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "two.html").write_text("<h1 id='top'>Two</h1><a href='../one.html'>1</a>")
    (tmp_path / "one.html").write_text(
        "<a href='guide/two.html#top'>a</a><a href='https://example.org/lost'>b</a>"
        "<a href='#x'>c</a>"
        "<a href='guide/two.html#lost'>d</a><a href='three.html'>e</a><img src='lost%20one.png'>"
    )
    assert list(find_broken_links(tmp_path)) == [
        "one.html: #x",
        "one.html: guide/two.html#lost",
        "one.html: three.html",
        "one.html: lost%20one.png",
    ]
    (tmp_path / "one.html").write_text("<p id='x'><a href='#x'>c</a>")
    assert not list(find_broken_links(tmp_path))
