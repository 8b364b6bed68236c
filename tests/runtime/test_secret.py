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
    with pytest.raises(ConfigError):
        read_secret(tmp_path / "secret")


def test_without_the_variable_nothing_is_signed(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_key() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path / "no" / "folder"))
    with pytest.raises(ConfigError):
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


def test_an_empty_variable_signs_nothing_and_says_so(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(ConfigError, match=f"{VARIABLE} is empty"):
        find_key()
