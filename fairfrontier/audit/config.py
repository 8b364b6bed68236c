"""The options of an audit, with noise or without."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from fairfrontier.prepare.config.section import LevelNames
from fairfrontier.runtime.config import fault
from fairfrontier.runtime.errors import nearest
from fairfrontier.runtime.option import (
    File,
    Name,
    NameOrFile,
    Names,
    ResultOptions,
    Seed,
    Share,
    name_table,
    split_names,
)
from fairfrontier.train.noisy.rate import RATE_CELLS

# Completion of options imports this module, and takes no pandas.
if TYPE_CHECKING:
    from fairfrontier.prepare.table.role import DecisionColumns

CRITERIA = {
    "equal_opportunity": ("tpr",),
    "equalized_odds": ("tpr", "fpr"),
    "demographic_parity": ("selection_rate",),
    **{rate: (rate,) for rate in RATE_CELLS},
}
TABLE = (
    "labels",
    "groups",
    "decisions",
    "scores",
    "threshold",
    "randomised",
    "accepted",
    "positive",
    "undecided",
    "weights",
    "missing",
)
FITTED = ("dataset", "part", "attribute", "seed", "noise")
SOURCES = ("level", "confusion", "auxiliary")
# Options of an audit with noise, and of one without.
NOISY = ("true_group", "prior", "criterion", "budget", "confidence")
PLAIN = ("unknown", "exclude_below", "limit")
Budgets = Annotated[
    tuple[Annotated[float, Field(ge=0.0, allow_inf_nan=False)], ...], BeforeValidator(split_names)
]
NoiseShare = Annotated[float, Field(ge=0.0, lt=1.0)]
PartName = Literal["train", "calibration", "validation", "test"]


def read_numbers(what: str, mend: str) -> BeforeValidator:
    """Return a validator that reads a text such as a=0.8,b=0.2; names may contain = and commas."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        numbers: dict[str, float] = {}
        pieces = value.split(",")
        while pieces:
            item = pieces.pop(0)
            while (found := _read_pair(item)) is None and pieces:
                item = f"{item},{pieces.pop(0)}"
            if found is None or found[0] in numbers:
                raise fault(f"{item.strip()!r} is no {what}", mend)
            numbers[found[0]] = found[1]
        return numbers

    return BeforeValidator(read)


def _read_pair(item: str) -> tuple[str, float] | None:
    """Return the name and the number of NAME=NUMBER; None for another text."""
    name, _, text = (part.strip() for part in item.rpartition("="))
    try:
        return (name, float(text)) if name else None
    except ValueError:
        return None


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


