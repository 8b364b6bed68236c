"""The YAML of a study as frozen models: a dataset, the methods compared on it, and the frontier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from fairfrontier.models.objective import COST_MEASURE, OWN, read_costs
from fairfrontier.models.space import import_optuna
from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.runtime.config import Model, fault, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, refuse_unknown
from fairfrontier.runtime.finder import FOLDERS, find_yaml, is_path, list_names
from fairfrontier.runtime.option import File, NameOrFile, ProjectOptions

Block = Literal["frontier", "published"]
# A table or figure of a paper: budro.table2.
Reference = Annotated[str, Field(pattern=r"^[a-z0-9_-]+\.[a-z0-9_-]+$")]
DEFAULT_PROFILE = "default"
ACCURACY = "balanced_accuracy"
BEST = "best"
ENSEMBLE = "ensemble"
MOST_SEEDS = 10_000
MOST_THREADS = 1024
# Every row of the sample is certified at each.
MOST_BUDGETS = 256
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
SeedCount = Annotated[int, Field(ge=1, le=MOST_SEEDS)]
SLUG = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"
# A profile says how much of the same study is run, so it cannot change these.
FIXED_KEYS = ("study", "profiles")


class ParameterRow(BaseModel):
    """A row in which every key that is not a field is a parameter of the method."""

    model_config = ConfigDict(frozen=True, extra="allow")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that the row itself sets."""
        return dict(self.model_extra or {})


def as_tuple(value: Any) -> Any:
    """Return a single value as a tuple of one; None and sequences are returned as they are."""
    return value if isinstance(value, list | tuple) or value is None else (value,)


def one_or_more(kind: Any) -> BeforeValidator:
    """Let a single value of a kind stand for a tuple of one."""
    return BeforeValidator(as_tuple, json_schema_input_type=kind | tuple[kind, ...])


class ThenRow(ParameterRow):
    """The post-processor of a row, with its parameters; lists of values sweep."""

    method: str = Field(description="Registered name of the post-processor.")
    preset: str | None = Field(
        default=None, description="Name in ``conf/methods/METHOD.yaml``.", examples=["published"]
    )


def _name_method(value: Any) -> Any:
    return {"method": value} if isinstance(value, str) else value


class MethodRow(ParameterRow):
    """One labelled row of a block: a method and its parameters.

    Every key that is not a field is a parameter. A list of values sweeps: one fit group per value,
    and several lists cross. A parameter that is itself a list goes inside a list:
    ``layers: [[100, 50]]``.
    """

    method: str | None = Field(
        default=None,
        description="Registered name; the row's label by default. In a study with a search "
        "``best`` is the one whose rows were best in the objective, for a post-processor behind "
        "it.",
    )
    preset: str | None = Field(
        default=None,
        description="Parameters by name, from ``conf/methods/METHOD.yaml``; the row's own "
        "override them.",
    )
    grid: str | None = Field(
        default=None,
        description="Sweeps by name, from ``conf/methods/METHOD.yaml``; the row's own parameters "
        "override them.",
    )
    metric: dict[str, Any] = Field(
        default_factory=dict, description="Overrides the study's metric for this row."
    )
    noise: Annotated[tuple[Share, ...], one_or_more(Share)] | None = Field(
        default=None,
        description="Shares of rows whose group is wrong, a sweep; as the dataset says by default.",
    )
    then: (
        Annotated[ThenRow, BeforeValidator(_name_method, json_schema_input_type=str | ThenRow)]
        | None
    ) = Field(
        default=None,
        description="A post-processor fitted on this row's scores of the calibration part, or of "
        "the validation part where there is none.",
    )

    @property
    def sweeps(self) -> bool:
        """Whether the row may have several settings on the same data."""
        values = [*self.parameters.values(), *(self.then.parameters.values() if self.then else ())]
        return self.grid is not None or any(isinstance(value, list) for value in values)


