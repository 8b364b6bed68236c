"""Gzip and zip: one member out of many, or the only one, never more bytes than a limit."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fairfrontier.runtime.errors import DataError, nearest

ZIP_START = b"PK\x03\x04"
# A few bytes could unpack to all of the memory or disk.
LIMIT_BYTES = 4 * 2**30
# A compressed table may grow to this whatever its size, or to TIMES its size.
UNPACKED_BYTES = 64 * 2**20
TIMES = 100
RAISE = "If it is right, raise source.unpacked in the dataset's YAML."
GZIP_START = b"\x1f\x8b"
# What macOS adds to every archive beside the files.
SHADOW = "__MACOSX/"
SPREADSHEET = "[Content_Types].xml"
# Errors of zipfile and its decompressors on damaged bytes; bzip2 adds an OSError without errno.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    OverflowError,
    ValueError,
)


def most_unpacked(size: int, times: int = TIMES) -> int:
    """Return how many bytes a compressed table of ``size`` bytes may grow to."""
    return max(UNPACKED_BYTES, times * size)


def refuse_growth(path: object, most: int, mend: str = RAISE) -> DataError:
    """Return the error for a compressed table that grows to more than ``most`` bytes."""
    return DataError(
        f"{path} unpacks to more than {most / 1e6:,.0f} MB, which is too much for its size.", mend
    )


def name_member(archive: zipfile.ZipFile, path: Path, limit: int) -> str | None:
    """Return the name of the only file in an archive; None for a spreadsheet."""
    names = [
        info.filename
        for info in archive.infolist()
        # A damaged name may be empty, which ``is_dir`` does not take.
        if not info.filename.endswith("/") and not info.filename.startswith(SHADOW)
    ]
    if SPREADSHEET in names:
        return None
    if len(names) != 1:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        raise DataError(
            f"{path} is a zip archive of {len(names)} files ({shown or 'it is empty'}).",
            "Extract the table, or name it with `file` beside the archive's url.",
        )
    if archive.getinfo(names[0]).file_size > limit:
        raise refuse_growth(path, limit)
    return names[0]


@contextmanager
def open_member(archive: zipfile.ZipFile, name: str, path: Path) -> Iterator[IO[bytes]]:
    """Open a member of a zip archive for reading, of at most ``LIMIT_BYTES``.

    Nothing is extracted, so the member's name cannot lead outside a folder; zipfile reads no more
    than the archive states.
    """
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise DataError(
            f"{path} holds no file {name}.", nearest(name, archive.namelist()[:1000])
        ) from None
    if info.file_size > LIMIT_BYTES:
        raise DataError(
            f"{name} in {path} claims {info.file_size / 1e9:.1f} GB unpacked, and "
            f"{LIMIT_BYTES / 1e9:.1f} GB is the most that is unpacked.",
            "If it really is that large, unpack it yourself and name the file.",
        )
    if info.flag_bits & 1:
        raise DataError(f"{name} in {path} is encrypted.", "Unpack it and name the file.")
    try:
        with archive.open(info) as member:
            yield member
    except (*DAMAGE, OSError) as error:
        # With an errno it is an error of a disk: the archive's, or the one copied to.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(
            f"{name} in {path} is damaged: {str(error).rstrip('.')}.", "Fetch the file again."
        ) from None
