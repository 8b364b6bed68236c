"""Errors that a user can fix, with one sentence on the fault and one on the mend."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import ClassVar


class FairfrontierError(Exception):
    """A fault that the user can mend; the command line prints it without a traceback.

    ``fault`` says what is wrong and where, ``mend`` what to do about it, a sentence each. The
    command exits with ``exit_code``.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, fault: str, mend: str) -> None:
        self.fault = _shorten(escape_controls(fault))
        self.mend = _shorten(escape_controls(mend))
        super().__init__(f"{self.fault} {self.mend}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Pickle both sentences, so that workers can return the error."""
        return type(self), (self.fault, self.mend)


def escape_controls(text: str) -> str:
    """Escape what would steer a terminal: control characters, and those that turn text around."""
    return "".join(
        char
        if char.isprintable() or unicodedata.category(char) == "Zs"
        else char.encode("unicode_escape").decode()
        for char in text
    )


def _shorten(text: str) -> str:
    """Shorten long words, which can come from a table."""
    return re.sub(r"\S{200,}", lambda word: f"{word[0][:80]}…{word[0][-20:]}", text)


class ConfigError(FairfrontierError):
    """A YAML file or a parameter is invalid."""


class UnattainableError(ConfigError):
    """No setting of a study is as good as was asked for; the mend names the nearest one."""

    exit_code: ClassVar[int] = 3


class DataError(FairfrontierError):
    """A table does not match its description."""


class FetchError(DataError):
    """A file could not be obtained from its source."""


class UnreachableError(FetchError):
    """A file is not here and no server provides it: another network, or another day, may work."""


class InputError(DataError, ValueError):
    """An estimator is given rows, labels or weights that it cannot use."""


class GroupError(InputError):
    """An estimator cannot use the rows of a group, whose codes it knows and not their names.

    ``{group}`` stands for the group in ``fault``; ``cell`` is column of the groups -> code.
    """

    def __init__(self, fault: str, mend: str, cell: Mapping[int, int]) -> None:
        self.pattern, self.cell = fault, cell
        super().__init__(fault.replace("{group}", str(list(cell.values()))), mend)

    def __reduce__(self) -> tuple[type, tuple[str, str, Mapping[int, int]]]:  # type: ignore[override]
        """Pickle what it was made of."""
        return type(self), (self.pattern, self.mend, self.cell)

    def name(self, attributes: Mapping[str, Sequence[str]]) -> InputError:
        """Return it with a group like ``sex=Male, race=C``, from all attributes' levels."""
        items = list(attributes.items())
        named = ((*items[column], code) for column, code in self.cell.items())
        group = ", ".join(f"{name}={levels[code]}" for name, levels, code in named)
        return InputError(self.pattern.replace("{group}", group), self.mend)


class InputTypeError(InputError, TypeError):
    """An estimator is given something that is not a table of numbers."""


class StoreError(FairfrontierError):
    """A folder for results or cached work cannot be used."""


class ClusterError(FairfrontierError):
    """Workers were not available, or were lost."""


# Names that an error lists; difflib takes a second to compare with some ten thousand.
LISTED, NEAREST, COMPARED = 12, 5, 5_000


def nearest(word: object, known: Iterable[str]) -> str:
    """Return "Did you mean 'x'?" if a known name is near to ``word``, else the nearest ones."""
    names = sorted(map(str, known))
    sought = str(word)[:200]
    near = difflib.get_close_matches(sought, names[:COMPARED], n=NEAREST, cutoff=0.0)
    if near and difflib.get_close_matches(sought, near[:1]):
        return f"Did you mean {near[0]!r}?"
    if len(names) > LISTED:
        return f"Nearest of {len(names):,} are: {', '.join(near or names[:NEAREST])}."
    return f"Known are: {', '.join(names)}." if names else "Nothing is registered there."


def refuse_unknown(
    names: Iterable[str], known: Collection[str], before: str, after: str = ""
) -> None:
    """Raise a ConfigError, "BEFORE 'name'AFTER.", for the first name that is not known."""
    for name in names:
        if name not in known:
            raise ConfigError(f"{before} {name!r}{after}.", nearest(name, known))


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


# Library -> the extra of this package that installs it; XGBoost has two.
EXTRAS = {
    "cryptography": "dask",
    "dask": "dask",
    "dask_ml": "dask",
    "distributed": "dask",
    "fairlearn": "papers",
    "httpx": "fetch",
    "mlflow": "mlflow",
    "pip": "fetch",
    "prefect": "flows",
    "xgboost": "cpu",
}


def need(*modules: str) -> None:
    """Import optional libraries; raise a ConfigError that names the extra with a missing one."""
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise (explain_missing(error) or error) from None


def explain_missing(error: ModuleNotFoundError) -> FairfrontierError | None:
    """Return the error that names the extra with a missing library, None if there is none."""
    library = (error.name or "").partition(".")[0]
    if library in ("flows", "papers", "tasks"):
        return ConfigError(
            f"This is of a checkout, but there is no {library}/ to import.",
            "Run it in a checkout of fairfrontier: the wheel holds the library alone.",
        )
    if library not in EXTRAS:
        return None
    other = ", or fairfrontier[gpu] on a machine with a GPU" if library == "xgboost" else ""
    return ConfigError(
        f"{library} is not installed, and this needs it.",
        f"Install it: pip install 'fairfrontier[{EXTRAS[library]}]'{other}.",
    )
