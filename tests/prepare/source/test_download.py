from __future__ import annotations

import functools
import hashlib
import time
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.prepare.source import download as module
from fairfrontier.prepare.source.download import download
from fairfrontier.runtime.errors import FetchError, UnreachableError
from tests.prepare.source.server import serve

pytestmark = pytest.mark.usefixtures("impatient")
CONTENT = np.random.default_rng(0).bytes(3_000_000)
OTHER = np.random.default_rng(1).bytes(3_000_000)


def digest(content):
    return hashlib.sha256(content).hexdigest()


def get(server, folder, path="/table.csv", content=CONTENT, **options):
    return download(server.url(path), folder, "table.csv", digest(content), **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class Stop(BaseException):
    """Whoever interrupts."""


def interrupt(after):
    """Return a callback that stops the download when so many bytes are there."""

    def stop(name, arrived, total):
        if arrived >= after:
            raise Stop

    return stop


def stop_halfway(server, folder, **options):
    with pytest.raises(Stop):
        get(server, folder, progress=interrupt(1_000_000), **options)
    half = (folder / ".part").read_bytes()
    assert 0 < len(half) < len(CONTENT)
    assert not (folder / "table.csv").exists()
    return half


def test_a_file_arrives_whole_under_its_name_and_says_how_far_it_is(server, tmp_path):
    server.add("/table.csv", CONTENT)
    seen = []
    path = get(server, tmp_path, progress=lambda *told: seen.append(told))
    assert path == tmp_path / "table.csv"
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["table.csv"]
    assert [each.range for each in server.asked] == [None]
    arrived = [each[1] for each in seen]
    assert len(arrived) > 3
    assert arrived == sorted(arrived)
    assert seen[-1] == ("table.csv", len(CONTENT), len(CONTENT))


def test_another_digest_is_refused_and_nothing_stays(server, tmp_path):
    server.add("/table.csv", OTHER)
    with pytest.raises(
        FetchError, match=f"sha256 {digest(OTHER)[:12]}…, and {digest(CONTENT)[:12]}"
    ) as e:
        get(server, tmp_path)
    assert not isinstance(e.value, UnreachableError)
    assert "Correct the sha256" in e.value.mend
    assert names(tmp_path) == []
    assert len(server.asked) == 1


def test_truncated_bodies_are_resumed_in_the_same_call(server, tmp_path):
    breaks = module.ATTEMPTS + 2
    server.add("/table.csv", CONTENT, cuts=[400_000] * breaks)
    assert get(server, tmp_path).read_bytes() == CONTENT
    starts = range(400_000, 400_000 * (breaks + 1), 400_000)
    assert [each.range for each in server.asked] == [None, *(f"bytes={at}-" for at in starts)]


def test_a_body_that_is_always_truncated_is_given_up_and_kept(server, tmp_path):
    server.add("/table.csv", CONTENT, cuts=[1_000_000] + [0] * 20)
    with pytest.raises(UnreachableError) as caught:
        get(server, tmp_path)
    assert "the 1000000 bytes that are here" in caught.value.mend
    assert len(server.asked) == module.ATTEMPTS
    assert (tmp_path / ".part").read_bytes() == CONTENT[:1_000_000]
    assert not (tmp_path / "table.csv").exists()


def test_an_interrupted_download_goes_on(server, tmp_path):
    server.add("/table.csv", CONTENT)
    half = stop_halfway(server, tmp_path)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["table.csv"]
    assert server.asked[-1].range == f"bytes={len(half)}-"


def test_a_file_that_changed_in_between_is_found_by_the_digest(server, tmp_path):
    server.add("/table.csv", OTHER)
    stop_halfway(server, tmp_path)
    server.add("/table.csv", CONTENT)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert [each.range is None for each in server.asked] == [True, False, True]


def test_a_resumption_ends_when_the_file_is_the_wrong_one(server, tmp_path):
    server.add("/table.csv", OTHER)
    stop_halfway(server, tmp_path)
    with pytest.raises(FetchError):
        get(server, tmp_path)
    assert len(server.asked) == 3
    assert names(tmp_path) == []


def test_a_server_that_gives_less_than_asked_for_is_asked_for_the_rest(server, tmp_path):
    server.add("/table.csv", CONTENT, cuts=[1_000_000], most=700_000)
    assert get(server, tmp_path).read_bytes() == CONTENT
    starts = [1_000_000, 1_700_000, 2_400_000]
    assert [each.range for each in server.asked] == [None, *(f"bytes={at}-" for at in starts)]


def test_a_server_that_gives_nothing_more_is_given_up_and_what_came_is_kept(server, tmp_path):
    server.add("/table.csv", CONTENT, cuts=[1_000_000], most=0)
    with pytest.raises(UnreachableError, match="no more than 1000000 of 3000000 bytes"):
        get(server, tmp_path)
    assert (tmp_path / ".part").read_bytes() == CONTENT[:1_000_000]


def test_a_part_that_is_whole_asks_nobody_and_one_too_long_starts_again(server, tmp_path):
    (tmp_path / ".part").write_bytes(CONTENT)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == []
    (tmp_path / "table.csv").unlink()
    (tmp_path / ".part").write_bytes(CONTENT + b"more")
    server.add("/table.csv", CONTENT)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert [each.range for each in server.asked] == [f"bytes={len(CONTENT) + 4}-", None]


@pytest.mark.parametrize("status", [403, 404, 500, 204])
def test_a_refusal_is_not_tried_again(server, tmp_path, status):
    server.add("/table.csv", status=status)
    with pytest.raises(UnreachableError, match=f"table.csv answers {status} "):
        get(server, tmp_path)
    assert len(server.asked) == 1
    assert names(tmp_path) == []


def test_redirects_lead_to_http_only(server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    folder = tmp_path / "cache"
    folder.mkdir()
    server.add("/table.csv", status=302, headers={"Location": secret.as_uri()})
    with pytest.raises(UnreachableError):
        get(server, folder)
    server.add("/table.csv", status=302, headers={"Location": "/table.csv"})
    with pytest.raises(UnreachableError):
        get(server, folder)
    assert names(folder) == []
    server.add("/real", CONTENT)
    server.add("/table.csv", status=301, headers={"Location": "/real"})
    assert get(server, folder).read_bytes() == CONTENT


def test_https_is_not_followed_by_http():
    check = functools.partial(module._refuse_downgrade, "https://9.9.9.9/table.csv")
    check(httpx.Request("GET", "https://149.112.112.112/other"))
    with pytest.raises(UnreachableError):
        check(httpx.Request("GET", "http://9.9.9.9/table.csv"))


def test_a_connection_that_is_refused_is_tried_again_a_few_times(server, tmp_path, monkeypatch):
    pauses = []
    # Other threads may sleep meanwhile.
    monkeypatch.setattr(
        module, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic)
    )
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.5)
    with serve() as gone:
        url = gone.url("/table.csv")
    with pytest.raises(UnreachableError) as caught:
        download(url, tmp_path, "table.csv", digest(CONTENT))
    assert caught.value.mend == "Check the network connection."
    assert pauses == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("size", ["9" * 5000, "²", "-1"])
