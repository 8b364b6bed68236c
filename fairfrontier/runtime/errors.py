"""What a user can get wrong, as exceptions with one sentence on the fault and one on the mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FairfrontierError(Exception):
    """A fault that the user can mend; the command line prints it without a traceback and exits 2.

    Parameters
    ----------
    fault : str
        One sentence: what is wrong and where.
    mend : str
        One sentence: what to do about it.
    """

    def __init__(self, fault: str, mend: str) -> None:
        super().__init__(f"{fault} {mend}")
        self.fault = fault
        self.mend = mend

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Rebuild from both sentences, so that the error survives the way back from a worker."""
        return type(self), (self.fault, self.mend)


class ConfigError(FairfrontierError):
    """A YAML file or a parameter says something that cannot be."""


class DataError(FairfrontierError):
    """A table is not what its description promises."""


class InputError(DataError, ValueError):
    """An estimator is given rows, labels or weights that it cannot take."""


class InputTypeError(InputError, TypeError):
    """An estimator is given something that is no table of numbers at all."""


class StoreError(FairfrontierError):
    """A folder for results or cached work cannot be used."""


class ClusterError(FairfrontierError):
    """Workers could not be had, or were lost."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the sentence that offers the known names nearest to ``word``.

    Parameters
    ----------
    word : str
        What the user wrote.
    known : iterable of str
        What would have been right.

    Returns
    -------
    str
        "Did you mean 'x'?" when something is near, else the list of what is known.
    """
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Known are: {', '.join(names)}." if names else "Nothing is registered there."


# Library -> the extra of this package that brings it; XGBoost has two.
EXTRAS = {"dask_ml": "dask", "prefect": "flows", "xgboost": "cpu"}


def explain_missing(error: ModuleNotFoundError) -> FairfrontierError | None:
    """Return the error that names the extra which brings a missing library.

    Parameters
    ----------
    error : ModuleNotFoundError
        From an import.

    Returns
    -------
    ConfigError or None
        None where no extra brings the module.
    """
    library = (error.name or "").partition(".")[0]
    if library in ("flows", "tasks"):
        return ConfigError(
            f"This is a Prefect flow, and there is no {library}/ to import.",
            "Run it in a checkout of fairfrontier: the wheel holds the library alone.",
        )
    if library not in EXTRAS:
        return None
    other = ", or fairfrontier[gpu] on a machine with a GPU" if library == "xgboost" else ""
    return ConfigError(
        f"{library} is not installed, and this needs it.",
        f"Install it: pip install 'fairfrontier[{EXTRAS[library]}]'{other}.",
    )
