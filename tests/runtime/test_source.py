from __future__ import annotations

import pytest

from fairfrontier.runtime import source
from fairfrontier.runtime.source import source_digest

TREE = {
    "fairfrontier/__init__.py": "",
    "fairfrontier/a/__init__.py": (
        "def __getattr__(name):\n    from fairfrontier.a.lazy import verb\n    return verb\n"
    ),
    "fairfrontier/a/lazy.py": "verb = 1\n",
    "fairfrontier/a/top.py": '"""Doc."""\nimport numpy\nfrom fairfrontier.b import inner\n',
    "fairfrontier/a/alone.py": "x = 1\n",
    "fairfrontier/b/__init__.py": "y = 1\n",
    "fairfrontier/b/inner.py": (
        "from typing import TYPE_CHECKING\nfrom . import sibling\n"
        "if TYPE_CHECKING:\n    from fairfrontier.b.typed import T\n"
        "def f():\n    # why\n    from .nested import g\n    return g\n"
    ),
    "fairfrontier/b/sibling.py": "s = 1\n",
    "fairfrontier/b/nested.py": "def g():\n    '''Doc.'''\n    return 1\n",
    "fairfrontier/b/typed.py": "T = 1\n",
    "fairfrontier/c.py": "import fairfrontier.b.sibling as s\n",
}


@pytest.fixture
def tree(tmp_path):
    def write(**changes):
        source._digest.cache_clear()
        source._read.cache_clear()
        for name, text in {**TREE, **changes}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def digest(root, *modules):
    return source_digest(modules, root=root)


@pytest.mark.parametrize(
    "changed",
    [
        "fairfrontier/a/top.py",
        "fairfrontier/a/__init__.py",
        "fairfrontier/a/lazy.py",
        "fairfrontier/b/__init__.py",
        "fairfrontier/b/inner.py",
        "fairfrontier/b/sibling.py",
        "fairfrontier/b/nested.py",
    ],
)
def test_a_change_anywhere_in_the_closure_changes_the_digest(tree, changed):
    before = digest(tree(), "fairfrontier.a.top")
    assert digest(tree(**{changed: TREE[changed] + "z = 2\n"}), "fairfrontier.a.top") != before


@pytest.mark.parametrize(
    "changed", ["fairfrontier/a/alone.py", "fairfrontier/b/typed.py", "fairfrontier/c.py"]
)
def test_a_change_elsewhere_does_not(tree, changed):
    before = digest(tree(), "fairfrontier.a.top")
    assert digest(tree(**{changed: TREE[changed] + "z = 2\n"}), "fairfrontier.a.top") == before


def test_comments_docstrings_and_layout_do_not_count(tree):
    before = digest(tree(), "fairfrontier.a.top")
    changes = {
        "fairfrontier/a/top.py": (
            '"""Another."""\nimport numpy  # noqa\n\n\nfrom fairfrontier.b import inner\n'
        ),
        "fairfrontier/b/nested.py": "def g():\n    return (\n        1\n    )\n",
    }
    assert digest(tree(**changes), "fairfrontier.a.top") == before
    assert (
        digest(
            tree(**{"fairfrontier/b/nested.py": "def g():\n    return 2\n"}), "fairfrontier.a.top"
        )
        != before
    )


def test_a_string_that_is_no_docstring_counts(tree):
    before = digest(tree(**{"fairfrontier/c.py": "x = 1\n'kept'\n"}), "fairfrontier.c")
    assert digest(tree(**{"fairfrontier/c.py": "x = 1\n'other'\n"}), "fairfrontier.c") != before


def test_the_order_of_the_modules_does_not_count(tree):
    root = tree()
    assert digest(root, "fairfrontier.c", "fairfrontier.a.top") == digest(
        root, "fairfrontier.a.top", "fairfrontier.c"
    )
    assert digest(root, "fairfrontier.c") != digest(root, "fairfrontier.c", "fairfrontier.a.top")


def test_a_module_without_source_is_refused(tree):
    for module in ("fairfrontier.nowhere", "numpy"):
        with pytest.raises(ValueError, match=f"{module} has no source"):
            digest(tree(), module)


def test_the_real_tree_is_read():
    assert len(source_digest(["fairfrontier.runtime.store"])) == 64
    assert source_digest(["fairfrontier.runtime.store"]) != source_digest(
        ["fairfrontier.runtime.arrays"]
    )