class MethodBlock(Model):
    """Fields that both blocks of a study have."""

    methods: dict[str, MethodRow] = Field(
        min_length=1, description="What is compared, by label of the row."
    )
    rows: int | None = Field(
        default=None, gt=0, description="Training rows that are kept; all by default."
    )
    seeds: tuple[Seed, ...] = Field(
        default=(0,), description="Splits: a list, or a number, which means that many from 0."
    )

    @field_validator("methods", mode="before", json_schema_input_type=dict[str, MethodRow | None])
    @classmethod
    def _allow_empty_rows(cls, value: Any) -> Any:
        """Read an empty ``gbdt:`` as the method with its defaults."""
        if isinstance(value, Mapping):
            return {label: {} if row is None else row for label, row in value.items()}
        return value

    @field_validator("seeds", mode="before", json_schema_input_type=SeedCount | tuple[Seed, ...])
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
    """The measures that the frontier trades."""

    # A study that leaves out fairness gets it from its dataset: fairfrontier/study/config.py.
    model_config = ConfigDict(json_schema_extra=lambda schema: schema.pop("required"))

    accuracy: str = Field(
        default=ACCURACY,
        description="A measure, by default that of the objective; a loss is minimised.",
    )
    fairness: tuple[str, ...] = Field(
        min_length=1,
        description="Measures as ``measure:group``; by default those that the dataset's groups and "
        "counterfactuals allow.",
    )


class SearchConfig(Model):
    """How settings are searched: see `fairfrontier.study.search`."""

    trials: int | None = Field(
        default=None,
        gt=0,
        le=MOST_SEEDS,
        description="Settings that are tried in all: half of them are tuned for the objective, "
        "most of them for the methods that leave most parameters open; the others are budgets.",
    )
    minutes: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Time in place of trials; what is found then depends on the machine.",
        examples=[10],
    )
    resolution: float = Field(
        default=0.01,
        gt=0,
        allow_inf_nan=False,
        description="A step between adjacent budgets, in the objective and every fairness measure, "
        "is divided until it is smaller, or smaller than 1/√n, on the n rows that settings are "
        "chosen on.",
        examples=[0.005],
    )
    seed: int = Field(
        default=0, ge=0, lt=2**32 - 10_000, description="Of the proposals.", examples=[1]
    )

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if (self.trials is None) == (self.minutes is None):
            raise fault("it has trials and minutes, or neither", "Give one: {trials: 40}.")
        return self


class CertificateConfig(Model):
    """How the models are certified under the study's fair metric."""

    budgets: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        min_length=1,
        max_length=MOST_BUDGETS,
        description="ε of each certificate, in squared units of the metric.",
    )
    rows: int | None = Field(
        default=2000,
        gt=1,
        description="Size of the sample of a part that is certified, the same for every model. "
        "Parts are test, and validation where the frontier or a claim reads it.",
    )
    worst_moves: Literal["hide", "show"] = Field(
        default="hide",
        description="Whether the report shows the worst moves, which are pairs of rows of the "
        "table.",
        examples=["show"],
    )

    @field_validator("budgets")
    @classmethod
    def _differ(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(value)) < len(value):
            raise fault("a budget is listed twice", "List every budget once.")
        return value


class PublishedConfig(MethodBlock):
    """The block that reproduces a paper's table under the paper's own protocol."""

    reproduces: Reference = Field(description="``FILE.TABLE`` in ``data/reference``.")
    select_on: Literal["train", "validation"] = Field(
        default="train", description="``train`` where the paper has no validation part."
    )


def _offer_file(schema: dict[str, Any]) -> None:
    """Describe the file rather than what it is read into: see fairfrontier/study/config.py."""
    del schema["properties"]["profile"]
    # It is frontier.accuracy, unless neither is given.
    del schema["properties"]["objective"]["default"]
    schema["required"] = ["dataset"]


def name_results(study: str, profile: str) -> str:
    """Return the name of the folder of a study's results; see `StudyConfig.slug`."""
    return study if profile == DEFAULT_PROFILE else f"{study}@{profile}"


