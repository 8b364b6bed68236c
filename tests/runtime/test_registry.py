import sys

from fairfrontier.runtime.registry import Registry


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
