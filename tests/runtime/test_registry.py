import sys

from fairfrontier.runtime.registry import Registry

NAMED = Registry("mark", "mark", ("named",), "fairfrontier.none")


def test_only_modules_that_register_are_imported(tmp_path, monkeypatch):
    folder = tmp_path / "discovered"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "deep" / "registers.py").write_text(
        "def mark():\n    return lambda f: f\n\n\n@mark()\ndef a(): ...\n"
    )
    (folder / "mentions.py").write_text('"""Says @mark( and breaks when imported."""\n1 / 0\n')
    monkeypatch.syspath_prepend(tmp_path)
    Registry("mark", "mark", ("discovered",), "fairfrontier.none").all()
    assert "discovered.deep.registers" in sys.modules
    assert "discovered.mentions" not in sys.modules
    for name in [each for each in sys.modules if each.startswith("discovered")]:
        monkeypatch.delitem(sys.modules, name)


def test_the_module_of_another_entry_stays_unimported(tmp_path, monkeypatch):
    folder = tmp_path / "named"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    register = "from tests.runtime.test_registry import NAMED\n\n\n"
    register += "def mark(name):\n    return lambda f: NAMED.add(name, f, f)\n\n\n"
    (folder / "one.py").write_text(f'{register}@mark(\n    "one",\n)\ndef f(): ...\n')
    (folder / "two.py").write_text(f'{register}NAME = "two"\nmark(NAME)(print)\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert NAMED.find("one").__module__ == "named.one"
    assert "named.two" not in sys.modules
    # A name that is no literal is found by importing all.
    assert NAMED.get("two") is print
    assert NAMED.get("three") is None
    assert list(NAMED.all()) == ["one", "two"]
    for name in [each for each in sys.modules if each.startswith("named")]:
        monkeypatch.delitem(sys.modules, name)