class StudyConfig(MethodBlock):
    """A study as its YAML describes it, with one profile merged in."""

    model_config = ConfigDict(json_schema_extra=_offer_file)

    study: str = Field(
        pattern=SLUG, description="Its name, and its folder's; by default the file's name."
    )
    dataset: str = Field(
        description="Name of a dataset in ``conf/datasets``, or the path of a dataset's YAML."
    )
    metric: dict[str, Any] | None = Field(
        default=None, description="The fair metric: its name, with its parameters."
    )
    threads: int = Field(
        default=1,
        ge=1,
        le=MOST_THREADS,
        description="Threads of one fit: part of its key, since results can depend on it.",
    )
    select_on: Literal["train", "validation"] = Field(
        default="validation", description="The part on which the frontier is chosen."
    )
    objective: str | dict[str, Any] = Field(
        default=OWN,
        description="What accuracy means for every method of the frontier's block: ``accuracy``, "
        "``balanced_accuracy``, ``f1``, ``auc``, ``log_loss``, ``{costs: {false_positive: 1, "
        "false_negative: 5}}``, or a measure of a regression. Class weights, cuts of scores and "
        "post-processors serve it; it is ``frontier.accuracy`` by default. ``own`` leaves every "
        "method its own weights and cuts, as papers have them; the published block always does.",
    )
    search: SearchConfig | None = Field(
        default=None,
        description="Chooses parameters that rows leave open, in the ``space`` of "
        "``conf/methods/METHOD.yaml``: for the objective first, then budgets, where the largest "
        "steps of the frontier are. Trials that fail are left out, counted and reported.",
    )
    frontier: FrontierConfig = Field(description="The measures that are traded.")
    published: PublishedConfig | None = Field(
        default=None, description="A second block, which reproduces a paper's table."
    )
    certificate: CertificateConfig | None = Field(
        default=None, description="The budgets at which individual fairness is certified."
    )
    minimum: int = Field(
        default=10,
        ge=1,
        description="Rows that a level needs for a rate of its own, and a line in the report; "
        "papers on small tables use 1.",
    )
    figures: tuple[str, ...] = Field(
        default=(), description="Further figures: ``fairfrontier list figures``."
    )
    reproduces: tuple[Reference, ...] = Field(
        default=(), description="Figures of papers that are drawn again, as ``PAPER.FIGURE``."
    )
    claims: tuple[dict[str, Any], ...] = Field(
        default=(), description="Statements that are checked against the results."
    )
    profiles: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Profile -> what it changes, merged deeply over the study.",
    )
    notes: str = Field(default="", description="What a reader of the report has to know.")
    profile: str = Field(
        default=DEFAULT_PROFILE, pattern=SLUG, description="The profile that was merged."
    )

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
        return name_results(self.study, self.profile)

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


# The YAML of a method: named presets and grids that studies refer to.


class Dimension(Model):
    """A parameter that a search may choose: a range of numbers, or a list of values."""

    low: int | float | None = Field(
        default=None, description="Lowest value; two integers range over integers."
    )
    high: int | float | None = Field(default=None, description="Highest value.")
    log: bool = Field(default=False, description="Whether the range is one of magnitudes.")
    choices: tuple[Any, ...] | None = Field(
        default=None,
        description="Values without an order, in place of a range.",
        examples=[["tree", "linear"]],
    )
    loose: Literal["low", "high"] | None = Field(
        default=None,
        description="Of a parameter that trades the objective for fairness: its end of least "
        "fairness.",
    )
    instead_of: str | None = Field(
        default=None,
        description="The parameter that says the same in other units, and takes precedence where "
        "a row gives it.",
    )

    @model_validator(mode="after")
    def _is_a_range_or_a_list(self) -> Self:
        ranged = self.low is not None and self.high is not None and self.low < self.high
        if self.choices and (self.low, self.high, self.loose) == (None, None, None):
            return self
        if self.choices is not None or not ranged or (self.log and not float(self.low or 0) > 0):
            raise fault(
                "it is no range and no list", "Give low and high, above 0 where log, or choices."
            )
        return self

    @property
    def distribution(self) -> Any:
        """What Optuna draws from."""
        known = import_optuna().distributions
        if self.choices is not None:
            return known.CategoricalDistribution(self.choices)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return known.IntDistribution(self.low, self.high, log=self.log)
        return known.FloatDistribution(float(self.low or 0), float(self.high or 0), log=self.log)

    def read(self, value: Any) -> Any:
        """Return a drawn value with four digits."""
        return float(f"{value:.4g}") if isinstance(value, float) else value

    def at(self, position: float) -> Any:
        """Return the value at a position from 0, the tight end, to 1, the loose end."""
        low, high = float(self.low or 0), float(self.high or 0)
        share = position if self.loose != "low" else 1 - position
        value = low * (high / low) ** share if self.log else low + (high - low) * share
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return round(value) if whole else self.read(value)