class AuditConfig(ResultOptions):
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
    scores: Name | None = Field(default=None, description="Column of scores.")
    threshold: float | None = Field(default=None, description="The least score that is decided 1.")
    randomised: bool = Field(default=False, description="Scores are probabilities of deciding 1.")
    labels: Name | None = Field(default=None, description="Column of true outcomes, 0 and 1.")
    positive: LevelNames = Field(
        default=(), description="The level of labels that is 1, or several: 1,2."
    )
    groups: Names = Field(
        default=(),
        validation_alias=AliasChoices("groups", "group"),
        description="Columns of protected attributes, as sex,race; one where groups are noisy. For "
        "a model or a bundle all attributes of its dataset by default.",
    )
    missing: Names | None = Field(
        default=None,
        description="Marks of missing cells of text beside the empty one, as NULL,-, in place of "
        "those that init knows: NA, NULL, N/A, ? and the like.",
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
        elif unused := list(self.list_changed(NOISY)):
            raise fault(
                f"--{unused[0].replace('_', '-')} is of an audit of noisy groups",
                "Leave it out, or say how wrong the groups are with --level, --confusion or "
                "--auxiliary; of a model's dataset, which ones with --attribute.",
            )
        for name in self.criterion:
            if name not in CRITERIA:
                raise fault(f"there is no criterion {name!r}", nearest(name, CRITERIA))
        return self

    def _check_unused(self) -> None:
        """Refuse options of what is not audited."""
        columns = tuple(name for name in TABLE if name != "groups")
        kind, others, mend = "bundle", (*columns, *FITTED, *SOURCES), "Leave it out"
        if self.model is None:
            kind, others = "table", (*FITTED, "certify")
        elif self.table is None:
            kind, others = "model", (*(TABLE if self.noisy else columns), "certify")
        else:
            others = tuple(name for name in others if name != "accepted")
            mend += ", or audit the table that `fairfrontier score` writes"
        if unused := list(self.list_changed(others)):
            raise fault(f"--{unused[0]} is not for the audit of a {kind}", f"{mend}.")
        if kind == "bundle" and len(self.accepted) > 1:
            raise fault("a bundle accepts one class", "Name one with --accepted.")

    def _check_table(self) -> None:
        if not self.groups or not (self.decisions or self.scores):
            raise fault(
                "an audit needs decisions or scores, and groups",
                "Name their columns with --decisions or --scores, and --groups.",
            )
        named = [self.decisions, self.scores, self.labels, *self.groups, self.weights]
        twice = sorted({name for name in named if name is not None and named.count(name) > 1})
        if twice:
            raise fault(
                f"the column {twice[0]!r} is named twice", "Name a column for each purpose."
            )
        marked = [name for name in self.groups if "=" in name]
        if marked and not self.noisy:
            raise fault(
                f"measures are named column=level, and the column {marked[0]!r} has = in its name",
                "Rename it in the table.",
            )
        if self.scores is None and (self.threshold is not None or self.randomised):
            raise fault("a threshold is given without scores", "Name their column with --scores.")
        for name in ("accepted", "undecided"):
            if getattr(self, name) and self.decisions is None:
                raise fault(
                    f"{name} is given without decisions", "Name their column with --decisions."
                )
        if both := sorted({*self.accepted} & {*self.undecided}):
            raise fault(
                f"the level {both[0]!r} is both accepted and undecided", "Name it in one of them."
            )
        if self.positive and self.labels is None:
            raise fault("positive is given without labels", "Name their column with --labels.")
        if self.threshold is not None and self.randomised:
            raise fault(
                "scores become decisions by a threshold, or are probabilities of deciding 1",
                "Give one of --threshold and --randomised.",
            )
        if self.decisions is not None and (self.threshold is not None or self.randomised):
            raise fault(
                "decisions are given, and scores are to become decisions as well",
                "Leave out --decisions, or --threshold and --randomised.",
            )

    def _check_noise(self) -> None:
        """Check what an audit with noise needs, and what it has no use for."""
        sources = list(self.list_changed(SOURCES))
        if len(sources) > 1:
            raise fault(f"{' and '.join(sources)} are both given", "Specify the noise in one way.")
        if unused := list(self.list_changed(PLAIN)):
            raise fault(f"--{unused[0].replace('_', '-')} is not for noisy groups", "Leave it out.")
        if (self.auxiliary is None) != (self.true_group is None):
            raise fault(
                "an auxiliary table and its column of true groups go together",
                "Give both --auxiliary and --true-group.",
            )
        if self.prior is not None and not {"level", "confusion"} & set(sources):
            raise fault("prior is given, and the table estimates it", "Leave --prior out.")
        if self.model is not None:
            return
        if self.labels is None or len(self.groups) > 1:
            raise fault(
                "an audit of noisy groups needs labels and one column of groups",
                "Name them with --labels and --groups.",
            )
        if self.decisions is not None and self.scores is not None:
            raise fault("decisions and scores are both given", "Leave one of them out.")
        if self.scores is not None and self.threshold is None and not self.randomised:
            raise fault(
                "scores become decisions by a threshold, or are probabilities of deciding 1",
                "Give one of --threshold and --randomised.",
            )

    @property
    def noisy(self) -> bool:
        """Whether groups are noisy: it is said how wrong they are, or which ones of a dataset."""
        told = SOURCES if self.model is None else (*SOURCES, "noise", "attribute")
        return bool(self.list_changed(told))

    @property
    def least(self) -> int:
        """The rows that a category needs for an impact ratio: any, unless a minimum is set."""
        return self.minimum if self.list_changed(("minimum",)) else 1

    @property
    def decided(self) -> bool:
        """Whether a table says what was decided, or from which score on."""
        return self.decisions is not None or self.threshold is not None or self.randomised

    def list_changed(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return those of the parameters that differ from their defaults."""
        fields = type(self).model_fields
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value != fields[name].default}

    @property
    def rates(self) -> tuple[str, ...]:
        """The rates that are bounded, in their usual order."""
        chosen = {rate for name in self.criterion for rate in CRITERIA[name]}
        return tuple(rate for rate in RATE_CELLS if not chosen or rate in chosen)

    def columns(self) -> DecisionColumns:
        """Return the columns of the table that are read."""
        from fairfrontier.prepare.table.role import DecisionColumns

        return DecisionColumns(**{name: getattr(self, name) for name in TABLE})
