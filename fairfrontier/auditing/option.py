"""The options of audits and of debiasing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from fairfrontier.models.noisy.rate import RATE_CELLS
from fairfrontier.models.objective import COST_MEASURE, COSTS, Objective, read_costs
from fairfrontier.models.thresholds.curve import Criterion
from fairfrontier.models.thresholds.sample import Solver
from fairfrontier.models.thresholds.threshold import BINS
from fairfrontier.prepare.config.section import LevelNames
from fairfrontier.prepare.table.role import Scale, ScoreColumns
from fairfrontier.runtime.config import fault
from fairfrontier.runtime.errors import ConfigError, nearest, repeated
from fairfrontier.runtime.option import (
    File,
    Name,
    NameOrFile,
    Names,
    ResultOptions,
    Seed,
    Share,
    name_table,
    read_numbers,
    split_names,
)

if TYPE_CHECKING:
    from fairfrontier.models.thresholds.rulebook import Rulebook
    from fairfrontier.prepare.table.role import DecisionColumns


# Completion of options imports this module, and takes no pandas and no scikit-learn.

CRITERIA = {
    "equal_opportunity": ("tpr",),
    "equalized_odds": ("tpr", "fpr"),
    "demographic_parity": ("selection_rate",),
    **{rate: (rate,) for rate in RATE_CELLS},
}
# Options of the columns of an audited table, of a model on a dataset, and of how wrong groups are.
TABLE = (
    *("labels", "groups", "decisions", "scores", "threshold", "randomised"),
    *("accepted", "positive", "undecided", "weights", "missing"),
)
DATASET = ("dataset", "part", "attribute", "seed", "noise")
NOISE = ("level", "confusion", "auxiliary")
# Options of an audit of noisy groups, and of one of groups that are known.
NOISY = ("true_group", "prior", "criterion", "budget", "confidence")
KNOWN = ("unknown", "exclude_below", "limit")
# By each of these the decisions of a table are known.
DECIDING = ("decisions", "threshold", "randomised")
HOLDOUT = 0.5
# Options of debiasing by each of the rules alone, and those that an earlier rule determines.
EXACT = ("criterion", "objective", "certain", "no_harm")
NEAR_OPTIMAL = ("bins", "rate", "width")
OF_RULE = (
    *("budget", "groups", "holdout", "pool_below", "rule", "scale", "seed", "solver"),
    *(*EXACT, *NEAR_OPTIMAL),
)
Budgets = Annotated[
    tuple[Annotated[float, Field(ge=0.0, allow_inf_nan=False)], ...], BeforeValidator(split_names)
]
NoiseShare = Annotated[float, Field(ge=0.0, lt=1.0)]
PartName = Literal["train", "calibration", "validation", "test"]


Prior = Annotated[
    dict[str, Share],
    read_numbers("share of a further group", "Write the shares of all true groups as a=0.8,b=0.2."),
]
Limits = Annotated[
    dict[str, float],
    read_numbers(
        "limit of a further measure",
        "Write limits as selection_rate_ratio=0.8,tpr_difference:sex=0.1.",
    ),
]


class ScoredTableOptions(ResultOptions):
    """Options of the columns of a table, of both verbs."""

    scores: Name | None = Field(default=None, description="Column of scores.")
    labels: Name | None = Field(default=None, description="Column of true outcomes, 0 and 1.")
    positive: LevelNames = Field(
        default=(), description="The level of labels that is 1, or several: 1,2."
    )
    missing: Names | None = Field(
        default=None,
        description="Marks of missing cells of text beside the empty one, as NULL,-, in place of "
        "those that init knows: NA, NULL, N/A, ? and the like.",
    )

    def list_changed(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return those of the parameters that differ from their defaults."""
        fields = type(self).model_fields
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value != fields[name].default}

    def refuse(self, names: tuple[str, ...], what: str, mend: str) -> None:
        """Raise for the first of these that is given: a sentence in which {} is its name."""
        for name in self.list_changed(names):
            raise fault(what.format(name.replace("_", "-")), mend)

    def require(self, column: str, names: tuple[str, ...]) -> None:
        """Raise for options that say something of a column which is not named."""
        if getattr(self, column) is None:
            mend = f"Name their column with --{column}."
            self.refuse(names, f"{{}} is given without {column}", mend)