class MethodFile(Model):
    """``conf/methods/METHOD.yaml``: named presets and grids of one method, and what is searched."""

    method: str = Field(description="Registered name of the method, after which the file is named.")
    presets: dict[str, dict[str, dict[str, Any]]] = Field(
        default_factory=dict, description="Preset -> dataset, or ``any`` -> parameters."
    )
    grids: dict[str, dict[str, list[Any]]] = Field(
        default_factory=dict, description="Grid -> parameter -> values."
    )
    space: dict[str, Dimension] = Field(
        default_factory=dict, description="Parameter -> where a search looks."
    )
    notes: str = Field(
        default="", description="Where the numbers come from.", examples=["Of the paper's table 4."]
    )

    @classmethod
    def read(cls, name: str, home: Path | None) -> Self:
        """Return the file of a method in the project or the package; empty without one."""
        path = list_names("method", home).get(name)
        return cls(method=name) if path is None else parse(cls, read_yaml(path), path)

    def preset(self, name: str | None, lineage: Sequence[str], key: str) -> dict[str, Any]:
        """Return a preset's parameters for the nearest dataset of a lineage, or those for any."""
        if name is None:
            return {}
        refuse_unknown([name], self.presets, f"{key}: {self.method} has no preset")
        by_dataset = self.presets[name]
        for dataset in (*lineage, "any"):
            if dataset in by_dataset:
                return dict(by_dataset[dataset])
        raise ConfigError(
            f"{key}: the preset {name!r} of {self.method} has nothing for {lineage[0]}.",
            f"It covers {', '.join(sorted(by_dataset))}; give the parameters in the study.",
        )

    def grid(self, name: str | None, key: str) -> dict[str, list[Any]]:
        """Return a grid: parameter -> values."""
        if name is None:
            return {}
        refuse_unknown([name], self.grids, f"{key}: {self.method} has no grid")
        return dict(self.grids[name])


# Reading the YAML of a study, with a profile merged in and what it leaves open chosen.

# Settings that are tried: some four minutes for 50,000 rows on two cores.
TRIALS = 150
# Labels are smoothed, for rules that hold on fresh rows.
RULE = {"labels": "smoothed", "unseen": "pooled"}
# Names of criteria in rows' labels, with those of `group_thresholds`.
CRITERIA = {"parity": "parity", "odds": "equalized_odds"}


def list_studies(home: Path) -> list[str]:
    """Return the sorted names of the project's own studies."""
    return sorted(path.stem for path in (home / FOLDERS["study"]).glob("*.yaml"))


def read_study(name_or_path: str | Path, profile: str, home: Path) -> tuple[StudyConfig, Path]:
    """Return a parsed study with a profile merged in, and its file.

    Of the names in it, only the dataset's file has been looked up. A ConfigError names the file,
    the key and what was expected.
    """
    path = find_yaml("study", name_or_path, home)
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds no keys and values.", "Write it as `key: value` lines.")
    if "profile" in content:
        raise ConfigError(f"{path}: there is no key 'profile' here.", "Did you mean 'profiles'?")
    if "label" in content:
        # A dataset's own YAML, which the study is about.
        content = {"dataset": str(path), "study": f"{path.stem}-default"}
    content.setdefault("study", path.stem)
    _complete(content, path, home)
    profiles = content.get("profiles") or {}
    if not isinstance(profiles, dict) or not all(
        isinstance(name, str) and isinstance(changes, dict) for name, changes in profiles.items()
    ):
        raise ConfigError(
            f"{path}: profiles must map each profile's name to what it changes.",
            "Write profiles: {paper: {seeds: 10}}, for example; put a number in quotes.",
        )
    refuse_unknown([profile], (DEFAULT_PROFILE, *profiles), f"{path} has no profile")
    # Every profile is parsed, so that a mistake in one shows before it is first run.
    parsed = {}
    for name, changes in {DEFAULT_PROFILE: {}, **profiles}.items():
        where = str(path) if name == DEFAULT_PROFILE else f"{path}, profile {name}"
        for key in FIXED_KEYS:
            if key in changes:
                raise ConfigError(f"{where}: a profile cannot change {key!r}.", "Take it out.")
        merged = {**_merge(content, changes), "profile": name}
        parsed[name] = parse(StudyConfig, merged, where)
    study = parsed[profile]
    file = find_yaml("dataset", study.dataset, home, beside=path.parent, where=f"{path}: dataset")
    if is_path(study.dataset):
        study = study.model_copy(update={"dataset": str(file)})
    return study, path


