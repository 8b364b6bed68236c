"""The fairness-accuracy frontier of a table: models worth choosing between, each audited.

Every name is imported when it is first asked for, so that importing this package takes no time and
array kernels below it need NumPy, SciPy and array-api-compat alone. The classes of registered
methods and the learners of fair metrics are found in their registries; editors read them below.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Those named `as` themselves are registered; tests/test_face.py holds them to the registries.
    from fairfrontier import metrics as metrics
    from fairfrontier.auditing.audit import audit as audit
    from fairfrontier.auditing.debiased import debias as debias
    from fairfrontier.choose.select import Study, select
    from fairfrontier.deployment.bundle import load_bundle
    from fairfrontier.deployment.explanation import explain
    from fairfrontier.deployment.monitoring import run_monitor as monitor
    from fairfrontier.deployment.scoring import score
    from fairfrontier.frontier.frontier import Frontier
    from fairfrontier.frontier.scores import Scores
    from fairfrontier.metrics.verb import evaluate
    from fairfrontier.models.baseline.constant import Constant as Constant
    from fairfrontier.models.baseline.ensemble import Ensemble as Ensemble
    from fairfrontier.models.baseline.fair_gbm import FairGBM as FairGBM
    from fairfrontier.models.baseline.gbdt import GBDT as GBDT
    from fairfrontier.models.baseline.gbdt import GBDTRegression as GBDTRegression
    from fairfrontier.models.baseline.gbdt import Project as Project
    from fairfrontier.models.baseline.gbdt import Reweigh as Reweigh
    from fairfrontier.models.baseline.k_neighbors import KNeighbors as KNeighbors
    from fairfrontier.models.baseline.linear import Linear as Linear
    from fairfrontier.models.baseline.linear_post import LinearPost as LinearPost
    from fairfrontier.models.baseline.linear_regression import LinearRegression as LinearRegression
    from fairfrontier.models.baseline.nn import Net as Net
    from fairfrontier.models.baseline.nn import ProjectedNet as ProjectedNet
    from fairfrontier.models.baseline.random_forest import RandomForest as RandomForest
    from fairfrontier.models.baseline.reductions import Reductions as Reductions
    from fairfrontier.models.individual.budro.estimator import BuDRO as BuDRO
    from fairfrontier.models.individual.sensei import SenSeI as SenSeI
    from fairfrontier.models.individual.sensr import SenSR as SenSR
    from fairfrontier.models.noisy.estimator import NoisyDRO as NoisyDRO
    from fairfrontier.models.noisy.estimator import NoisyNaive as NoisyNaive
    from fairfrontier.models.noisy.estimator import NoisySoftAssignment as NoisySoftAssignment
    from fairfrontier.models.noisy.estimator import NoisyTrueGroups as NoisyTrueGroups
    from fairfrontier.models.noisy.estimator import NoisyUnconstrained as NoisyUnconstrained
    from fairfrontier.models.registry import create, load_model
    from fairfrontier.models.regression.barycentre import QuantileBarycentre as QuantileBarycentre
    from fairfrontier.models.regression.barycentre import ResidualShift as ResidualShift
    from fairfrontier.models.regression.estimator import FairRegression as FairRegression
    from fairfrontier.models.regression.estimator import (
        FairRegressionClassifier as FairRegressionClassifier,
    )
    from fairfrontier.models.thresholds.group_thresholds import GroupThresholds as GroupThresholds
    from fairfrontier.models.thresholds.model import post_process
    from fairfrontier.models.thresholds.places import fill_places
    from fairfrontier.models.thresholds.randomized_threshold import (
        RandomizedThreshold as RandomizedThreshold,
    )
    from fairfrontier.prepare.loader import load
    from fairfrontier.runner import run_study
    from fairfrontier.similarity.explore import learn_explore as learn_explore
    from fairfrontier.similarity.face import learn_face as learn_face
    from fairfrontier.similarity.fair_metric import FairMetric
    from fairfrontier.similarity.registry import learn
    from fairfrontier.similarity.subspace import learn_subspace as learn_subspace
    from fairfrontier.study.draft import init

__all__ = [
    "FairMetric",
    "Frontier",
    "QuantileBarycentre",
    "Scores",
    "Study",
    "audit",
    "create",
    "debias",
    "evaluate",
    "explain",
    "fill_places",
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
    "debias": "fairfrontier.auditing.debiased",
    "evaluate": "fairfrontier.metrics.verb",
    "monitor": "fairfrontier.deployment.monitoring:run_monitor",
    "FairMetric": "fairfrontier.similarity.fair_metric",
    "Frontier": "fairfrontier.frontier.frontier",
    "QuantileBarycentre": "fairfrontier.models.regression.barycentre",
    "Scores": "fairfrontier.frontier.scores",
    "Study": "fairfrontier.choose.select",
    "create": "fairfrontier.models.registry",
    "explain": "fairfrontier.deployment.explanation",
    "fill_places": "fairfrontier.models.thresholds.places",
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


def _list_registered() -> dict[str, str]:
    """Return the modules of registered classes and learners of fair metrics, by their names."""
    from fairfrontier.models.registry import METHODS
    from fairfrontier.similarity.registry import METRICS

    return METHODS.definitions() | METRICS.definitions()


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("fairfrontier.metrics")
    if name in _MODULES:
        module, _, function = _MODULES[name].partition(":")
        return getattr(import_module(module), function or name)
    # Others need no import of the registries to be known as none.
    if (name[:1].isupper() or name.startswith("learn_")) and name in _list_registered():
        return getattr(import_module(_list_registered()[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_list_registered(), "metrics"})
