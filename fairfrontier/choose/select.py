"""From a frontier to one model: the best setting within bounds, or a mixture of two."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from fairfrontier.choose.config import IDEAL, KNEE, read_policy
from fairfrontier.deployment.bundle import (
    FORMAT,
    Bundle,
    ClassifierBundle,
    Mixture,
    describe_reference,
    find_mixture,
    list_facts,
    list_margins,
    load_chain,
    make_bundle,
)
from fairfrontier.metrics.measure.registry import split_name
from fairfrontier.metrics.verb import evaluate
from fairfrontier.models.fit.group import KIND
from fairfrontier.models.prediction import task_of
from fairfrontier.models.thresholds.bound import Bound
from fairfrontier.prepare.config.section import Unseen
from fairfrontier.prepare.loader import FittedTable, SplitRequest, fit_table, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.split import Part
from fairfrontier.prepare.table.frame import read_result
from fairfrontier.prepare.table.rows import read_table
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.runtime.secret import find_key
from fairfrontier.runtime.store import canonical_json, open_store
from fairfrontier.runtime.text_file import is_plain, read_csv, read_json
from fairfrontier.similarity.fair_metric import FairMetric
from fairfrontier.similarity.kept import MetricRequest, load_metric
from fairfrontier.study.frontier import (
    KEYS,
    find_pareto,
    is_linear,
    is_mixable,
    mix_measure,
    name_measures,
    pivot_measures,
    summarise,
)
from fairfrontier.study.query import (
    Compared,
    choose_best,
    compare,
    find_passed,
    name_setting,
    state_bound,
)


def mix_compared(
    compared: Compared, measure: str, bounds: Mapping[str, Bound], confidence: float | None
) -> tuple[int, int, float] | None:
    """Return two settings and the share of the second; None where one setting alone is best."""
    margins = [np.zeros((len(compared.table), 0))]
    for name, bound in bounds.items():
        # What is convex in the decision rule is at most the mean of two bounds.
        margins.append(
            list_margins(bound, compared.tables["value"])
            if confidence is None
            else compared.held[name][:, None] - compared.limits[name]
        )
    found = find_mixture(compared.scores[measure], np.hstack(margins))
    return found if found is not None and 0 < found[2] < 1 else None


def apply_policy(policy: str, scores: np.ndarray) -> int:
    """Return the point of a frontier that a policy chooses.

    With s_i in [0, 1]^k, the scores of the points that no other dominates, scaled from the worst to
    the best of them:

    - ``knee``: the largest Σ_j s_ij, which is the farthest from the plane through the extremes;
    - ``closest-to-ideal``: the least Σ_j (1 − s_ij)²;
    - ``least-disparity-within=t``: the largest sum of s_i2, …, s_ik of the points whose raw first
      score is within t of the best.

    Parameters
    ----------
    policy : str
        One of these.
    scores : ndarray of float64, shape (n_points, n_scores)
        Accuracy, then fairness, better higher, without NaN.

    Returns
    -------
    int
        Its position; the first of equal ones.

    Raises
    ------
    ConfigError
        For another policy.

    References
    ----------
    I. Das. On characterizing the "knee" of the Pareto curve based on normal-boundary intersection.
    Structural Optimization 18, 1999. P. L. Yu. A class of solutions for group decision problems.
    Management Science 19, 1973.
    """
    name, tolerance = read_policy(policy)
    front = np.flatnonzero(find_pareto(scores))
    kept = scores[front]
    low, high = kept.min(axis=0), kept.max(axis=0)
    # What does not vary on the frontier decides nothing.
    scaled = np.where(high > low, (kept - low) / np.where(high > low, high - low, 1.0), 1.0)
    if name == KNEE:
        value = scaled.sum(axis=1)
    elif name == IDEAL:
        value = -((1.0 - scaled) ** 2).sum(axis=1)
    else:
        # Rounding must not cost the best point itself.
        near = kept[:, 0] >= high[0] - tolerance - 1e-12
        value = np.where(near, scaled[:, 1:].sum(axis=1), -np.inf)
    return int(front[np.argmax(value)])


class Chosen:
    """What `select` returns: a `Choice` or a `MixedChoice`."""

    bounds: Mapping[str, Bound]
    measures: pd.DataFrame

    @property
    def passed(self) -> pd.DataFrame:
        """The bounds that `measures` do not keep; see `find_passed`."""
        return find_passed(self.bounds, self.measures)

    def export(self, folder: str | Path, **options: Any) -> Path:
        """Write the bundle of this choice to a new folder; see `export_choice`."""
        return export_choice(cast("Choice | MixedChoice", self), folder, **options)


@dataclass(frozen=True, eq=False)
class Choice(Chosen):
    """A chosen setting, with its model and measures.

    Attributes
    ----------
    method : str
        The label of the study's row.
    setting : dict
        What distinguishes it from other settings of the study.
    seed : int
        The split whose model is `model`.
    selected : mapping of str to float
        Means over the seeds of the objective and the bounded measures, on the rows that the
        frontier was chosen on.
    measures : DataFrame
        Every measure on the test rows: name, value (the mean over the seeds), sd, low, high, n,
        n_seeds.
    certified : mapping of str to float
        Where a confidence was asked for, the bound on each bounded measure that holds for all
        settings at once.
    folder : Path
        Where the model is stored.
    post_processor : Path or None
        Where the rule that post-processes it is stored.
    study : Study
        What it was chosen from.
    bounds : mapping of str to Bound
        What was asked of measures on the rows of the choice.
    """

    method: str
    setting: Mapping[str, Any]
    seed: int
    selected: Mapping[str, float]
    measures: pd.DataFrame
    folder: Path
    post_processor: Path | None
    study: Study
    certified: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, Bound] = field(default_factory=dict)

    @cached_property
    def model(self) -> Any:
        """The fitted model; a rule behind it where one decides."""
        return load_chain(self.folder, self.post_processor)

    @property
    def components(self) -> tuple[tuple[Choice, float], ...]:
        """Itself, with the probability 1 that it decides."""
        return ((self, 1.0),)

    def find_split(self) -> SplitRequest:
        """Return the split that the model was trained on."""
        rows, noise = self.setting.get("rows"), self.setting.get("noise")
        select_on = self.setting["select_on"]
        return SplitRequest(self.study.dataset, self.seed, rows, select_on, noise)


@dataclass(frozen=True, eq=False)
class MixedChoice(Chosen):
    """Two chosen settings of which one, drawn for every row, decides.

    Attributes
    ----------
    first, second : Choice
        The two settings, with their own models and measures.
    share : float
        The probability that the second decides.
    selected, certified, bounds : mapping
        As of a `Choice`, of the mixture, in expectation over the draws.
    measures : DataFrame
        name and value on the test rows of every measure that follows from the rates of both.
    """

    first: Choice
    second: Choice
    share: float
    selected: Mapping[str, float]
    measures: pd.DataFrame
    certified: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, Bound] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The split of both models."""
        return self.first.seed

    @property
    def study(self) -> Study:
        """What both were chosen from."""
        return self.first.study

    @property
    def components(self) -> tuple[tuple[Choice, float], ...]:
        """Both settings, each with the probability that it decides."""
        return ((self.first, 1.0 - self.share), (self.second, self.share))

    @cached_property
    def model(self) -> Mixture:
        """Both models, with the draw by row id."""
        return Mixture(self.first.model, self.second.model, self.share)