def _complete(content: dict[str, Any], path: Path, home: Path) -> None:
    """Add what a study leaves to its dataset: methods with a search, and measures of fairness."""
    frontier = content.get("frontier", {})
    stated = "methods" in content and isinstance(frontier, dict) and "fairness" in frontier
    if stated or not isinstance(frontier, dict) or not isinstance(content.get("dataset"), str):
        return
    where = f"{path}: dataset"
    dataset = read_dataset(
        find_yaml("dataset", content["dataset"], home, beside=path.parent, where=where), home
    )
    content["frontier"] = {"fairness": choose_measures(dataset), **frontier}
    if dataset.label.task == "regression":
        content["frontier"].setdefault("accuracy", "rmse")
    if "methods" not in content:
        content["methods"] = choose_methods(dataset, bool(content.get("metric")))
        content.setdefault("search", {"trials": TRIALS})


def choose_measures(dataset: DatasetConfig) -> list[str]:
    """Return measures of fairness by the dataset's groups and counterfactual sets.

    ConfigError is raised for a dataset that has neither.
    """
    by_group = {
        "binary": ("selection_rate_difference", "gap_max"),
        "multiclass": ("selection_rate_difference", "gap_rms"),
        "regression": ("disparity", "mean_residual_difference"),
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
    """Return the rows of a study: learners, and what makes them fair to each attribute.

    With a fair metric methods of individual fairness are added.
    """
    if dataset.label.task == "regression":
        rows: dict[str, dict[str, Any]] = {"linear_regression": {}, "gbdt_regression": {}}
        for group in dataset.groups:
            rows[f"fair_regression {group}"] = {"method": "fair_regression", "attribute": group}
            rule = {"method": "quantile_barycentre", "attributes": group, "unseen": "pooled"}
            rows[f"parity {group}"] = {"method": BEST, "then": rule}
            shift = {**rule, "method": "residual_shift"}
            rows[f"residuals {group}"] = {"method": BEST, "then": shift}
        return rows
    rows = {"linear": {}, "gbdt": {}, "random_forest": {}, ENSEMBLE: {}}
    for group in dataset.groups:
        if dataset.label.task == "multiclass":
            rows[f"reweigh {group}"] = {"method": "reweigh", "attribute": group}
        else:
            for name, criterion in CRITERIA.items():
                rule = {"method": "group_thresholds", "criterion": criterion, "attributes": group}
                rows[f"{name} {group}"] = {"method": BEST, "then": {**rule, **RULE}}
            rows[f"fair_gbm {group}"] = {"method": "fair_gbm", "attributes": group}
        # Without groups at decision: fair_gbm bounds odds, this one parity.
        rows[f"linear_post {group}"] = {
            "method": "linear_post",
            "criterion": "parity",
            "attributes": group,
        }
    if has_metric:
        rows |= {"budro": {}, "sensei": {}}
    return rows


def _merge(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``changes`` into ``content``: mappings merge, anything else is replaced."""
    merged = dict(content)
    for key, value in changes.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


# Options that the commands and flows of studies share.

# With no more fits than this, starting worker processes would take longer than training.
FEW = 12
Profile = Annotated[str, Field(description="How much is run: default, or one of the study's.")]
Cluster = Annotated[
    NameOrFile,
    Field(
        description="A name in conf/clusters (inline, local, cuda, ...) or a YAML file; auto is "
        f"local for more than {FEW} fits and for a search, else inline."
    ),
]
Results = Annotated[
    File | None, Field(description="The folder that gets the results; data/results by default.")
]


class StudyOptions(ProjectOptions):
    """Which study, how much of it, and where its results are."""

    study: NameOrFile = Field(description="A name in conf/studies, or a YAML file.")
    profile: Profile = DEFAULT_PROFILE
    out: Results = None

    def find_folder(self, study: StudyConfig) -> Path:
        """Return the folder of the study's results."""
        return (self.out or self.home / "data" / "results") / study.slug

    @property
    def shown(self) -> tuple[str, ...]:
        """How a command names the study and its results, by paths as of `shorten`."""
        out = ("--out", shorten(self.out, self.home)) if self.out else ()
        return (shorten(Path(self.study), self.home), *out)


def shorten(path: Path, home: Path) -> str:
    """Return a path relative to the project, or its name alone: files name no other folder."""
    return str(path.relative_to(home)) if path.is_relative_to(home) else path.name


class RunOptions(StudyOptions):
    """Which study, how much of it, and where it is run."""

    cluster: Cluster = "auto"


class PricesOptions(StudyOptions):
    """Which finished study is shown, and how much of it."""

    all: bool = Field(default=False, description="All settings, a table for each measure.")
