"""What a study that names a dataset and nothing else compares."""

from __future__ import annotations

from typing import Any

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import BEST

# Settings that are tried: some four minutes for 50,000 rows on two cores.
TRIALS = 100
# Names of criteria in rows' labels, with those of `group_thresholds`.
CRITERIA = {"parity": "parity", "odds": "equalized_odds"}


def choose_measures(dataset: DatasetConfig) -> list[str]:
    """Return measures of fairness by the dataset's groups and counterfactual sets.

    ConfigError is raised for a dataset that has neither.
    """
    by_group = {
        "binary": ("selection_rate_difference", "gap_max"),
        "multiclass": ("gap_rms",),
        "regression": ("disparity",),
    }[dataset.label.task]
    measures = [f"{measure}:{group}" for group in dataset.groups for measure in by_group]
    if dataset.label.task != "regression":
        measures += [f"consistency:{name}" for name in dataset.set_names]
    if not measures:
        raise ConfigError(
            f"{dataset.dataset} declares neither groups nor counterfactuals.",
            "Say who is to be treated alike: groups: {sex: {column: sex}}, for example.",
        )
    return measures


def choose_methods(dataset: DatasetConfig, has_metric: bool) -> dict[str, dict[str, Any]]:
    """Return the rows of a study: three learners, and what makes them fair to each attribute.

    With a fair metric methods of individual fairness are added.
    """
    if dataset.label.task == "regression":
        rows: dict[str, dict[str, Any]] = {"linear_regression": {}, "gbdt_regression": {}}
        for group in dataset.groups:
            rows[f"fair_regression {group}"] = {"method": "fair_regression", "attribute": group}
        return rows
    rows = {"linear": {}, "gbdt": {}, "random_forest": {}}
    if dataset.label.task == "binary":
        for group in dataset.groups:
            for name, criterion in CRITERIA.items():
                rule = {"criterion": criterion, "attributes": group, "unseen": "pooled"}
                rows[f"{name} {group}"] = {
                    "method": BEST,
                    "then": {"method": "group_thresholds", **rule},
                }
            rows[f"fair_gbm {group}"] = {"method": "fair_gbm", "attributes": group}
    if has_metric:
        rows |= {"budro": {}, "sensei": {}}
    return rows
