"""The YAML of a study of a drafted dataset."""

from __future__ import annotations

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.draft.document import write_comment, write_remark, write_value
from fairfrontier.prepare.draft.draft import DatasetDraft
from fairfrontier.study.read import choose_measures, choose_methods

# Attributes that a first frontier trades against accuracy, unless somebody names them.
MOST_ATTRIBUTES = 3
# A label whose rarer class has a smaller share is not served by accuracy.
BALANCED = 0.2
TRIALS = 40


def write_study(draft: DatasetDraft, dataset: DatasetConfig, *, named: bool) -> str:
    """Return the YAML of a study of a drafted dataset; ``named`` attributes are all compared."""
    main = [attribute.name for attribute in draft.attributes]
    others = [] if named else main[MOST_ATTRIBUTES:]
    main = [name for name in main if name not in others]
    compared = dataset.model_copy(
        update={
            "groups": {name: dataset.groups[name] for name in main},
            "counterfactuals": {
                name: columns for name, columns in dataset.counterfactuals.items() if name in main
            },
        }
    )
    lines = [
        *write_comment("Drafted by `fairfrontier init`: what is compared, and by what."),
        f"study: {write_value(draft.name)}",
        f"dataset: {write_value(draft.name)}",
    ]
    if dataset.label.task == "regression":
        objective, remark = "rmse", "the loss that all methods keep low"
    else:
        rare = draft.rare is not None and draft.rare < BALANCED
        objective = "balanced_accuracy" if rare else "accuracy"
        remark = "or f1, auc, {costs: {false_positive: 1, false_negative: 5}}, ..."
        if rare:
            remark = f"one class has {draft.rare:.0%} of the rows; {remark}"
    lines += write_remark(f"objective: {objective}", remark)
    if dataset.label.task == "binary":
        lines += [
            *write_comment("Individual fairness, in minutes more: take the # off three lines."),
            "#metric: {name: subspace}",
        ]
    lines.append("methods:")
    for label, row in choose_methods(compared, has_metric=False).items():
        lines.append(f"  {write_value(label)}: {write_value(row)}")
    if dataset.label.task == "binary":
        lines += ["#  budro: {}", "#  sensei: {}"]
    lines += write_remark(
        f"search: {{trials: {TRIALS}}}", "settings that are tried; more make a denser frontier"
    )
    lines += ["frontier:", "  fairness:"]
    lines += [f"  - {write_value(measure)}" for measure in choose_measures(compared)]
    if others:
        lines += write_comment(f"Further groups of the dataset: {', '.join(others)}", 2)
    return "\n".join(lines) + "\n"