# Methods may be called 1.
TEXT = {"method": "str"}
NUMBERS = {"seed", "value", "n", "low", "high"}
COLUMNS = ["name", "value", "sd", "low", "high", "n", "n_seeds", "left_out"]
# How tables of results are read, and the columns that they have beside `KEYS`.
READ: dict[str, tuple[Callable[[Path], pd.DataFrame], tuple[str, ...]]] = {
    "frontier.csv": (partial(read_csv, dtype=TEXT), ()),
    "points.parquet": (read_result, ("part", "measure", "group", *NUMBERS)),
    "models.csv": (
        partial(read_csv, dtype=TEXT, na_values=[]),
        ("seed", "model", "post_processor"),
    ),
}


@dataclass(frozen=True)
class Study:
    """A finished study and its results.

    Attributes
    ----------
    folder : Path
        Its results.
    home : Path
        The project root.
    facts : mapping
        What `StudyConfig.describe` returns; of a run also ``fits``, ``trained``, ``skipped`` and
        ``seconds``.
    """

    folder: Path
    home: Path
    facts: Mapping[str, Any]

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """The frontier: one row per fairness measure × method × setting."""
        return self._results[0]["frontier.csv"]

    @cached_property
    def points(self) -> pd.DataFrame:
        """Every measure of every fit."""
        return self._results[0]["points.parquet"]

    @cached_property
    def models(self) -> pd.DataFrame:
        """The folder of every model, by method, setting and seed."""
        return self._results[0]["models.csv"]

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of summary.json."""
        return self._results[1]

    @cached_property
    def _results(self) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
        """The tables and the summary, read at once: a run may replace them, all of them together.

        StoreError unless every table has rows and its columns.
        """
        tables = {}
        for name, (read, columns) in READ.items():
            with _explaining(self.folder / name):
                table = tables[name] = read(self.folder / name)
                numbers = dict.fromkeys(NUMBERS & {*columns}, np.float64)
                table[[*KEYS, *columns]].astype(numbers).iloc[0]
                for setting in table["setting"].unique():
                    str(json.loads(setting)["select_on"])
        with _explaining(self.folder / "summary.json"):
            summary = dict(read_json(self.folder / "summary.json"))
            names = [str(name) for name in summary["fairness"]]
            return tables, {**summary, "accuracy": str(summary["accuracy"]), "fairness": names}

    @property
    def fairness(self) -> list[str]:
        """The fairness measures of the frontier."""
        return list(self.summary["fairness"])

    @property
    def dataset(self) -> str:
        """The name of the dataset, or the path of its YAML."""
        return str(self.facts["dataset"])

    @property
    def objective(self) -> str:
        """The measure of the study's objective."""
        return str(self.summary["accuracy"])

    def select(
        self,
        measure: str | None = None,
        subject_to: Mapping[str, float | Bound] | None = None,
        **options: Any,
    ) -> Choice | MixedChoice:
        """Choose the best setting within bounds; see `select` for the options."""
        return select(self, measure, subject_to, **options)


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """Raise StoreError where a file is not what a run left; libraries raise almost anything."""
    try:
        if not is_plain(path):
            raise FileNotFoundError(path)
        yield
    except Exception as error:
        raise StoreError(f"{path} is missing or damaged.", "Run the study again.") from error