class AuditConfig(ScoredTableOptions):
    """What is audited, and what is known of the noise; the options of a command and of a flow.

    See `DecisionColumns` for the content of the columns. A model decides on a part of a dataset, a
    bundle on the raw rows of a table. With level, confusion or auxiliary, or with the noise or the
    noisy attribute of a model's dataset, the groups are noisy: what holds for every assignment of
    rows to true groups is found. Otherwise they are taken as they are.
    """

    command: ClassVar[str] = "audit"

    table: File | None = Field(
        default=None,
        description="Parquet or CSV with a decision in every row, or raw rows for a bundle.",
    )
    decisions: Name | None = Field(default=None, description="Column of decisions, 0 and 1.")
    accepted: LevelNames = Field(
        default=(),
        description="The level of decisions that is 1, or several: 1,2; of a bundle the class that "
        "rates are of, its favourable one by default.",
    )
    undecided: LevelNames = Field(
        default=(),
        description="Levels of decisions that are none, as of withdrawn applications, or missing "
        "for empty cells: their rows are left out.",
    )
    threshold: float | None = Field(default=None, description="The least score that is decided 1.")
    randomised: bool = Field(default=False, description="Scores are probabilities of deciding 1.")
    groups: Names = Field(
        default=(),
        validation_alias=AliasChoices("groups", "group"),
        description="Columns of protected attributes, as sex,race; one where groups are noisy. For "
        "a model or a bundle all attributes of its dataset by default.",
    )
    unknown: LevelNames = Field(
        default=("unknown",),
        description="Levels of groups that mean unknown, as empty cells do; unknown by default.",
    )
    exclude_below: Share = Field(
        default=0.02,
        description="Categories with a smaller share of the rows are left out of ratios and "
        "differences, as 6 RCNY 5-301 allows; 0 leaves out none. Others have a ratio however few "
        "their rows are, unless --minimum is set to another number than its default.",
    )
    limit: Limits = Field(
        default={},
        description="Limits of measures, as selection_rate_ratio=0.8 or tpr_difference:sex=0.1; "
        "the exit code is 4 when one is passed.",
    )
    certify: Budgets = Field(
        default=(),
        description="Budgets of fair distance, as 0.1,0.4, within which a bundle's rows may become "
        "similar ones, by the metric that it holds; the study's by default.",
    )
    weights: Name | None = Field(
        default=None,
        description="Column of weights: whole numbers are counts of persons, each of whom is as "
        "good as a row, and others case weights, with which there are no tests.",
    )
    model: File | None = Field(
        default=None,
        description="The folder of a bundle, which decides on the table, or of a saved model, "
        "which decides on --dataset in place of a table.",
    )
    dataset: NameOrFile | None = Field(
        default=None, description="What the model decides on: conf/datasets, or a YAML file."
    )
    part: PartName = Field(default="test", description="Of the dataset.")
    attribute: Name | None = Field(default=None, description="The dataset's noisy attribute.")
    noise: NoiseShare | None = Field(
        default=None, description="Share of wrong groups to inject into the dataset."
    )
    seed: Seed = Field(default=0, description="Which split of the dataset.")
    level: NoiseShare | None = Field(
        default=None, description="The noise: share of groups that changed, uniformly."
    )
    confusion: File | None = Field(
        default=None, description="The noise: CSV of P(noisy | true), true groups in rows by name."
    )
    auxiliary: File | None = Field(
        default=None, description="The noise: a table with true and noisy groups."
    )
    true_group: Name | None = Field(
        default=None, description="Column of true groups in the auxiliary table."
    )
    prior: Prior | None = Field(
        default=None,
        description="Shares of true groups, as a=0.8,b=0.2; from the noise by default.",
    )
    criterion: Names = Field(
        default=(), description="Rates or criteria, as tpr,fpr; all rates by default."
    )
    budget: Share = Field(default=0.05, description="Margin against all rows.")
    confidence: float = Field(
        default=0.95, gt=0.0, lt=1.0, description="Of each statement, where noise is estimated."
    )

    @property
    def name(self) -> str:
        """The name of the table, or of the model's folder."""
        if self.table is not None:
            return name_table(self.table)
        folder = Path(str(self.model)).resolve()
        # Models of the store differ in the key above them.
        key = re.fullmatch("([0-9a-f]{12})[0-9a-f]{52}", folder.parent.name)
        return f"{key[1]}-{folder.name}" if key else folder.name or "model"

    def inputs(self) -> list[Path]:
        """Return the files and folders that are read."""
        paths = (self.table, self.confusion, self.auxiliary, self.model)
        return [path for path in paths if path is not None]

    @model_validator(mode="after")
    def _check(self) -> AuditConfig:
        if self.table is None and self.model is None:
            raise fault(
                "an audit is of a table or of a model", "Give the path of a table, or --model."
            )
        self._check_unused()
        if self.model is None:
            self._check_table()
        elif self.table is None and self.dataset is None:
            raise fault(
                "a model alone decides on nothing",
                "Name rows for it with --dataset and --part; for a bundle give a table.",
            )
        if self.noisy:
            self._check_noise()
        for name in self.criterion:
            if name not in CRITERIA:
                raise fault(f"there is no criterion {name!r}", nearest(name, CRITERIA))
        return self

    def _check_unused(self) -> None:
        """Refuse options of what is not audited."""
        columns = tuple(name for name in TABLE if name != "groups")
        kind, others, mend = "bundle", (*columns, *DATASET, *NOISE), "Leave it out"
        if self.model is None:
            kind, others = "table", (*DATASET, "certify")
        elif self.table is None:
            kind, others = "model", (*(TABLE if self.noisy else columns), "certify")
        else:
            others = tuple(name for name in others if name != "accepted")
            mend += ", or audit the table that `fairfrontier score` writes"
        self.refuse(others, f"--{{}} is not for the audit of a {kind}", f"{mend}.")
        if kind == "bundle" and len(self.accepted) > 1:
            raise fault("a bundle accepts one class", "Name one with --accepted.")
        if self.noisy:
            self.refuse(KNOWN, "--{} is not for noisy groups", "Leave it out.")
        else:
            self.refuse(
                NOISY,
                "--{} is of an audit of noisy groups",
                "Leave it out, or say how wrong the groups are with --level, --confusion or "
                "--auxiliary; of a model's dataset, which ones with --attribute.",
            )

    def _check_table(self) -> None:
        if not self.groups or not (self.decisions or self.scores):
            raise fault(
                "an audit needs decisions or scores, and groups",
                "Name their columns with --decisions or --scores, and --groups.",
            )
        named = [self.decisions, self.scores, self.labels, *self.groups, self.weights]
        if twice := repeated(name for name in named if name is not None):
            raise fault(
                f"the column {twice[0]!r} is named twice", "Name a column for each purpose."
            )
        marked = [name for name in self.groups if "=" in name]
        if marked and not self.noisy:
            raise fault(
                f"measures are named column=level, and the column {marked[0]!r} has = in its name",
                "Rename it in the table.",
            )
        self.require("scores", ("threshold", "randomised"))
        self.require("decisions", ("accepted", "undecided"))
        self.require("labels", ("positive",))
        if len(ways := list(self.list_changed(DECIDING))) > 1:
            raise fault(
                f"{ways[0]} and {ways[1]} both say what was decided",
                "Give one of --decisions, --threshold and --randomised.",
            )

    def _check_noise(self) -> None:
        """Check what an audit with noise needs, and what it has no use for."""
        sources = list(self.list_changed(NOISE))
        if len(sources) > 1:
            raise fault(f"{' and '.join(sources)} are both given", "Specify the noise in one way.")
        if (self.auxiliary is None) != (self.true_group is None):
            raise fault(
                "an auxiliary table and its column of true groups go together",
                "Give both --auxiliary and --true-group.",
            )
        if self.prior is not None and not {"level", "confusion"} & set(sources):
            raise fault("prior is given, and the table estimates it", "Leave --prior out.")
        if self.model is None and (self.labels is None or len(self.groups) > 1):
            raise fault(
                "an audit of noisy groups needs labels and one column of groups",
                "Name them with --labels and --groups.",
            )
        if self.decisions is not None and self.scores is not None:
            raise fault("decisions and scores are both given", "Leave one of them out.")
        if self.scores is not None and not self.decided:
            raise fault(
                "scores become decisions by a threshold, or are probabilities of deciding 1",
                "Give one of --threshold and --randomised.",
            )

    @property
    def noisy(self) -> bool:
        """Whether groups are noisy: it is said how wrong they are, or which ones of a dataset."""
        told = NOISE if self.model is None else (*NOISE, "noise", "attribute")
        return bool(self.list_changed(told))

    @property
    def least(self) -> int:
        """The rows that a category needs for an impact ratio: any, unless a minimum is set."""
        return self.minimum if self.list_changed(("minimum",)) else 1

    @property
    def decided(self) -> bool:
        """Whether a table says what was decided, or from which score on."""
        return bool(self.list_changed(DECIDING))

    @property
    def rates(self) -> tuple[str, ...]:
        """The rates that are bounded, in their usual order."""
        chosen = {rate for name in self.criterion for rate in CRITERIA[name]}
        return tuple(rate for rate in RATE_CELLS if not chosen or rate in chosen)

    def columns(self) -> DecisionColumns:
        """Return the columns of the table that are read."""
        from fairfrontier.prepare.table.role import DecisionColumns

        return DecisionColumns(**{name: getattr(self, name) for name in TABLE})


