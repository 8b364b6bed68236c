"""A table in, a Split out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfrontier.prepare.loader import load as load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """Import the verb when it is asked for: array kernels below need none of its libraries."""
    if name == "load":
        from fairfrontier.prepare.loader import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
