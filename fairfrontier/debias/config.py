"""The options of debiasing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator

from fairfrontier.prepare.config.section import LevelNames
from fairfrontier.prepare.table.role import Scale, ScoreColumns
from fairfrontier.runtime.config import fault
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.option import File, Name, Names, ResultOptions, Seed, Share, name_table
from fairfrontier.train.objective import COST_MEASURE, COSTS, Objective, read_costs
from fairfrontier.train.postprocess.curve import Criterion
from fairfrontier.train.postprocess.sample import Solver
from fairfrontier.train.postprocess.threshold import BINS

# Completion of options imports this module, and takes no scikit-learn.
if TYPE_CHECKING:
    from fairfrontier.train.postprocess.rulebook import Rulebook

HOLDOUT = 0.5
# Parameters that an earlier rule determines.
EXACT = ("criterion", "objective", "certain", "no_harm")
NEAR_OPTIMAL = ("bins", "rate", "width")
FITTED = (
    *("budget", "groups", "holdout", "pool_below", "rule", "scale", "seed", "solver"),
    *(*EXACT, *NEAR_OPTIMAL),
)


class DebiasConfig(ResultOptions):
    """What debiasing reads, and its constraint; the options of a command and of a flow.

    See `ScoreColumns` for the content of the columns, and `fit_debiasing` for ε, γ and ρ.
    """

    command: ClassVar[str] = "debias"

    table: File = Field(description="Parquet or CSV with a score in every row.")
    scores: Name | None = Field(
        default=None, description="Column of scores; an earlier rule's by default."
    )
    groups: Names = Field(default=(), description="Columns of protected attributes, as sex,race.")
    labels: Name | None = Field(default=None, description="Column of true outcomes, 0 and 1.")
    positive: LevelNames = Field(
        default=(), description="The level of labels that is 1, or several: 1,2."
    )
    weights: Name | None = Field(default=None, description="Column of case weights.")
    missing: Names | None = Field(
        default=None,
        description="Marks of missing cells of text beside the empty one, as NULL,-, in place of "
        "those that init knows: NA, NULL, N/A, ? and the like.",
    )
    ids: Name | None = Field(
        default=None, description="Column of row ids; the row number by default."
    )
    scale: Scale = Field(
        default="probability",
        description="What scores are: margin means log odds, and points any numbers of which only "
        "the order counts, as credit points or deciles.",
    )
    rule: Literal["randomized_threshold", "group_thresholds"] = Field(
        default="randomized_threshold",
        description="A ramp by group, near-optimal for parity; or the exact optimum for an "
        "objective under a criterion, on the rows of the fit.",
    )
    criterion: Criterion = Field(
        default="parity", description="The rates that groups share; of group_thresholds."
    )
    objective: Name = Field(
        default="accuracy",
        description="What group_thresholds maximise: accuracy, balanced_accuracy, f1, or the least "
        "costs of a false positive and a false negative, as 1,5.",
    )
    certain: bool = Field(
        default=False, description="No draws: group_thresholds with one threshold a group."
    )
    no_harm: bool = Field(
        default=False,
        description="With group_thresholds no group's rate gets worse than under the best "
        "thresholds without a bound.",
    )
    budget: Share = Field(
        default=0.0,
        description="ε: the bias allowed between groups; of a ramp, |E[h | group] − ρ| ≤ ε/2.",
    )
    width: float | None = Field(
        default=None,
        ge=0.0,
        le=10.0,
        description="γ: the width of the ramp on [−1, 1]; chosen with labels, else 0.1.",
    )
    rate: Share | None = Field(
        default=None, description="ρ: the share decided 1; near the base rate by default."
    )
    unseen: Name | None = Field(
        default=None,
        description="Groups without a threshold: refuse (the default), pooled (the threshold of "
        "all rows together), or the group whose threshold they get, as Female×White. A missing "
        "value is a level like others.",
    )
    seed: Seed = Field(default=0, description="Of the draws, and of the held-out rows.")
    holdout: float = Field(
        default=HOLDOUT,
        ge=0.0,
        lt=1.0,
        description="Share of rows held out to choose γ and ρ and to measure on; with 0 all rows "
        "are used for everything.",
    )
    pool_below: int = Field(
        default=1000,
        ge=0,
        description="Groups with fewer rows of the fit are pooled with those that they are part "
        "of, as far as their difference may be chance; 0 pools none.",
    )
    solver: Solver = Field(
        default="auto", description="exact sorts in memory; auto does so up to 2,000,000 rows."
    )
    bins: int = Field(
        default=BINS, ge=2, le=1 << 20, multiple_of=2, description="Of the histogram; even."
    )
    apply: File | None = Field(
        default=None, description="Decide by an earlier thresholds.json instead of fitting."
    )

    @property
    def exact(self) -> bool:
        """Whether thresholds are to be the exact optimum."""
        return self.rule == "group_thresholds"

    @property
    def served(self) -> Objective:
        """The objective, with its costs as numbers."""
        if "," not in self.objective:
            return self.objective
        return {"costs": dict(zip(COSTS, map(float, self.objective.split(",")), strict=True))}

    @property
    def measure(self) -> str:
        """What is lost by equal rates: a name of an objective, or ``changed`` without labels."""
        if self.labels is None:
            return "changed"
        served = self.served
        return served if isinstance(served, str) else COST_MEASURE

    @property
    def name(self) -> str:
        """The name of the table."""
        return name_table(self.table)

    @model_validator(mode="after")
    def _check(self) -> DebiasConfig:
        from fairfrontier.train.postprocess.group_thresholds import GroupThresholds
        from fairfrontier.train.postprocess.randomized_threshold import LEAST_WIDTH

        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        if self.apply is not None:
            unused = [name for name in FITTED if getattr(self, name) != defaults[name]]
            if unused:
                raise fault(
                    f"{unused[0]} is given beside apply, whose rule determines it",
                    f"Leave out {', '.join(unused)}, or fit a new rule without apply.",
                )
        elif not self.scores or not self.groups:
            raise fault(
                "scores and groups are needed to fit a rule",
                "Name the column of scores with --scores and those of groups with --groups.",
            )
        others = NEAR_OPTIMAL if self.exact else EXACT
        given = [name for name in others if getattr(self, name) != defaults[name]]
        if given:
            other = "randomized_threshold" if self.exact else "group_thresholds"
            raise fault(
                f"{given[0]} is given with the rule {self.rule}, which has none",
                f"Leave out {', '.join(given)}, or give --rule {other}.",
            )
        if self.exact and self.solver == "histogram":
            raise fault(
                "group_thresholds are solved exactly, and solver is histogram",
                "Leave out --solver, or give --rule randomized_threshold.",
            )
        if self.criterion != "parity" and self.labels is None:
            raise fault(
                f"the criterion {self.criterion!r} is of rows with a known outcome, and there are "
                "no labels",
                "Name their column with --labels.",
            )
        try:
            known = (
                self.objective in GroupThresholds.objectives or read_costs(self.served) is not None
            )
        except (ConfigError, ValueError):
            known = False
        if not known:
            raise fault(
                f"objective is {self.objective}",
                f"Give {', '.join(GroupThresholds.objectives)}, or two costs above 0, as 1,5.",
            )
        if self.scale == "points" and self.labels is None and (self.exact or self.rate is None):
            raise fault(
                "nothing says from how many points on rows are decided 1",
                "Name the column of outcomes with --labels, or give a ramp --rate.",
            )
        if len(set(self.groups)) < len(self.groups):
            raise fault("groups names a column twice", "Name each column once.")
        if self.positive and self.labels is None:
            raise fault("positive is given without labels", "Name their column with --labels.")
        if self.width is not None and 0 < self.width < LEAST_WIDTH:
            raise fault(f"width is {self.width:g}", f"Give 0, or at least {LEAST_WIDTH:g}.")
        if self.width == 0 and self.solver == "histogram":
            raise fault(
                "a histogram solves for positive widths only, and width is 0",
                "Give a positive width, or --solver exact.",
            )
        return self

    def columns(self, rulebook: Rulebook | None = None) -> ScoreColumns:
        """Return the columns that are read; an earlier rule supplies what is not given here."""
        scores, ids, groups, scale = self.scores, self.ids, self.groups, self.scale
        if rulebook is not None:
            scores, ids = scores or rulebook.score.column, ids or rulebook.draw.column
            groups, scale = rulebook.groups.columns, rulebook.score.scale
        others = (self.labels, self.positive, self.weights)
        return ScoreColumns(str(scores), groups, *others, ids, scale, self.missing)
