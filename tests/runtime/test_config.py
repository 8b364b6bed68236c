from pathlib import Path

import pytest

from fairfrontier.runtime.config import read_yaml
from fairfrontier.runtime.errors import ConfigError


def test_a_key_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("study: a\nmethods:\n  gbdt: {}\n  gbdt: {max_depth: 2}\n")
    with pytest.raises(ConfigError, match=r"line 4.*'gbdt' occurs twice"):
        read_yaml(path)


def test_yaml_builds_no_objects(tmp_path):
    path = tmp_path / "object.yaml"
    path.write_text("study: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ConfigError, match="line 1"):
        read_yaml(path)


def test_half_a_character_is_refused(tmp_path):
    path = tmp_path / "half.yaml"
    path.write_text('notes: "a \\uD800 b"\n')
    with pytest.raises(ConfigError, match=r"line 1.*half a character"):
        read_yaml(path)


def test_what_a_reader_changes_is_not_in_the_file(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("names: [one]\n")
    read_yaml(path)["names"].append("two")
    assert read_yaml(path) == {"names": ["one"]}
    path.write_text("names: [one, three]\n")
    assert read_yaml(path) == {"names": ["one", "three"]}


def test_a_relative_path_is_another_file_in_another_folder(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(f"name: {name}\n")
        monkeypatch.chdir(tmp_path / name)
        assert read_yaml(Path("a.yaml")) == {"name": name}
