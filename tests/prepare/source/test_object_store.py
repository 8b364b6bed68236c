from __future__ import annotations

import io

import pytest
from pydantic import ValidationError

from fairfrontier import load
from fairfrontier.prepare.config.section import SourceFile
from fairfrontier.prepare.source import object_store
from fairfrontier.prepare.source.fetch import FOLDER
from fairfrontier.prepare.source.object_store import fetch_objects
from fairfrontier.runtime.errors import ConfigError, FetchError, UnreachableError
from tests.prepare.source.bucket import serve_bucket


@pytest.fixture
def bucket(monkeypatch):
    """Return a bucket that Arrow takes for Amazon's."""
    with serve_bucket() as served:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{served.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "name")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        object_store._list_objects.cache_clear()
        yield served
    object_store._list_objects.cache_clear()


def read(address, home, *, parquet=False):
    object_store._list_objects.cache_clear()
    return [path.read_bytes() for path in fetch_objects(address, home, parquet=parquet)]


def test_rows_in_a_store_are_those_of_the_file(bucket, project, people, tmp_path):
    local = load(project(), home=tmp_path)
    (tmp_path / "people.csv").unlink()
    for number in range(2):
        buffer = io.BytesIO()
        people[200 * number : 200 * (number + 1)].to_parquet(buffer, index=False)
        bucket.put(f"loans/2026-0{number}.parquet", buffer.getvalue())
    path = project(source={"path": "s3://bank/loans/2026-*.parquet", "format": "parquet"})
    split = load(path, home=tmp_path)
    assert pytest.approx(local.train.X) == split.train.X
    assert bucket.read.count("loans/2026-00.parquet") == 1
    lazy = load(path, home=tmp_path, backend="dask")
    assert lazy.digest == split.digest
    assert len(bucket.read) == 2


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a/1.csv", "1"),
        ("a/[2-9].csv", "2"),
        ("*/1.csv", "13"),
        ("**/*.csv", "123456"),
        ("a/**/b/*.csv", "45"),
        ("*.csv", "6"),
    ],
)
def test_patterns_are_those_of_files(bucket, tmp_path, pattern, found):
    for key in ("a/1.csv", "a/2.csv", "b/1.csv", "a/b/4.csv", "a/c/b/5.csv", "6.csv", "a/b/6.txt"):
        content = "3" if key == "b/1.csv" else key[-5]
        bucket.put(key, content.encode())
        (tmp_path / "same" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "same" / key).write_text(content)
    read_here = "".join(sorted(b"".join(read(f"s3://bank/{pattern}", tmp_path)).decode()))
    assert read_here == found
    assert found == "".join(sorted(p.read_text() for p in (tmp_path / "same").glob(pattern)))


def test_a_folder_is_its_parquet_files(bucket, tmp_path):
    for key in ("a/2.parquet", "a/1.parquet", "a/b/3.parquet", "a/_SUCCESS"):
        bucket.put(key, key.encode())
    assert read("s3://bank/a", tmp_path, parquet=True) == [b"a/1.parquet", b"a/2.parquet"]
    with pytest.raises(ConfigError, match="there is nothing at s3://bank/a"):
        read("s3://bank/a", tmp_path)


def test_what_has_changed_or_is_damaged_is_copied_again(bucket, tmp_path):
    bucket.put("a.csv", b"one")
    assert read("s3://bank/a.csv", tmp_path) == [b"one"]
    bucket.put("a.csv", b"two", second=1_600_000_001)
    assert read("s3://bank/a.csv", tmp_path) == [b"two"]
    for path in (tmp_path / FOLDER).glob("*/*"):
        path.write_bytes(b"owt")
    assert read("s3://bank/a.csv", tmp_path) == [b"two"]
    assert bucket.read == ["a.csv"] * 3


def test_an_object_that_changes_as_it_is_copied_is_refused(bucket, tmp_path):
    bucket.put("a.csv", b"one")
    object_store._list_objects("s3://bank/a.csv", parquet=False)
    bucket.put("a.csv", b"two", second=1_600_000_001)
    with pytest.raises(FetchError, match=r"s3://bank/a.csv changed while it was copied"):
        fetch_objects("s3://bank/a.csv", tmp_path, parquet=False)
    assert [path for path in (tmp_path / FOLDER).rglob("*") if path.is_file()] == []


def test_a_copy_that_was_interrupted_begins_anew(bucket, tmp_path, monkeypatch):
    content = bytes(range(250)) * 4
    bucket.put("a.csv", content)
    monkeypatch.setattr(object_store, "_CHUNK", 300)

    def interrupt(_, arrived, __):
        if arrived == 600:
            raise KeyboardInterrupt

    (stored,) = object_store._list_objects("s3://bank/a.csv", parquet=False)
    with pytest.raises(KeyboardInterrupt):
        object_store._keep(stored, tmp_path, interrupt)
    (part,) = (tmp_path / FOLDER).glob("*/.part")
    part.write_bytes(bytes(600))
    path = object_store._keep(stored, tmp_path, lambda *_: None)
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("status", [403, 404])
def test_a_store_that_refuses_is_one_sentence(bucket, tmp_path, status):
    bucket.status = status
    error = ConfigError if status == 404 else UnreachableError
    with pytest.raises(error, match=r"s3://bank/a\.csv") as raised:
        read("s3://bank/a.csv", tmp_path)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "address",
    [
        "s3://bank",
        "s3://bank/a?endpoint_override=evil.example",
        "s3://name:secret@bank/a",
        "s3://169.254.169.254:80/a",
        "file:///etc/passwd",
        "abfs://rows@evil.example/a",
        "abfs://rows:key@account.dfs.core.windows.net/a",
    ],
)
def test_an_address_names_a_store_and_nothing_else(address):
    with pytest.raises(ValidationError, match="an address is s3://BUCKET/KEY"):
        SourceFile(path=address)


@pytest.mark.parametrize("address", ["gs://bank/a", "abfs://rows@bank1.dfs.core.windows.net/a/b"])
def test_arrow_knows_the_stores(address):
    import pyarrow.fs as pafs

    SourceFile(path=address)
    root = address.rpartition("/a")[0]
    store, bucket = object_store._open_store(root)
    assert isinstance(store, pafs.GcsFileSystem | pafs.AzureFileSystem)
    assert bucket in ("bank", "rows")
