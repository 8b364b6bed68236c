"""A Split in, a FairMetric out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfrontier.metric.registry import learn as learn

__all__ = ["learn"]


def __getattr__(name: str) -> Any:
    """Import the verb when it is asked for: array kernels below need none of its libraries."""
    if name == "learn":
        from fairfrontier.metric.registry import learn

        return learn
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