class DebiasConfig(ScoredTableOptions):
    """What debiasing reads, and its constraint; the options of a command and of a flow.

    See `ScoreColumns` for the content of the columns, and `fit_debiasing` for ε, γ and ρ.
    """

    command: ClassVar[str] = "debias"

    table: File = Field(description="Parquet or CSV with a score in every row.")
    scores: Name | None = Field(
        default=None, description="Column of scores; an earlier rule's by default."
    )
    groups: Names = Field(default=(), description="Columns of protected attributes, as sex,race.")
    weights: Name | None = Field(default=None, description="Column of case weights.")
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
        from fairfrontier.models.thresholds.group_thresholds import GroupThresholds
        from fairfrontier.models.thresholds.randomized_threshold import LEAST_WIDTH

        if self.apply is not None:
            given = list(self.list_changed(OF_RULE))
            mend = f"Leave out {', '.join(given)}, or fit a new rule without apply."
            self.refuse(OF_RULE, "{} is given beside apply, whose rule determines it", mend)
        elif not self.scores or not self.groups:
            raise fault(
                "scores and groups are needed to fit a rule",
                "Name the column of scores with --scores and those of groups with --groups.",
            )
        other = "randomized_threshold" if self.exact else "group_thresholds"
        self.refuse(
            NEAR_OPTIMAL if self.exact else EXACT,
            f"{{}} is given with the rule {self.rule}, which has none",
            f"Leave it out, or give --rule {other}.",
        )
        if self.solver == "histogram" and (self.exact or self.width == 0):
            raise fault(
                "a histogram solves for the ramps of positive widths only, and solver is histogram",
                "Leave out --solver, or give a positive width and --rule randomized_threshold.",
            )
        if self.criterion != "parity" and self.labels is None:
            raise fault(
                f"the criterion {self.criterion!r} is of rows with a known outcome, and there are "
                "no labels",
                "Name their column with --labels.",
            )
        try:
            named = self.objective in GroupThresholds.objectives
            known = named or read_costs(self.served) is not None
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
        if repeated(self.groups):
            raise fault("groups names a column twice", "Name each column once.")
        self.require("labels", ("positive",))
        if self.width is not None and 0 < self.width < LEAST_WIDTH:
            raise fault(f"width is {self.width:g}", f"Give 0, or at least {LEAST_WIDTH:g}.")
        return self

    def columns(self, rulebook: Rulebook | None = None) -> ScoreColumns:
        """Return the columns that are read; an earlier rule supplies what is not given here."""
        scores, ids, groups, scale = self.scores, self.ids, self.groups, self.scale
        if rulebook is not None:
            scores, ids = scores or rulebook.score.column, ids or rulebook.draw.column
            groups, scale = rulebook.groups.columns, rulebook.score.scale
        others = (self.labels, self.positive, self.weights)
        return ScoreColumns(str(scores), groups, *others, ids, scale, self.missing)
