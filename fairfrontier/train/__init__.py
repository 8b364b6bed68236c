"""A Split and a FairMetric in, a fitted estimator out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfrontier.train.postprocess.model import post_process as post_process
    from fairfrontier.train.registry import create as create
    from fairfrontier.train.registry import load_model as load_model

__all__ = ["create", "load_model", "post_process"]


def __getattr__(name: str) -> Any:
    """Import the verb when it is asked for: array kernels below need none of its libraries."""
    if name in ("create", "load_model"):
        from fairfrontier.train import registry

        return getattr(registry, name)
    if name == "post_process":
        from fairfrontier.train.postprocess.model import post_process

        return post_process
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
