"""The fairness-accuracy frontier of a table: models worth choosing between, each audited.

Every name is imported when it is first asked for, so that importing this package takes no time and
array kernels below it need NumPy, SciPy and array-api-compat alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfrontier.audit.verb import audit as audit
    from fairfrontier.choose.bundle import load_bundle
    from fairfrontier.choose.explanation import explain
    from fairfrontier.choose.scoring import score
    from fairfrontier.choose.select import Study, select
    from fairfrontier.debias.debiasing import fit_debiasing as debias
    from fairfrontier.evaluate.verb import evaluate
    from fairfrontier.metric.registry import learn
    from fairfrontier.monitor.monitoring import run_monitor as monitor
    from fairfrontier.prepare.loader import load
    from fairfrontier.runner import run_study
    from fairfrontier.study.draft import init
    from fairfrontier.train.postprocess.model import post_process
    from fairfrontier.train.registry import create, load_model

__all__ = [
    "Study",
    "audit",
    "create",
    "debias",
    "evaluate",
    "explain",
    "init",
    "learn",
    "load",
    "load_bundle",
    "load_model",
    "monitor",
    "post_process",
    "run_study",
    "score",
    "select",
]

_MODULES = {
    "Study": "fairfrontier.choose.select",
    "create": "fairfrontier.train.registry",
    "explain": "fairfrontier.choose.explanation",
    "init": "fairfrontier.study.draft",
    "learn": "fairfrontier.metric.registry",
    "load": "fairfrontier.prepare.loader",
    "load_bundle": "fairfrontier.choose.bundle",
    "load_model": "fairfrontier.train.registry",
    "post_process": "fairfrontier.train.postprocess.model",
    "run_study": "fairfrontier.runner",
    "score": "fairfrontier.choose.scoring",
    "select": "fairfrontier.choose.select",
}
# Python itself puts a package into the name that its parent has for it: these rooms are called.
_ROOMS = ("audit", "debias", "evaluate", "monitor")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
