"""Zip archives: one member out of many, or the only one, never more bytes than a limit."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fairfrontier.runtime.errors import DataError, nearest

ZIP_START = b"PK\x03\x04"
# What is unpacked is held in memory or written to disk: a few bytes could claim all of it.
LIMIT_BYTES = 4 * 2**30
# What macOS adds to every archive beside the files.
SHADOW = "__MACOSX/"
SPREADSHEET = "[Content_Types].xml"
# What zipfile and what it unpacks with say of damaged bytes; bzip2 adds an OSError without errno.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    OverflowError,
    ValueError,
)


def unzip_table(raw: bytes, path: Path, limit: int = LIMIT_BYTES) -> bytes | None:
    """Return the bytes of the only file of a zip archive.

    Parameters
    ----------
    raw : bytes
        The archive.
    path : Path
        Named in errors.
    limit : int
        Most bytes that are unpacked.

    Returns
    -------
    bytes or None
        None where this is no zip archive, or one that is a spreadsheet.

    Raises
    ------
    DataError
        When there are several files or none, or the one is encrypted, damaged or too large.
    """
    if raw[: len(ZIP_START)] != ZIP_START:
        return None
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
    except DAMAGE:
        return None
    with archive:
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
                "Take the table out of it, or name it with `file` beside the archive's url.",
            )
        with open_member(archive, names[0], path, limit) as member:
            return member.read()


@contextmanager
def open_member(
    archive: zipfile.ZipFile, name: str, path: Path, limit: int = LIMIT_BYTES
) -> Iterator[IO[bytes]]:
    """Open a member of a zip archive for reading; nothing is extracted, so its name leads nowhere.

    Parameters
    ----------
    archive : ZipFile
    name : str
        The member, with forward slashes.
    path : Path
        Of the archive; named in errors.
    limit : int
        Most bytes that the member may claim; zipfile never gives more than is claimed.

    Raises
    ------
    DataError
        When there is no such member, or it is too large, encrypted or damaged.
    """
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise DataError(
            f"{path} holds no file {name}.", nearest(name, archive.namelist()[:1000])
        ) from None
    if info.file_size > limit:
        raise DataError(
            f"{name} in {path} claims {info.file_size / 1e9:.1f} GB unpacked, and "
            f"{limit / 1e9:.1f} GB is the most that is unpacked.",
            "Unpack it yourself and name the file, when it really is that large.",
        )
    if info.flag_bits & 1:
        raise DataError(f"{name} in {path} is encrypted.", "Unpack it and name the file.")
    try:
        with archive.open(info) as member:
            yield member
    except (*DAMAGE, OSError) as error:
        # With a number it is of a disk: of the archive's, or of where the member is copied to.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(
            f"{name} in {path} is damaged: {str(error).rstrip('.')}.", "Fetch the file again."
        ) from None
