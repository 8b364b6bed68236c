import os
import stat

import pytest

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.secret import VARIABLE, find_key, read_secret


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path):
    secret = read_secret(tmp_path / "secret")
    assert len(secret) > 40
    assert read_secret(tmp_path / "secret") == secret
    assert read_secret(tmp_path / "other") != secret
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "secret"]


@pytest.mark.parametrize(
    ("content", "mode", "told"), [("s", 0o640, "by others"), ("", 0o600, "empty")]
)
def test_a_secret_that_is_none_is_refused(tmp_path, monkeypatch, content, mode, told):
    (tmp_path / "secret").write_text(content)
    (tmp_path / "secret").chmod(mode)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "secret"))
    with pytest.raises(ConfigError, match=told):
        find_key()


def test_the_secret_of_another_user_is_refused(tmp_path, monkeypatch):
    read_secret(tmp_path / "secret")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        read_secret(tmp_path / "secret")


def test_without_the_variable_nothing_is_signed(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_key() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path / "no" / "folder"))
    with pytest.raises(ConfigError, match="cannot be used"):
        find_key()


@pytest.mark.parametrize("kind", ["pipe", "device", "long"])
def test_what_is_no_secret_is_neither_waited_for_nor_read_whole(tmp_path, monkeypatch, kind):
    path = tmp_path / "secret"
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("x" * 5000)
        path.chmod(0o600)
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(ConfigError, match=r"there is no file|more than the 4,096 bytes"):
        find_key()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a link away")
def test_a_link_is_followed_where_it_is_ones_own(tmp_path):
    known = read_secret(tmp_path / "secret")
    link = tmp_path / "link"
    link.symlink_to("secret")
    assert read_secret(link) == known
    os.lchown(link, 65534, 65534)
    with pytest.raises(ConfigError, match=f"is behind {link}, a link of another user's"):
        read_secret(link)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a link away")
def test_no_link_on_the_way_is_another_users(tmp_path):
    (tmp_path / "mine").mkdir()
    known = read_secret(tmp_path / "mine" / "secret")
    (tmp_path / "folder").symlink_to("mine")
    (tmp_path / "other").symlink_to(tmp_path / "folder" / ".." / "folder")
    for folder in ("folder", "other"):
        assert read_secret(tmp_path / folder / "secret") == known
    os.lchown(tmp_path / "folder", 65534, 65534)
    for folder in ("folder", "other"):
        with pytest.raises(ConfigError, match=f"is behind {tmp_path}/folder, a link of another"):
            read_secret(tmp_path / folder / "secret")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="symbolic links"):
        read_secret(tmp_path / "round")


def test_an_empty_variable_signs_nothing_and_says_so(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(ConfigError, match=f"{VARIABLE} is empty"):
        find_key()
