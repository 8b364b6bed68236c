"""The fairness-accuracy frontier of a table: models worth choosing between, each audited.

Every name is imported when it is first asked for, so that importing this package takes no time and
array kernels below it need NumPy, SciPy and array-api-compat alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfrontier import metrics as metrics
    from fairfrontier.auditing.audit import audit as audit
    from fairfrontier.auditing.debias import fit_debiasing as debias
    from fairfrontier.choose.select import Study, select
    from fairfrontier.deployment.bundle import load_bundle
    from fairfrontier.deployment.explanation import explain
    from fairfrontier.deployment.monitoring import run_monitor as monitor
    from fairfrontier.deployment.scoring import score
    from fairfrontier.frontier.frontier import Frontier
    from fairfrontier.metrics.verb import evaluate
    from fairfrontier.models.registry import create, load_model
    from fairfrontier.models.thresholds.model import post_process
    from fairfrontier.prepare.loader import load
    from fairfrontier.runner import run_study
    from fairfrontier.similarity.registry import learn
    from fairfrontier.study.draft import init

__all__ = [
    "Frontier",
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
    "audit": "fairfrontier.auditing.audit",
    "debias": "fairfrontier.auditing.debias:fit_debiasing",
    "evaluate": "fairfrontier.metrics.verb",
    "monitor": "fairfrontier.deployment.monitoring:run_monitor",
    "Frontier": "fairfrontier.frontier.frontier",
    "Study": "fairfrontier.choose.select",
    "create": "fairfrontier.models.registry",
    "explain": "fairfrontier.deployment.explanation",
    "init": "fairfrontier.study.draft",
    "learn": "fairfrontier.similarity.registry",
    "load": "fairfrontier.prepare.loader",
    "load_bundle": "fairfrontier.deployment.bundle",
    "load_model": "fairfrontier.models.registry",
    "post_process": "fairfrontier.models.thresholds.model",
    "run_study": "fairfrontier.runner",
    "score": "fairfrontier.deployment.scoring",
    "select": "fairfrontier.choose.select",
}


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("fairfrontier.metrics")
    if name in _MODULES:
        module, _, function = _MODULES[name].partition(":")
        return getattr(import_module(module), function or name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "metrics"})
