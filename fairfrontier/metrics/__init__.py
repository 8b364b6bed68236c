"""Metrics of groups from arrays: fairlearn's by their names, and every measure of the house.

Every name is imported when it is first asked for: kernels import modules below this package, and
may need nothing but NumPy, SciPy and array-api-compat.
"""

from importlib import import_module
from typing import Any

_LEAST = ("balanced_accuracy", "precision", "recall", "roc_auc", "r2", "f1")
_DERIVED = (
    *(
        f"{name}_{transform}"
        for name in (
            "true_positive_rate",
            "true_negative_rate",
            "false_positive_rate",
            "false_negative_rate",
            "selection_rate",
            "accuracy_score",
            "zero_one_loss",
        )
        for transform in ("difference", "ratio")
    ),
    "accuracy_score_group_min",
    "zero_one_loss_group_max",
    *(f"{name}_score_group_min" for name in _LEAST),
    *(f"{name}_group_max" for name in ("mean_absolute_error", "mean_squared_error", "log_loss")),
)
_FRAME = (
    "MetricFrame",
    "count",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "false_negative_rate",
    "false_positive_rate",
    "make_derived_metric",
    "mean_prediction",
    "selection_rate",
    "true_negative_rate",
    "true_positive_rate",
)
_MODULES = {
    "by_group": "fairfrontier.metrics.grouped",
    "check_bounds": "fairfrontier.metrics.promise",
    **dict.fromkeys((*_FRAME, *_DERIVED), "fairfrontier.metrics.frame"),
    **dict.fromkeys(
        ("plot_model_comparison", "plot_roc_curve_by_group"), "fairfrontier.metrics.drawing"
    ),
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
