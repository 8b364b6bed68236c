import os

import pytest

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import find_home, read_path

USER, STRANGER = 12346, 12345
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


@pytest.mark.parametrize("given", ["x" * 300, "~nosuchuser/x", "\udcff.csv"])
def test_what_can_be_no_path_is_refused(given):
    with pytest.raises(ConfigError):
        read_path(given)


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Return a folder of root's in which everybody may write, as /tmp, and the user's own in it."""
    monkeypatch.delenv("FAIRFRONTIER_HOME", raising=False)
    mine = tmp_path / "mine"
    mine.mkdir()
    monkeypatch.setattr("os.geteuid", lambda: USER)
    os.chown(mine, USER, USER)
    return tmp_path


@as_root
@pytest.mark.parametrize("laid", ["conf/studies", "data"])
def test_what_another_user_laid_is_no_project(shared, laid):
    (shared / "conf/datasets").mkdir(parents=True)
    assert find_home(shared / "mine") == shared
    (shared / laid).mkdir(parents=True, exist_ok=True)
    os.chown(shared / laid.partition("/")[0], STRANGER, STRANGER)
    for start in (shared, shared / "mine"):
        with pytest.raises(ConfigError):
            find_home(start)


@as_root
def test_a_link_that_another_user_laid_is_no_project(shared):
    (shared / "mine/project/studies").mkdir(parents=True)
    (shared / "conf").symlink_to("mine/project")
    os.chown(shared / "conf", STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(ConfigError):
        find_home(shared / "mine")


@as_root
def test_another_users_project_that_was_entered_or_named_is_one(shared, monkeypatch):
    theirs = shared / "theirs"
    (theirs / "conf/studies").mkdir(parents=True)
    (theirs / "below").mkdir()
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    assert find_home(theirs) == find_home(theirs / "below") == theirs
    os.chown(theirs / "below", USER, USER)
    with pytest.raises(ConfigError) as refused:
        find_home(theirs / "below")
    assert f"FAIRFRONTIER_HOME={theirs}" in refused.value.mend
    monkeypatch.setenv("FAIRFRONTIER_HOME", str(theirs))
    assert find_home(theirs / "below") == theirs
