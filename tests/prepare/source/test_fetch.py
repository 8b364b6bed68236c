from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from fairfrontier import load
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.config.section import Origin
from fairfrontier.prepare.source.fetch import FOLDER, clean_name, fetch, find, find_source
from fairfrontier.runtime.errors import ConfigError, DataError, UnreachableError
from tests.prepare.conftest import count_rows, fingerprint
from tests.prepare.source.server import serve

pytestmark = pytest.mark.usefixtures("impatient")
ROOT = Path(__file__).resolve().parents[3]
CONTENT = b"a,b\n" + b"1,2\n" * 50_000


def digest(content):
    return hashlib.sha256(content).hexdigest()


PINNED = digest(CONTENT)


def kept(home, content=CONTENT):
    folder = home / FOLDER / digest(content)
    return sorted(path.name for path in folder.iterdir())


def test_a_download_is_kept_and_used_without_a_network(tmp_path):
    with serve() as server:
        origin = Origin(url=server.add("/data/people.csv", CONTENT))
        assert find([origin], PINNED, tmp_path) is None
        path = fetch([origin], PINNED, tmp_path)
        assert fetch([origin], PINNED, tmp_path) == path
        assert len(server.asked) == 1
    assert path == tmp_path / "data/cache/downloads" / PINNED / "people.csv"
    # The server is gone.
    assert fetch([origin], PINNED, tmp_path).read_bytes() == CONTENT
    assert find([origin], PINNED, tmp_path) == path


def test_a_file_put_into_the_cache_by_hand_serves_whatever_it_is_called(tmp_path):
    folder = tmp_path / FOLDER / PINNED
    folder.mkdir(parents=True)
    (folder / "by hand").write_bytes(CONTENT)
    origin = Origin(url="https://nowhere.invalid/people.csv")
    assert fetch([origin], PINNED, tmp_path) == folder / "by hand"


def test_a_damaged_file_of_the_cache_is_fetched_again(server, tmp_path):
    origin = Origin(url=server.add("/people.csv", CONTENT))
    fetch([origin], PINNED, tmp_path).write_bytes(CONTENT[:-1])
    assert fetch([origin], PINNED, tmp_path).read_bytes() == CONTENT
    assert kept(tmp_path) == ["people.csv"]


def test_paths_come_first_then_sources_in_their_order(server, tmp_path):
    origins = [
        Origin(path="mine/people.csv"),
        Origin(url=server.url("/missing.csv")),
        Origin(url=server.add("/wrong.csv", b"other")),
        Origin(url=server.add("/right.csv", CONTENT)),
        Origin(url=server.add("/never.csv", CONTENT)),
    ]
    path = fetch(origins, PINNED, tmp_path)
    assert path.name == "right.csv"
    assert [each.path for each in server.asked] == ["/missing.csv", "/wrong.csv", "/right.csv"]
    (tmp_path / "mine").mkdir()
    mine = tmp_path / "mine" / "people.csv"
    mine.write_bytes(CONTENT)
    assert fetch(origins, PINNED, tmp_path) == mine
    assert len(server.asked) == 3


