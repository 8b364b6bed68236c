import os
from pathlib import Path

import pytest

from fairfrontier.runtime import config
from fairfrontier.runtime.config import read_yaml
from fairfrontier.runtime.errors import ConfigError


def test_a_key_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("study: a\nmethods:\n  gbdt: {}\n  gbdt: {max_depth: 2}\n")
    with pytest.raises(ConfigError, match=r"the key 'gbdt' occurs twice"):
        read_yaml(path)


def test_yaml_builds_no_objects(tmp_path):
    path = tmp_path / "object.yaml"
    path.write_text("study: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ConfigError, match="line 1"):
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


@pytest.mark.parametrize("number", ["0x" + "F" * 5000, "1" + ":59" * 1000, "9" * 5000, "9.0e+999"])
def test_a_number_of_any_length_is_text_or_one_sentence(tmp_path, number):
    path = tmp_path / "long.yaml"
    for text in (f"a: {number}\n", f"? {number}\n: 1\n"):
        path.write_text(text)
        if ":" in number or number[1] in "xb":
            assert number in str(read_yaml(path))
            continue
        with pytest.raises(ConfigError) as caught:
            read_yaml(path)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text", ["a: !!int ''", "a: !!int '-'", 'a: "\\UFFFFFFFF"', f"%YAML {'1' * 5000}.1\n---\na: 1"]
)
def test_a_number_of_the_syntax_that_is_none_is_one_sentence(tmp_path, text):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"odd\.yaml"):
        read_yaml(path)


def test_numbers_are_what_people_read(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("[1_000, -3, +7, 1.5, .5, 2., 0, 00, 0.10, 6.02e+23, 09]\n")
    assert read_yaml(path) == [1000, -3, 7, 1.5, 0.5, 2.0, 0, 0, 0.1, 6.02e23, "09"]


@pytest.mark.parametrize(
    "text", ["0x1F", "0b11", "1:30", "017", "-010", "1:30.5", "0o17", "01.5", "2024-01-31"]
)
def test_what_only_yaml_takes_for_that_number_is_text(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(f"[{text}]\n")
    assert read_yaml(path) == [text]


def test_too_many_values_are_refused_before_they_are_all_read(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "NODES", 100)
    monkeypatch.setattr(config, "MOST_BYTES", 2000)
    path = tmp_path / "many.yaml"
    # What follows is no YAML, which nobody gets to see.
    path.write_text("[" + "1," * 101 + "}")
    with pytest.raises(ConfigError, match="more than 100 values"):
        read_yaml(path)
    path.write_text("#" * config.MOST_BYTES)
    assert read_yaml(path) is None
    path.write_text("#" * (config.MOST_BYTES + 1))
    with pytest.raises(ConfigError, match="more than the 2,000 bytes"):
        read_yaml(path)


def test_neither_a_pipe_nor_a_file_of_the_kernel_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "kernel.yaml").symlink_to("/proc/kmsg")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    for name in ("pipe", "kernel", "zero", "none"):
        with pytest.raises(ConfigError, match=f"there is no file {name}.yaml"):
            read_yaml(tmp_path / f"{name}.yaml")
