"""What scikit-learn's conventions ask of estimators: keywords by signature, errors by class."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

from sklearn.exceptions import NotFittedError

from fairfrontier.runtime.errors import FairfrontierError, InputError, InputTypeError


class UnfittedError(FairfrontierError, NotFittedError):  # type: ignore[misc]
    """A model is asked before it was fitted."""


def read_keywords(cls: type, method: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keywords of a method of a class: all, and those that are required."""
    function = getattr(cls, method, None)
    if function is None:
        return frozenset(), frozenset()
    keywords = {
        key: each.default
        for key, each in inspect.signature(function).parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    }
    needed = (key for key, value in keywords.items() if value is inspect.Parameter.empty)
    return frozenset(keywords), frozenset(needed)


@contextmanager
def explaining() -> Iterator[None]:
    """Turn what scikit-learn refuses into errors with a fault and a mend."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = InputTypeError if isinstance(error, TypeError) else InputError
        raise kind(
            " ".join(str(error).split()),
            "Give a table of numbers, and for each of its rows one label and whatever else belongs "
            "to rows.",
        ) from error