def select(
    study: Study,
    measure: str | None = None,
    subject_to: Mapping[str, float | Bound] | None = None,
    *,
    seed: int | None = None,
    confidence: float | None = None,
    mixture: bool = False,
    policy: str | None = None,
    groups_at_decision: bool = True,
) -> Choice | MixedChoice:
    """Choose the best setting of a study within bounds.

        maximise  s(measure)  subject to  s_k(value_k) >= s_k(bound_k)  for every k

    over the settings of the frontier's table, by means over the seeds on the rows that the frontier
    was chosen on. s turns a measure so that more is better: a bound is a least value of what should
    be high, a largest value of what should be low, and a largest distance of what should be 0.

    Parameters
    ----------
    study : Study
        From `run_study`.
    measure : str, optional
        What is maximised, as ``measure`` or ``measure:group``; the study's objective by default.
    subject_to : mapping of str to float or Bound, optional
        Measure -> bound; a number is a least value of a measure of which more is better, else a
        largest one.
    seed : int, optional
        Which split's model is returned; the first by default.
    confidence : float, optional
        In (0, 1). The bounds are asked of a confidence bound on each measure in place of its
        estimate. All hold at once for all settings of the frontier's table, so that with this
        probability the chosen one keeps its bounds on fresh rows. The models of one split are
        compared, since it is a model that keeps a bound, not a mean over several.
    mixture : bool, default False
        Whether two models of one split may be mixed: one of them, drawn by row id, decides. Every
        point between theirs is attained in expectation; a gap may be smaller than both of theirs.
    policy : str, optional
        Of the settings within the bounds not that of the largest measure, but the one that
        ``knee``, ``closest-to-ideal`` or ``least-disparity-within=T`` chooses by the measure and
        all fairness measures of the study; see `apply_policy`.
    groups_at_decision : bool, default True
        Whether settings compete whose rule looks at the group of a row when it decides.

    Returns
    -------
    Choice or MixedChoice
        The latter where a mixture is better than any one setting.

    Raises
    ------
    ConfigError
        When a measure is unknown or was not estimated, a bounded measure has no intervals, a
        mixture's does not follow from rates, or there is no such seed or policy.
    UnattainableError
        A ConfigError where no setting satisfies the bounds (the message names the nearest one), or
        none is certified to (it says about how many rows that takes).
    StoreError
        When the store no longer holds the model.

    Notes
    -----
    O(points), and O(settings²) for a mixture. The reported measures were not used for choosing, but
    they are those of the best of several settings on one table. Of equally good settings the first
    by method and setting is taken.

    Confidence bounds share their error by Bonferroni's inequality. They are Clopper and Pearson's
    for shares of rows, made of these for what is computed from two shares, and others' intervals in
    proportion. A rule that was fitted on the rows compared, as without a calibration part, was
    measured by rules of folds, whose errors cancel: its bounds allow for twice the variance, and
    for every pair of levels. Rows on which cuts were tuned are not quite fresh: the bounds cover
    the choice between settings, not what was tuned within one.
    """
    measure = study.objective if measure is None else measure
    bounds = {
        name: bound if isinstance(bound, Bound) else state_bound(name, bound)
        for name, bound in (subject_to or {}).items()
    }
    fairness = [] if policy is None else study.fairness
    rows = study.frontier[KEYS].drop_duplicates()
    if policy is not None and mixture:
        raise ConfigError(
            "A policy chooses one setting of the frontier, and a mixture is of two.",
            "Leave one of them out.",
        )
    if not groups_at_decision:
        rows = _leave_out_groups(study, rows)
    fits = study.points[[*KEYS, "seed"]].drop_duplicates().merge(rows, on=KEYS)
    part = str(json.loads(rows["setting"].iloc[0])["select_on"])
    if confidence is not None or mixture:
        _check_options(part, measure, bounds, confidence, mixture)
        seed = int(fits["seed"].min()) if seed is None else seed
        if seed not in set(fits["seed"]):
            raise ConfigError(f"The study has no split of seed {seed}.", "Give one of its seeds.")
        fits = fits[fits["seed"] == seed]
    names = list(dict.fromkeys([measure, *bounds, *fairness]))
    fitted = set() if confidence is None else _find_fitted(study)
    compared = compare(summarise(study.points, fits, part), part, names, bounds, confidence, fitted)
    if mixture:
        found = mix_compared(compared, measure, bounds, confidence)
        if found is not None:
            first, second = (
                _describe(study, compared, position, seed, fits, bounds) for position in found[:2]
            )
            return _mix(study, first, second, found[2], part)
    best, scores = choose_best(compared, measure, bounds, confidence), compared.scores
    if policy is not None:
        within = np.flatnonzero(compared.find_excess() <= 0)
        kept = [scores[name][within] for name in dict.fromkeys([measure, *fairness])]
        best = int(within[apply_policy(policy, np.column_stack(kept))])
    return _describe(study, compared, best, seed, fits, bounds)