def test_a_size_that_is_none_is_unknown(size):
    ranged = {"Content-Range": f"bytes {size}-{size}/{size}".encode()}
    assert module._read_extent(httpx.Response(206, headers=ranged)) == (-1, None)
    stated = {"Content-Length": size.encode()}
    assert module._read_extent(httpx.Response(200, headers=stated)) == (0, None)


@pytest.mark.parametrize("length", [True, False])
def test_sizes_are_limited(server, tmp_path, monkeypatch, length):
    server.add("/table.csv", CONTENT, length=length)
    with monkeypatch.context() as patch:
        patch.setattr(module, "LIMIT_BYTES", 1_000_000)
        with pytest.raises(FetchError, match="has more than 1000000 bytes") as caught:
            get(server, tmp_path)
        assert "`bytes` beside the url" in caught.value.mend
        assert get(server, tmp_path, size=len(CONTENT)).read_bytes() == CONTENT
    (tmp_path / "table.csv").unlink()
    with pytest.raises(FetchError, match="has more than 2000000 bytes"):
        get(server, tmp_path, size=2_000_000)
    assert names(tmp_path) == []


@settings(max_examples=40)
@given(
    content=st.binary(max_size=300),
    cuts=st.lists(st.integers(1, 60), max_size=8),
    ranges=st.booleans(),
    kept=st.integers(0, 300),
)
def test_whatever_the_cuts_the_bytes_are_those_of_the_file(
    tmp_path_factory, content, cuts, ranges, kept
):
    folder = tmp_path_factory.mktemp("cuts")
    (folder / ".part").write_bytes(content[:kept])
    with serve() as server, pytest.MonkeyPatch.context() as patch:
        # Of so few bytes each counts.
        patch.setattr(module, "LEAST_BYTES", 1)
        server.add("/x", content, ranges=ranges, cuts=cuts)
        try:
            path = download(server.url("/x"), folder, "x", digest(content))
        except UnreachableError:
            # Without ranges the file never comes further than a cut.
            assert not ranges
            assert names(folder)[0] == ".part"
        else:
            assert path.read_bytes() == content
            assert names(folder) == ["x"]
