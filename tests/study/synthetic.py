"""Made-up results of a made-up study, with the shape of the Adult study's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fairfrontier.models.fit.group import FitGroup, Member
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.resolve import Planned

ATTRIBUTES = {"sex": ("Female", "Male"), "race": ("non-White", "White")}
# accuracy, consistency of spouses, of gender and race, gap of sex, of race
CENTRES = {
    "gbdt": (0.84, 0.945, 0.92, 0.17, 0.08),
    "project": (0.82, 0.835, 1.0, 0.14, 0.045),
    "reweigh": (0.785, 0.855, 0.95, 0.095, 0.045),
    "logistic": (0.76, 0.90, 0.93, 0.19, 0.09),
}
KEYS = ["dataset", "method", "setting", "seed", "part", "measure", "group"]


def make_study(**changes: object) -> StudyConfig:
    """Return a study, without looking at any registry."""
    content: dict[str, object] = {
        "study": "toy",
        "dataset": "toy",
        "metric": {"name": "subspace"},
        "methods": {
            **{name: {"preset": "published"} for name in CENTRES},
            "budro": {"solver": "exact", "budget": [0.05, 0.1, 0.2, 0.4, 0.8]},
        },
        "rows": 8000,
        "seeds": 3,
        "frontier": {
            "fairness": [
                "consistency:spouse",
                "consistency:gender_race",
                "gap_rms:sex",
                "gap_rms:race",
            ]
        },
        "published": {
            "reproduces": "budro.table2",
            "methods": {name: {} for name in ("gbdt", "project", "reweigh", "budro")},
        },
        "claims": [
            {
                "id": "wider",
                "sentence": "BuDRO narrows both gaps.",
                "compare": {
                    "left": "budro",
                    "right": "gbdt",
                    "measure": ["gap_rms:sex", "gap_rms:race"],
                    "relation": "<",
                },
            },
            {
                "id": "exact",
                "sentence": "Project ignores gender & race.",
                "compare": {
                    "left": "project",
                    "value": 1,
                    "measure": "consistency:gender_race",
                    "relation": "==",
                },
            },
            {
                "id": "false",
                "sentence": "Reweighing is the most accurate.",
                "compare": {
                    "left": "reweigh",
                    "right": "gbdt",
                    "measure": "balanced_accuracy",
                    "relation": ">",
                },
            },
        ],
        "notes": "The published block has *all* rows.\n\nSee `make reproduce` for:\n\n- one\n- two",
    }
    return StudyConfig.model_validate({**content, **changes})


def make_plan(study: StudyConfig) -> tuple[Planned, ...]:
    """Unfold the study without presets."""
    planned = []
    for block, rows, select_on in study.blocks():
        for label, row in rows.methods.items():
            budgets = row.parameters.get("budget", [None])
            for budget in budgets:
                setting = {"rows": rows.rows, "select_on": select_on}
                if budget is not None:
                    setting["budget"] = budget
                for seed in rows.seeds:
                    group = FitGroup(
                        dataset="toy",
                        method=label,
                        estimator=row.method or label,
                        metric=None,
                        rows=rows.rows,
                        select_on=select_on,
                        threads=1,
                        members=(Member(seed, row.parameters, setting),),
                    )
                    planned.append(Planned((block,), group))
    return tuple(planned)


def make_points(plan: Sequence[Planned], female: str = "Female") -> pd.DataFrame:
    """Return points with every measure that the report shows, from a seeded generator."""
    rng = np.random.default_rng(7)
    rows = []
    for each in plan:
        group = each.group
        (member,) = group.members
        budget = member.setting.get("budget", 0.4)
        t = np.log(budget / 0.05) / np.log(16)
        centre = CENTRES.get(
            group.method,
            (0.836 - 0.05 * t**2, 0.95 + 0.04 * t, 0.93 + 0.05 * t, 0.17 - t / 10, 0.08 - t / 25),
        )
        name = (group.method, canonical_json(member.setting), member.seed)
        parts = ("train", "validation", "test") if group.select_on == "validation" else (
            "train",
            "test",
        )  # fmt: skip
        for part in parts:
            noise = rng.normal(scale=0.004, size=8)
            n = {"train": 6400, "validation": 1600, "test": 9045}[part]
            bacc, spouse, both, sex, race = np.clip(np.array(centre) + noise[:5], 0, 1)
            both = 1.0 if group.method == "project" else both
            values = [
                ("balanced_accuracy", "", bacc, n),
                ("accuracy", "", bacc + 0.02, n),
                ("consistency", "spouse", spouse, n),
                ("consistency", "gender_race", both, n),
                ("gap_rms", "sex", sex, n),
                ("gap_rms", "race", race, n),
                ("gap_max", "sex", sex * 1.3, n),
                ("gap_max", "race", race * 1.2, n),
            ]
            for attribute, levels in ATTRIBUTES.items():
                gap = sex if attribute == "sex" else race
                rates = (0.25 - gap / 2, 0.25 + gap / 2)
                values.append(("selection_rate_ratio", attribute, rates[0] / rates[1], n))
                for level, rate in zip(levels, rates, strict=True):
                    shown = female if level == "Female" else level
                    for measure, value in (
                        ("selection_rate", rate),
                        ("tpr", rate + 0.4),
                        ("fpr", rate - 0.1),
                        ("accuracy", 0.9 - rate / 4),
                    ):
                        values.append((measure, f"{attribute}={shown}", value, n // 3))
            for measure, level, value, count in values:
                rows.append(
                    (group.dataset, *name, part, measure, level, value, count,
                     value - 0.012, value + 0.012)
                )  # fmt: skip
    columns = [*KEYS, "value", "n", "low", "high"]
    return pd.DataFrame(rows, columns=columns).sort_values(KEYS, ignore_index=True)
