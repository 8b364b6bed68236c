"""Arguments that a YAML gives to a method or a fair metric, checked against its signature."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from fairfrontier.runtime.errors import ConfigError, nearest

# XGBoost and networks compute with numbers of 32 bits.
WHOLE, TINY, HUGE = 2**31 - 1, 1.2e-38, 3.4e38


def check_names(
    function: Callable[..., Any], title: str, names: Iterable[str], others: Iterable[str] = ()
) -> None:
    """Refuse arguments that a function does not take; ``others`` are further keys beside them."""
    accepted = [name for name in inspect.signature(function).parameters if name != "split"]
    for name in names:
        if name not in accepted:
            raise ConfigError(
                f"{title} takes no parameter {str(name)!r}.",
                nearest(str(name), (*accepted, *others)),
            )


def check_types(function: Callable[..., Any], title: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of another type than the function's signature says."""
    for name, value in arguments.items():
        adapter = _make_adapter(function, name)
        try:
            taken = value if adapter is None else adapter.validate_python(value)
        except ValidationError as error:
            expected = error.errors(include_url=False)[0]["msg"]
            raise ConfigError(
                f"The parameter {name!r} of {title} is {value!r}.", f"{expected}."
            ) from None
        if not all(map(_has_32_bits, taken if isinstance(taken, list) else [taken])):
            raise ConfigError(
                f"The parameter {name!r} of {title} is {value!r}.", "Give a number of 32 bits."
            )


def _has_32_bits(value: Any) -> bool:
    """Return whether a number can be one of 32 bits; anything else can."""
    if isinstance(value, float):
        return value == 0.0 or TINY <= abs(value) <= HUGE
    return not isinstance(value, int) or abs(value) <= WHOLE


@cache
def _make_adapter(function: Callable[..., Any], name: str) -> TypeAdapter[Any] | None:
    """Return what validates an argument, None where its type is not known."""
    # Fields that a dataclass inherits have annotations of their own module.
    names: dict[str, Any] = {}
    for cls in reversed(inspect.getmro(function)) if inspect.isclass(function) else ():
        names |= vars(sys.modules[cls.__module__])
    called = function.__init__ if inspect.isclass(function) else function  # type: ignore[misc]
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    try:
        hints = get_type_hints(called, names or None, include_extras=True)
        return TypeAdapter(hints[name], config=config) if name in hints else None
    except (NameError, PydanticUserError):
        return None
