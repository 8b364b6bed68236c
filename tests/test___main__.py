"""Where the command line begins."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from types import ModuleType

import pytest

from tests.project import ROOT


class Interrupted(ModuleType):
    """A module whose import is interrupted."""

    def __getattr__(self, name):
        raise KeyboardInterrupt


def test_an_interrupt_as_modules_are_imported_is_no_traceback(monkeypatch):
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, name = scripts["fairfrontier"].split(":")
    main = getattr(import_module(module), name)
    monkeypatch.setitem(sys.modules, "fairfrontier.cli.command", Interrupted("command"))
    with pytest.raises(SystemExit, match="130"):
        main()
