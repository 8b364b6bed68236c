"""The YAML of a study as frozen models: a dataset, the methods compared on it, and the frontier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from fairfrontier.runtime.config import Model, fault
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.claim import Block, Claim, ParameterRow, as_tuple
from fairfrontier.train.objective import COST_MEASURE, OWN, read_costs

# A table or figure of a paper: budro.table2.
Reference = Annotated[str, Field(pattern=r"^[a-z0-9_-]+\.[a-z0-9_-]+$")]
Share = Annotated[float, Field(ge=0, le=1)]
DEFAULT_PROFILE = "default"
ACCURACY = "balanced_accuracy"
BEST = "best"
MOST_SEEDS = 10_000
MOST_THREADS = 1024
SLUG = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"
# A profile says how much of the same study is run, so it cannot change these.
FIXED_KEYS = ("study", "profiles")


class ThenRow(ParameterRow):
    """The post-processor of a row, with its parameters; lists of values sweep.

    Attributes
    ----------
    method : str
        Registered name of the post-processor.
    preset : str or None
        Name in ``conf/methods/METHOD.yaml``.
    """

    method: str
    preset: str | None = None


def _name_method(value: Any) -> Any:
    return {"method": value} if isinstance(value, str) else value


class MethodRow(ParameterRow):
    """One labelled row of a block: a method and its parameters.

    Every key that is not a field is a parameter. A list of values sweeps: one fit group per value,
    and several lists cross. A parameter that is itself a list goes inside a list:
    ``layers: [[100, 50]]``.

    Attributes
    ----------
    method : str or None
        Registered name; the row's label by default. In a study with a search ``best`` is the one
        whose rows were best in the objective, for a post-processor behind it.
    preset, grid : str or None
        Names in ``conf/methods/METHOD.yaml``; the row's own parameters override both.
    metric : mapping
        Overrides the study's metric for this row.
    noise : tuple of float or None
        Shares of rows whose group is wrong, a sweep; None uses the dataset's YAML.
    then : ThenRow or None
        A post-processor fitted on this row's scores of the calibration part, or of the validation
        part where there is none: its name, or
        ``{method: NAME, **parameters}``.
    """

    method: str | None = None
    preset: str | None = None
    grid: str | None = None
    metric: dict[str, Any] = Field(default_factory=dict)
    noise: Annotated[tuple[Share, ...], BeforeValidator(as_tuple)] | None = None
    then: Annotated[ThenRow, BeforeValidator(_name_method)] | None = None

    @property
    def sweeps(self) -> bool:
        """Whether the row may have several settings on the same data."""
        values = [*self.parameters.values(), *(self.then.parameters.values() if self.then else ())]
        return self.grid is not None or any(isinstance(value, list) for value in values)


class MethodBlock(Model):
    """Fields that both blocks of a study have."""

    methods: dict[str, MethodRow] = Field(min_length=1)
    rows: int | None = Field(default=None, gt=0)
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = (0,)

    @field_validator("methods", mode="before")
    @classmethod
    def _allow_empty_rows(cls, value: Any) -> Any:
        """Read an empty ``gbdt:`` as the method with its defaults."""
        if isinstance(value, Mapping):
            return {label: {} if row is None else row for label, row in value.items()}
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_seeds(cls, value: Any) -> Any:
        """Read a number as that many seeds, from 0."""
        if isinstance(value, int) and not isinstance(value, bool):
            if value > MOST_SEEDS:
                raise fault(f"{value:,} seeds are too many", f"Give {MOST_SEEDS:,} at most.")
            value = list(range(value))
        if isinstance(value, Sequence) and not isinstance(value, str):
            if not value:
                raise fault("there is no seed", "Give a number, or a list of seeds.")
            if any(value.count(seed) > 1 for seed in value[:MOST_SEEDS]):
                raise fault("a seed is listed twice", "List every seed once.")
        return value


class FrontierConfig(Model):
    """The measures that the frontier trades.

    Attributes
    ----------
    accuracy : str
        A measure; a loss is minimised.
    fairness : tuple of str
        Measures as ``measure:group``, e.g. ``consistency:spouse`` or ``gap_rms:sex``.
    """

    accuracy: str = ACCURACY
    fairness: tuple[str, ...] = Field(min_length=1)


class SearchConfig(Model):
    """How settings are searched: see `fairfrontier.study.search`.

    Attributes
    ----------
    trials : int or None
        Settings that are tried in all: half of them are tuned for the objective, evenly over the
        methods; the others are budgets.
    minutes : float or None
        Time in place of trials; what is found then depends on the machine.
    resolution : float
        A step between adjacent budgets, in the objective and every fairness measure, is divided
        until it is smaller, or smaller than 1/√n, on the n rows that settings are chosen on.
    seed : int
        Of the proposals.
    """

    trials: int | None = Field(default=None, gt=0, le=MOST_SEEDS)
    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    resolution: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    seed: int = Field(default=0, ge=0, lt=2**32 - 10_000)

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if (self.trials is None) == (self.minutes is None):
            raise fault("it has trials and minutes, or neither", "Give one: {trials: 40}.")
        return self


class CertificateConfig(Model):
    """How the models are certified under the study's fair metric.

    Attributes
    ----------
    budgets : tuple of float
        ε of each certificate, in squared units of the metric.
    rows : int or None
        Size of the sample of a part that is certified, the same for every model. Parts are test,
        and validation where the frontier or a claim reads it.
    worst_moves : {"hide", "show"}
        Whether the report shows the worst moves, which are pairs of rows of the table.
    """

    budgets: tuple[Annotated[float, Field(ge=0)], ...] = Field(min_length=1)
    rows: int | None = Field(default=2000, gt=1)
    worst_moves: Literal["hide", "show"] = "hide"

    @field_validator("budgets")
    @classmethod
    def _differ(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(value)) < len(value):
            raise fault("a budget is listed twice", "List every budget once.")
        return value


class PublishedConfig(MethodBlock):
    """The block that reproduces a paper's table under the paper's own protocol.

    Attributes
    ----------
    reproduces : str
        ``FILE.TABLE`` in ``data/reference``, e.g. ``budro.table2``.
    select_on : {"train", "validation"}
        ``train`` where the paper has no validation part.
    """

    reproduces: Reference
    select_on: Literal["train", "validation"] = "train"


class StudyConfig(MethodBlock):
    """A study as its YAML describes it, with one profile merged in.

    Attributes
    ----------
    study : str
        Its name; results go to ``data/results/STUDY``.
    dataset : str
        Name of a dataset in ``conf/datasets``, or the path of a dataset's YAML.
    metric : mapping or None
        ``{name: ..., **parameters}`` for ``fairfrontier.metric.learn``.
    methods : mapping of str to MethodRow
        The frontier's block, by row label.
    rows : int or None
        Training rows that the frontier's block keeps; None keeps all.
    seeds : tuple of int
        Splits; a number in the YAML means that many from 0.
    threads : int
        Threads of one fit: part of its key, since results can depend on it.
    select_on : {"validation", "train"}
        The part on which the frontier is chosen.
    objective : str or mapping
        What accuracy means for every method of the frontier's block: ``accuracy``,
        ``balanced_accuracy``, ``f1``, ``auc``, ``log_loss``, ``{costs: {false_positive: 1,
        false_negative: 5}}``, or a measure of a regression. Class weights, cuts of scores and
        post-processors serve it; it is ``frontier.accuracy`` by default. ``own`` leaves every
        method its own weights and cuts, as papers have them; the published block always does.
    search : SearchConfig or None
        Searches parameters that rows leave open, in the spaces of ``conf/methods``.
    frontier : FrontierConfig
        The measures that are traded.
    published : PublishedConfig or None
        A second block, which reproduces a paper's table.
    certificate : CertificateConfig or None
        The budgets at which individual fairness is certified.
    minimum : int
        Rows that a level needs for a rate of its own; papers on small tables use 1.
    figures : tuple of str
        Registered names of further figures: ``surfaces``.
    reproduces : tuple of str
        Figures of papers that the study redraws, as ``PAPER.FIGURE``.
    claims : tuple of Claim
        Statements checked against the results.
    profiles : mapping
        What each profile changes, merged deeply into the study.
    notes : str
        What a reader of the report has to know.
    profile : str
        The profile that was merged.
    """

    study: str = Field(pattern=SLUG)
    dataset: str
    metric: dict[str, Any] | None = None
    threads: int = Field(default=1, ge=1, le=MOST_THREADS)
    select_on: Literal["train", "validation"] = "validation"
    objective: str | dict[str, Any] = OWN
    search: SearchConfig | None = None
    frontier: FrontierConfig
    published: PublishedConfig | None = None
    certificate: CertificateConfig | None = None
    minimum: int = Field(default=10, ge=1)
    figures: tuple[str, ...] = ()
    reproduces: tuple[Reference, ...] = ()
    claims: tuple[Claim, ...] = ()
    profiles: dict[str, dict[str, Any]] = Field(default_factory=dict)
    notes: str = ""
    profile: str = Field(default=DEFAULT_PROFILE, pattern=SLUG)

    @model_validator(mode="before")
    @classmethod
    def _share_one_objective(cls, data: Any) -> Any:
        """Let the objective and ``frontier.accuracy`` each default to the other."""
        frontier = data.get("frontier") if isinstance(data, Mapping) else None
        if not isinstance(frontier, Mapping):
            return data
        stated, measure = data.get("objective"), frontier.get("accuracy")
        if stated is None:
            return {**data, "objective": measure or ACCURACY}
        if stated == OWN or not isinstance(stated, str | Mapping):
            return data
        served = stated if isinstance(stated, str) else COST_MEASURE
        if measure not in (None, served):
            raise fault(
                f"frontier.accuracy is {measure!r}, and the objective is measured by {served!r}",
                "Leave out frontier.accuracy, or the objective.",
            )
        return {**data, "frontier": {**frontier, "accuracy": served}}

    @field_validator("objective")
    @classmethod
    def _costs_are_prices(cls, value: str | dict[str, Any]) -> str | dict[str, Any]:
        if not isinstance(value, str):
            try:
                read_costs(value)
            except ConfigError as error:
                raise fault(error.fault.rstrip("."), error.mend) from error
        return value

    @field_validator("metric")
    @classmethod
    def _names_its_metric(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None and not isinstance(value.get("name"), str):
            raise fault("it has no name", "Write {name: subspace}, for example.")
        return value

    @model_validator(mode="after")
    def _certifies_under_a_metric(self) -> Self:
        if self.certificate is not None and self.metric is None:
            raise fault("certificate needs a fair metric", "Add metric: {name: subspace}.")
        return self

    def describe(self, folder: Path) -> dict[str, Any]:
        """Return what a choice has to know of the study whose results are in a folder."""
        certificate = self.certificate
        return {
            "study": self.study,
            "profile": self.profile,
            "dataset": self.dataset,
            "minimum": self.minimum,
            "folder": str(folder),
            "metric": self.metric,
            "threads": self.threads,
            "certificate": None if certificate is None else certificate.model_dump(mode="json"),
        }

    @property
    def slug(self) -> str:
        """Folder name of the results: STUDY, or STUDY@PROFILE for any but the default profile."""
        return self.study if self.profile == DEFAULT_PROFILE else f"{self.study}@{self.profile}"

    @property
    def reproduced(self) -> tuple[str, ...]:
        """Tables and figures of papers that the study reproduces."""
        table = () if self.published is None else (self.published.reproduces,)
        return (*table, *self.reproduces)

    def blocks(self) -> Iterator[tuple[Block, MethodBlock, Literal["train", "validation"]]]:
        """Yield the blocks that are present, with the part that each is selected on."""
        if self.published is not None:
            yield "published", self.published, self.published.select_on
        yield "frontier", self, self.select_on


def split_name(name: str) -> tuple[str, str]:
    """Split ``measure:group`` into its two parts; the group may be empty."""
    measure, _, group = name.partition(":")
    return measure, group
