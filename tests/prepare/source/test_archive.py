from __future__ import annotations

import errno
import io
import zipfile
from pathlib import Path

import pytest

from fairfrontier.prepare.config.section import Source
from fairfrontier.prepare.source.archive import name_member, open_member
from fairfrontier.prepare.table.rows import read_table
from fairfrontier.runtime.errors import DataError

TEXT = b"a,b\n1,x\n2,y\n"


def pack(members, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            # Dated 1980: tests are named by these bytes.
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


def unzip(raw, limit=2**20):
    """Return the bytes of the only file of an archive."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        name = name_member(archive, Path("t"), limit)
        with open_member(archive, name, Path("t")) as member:
            return member.read()


def read(tmp_path, raw, name="t.csv.zip"):
    (tmp_path / name).write_bytes(raw)
    return read_table(Source(path=name), tmp_path, tmp_path)


@pytest.mark.parametrize(
    "members",
    [
        {"t.csv": TEXT},
        {"folder/": b"", "folder/t.csv": TEXT},
        {"t.csv": TEXT, "__MACOSX/._t.csv": b"\x00"},
        # A name that leads out is only a name: nothing is extracted.
        {"../../etc/t.csv": TEXT},
    ],
)
def test_a_table_alone_in_a_zip_archive_is_read(tmp_path, members):
    frame = read(tmp_path, pack(members)).frame
    assert frame.to_dict("list") == {"a": ["1", "2"], "b": ["x", "y"]}
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv.zip"]


def test_the_digest_is_that_of_the_archive(tmp_path):
    import hashlib

    raw = pack({"t.csv": TEXT})
    assert read(tmp_path, raw).digests == (hashlib.sha256(raw).hexdigest(),)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (pack({"a.csv": TEXT, "b.csv": TEXT}), r"archive of 2 files \(a.csv, b.csv\)"),
        (pack({"[Content_Types].xml": b"", "xl/sheet": b""}), "a zip archive or a spreadsheet"),
        (pack({"t.csv": b""}), "is empty"),
        (pack({"t.csv": TEXT})[:-30], "looks like a zip archive"),
        (pack({"t.csv": TEXT}, zipfile.ZIP_STORED).replace(b"1,x", b"1,z"), "is damaged: Bad CRC"),
    ],
)
def test_other_archives_are_refused(tmp_path, raw, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, raw)


def test_what_unpacks_to_too_much_is_refused_before_it_does():
    raw = pack({"t.csv": b"0" * 1_000_000})
    assert len(raw) < 2_000
    assert unzip(raw, limit=1_000_000) == b"0" * 1_000_000
    with pytest.raises(DataError, match=r"unpacks to more than 1 MB.*raise source.unpacked"):
        unzip(raw, limit=999_999)


def test_an_archive_that_lies_of_its_size_gives_no_more_than_it_claims():
    raw = pack({"t.csv": b"0" * 1_000_000})
    size = (1_000_000).to_bytes(4, "little")
    assert raw.count(size) == 2
    lie = raw.replace(size, (1_000).to_bytes(4, "little"))
    with pytest.raises(DataError):
        unzip(lie)


def test_an_encrypted_member_is_refused():
    raw = bytearray(pack({"t.csv": TEXT}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(mark) + offset] |= 1
    with pytest.raises(DataError):
        unzip(bytes(raw))


def test_a_member_is_named_exactly():
    with zipfile.ZipFile(io.BytesIO(pack({"x/table.csv": TEXT, "x/other": b""}))) as archive:
        with open_member(archive, "x/table.csv", Path("t")) as member:
            assert member.read() == TEXT
        with (
            pytest.raises(
                DataError, match=r"holds no file x/tabel.csv. Did you mean 'x/table.csv'"
            ),
            open_member(archive, "x/tabel.csv", Path("t")),
        ):
            pass


def test_a_full_disk_is_no_damage():
    with (
        zipfile.ZipFile(io.BytesIO(pack({"t.csv": TEXT}))) as archive,
        pytest.raises(OSError, match="No space"),
        open_member(archive, "t.csv", Path("t")),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