def _leave_out_groups(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the settings whose rules do not look at groups; ConfigError where there is none."""
    models = study.models
    free = models.loc[~models["needs_groups"].astype(bool), KEYS].drop_duplicates()
    kept = rows.merge(free, on=KEYS)
    if kept.empty:
        raise ConfigError(
            "Every setting of the study looks at the group of a row when it decides.",
            "Add methods without a rule by group, such as fair_gbm or reductions.",
        )
    return kept


def _find_fitted(study: Study) -> set[tuple[str, str]]:
    """Return the settings with a rule that was fitted on validation rows, for want of others."""
    points, models = study.points, study.models
    calibrated = points.loc[points["part"] == "calibration", KEYS]
    ruled = models.loc[models["post_processor"] != "", KEYS]
    found = {tuple(key) for key in ruled.to_numpy()}
    return found - {tuple(key) for key in calibrated.drop_duplicates().to_numpy()}


def _check_options(
    part: str, measure: str, bounds: Mapping[str, Bound], confidence: float | None, mixture: bool
) -> None:
    """Raise ConfigError for a confidence or a mixture that cannot be had."""
    if confidence is not None:
        if not 0.0 < confidence < 1.0:
            raise ConfigError(f"confidence is {confidence:g}.", "Give a number between 0 and 1.")
        if not bounds:
            raise ConfigError(
                "A confidence is asked for, and no bound that it could be of.",
                "Give bounds with subject_to.",
            )
        if part == "train":
            raise ConfigError(
                "The frontier was chosen on train, whose rows the models have seen: no bound on "
                "fresh rows follows.",
                "Choose on validation (select_on), or select without confidence.",
            )
    if mixture and not is_linear(measure):
        raise ConfigError(
            f"What {measure} a mixture of two settings has does not follow from those of both.",
            "Maximise a rate, balanced_accuracy or error_cost, or select without mixture.",
        )
    for name in bounds if mixture else ():
        # A ratio is neither convex nor concave: two bounds do not make one of their mixture.
        ratio = confidence is not None and split_name(name)[0].endswith("_ratio")
        if ratio or not is_mixable(name):
            raise ConfigError(
                f"A mixture of two settings cannot be bounded in {name}"
                f"{' with confidence' if ratio else ''}.",
                "Bound rates or their differences between groups, or select without mixture.",
            )


def _mix(study: Study, first: Choice, second: Choice, share: float, part: str) -> MixedChoice:
    """Return a mixture, with its measures on the rows of the choice and on test."""
    points = study.points
    keys = pd.MultiIndex.from_tuples(
        [(each.method, canonical_json(each.setting)) for each in (first, second)]
    )
    values = {}
    for rows in dict.fromkeys((part, "test")):
        own = points[(points["part"] == rows) & (points["seed"] == first.seed)]
        table = pivot_measures(own.assign(name=name_measures(own)), KEYS).loc[keys]
        ends = (table.iloc[:1], table.iloc[1:])
        values[rows] = {
            str(name): float(mix_measure(str(name), *ends, np.array([share]))[0, 0])
            for name in table.columns[table.notna().all()]
            if is_mixable(str(name))
        }

    def mean(name: str) -> float:
        return (1.0 - share) * first.certified[name] + share * second.certified[name]

    return MixedChoice(
        first=first,
        second=second,
        share=share,
        selected={name: values[part][name] for name in first.selected},
        measures=pd.DataFrame(values["test"].items(), columns=["name", "value"]),
        certified={name: mean(name) for name in first.certified},
        bounds=first.bounds,
    )


def _describe(
    study: Study,
    compared: Compared,
    position: int,
    seed: int | None,
    fits: pd.DataFrame,
    bounds: Mapping[str, Bound],
) -> Choice:
    """Return a setting of those compared, with its stored model."""
    method, setting = compared.table.index[position]
    selected, certified = compared.table.iloc[position], compared.certified.iloc[position]
    models = study.models
    models = models[(models["method"] == method) & (models["setting"] == setting)]
    models = models.sort_values("seed")
    if seed is not None and seed not in set(models["seed"]):
        raise ConfigError(
            f"There is no model of seed {seed} among those of {name_setting((method, setting))}.",
            f"Give one of {', '.join(map(str, models['seed']))}.",
        )
    models = models if seed is None else models[models["seed"] == seed]
    found = models[["model", "post_processor"]].to_numpy(dtype=object)[:1].ravel()
    folders = [study.home / str(folder) for folder in found if folder]
    if not folders or not all(_is_stored(folder, study.home) for folder in folders):
        raise StoreError(
            f"The model of {name_setting((method, setting))} is no longer in the store.",
            "Run the study again.",
        )
    own = fits[(fits["method"] == method) & (fits["setting"] == setting)]
    return Choice(
        method=method,
        setting=json.loads(setting),
        seed=int(models["seed"].iloc[0]),
        selected={str(name): float(value) for name, value in selected.items()},
        measures=summarise(study.points, own, "test")[COLUMNS],
        folder=folders[0],
        post_processor=folders[1] if len(folders) > 1 else None,
        study=study,
        certified={str(name): float(value) for name, value in certified.items()},
        bounds=bounds,
    )


def _is_stored(folder: Path, home: Path) -> bool:
    """Return whether the store has a model, with its signature where entries are signed."""
    if find_key() is None:
        return folder.is_dir()
    return open_store(home).read(KIND, folder.parent.name) is not None


# The bundle of a choice: fitted on the study's training rows again, and checked on test rows.

# By which a model is known again.
CHECKED = {"binary": "accuracy", "multiclass": "accuracy", "regression": "mae"}


@dataclass(frozen=True, eq=False)
class Export:
    """A bundle to be written.

    ``table`` is what its encoder was fitted on, ``test`` the encoded test rows, ``rows`` those of
    the table, and ``decided`` what `Bundle.decide` of the ``reader`` returns of these.
    """

    bundle: Bundle
    table: FittedTable
    test: Part
    rows: pd.DataFrame
    decided: pd.DataFrame

    @property
    def reader(self) -> Bundle:
        """The bundle for rows whose cells the study's reader has rewritten already."""
        return _make_reader(self.bundle)


def export_choice(
    choice: Choice | MixedChoice,
    folder: str | Path,
    *,
    row_id: str | None = None,
    unseen: Unseen = "zeros",
) -> Path:
    """Write the bundle of a choice to a new or empty folder, and return the folder.

    Parameters
    ----------
    choice : Choice or MixedChoice
        From `select`.
    folder : str or Path
        The folder.
    row_id : str, optional
        The column of row ids, whole numbers or text, by which random decisions are drawn.
    unseen : {"zeros", "refuse"}
        A level of a categorical or binary column that no training row had is encoded as zeros, as
        in the study, or its row is refused.

    Raises
    ------
    ConfigError
        When features are vectors of texts that the user supplied, the table lacks the column of
        row ids, or its rows stay in files (``memory`` in the dataset's YAML).
    StoreError
        When the table is no longer the one that the study was run on, the store no longer holds the
        model, or the folder is not empty or cannot be written.

    Notes
    -----
    The encoder is fitted again, on the training rows of the study: O(bytes + n · n_features).
    """
    return prepare_export(choice, row_id, unseen).bundle.write(folder)


def prepare_export(
    choice: Choice | MixedChoice, row_id: str | None = None, unseen: Unseen = "zeros"
) -> Export:
    """Return what `export_choice` writes."""
    study, components = choice.study, choice.components
    asked = components[0][0].find_split()
    if asked.is_collection(study.home):
        raise ConfigError(
            f"No bundle is made of {asked.dataset}: its rows stay in files, and a bundle's encoder "
            "is fitted on a table in memory.",
            "Load the model from its folder, which models.csv names.",
        )
    split = asdict(asked)
    request = make_request(split.pop("dataset"), home=study.home, **split)
    config = request.config
    table = fit_table(request)
    part = table.encode().test
    if part is None:
        raise ConfigError(f"{config.dataset} has no test part.", "Give its split one.")
    for component, _ in components:
        _check_same(component, part)
    encoder = RowEncoder.of(table, unseen)
    metric = _load_metric(choice) if encoder.classes else None
    bundle = make_bundle(choice.model, encoder, {"row_id": row_id}, metric=metric)
    rows = table.raw.frame
    if config.text is not None:
        # What was read has its texts prepared already.
        rows = read_table(config.source, request.home, request.file.parent).frame
    rows, reader = rows.loc[part.ids], _make_reader(bundle)
    encoded = reader.encode(rows)
    decided = reader.judge_rows(rows, encoded)
    minimum = int(study.facts["minimum"])
    bundle.reference = describe_reference(reader, rows, encoded, minimum)
    bundle.manifest = {
        "format": FORMAT,
        "study": study.facts["study"],
        "profile": study.facts["profile"],
        "dataset": config.dataset,
        "models": [
            {"method": each.method, "setting": dict(each.setting), "probability": share}
            for each, share in components
        ],
        "seed": choice.seed,
        "objective": study.objective,
        "selected": dict(choice.selected),
        "certified": dict(choice.certified),
        **list_facts(bundle),
        # The class that audits and alarms are about by default, of several.
        "accepted": _find_accepted(bundle),
        "row_id": row_id,
        # What becomes of rows that are not like those of training.
        "missing_columns": "error",
        "missing_groups": "refuse" if bundle.needed_groups else "ignore",
        "unseen_levels": unseen,
        "minimum": minimum,
        "metric": None if metric is None else study.facts["metric"],
        # Of audits under the metric; the study's.
        "certificate": study.facts["certificate"],
    }
    return Export(bundle, table, part, rows, decided)


def _make_reader(bundle: Bundle) -> Bundle:
    reader = copy.copy(bundle)
    reader.encoder = replace(bundle.encoder, is_read=True)
    return reader


def _load_metric(choice: Choice | MixedChoice) -> FairMetric | None:
    """Return the fair metric of the study, learnt on the training rows of the choice's split."""
    study, component = choice.study, choice.components[0][0]
    if study.facts["metric"] is None:
        return None
    split, threads = component.find_split(), int(study.facts["threads"])
    request = MetricRequest.of(study.facts["metric"], split, threads)
    return load_metric(request, open_store(study.home), study.home)


def _find_accepted(bundle: Bundle) -> str | None:
    """Return the favourable one of several classes; None where nothing says which it is."""
    if not isinstance(bundle, ClassifierBundle) or not bundle.several:
        return None
    return None if (code := bundle.favourable) is None else bundle.class_names[code]


def _check_same(choice: Choice, test: Part) -> None:
    """Raise a StoreError where a model does not do on the test rows what the study measured."""
    points, measure = choice.study.points, CHECKED[task_of(test)]
    own = points[
        (points["method"] == choice.method)
        & (points["setting"] == canonical_json(choice.setting))
        & (points["seed"] == choice.seed)
        & (points["part"] == "test")
        & (points["measure"] == measure)
        & (points["group"] == "")
    ]
    if own.empty:
        return
    measured = evaluate(choice.model, test, [measure])
    now = float(measured.loc[measured["group"] == "", "value"].iloc[0])
    if abs(now - float(own["value"].iloc[0])) > 1e-9:
        raise StoreError(
            f"{choice.method} has an {measure} of {now:.4f} on the test rows, and had one of "
            f"{float(own['value'].iloc[0]):.4f} in the study: the table, or its YAML, changed.",
            "Run the study again, then choose.",
        )