def test_a_path_may_be_absolute_or_of_the_users_home_or_beside_the_yaml(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    beside = tmp_path / "beside"
    for folder in (tmp_path / "ann", beside):
        folder.mkdir()
        (folder / "people.csv").write_bytes(CONTENT)
    home = tmp_path / "project"
    for given, found in (
        ("~/people.csv", tmp_path / "ann" / "people.csv"),
        (str(beside / "people.csv"), beside / "people.csv"),
        ("people.csv", beside / "people.csv"),
    ):
        assert fetch([Origin(path=given)], PINNED, home, folder=beside) == found
    assert not home.exists()


def test_a_path_that_holds_another_file_is_an_error_and_stays(server, tmp_path):
    (tmp_path / "people.csv").write_bytes(b"other")
    origins = [Origin(path="people.csv"), Origin(url=server.add("/people.csv", CONTENT))]
    with pytest.raises(
        DataError, match=f"people.csv has sha256 {digest(b'other')[:12]}…"
    ) as caught:
        fetch(origins, PINNED, tmp_path)
    assert caught.value.mend.startswith("Move it away")
    assert (tmp_path / "people.csv").read_bytes() == b"other"
    assert server.asked == []


def test_when_nothing_helps_every_source_says_why(server, tmp_path):
    origins = [Origin(url=server.url("/a.csv")), Origin(url=server.add("/b.csv", b"other"))]
    with pytest.raises(DataError) as caught:
        fetch(origins, PINNED, tmp_path)
    assert caught.value.fault.startswith("a.csv cannot be obtained: http://127.0.0.1")
    assert "a.csv answers 404" in caught.value.fault
    assert "b.csv gave 5 bytes with sha256" in caught.value.fault
    place = tmp_path / FOLDER / PINNED / "a.csv"
    assert caught.value.mend.endswith(f", or put the file at {place}.")
    assert kept(tmp_path) == []
    with pytest.raises(DataError):
        fetch([Origin(path="x.csv"), Origin(path="y.csv")], PINNED, tmp_path)


@pytest.mark.parametrize(
    ("wrong", "unreachable"), [((), True), (("b",), False), (("a", "b"), False)]
)
def test_only_what_no_source_gives_is_unreachable(server, tmp_path, wrong, unreachable):
    for name in wrong:
        server.add(f"/{name}", b"other")
    with pytest.raises(DataError) as caught:
        fetch([Origin(url=server.url(f"/{name}")) for name in "ab"], PINNED, tmp_path)
    assert isinstance(caught.value, UnreachableError) is unreachable


def test_a_full_disk_ends_it_whatever_the_other_sources(server, tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fairfrontier.prepare.source.download.download", full)
    origins = [Origin(url=server.add("/a.csv", CONTENT)), Origin(url=server.url("/b.csv"))]
    with pytest.raises(DataError) as caught:
        fetch(origins, PINNED, tmp_path)
    assert caught.value.mend.startswith("Free some space")
    assert server.asked == []


def test_a_file_of_an_archive_at_a_url(server, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("raw/people.csv", CONTENT)
        archive.writestr("raw/read.me", b"")
    packed = buffer.getvalue()
    url = server.add("/archive.zip", packed)
    origin = Origin(url=url, file="raw/people.csv", sha256=digest(packed))
    assert fetch([origin], PINNED, tmp_path).read_bytes() == CONTENT
    assert kept(tmp_path) == ["people.csv"]
    assert kept(tmp_path, packed) == ["archive.zip"]
    plain = server.add("/plain", b"text")
    with pytest.raises(DataError):
        fetch([Origin(url=plain, file="x", sha256=digest(b"text"))], digest(b"never"), tmp_path)


def test_processes_that_want_the_same_file_fetch_it_once(server, tmp_path):
    url = server.add("/people.csv", CONTENT, delay=1.0)
    code = (
        "import sys; from pathlib import Path\n"
        "from fairfrontier.prepare.source.fetch import fetch\n"
        "from fairfrontier.prepare.config.section import Origin\n"
        "print(fetch([Origin(url=sys.argv[1])], sys.argv[2], Path(sys.argv[3])))\n"
    )
    command = [sys.executable, "-c", code, url, PINNED, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [each.communicate(timeout=60) for each in running]
    assert [out for out, _ in said] == [f"{tmp_path / FOLDER / PINNED / 'people.csv'}\n"] * 2
    # Both are quiet without a terminal; but on a busy machine one may say that it waits.
    assert all(not error or error.startswith("Waiting for ") for _, error in said)
    assert len(server.asked) == 1


def test_a_lock_dies_with_its_process(server, tmp_path):
    folder = tmp_path / FOLDER / PINNED
    folder.mkdir(parents=True)
    code = (
        "import filelock, sys, os\n"
        "lock = filelock.FileLock(sys.argv[1] + '/.lock'); lock.acquire()\n"
        "print('held', flush=True); os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True)
    (folder / ".part").write_bytes(CONTENT[:777])
    origin = Origin(url=server.add("/people.csv", CONTENT))
    assert fetch([origin], PINNED, tmp_path).read_bytes() == CONTENT
    assert server.asked[0].range == "bytes=777-"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("/a/b.csv", "b.csv"),
        ("/a/../..", "file"),
        ("/a/.part", "part"),
        ("/", "file"),
        ("/a%2F..%2Fx%20y.csv", "x_y.csv"),
        ("/" + "n" * 300, "n" * 100),
        ("/n." + "m" * 99, "m" * 99),
    ],
)
def test_names_in_the_cache_are_plain_and_visible(given, name):
    assert clean_name(given) == name


@pytest.fixture
def remote(project, people, server, tmp_path):
    """Return a dataset whose only file is on a server, gzipped."""
    packed = gzip.compress(people.to_csv(index=False, na_rep="?").encode(), mtime=0)
    url = server.add("/people.csv.gz", packed)
    file = {"sha256": digest(packed), "sources": [{"path": "~/no/people.csv"}, {"url": url}]}
    path = project(source={"path": file, "missing": ["?"]})
    (tmp_path / "people.csv").unlink()
    return path


def test_only_loading_fetches(remote, server, tmp_path):
    print_before = fingerprint("housing", home=tmp_path)
    config = read_dataset(remote, tmp_path)
    assert find_source(config.source, remote, tmp_path) is None
    assert count_rows(tmp_path, "housing") is None
    assert server.asked == []
    assert not (tmp_path / "data").exists()
    told = []
    split = load("housing", home=tmp_path, progress=lambda *each: told.append(each))
    assert sum(part.n_samples for _, part in split.parts()) == 397
    assert told[-1][0] == "people.csv.gz"
    assert told[-1][1] == told[-1][2]
    found = find_source(config.source, remote, tmp_path)
    assert found.path[0].sources == ()
    assert Path(found.path[0].path).is_file()
    assert count_rows(tmp_path, "housing") == 400
    assert fingerprint("housing", home=tmp_path) == print_before
    lazy = load("housing", home=tmp_path, backend="dask")
    assert lazy.digest == split.digest
    assert len(server.asked) == 1


def test_the_same_table_from_a_path_is_the_same_split(remote, server, tmp_path, monkeypatch):
    split = load("housing", home=tmp_path)
    (place,) = (tmp_path / FOLDER).glob("*/people.csv.gz")
    (tmp_path / "no").mkdir()
    place.rename(tmp_path / "no" / "people.csv")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("housing", home=tmp_path).digest == split.digest
    assert len(server.asked) == 1


def test_an_error_names_the_yaml_the_key_and_the_place(remote, server, tmp_path):
    server.pages.clear()
    with pytest.raises(DataError) as caught:
        load("housing", home=tmp_path)
    name = f"{remote}: source.path.0: people.csv.gz"
    assert caught.value.fault.startswith(f"{name} cannot be obtained: ")
    assert str(tmp_path / FOLDER) in caught.value.mend


def test_a_zip_archive_is_read_in_blocks_too(project, people, tmp_path):
    path = project(source={"path": "people.csv.zip", "missing": ["?"]})
    with zipfile.ZipFile(tmp_path / "people.csv.zip", "w") as archive:
        archive.write(tmp_path / "people.csv", "people.csv")
    (tmp_path / "people.csv").unlink()
    whole, lazy = load(path, home=tmp_path), load(path, home=tmp_path, backend="dask")
    assert lazy.digest == whole.digest
    assert lazy.feature_names == whole.feature_names
    assert lazy.test.X.shape == whole.test.X.shape


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({}, "give path .* or sources"),
        ({"sources": [{"url": "https://a.example/b"}]}, "need the sha256 of the file itself"),
        ({"sources": [{}]}, "give one of path, url and package"),
        ({"sources": [{"url": "file:///etc/passwd"}]}, "url"),
        ({"sources": [{"url": "https://ann:secret@a.example/b"}]}, "contains a user name"),
        ({"sources": [{"package": "a==1", "file": "b"}]}, "needs the sha256 of the latter"),
        ({"sources": [{"package": "--target=/==1", "file": "b"}]}, "package"),
        ({"sources": [{"url": "https://a.example/b", "sha256": "0" * 64}]}, "give the same file"),
    ],
)
def test_sources_that_cannot_be(project, tmp_path, file, message):
    pin = {} if message.startswith("need") else {"sha256": PINNED}
    path = project(source={"path": {**pin, **file}})
    with pytest.raises(ConfigError, match=message) as caught:
        read_dataset(path, tmp_path)
    assert "source.path.0" in caught.value.fault
    assert yaml.safe_load(path.read_text())["source"]


def test_sources_change_nothing_of_what_shapes_the_arrays(remote, project, tmp_path):
    remote_shape = read_dataset(remote, tmp_path).shape()
    local = project(source={"path": "people.csv", "missing": ["?"]})
    assert read_dataset(local, tmp_path).shape() == remote_shape
