"""Names and paths of YAML files, in a project and in the package."""

from pathlib import Path

import pytest

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import FOLDERS, find_yaml, list_names
from fairfrontier.runtime.home import SHIPPED, find_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a project with a dataset of its own, and one named as the package's."""
    folder = tmp_path / "project" / FOLDERS["dataset"]
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("")
    (folder / "german.yaml").write_text("")
    return tmp_path / "project"


@pytest.mark.parametrize("kind", FOLDERS)
def test_names_of_the_package_are_found_without_a_project(kind, tmp_path):
    names = list_names(kind, tmp_path)
    assert names
    assert list(names) == sorted(names)
    for name, path in names.items():
        assert find_yaml(kind, name, tmp_path) == path
    own = {path.stem: path for path in (SHIPPED / FOLDERS[kind]).glob("*.yaml")}
    assert own.items() <= names.items()


def test_names_of_packages_of_others_come_last(home):
    names = list_names("method", home)
    assert names["hardt"] == SHIPPED / "papers" / FOLDERS["method"] / "hardt.yaml"
    (home / FOLDERS["method"]).mkdir(parents=True)
    (home / FOLDERS["method"] / "hardt.yaml").write_text("")
    assert find_yaml("method", "hardt", home) == home / FOLDERS["method"] / "hardt.yaml"


def test_names_of_the_project_win(home):
    folder = home / FOLDERS["dataset"]
    assert find_yaml("dataset", "mine", home) == folder / "mine.yaml"
    assert find_yaml("dataset", "german", home) == folder / "german.yaml"
    assert find_yaml("dataset", "german", None) == SHIPPED / FOLDERS["dataset"] / "german.yaml"
    assert {"mine", "german", "adult"} <= list_names("dataset", home).keys()


def test_folders_beside_win_over_both(home, tmp_path):
    (tmp_path / "german.yaml").write_text("")
    found = find_yaml("dataset", "german", home, folders=[tmp_path])
    assert found == tmp_path / "german.yaml"


def test_paths_start_beside_the_naming_file_then_here_then_at_home(home, tmp_path, monkeypatch):
    beside, here = tmp_path / "beside", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for folder in (home, here, beside):
        folder.mkdir(exist_ok=True)
        (folder / "one.yml").write_text("")
        assert find_yaml("study", "one.yml", home, beside=beside) == folder / "one.yml"
    assert find_yaml("study", home / "one.yml", None) == home / "one.yml"


def test_errors_name_the_place_and_offer_the_nearest(home):
    with pytest.raises(ConfigError, match=r"^There is no dataset 'mne'. Did you mean 'mine'"):
        find_yaml("dataset", "mne", home)
    with pytest.raises(ConfigError, match=r"Did you mean 'auto'"):
        find_yaml("encoder", "aut", home, also=("auto",))
    with pytest.raises(ConfigError):
        find_yaml("dataset", "a.yaml", home, where="f: dataset")
    with pytest.raises(ConfigError, match=r"there is no dataset '../mine'"):
        find_yaml("dataset", "../mine", home, where="f")


def test_home_is_the_nearest_project_or_the_current_folder(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_home() == tmp_path
    inside = home / "a" / "b"
    inside.mkdir(parents=True)
    assert find_home(inside) == home
    monkeypatch.setenv("FAIRFRONTIER_HOME", str(inside))
    assert find_home() == inside
    monkeypatch.setenv("FAIRFRONTIER_HOME", str(inside / "c"))
    with pytest.raises(ConfigError):
        find_home()
