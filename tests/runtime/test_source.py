from __future__ import annotations

import functools
import sys

import pytest

from fairfrontier.runtime import source
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store

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


CACHED = (*(source._digest, source._read, source._keep, source.file_digest), source._guest_versions)


@pytest.fixture
def tree(tmp_path):
    def write(**changes):
        for cached in CACHED:
            cached.cache_clear()
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
        "fairfrontier/b/inner.py",
        "fairfrontier/b/sibling.py",
        "fairfrontier/b/nested.py",
    ],
)
def test_a_change_anywhere_in_the_closure_changes_the_digest(tree, changed):
    before = digest(tree(), "fairfrontier.a.top")
    assert digest(tree(**{changed: TREE[changed] + "z = 2\n"}), "fairfrontier.a.top") != before


@pytest.mark.parametrize(
    "changed",
    [
        "fairfrontier/a/alone.py",
        "fairfrontier/a/__init__.py",
        "fairfrontier/b/__init__.py",
        "fairfrontier/b/typed.py",
        "fairfrontier/c.py",
    ],
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
    for module in ("fairfrontier.nowhere", "sys", "nowhere"):
        with pytest.raises(ValueError, match=f"{module} has no source"):
            digest(tree(), module)


def test_a_lazy_door_is_followed_where_it_is_asked(tree):
    before = digest(tree(), "fairfrontier.a")
    changed = tree(**{"fairfrontier/a/lazy.py": "verb = 2\n"})
    assert digest(changed, "fairfrontier.a") != before


def test_imports_are_followed_within(tree):
    def look(**changes):
        return source_digest(
            ["fairfrontier.a.top"], within=["fairfrontier.b.inner"], root=tree(**changes)
        )

    before = look()
    assert look(**{"fairfrontier/b/nested.py": "def g():\n    return 2\n"}) == before
    assert look(**{"fairfrontier/b/inner.py": "def f(): ...\n"}) != before


def test_imports_are_not_followed_into_what_is_left_out(tree):
    def look(**changes):
        return source_digest(
            ["fairfrontier.a.top"], without=["fairfrontier.b.inner"], root=tree(**changes)
        )

    before = look()
    assert look(**{"fairfrontier/b/inner.py": "def f(): ...\n"}) == before
    assert look(**{"fairfrontier/a/top.py": "x = 1\n"}) != before


MESSAGES = """\
import warnings
def f(x):
    if x < 0:
        raise ValueError("{0}")
    if x > 9:
        raise ValueError(f"{0} {{x}}", x) from None
    assert x, "{0}"
    require("{0}", x > 1, f"{0} {{x}}")
    warnings.warn("{0}", UserWarning)
    return {1}
"""


def test_messages_do_not_count(tree):
    before = digest(
        tree(**{"fairfrontier/c.py": MESSAGES.format("old", "'kept'")}), "fairfrontier.c"
    )
    same = MESSAGES.format("new", "'kept'").replace('f"new {x}", x', '"new", x')
    assert digest(tree(**{"fairfrontier/c.py": same}), "fairfrontier.c") == before
    other = MESSAGES.format("old", "'other'")
    assert digest(tree(**{"fairfrontier/c.py": other}), "fairfrontier.c") != before


@pytest.mark.parametrize(
    ("old", "new"),
    [("raise ValueError", "raise TypeError"), ("x < 0", "x < 1"), ("x > 1", "x > 2")],
)
def test_what_is_raised_and_when_does(tree, old, new):
    text = MESSAGES.format("old", "1")
    before = digest(tree(**{"fairfrontier/c.py": text}), "fairfrontier.c")
    changed = tree(**{"fairfrontier/c.py": text.replace(old, new)})
    assert digest(changed, "fairfrontier.c") != before


def test_the_same_name_from_another_module_counts(tree):
    twins = {
        "fairfrontier/b/one.py": "def f():\n    return 1\n",
        "fairfrontier/b/two.py": "def f():\n    return 2\n",
    }
    texts = [
        f"from fairfrontier.b.{first} import f\nfrom fairfrontier.b.{second} import f as g\n"
        for first, second in (("one", "two"), ("two", "one"))
    ]
    found = {
        digest(tree(**twins, **{"fairfrontier/c.py": text}), "fairfrontier.c") for text in texts
    }
    assert len(found) == 2


def test_a_package_of_another_distribution_is_followed(tree, monkeypatch):
    guest = {
        "guest/__init__.py": "",
        "guest/method.py": "from guest.kernel import f\nfrom fairfrontier.c import s\n",
        "guest/kernel.py": "def f():\n    return 1\n",
    }
    # Of the packages that are installed each would be looked at.
    plain = [path for path in sys.path if "site-packages" not in path]
    monkeypatch.setattr(sys, "path", [str(tree()), *plain])
    before = digest(tree(**guest), "guest.method")
    for name in ("guest/kernel.py", "fairfrontier/c.py"):
        changed = {**guest, name: "f = s = 2\n"}
        assert digest(tree(**changed), "guest.method") != before


@pytest.mark.parametrize("kept", [False, True])
def test_versions_of_another_distribution_and_of_what_it_imports_count(tree, monkeypatch, kept):
    guest = {
        "guest/__init__.py": "",
        "guest/method.py": "def fit():\n    from helper.core import f\n    return f\n",
        "helper/__init__.py": "",
        "other/__init__.py": "",
    }
    # Of the packages that are installed each would be looked at.
    plain = [path for path in sys.path if "site-packages" not in path]
    monkeypatch.setattr(sys, "path", [str(tree()), *plain])

    def look(**versions):
        for name, number in {"guest": "1", "helper": "1", "other": "1", **versions}.items():
            about = f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: {number}\n"
            guest[f"{name}_dist-0.dist-info/METADATA"] = about
            guest[f"{name}_dist-0.dist-info/top_level.txt"] = name
        root = tree(**guest)
        store = Store(root / "store") if kept else None
        return source_digest(["guest.method"], root=root, store=store)

    before = look()
    assert look(other="2") == before
    assert look(guest="2") != before
    assert look(helper="2") != before


def test_the_store_keeps_the_answer_until_a_byte_changes(tree, tmp_path, monkeypatch):
    store = Store(tmp_path / "store")

    def look(**changes):
        return source_digest(["fairfrontier.a.top"], root=tree(**changes), store=store)

    before = look()
    assert before == digest(tree(), "fairfrontier.a.top")
    read = []
    monkeypatch.setattr(source, "_read", functools.cache(lambda *args: read.append(args)))
    assert look() == before
    assert not read
    monkeypatch.undo()
    assert look(**{"fairfrontier/b/sibling.py": "s = 2\n"}) != before
    (entry,) = (
        each for each in store.folder.glob("source/*/*/source.json") if before in each.read_text()
    )
    entry.write_text("damaged")
    assert look() == before


def test_every_byte_counts_in_the_digest_of_files(tree):
    def look(**changes):
        return source.file_digest(("fairfrontier.a", "fairfrontier.c"), root=tree(**changes))

    before = look()
    assert look() == before
    assert look(**{"fairfrontier/b/inner.py": "x = 1\n"}) == before
    for name in ("fairfrontier/a/alone.py", "fairfrontier/a/__init__.py", "fairfrontier/c.py"):
        assert look(**{name: TREE[name] + "# why\n"}) != before
    assert look(**{"fairfrontier/a/new.py": ""}) != before


def test_the_real_tree_is_read():
    assert len(source_digest(["fairfrontier.runtime.store"])) == 64
    assert source_digest(["fairfrontier.runtime.store"]) != source_digest(
        ["fairfrontier.runtime.arrays"]
    )
