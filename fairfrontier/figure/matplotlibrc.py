"""The file of settings that matplotlib takes from the current folder, looked at before it does."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.text_file import read_plain

MOST_BYTES = 2**20


def import_matplotlib() -> ModuleType:
    """Import and return matplotlib; ConfigError where its settings cannot be read.

    A pipe of their name in the current folder would be waited for, and a device read without end.
    """
    settings = Path("matplotlibrc")
    try:
        if settings.exists() and not settings.is_dir():
            read_plain(settings, MOST_BYTES)
        import matplotlib as mpl
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The file matplotlibrc, which matplotlib has found, cannot be read: {error}.",
            "Remove or correct that of the current folder, or of your own settings.",
        ) from error
    return mpl
