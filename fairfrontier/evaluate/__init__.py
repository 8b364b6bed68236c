"""An estimator and a Split in; measures, frontier and report out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfrontier.evaluate.verb import evaluate as evaluate

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    """Import the verb when it is asked for: array kernels below need none of its libraries."""
    if name == "evaluate":
        from fairfrontier.evaluate.verb import evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
