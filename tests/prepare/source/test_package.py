"""Wheels from an index on loopback, by the pip of this environment."""

from __future__ import annotations

import hashlib
import io
import zipfile

import pytest

from fairfrontier.prepare.config.section import Origin
from fairfrontier.prepare.source.fetch import FOLDER, download_wheel, fetch
from fairfrontier.runtime.errors import FetchError, UnreachableError
from tests.prepare.source.server import serve

MEMBER = "tables/data/people.csv"
TABLE = b"a,b\n" + b"1,2\n" * 1000
METADATA = "Metadata-Version: 2.1\nName: tables\nVersion: 1.0\nRequires-Python: >=99\n"
WHEEL_NAME = "tables-1.0-py3-none-any.whl"


def make_wheel():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, TABLE)
        archive.writestr("tables-1.0.dist-info/METADATA", METADATA)
        archive.writestr(
            "tables-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tables-1.0.dist-info/RECORD", "")
    return buffer.getvalue()


WHEEL = make_wheel()


def digest(content):
    return hashlib.sha256(content).hexdigest()


ORIGIN = Origin(package="tables==1.0", file=MEMBER, sha256=digest(WHEEL))


@pytest.fixture
def index(monkeypatch, tmp_path):
    """Serve a package index as pip wants it, and point pip there and nowhere else."""
    for name in (
        "PIP_FIND_LINKS",
        "PIP_EXTRA_INDEX_URL",
        "PIP_NO_INDEX",
        "HTTP_PROXY",
        "http_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with serve() as server:
        monkeypatch.setenv("PIP_INDEX_URL", server.url("/simple/"))
        publish(server)
        yield server


def publish(server, stated=None, password=None):
    stated = stated or digest(WHEEL)
    page = (
        f'<a href="/files/{WHEEL_NAME}#sha256={stated}" data-requires-python="&gt;=99" '
        f'data-core-metadata="sha256={digest(METADATA.encode())}">{WHEEL_NAME}</a>'
    )
    html = {"Content-Type": "text/html"}
    server.add("/simple/tables/", page.encode(), headers=html, password=password)
    server.add(f"/files/{WHEEL_NAME}.metadata", METADATA.encode(), password=password)
    return server.add(f"/files/{WHEEL_NAME}", WHEEL, password=password)


def wheels(server):
    return [each.path for each in server.asked].count(f"/files/{WHEEL_NAME}")


def test_a_file_is_taken_out_of_a_wheel_that_is_downloaded_once(index, tmp_path):
    path = fetch([ORIGIN], digest(TABLE), tmp_path)
    assert path == tmp_path / FOLDER / digest(TABLE) / "people.csv"
    assert path.read_bytes() == TABLE
    assert (tmp_path / FOLDER / digest(WHEEL) / WHEEL_NAME).read_bytes() == WHEEL
    assert wheels(index) == 1
    asked = len(index.asked)
    path.unlink()
    # The wheel is here: another file of it needs no network.
    assert fetch([ORIGIN], digest(TABLE), tmp_path).read_bytes() == TABLE
    assert len(index.asked) == asked
    wrong = ORIGIN.model_copy(update={"file": "tables/data/poeple.csv"})
    with pytest.raises(FetchError) as caught:
        fetch([wrong], digest(b"other"), tmp_path)
    assert caught.value.mend.startswith("Did you mean 'tables/data/people.csv'")
    assert caught.value.mend.endswith(
        f"that contains it into {tmp_path / FOLDER / digest(WHEEL)}/."
    )
    with pytest.raises(FetchError, match=r"people.csv in tables-1.0-py3-none-any.whl has sha256"):
        fetch([ORIGIN], digest(b"other"), tmp_path)


def test_pip_fetches_what_needs_its_password(index, tmp_path, monkeypatch):
    publish(index, password="ann:secret")  # noqa: S106
    url = index.url("/simple/").replace("//", "//ann:secret@")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    assert fetch([ORIGIN], digest(TABLE), tmp_path).read_bytes() == TABLE
    cache = tmp_path / FOLDER / digest(WHEEL)
    assert [path.name for path in cache.iterdir()] == [WHEEL_NAME]


def test_a_wheel_in_a_folder_that_pip_is_pointed_to(index, tmp_path, monkeypatch):
    links = tmp_path / "links"
    links.mkdir()
    (links / WHEEL_NAME).write_bytes(WHEEL)
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert fetch([ORIGIN], digest(TABLE), tmp_path).read_bytes() == TABLE
    assert index.asked == []
    (links / WHEEL_NAME).write_bytes(WHEEL + b"\0")
    with pytest.raises(FetchError):
        fetch([ORIGIN], digest(TABLE), tmp_path / "other")


def test_another_wheel_is_refused(index, tmp_path):
    publish(index, stated="0" * 64)
    with pytest.raises(FetchError) as e:
        download_wheel("tables==1.0", "0" * 64, tmp_path)
    assert not isinstance(e.value, UnreachableError)


def test_what_pip_says_is_the_reason(index, tmp_path):
    with pytest.raises(UnreachableError, match=r"fails: No matching distribution .* tables==2\.0"):
        download_wheel("tables==2.0", digest(WHEEL), tmp_path)


def test_a_pip_of_the_current_folder_is_not_run(index, tmp_path, monkeypatch):
    (tmp_path / "pip.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    assert download_wheel("tables==1.0", digest(WHEEL), tmp_path).name == WHEEL_NAME
