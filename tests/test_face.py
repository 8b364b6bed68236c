"""What `import fairfrontier as ff` shows."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import fairfrontier as ff
from fairfrontier.evaluate import verb

FACE = {
    "Study",
    "audit",
    "create",
    "debias",
    "evaluate",
    "explain",
    "init",
    "learn",
    "load",
    "load_bundle",
    "load_model",
    "monitor",
    "post_process",
    "run_study",
    "score",
    "select",
}


def test_the_public_names_are_there():
    assert set(ff.__all__) == FACE
    assert set(dir(ff)) >= FACE
    for name in FACE:
        assert callable(getattr(ff, name)), name
    with pytest.raises(AttributeError, match="'lode'"):
        ff.lode  # noqa: B018


def test_a_room_is_called_as_its_verb():
    # The import system keeps the package under the name of the verb: both are one thing.
    assert inspect.ismodule(ff.evaluate)
    assert inspect.signature(ff.evaluate) == inspect.signature(verb.evaluate)
    with pytest.raises(TypeError, match="evaluate"):
        ff.evaluate()


def test_the_package_is_imported_without_libraries():
    code = (
        "import sys; before = set(sys.modules); import fairfrontier\n"
        "print(*{name.partition('.')[0] for name in sys.modules.keys() - before})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= {"fairfrontier", *sys.stdlib_module_names}
