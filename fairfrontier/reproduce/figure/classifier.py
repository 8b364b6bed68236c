"""The classifiers of a study, the post-processors behind each, and the scores they decide from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.drawing import Scene
from fairfrontier.train.fit.group import FitGroup, Member
from fairfrontier.train.fit.input import load_split
from fairfrontier.train.fit.kept import KIND, read_facts
from fairfrontier.train.fit.key import key
from fairfrontier.train.fit.score_file import read_scores
from fairfrontier.train.postprocess.base import read_scores as read_signed
from fairfrontier.train.postprocess.calibration import Calibration
from fairfrontier.train.postprocess.threshold import ThresholdProblem, build_problem
from fairfrontier.train.prediction import Prediction
from fairfrontier.train.registry import load_model

THRESHOLDS = "randomized_threshold"


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows of one part as a post-processor sees them, with their labels.

    Attributes
    ----------
    score : ndarray of float64, shape (n_samples,)
        f = 2 P(Y=1|x) − 1, in [−1, 1].
    y : ndarray of int64, shape (n_samples,)
        Labels, 0 or 1.
    code : ndarray of int64, shape (n_samples,)
        Group codes into ``levels``.
    weight : ndarray of float64, shape (n_samples,)
        Case weights.
    levels : tuple of str
        Group names: every combination of the attributes' levels, whether it has rows or not.
    """

    score: np.ndarray
    y: np.ndarray
    code: np.ndarray
    weight: np.ndarray
    levels: tuple[str, ...]

    def calibrated(self, calibration: Calibration | None) -> Scored:
        """Return the rows with scores that a post-processor calibrates first, where it does."""
        return self if calibration is None else replace(self, score=calibration.apply(self.score))

    def problem(self) -> ThresholdProblem:
        """Return the scores sorted by group."""
        return build_problem(self.score, self.code, len(self.levels), self.weight)

    def labelled(self) -> ThresholdProblem:
        """Return the scores sorted by group and label, codes 2 k + y."""
        return build_problem(self.score, 2 * self.code + self.y, 2 * len(self.levels), self.weight)

    def base_rate(self) -> float:
        """Return E[y]."""
        return float(np.average(self.y, weights=self.weight))


@dataclass(frozen=True, eq=False)
class Stored:
    """One fit in the store.

    Attributes
    ----------
    group : FitGroup
        What was trained together.
    number : int
        Which of its members.
    folder : Path
        The entry of the group.
    """

    group: FitGroup
    number: int
    folder: Path

    @property
    def member(self) -> Member:
        """The model of the group."""
        return self.group.members[self.number]

    def predictions(self) -> Mapping[str, Prediction]:
        """Return part -> scores and decisions."""
        return read_scores(self.folder / f"scores-{self.number}.npz")

    def model(self) -> Any:
        """Return the fitted model, or the post-processor where the row has one."""
        return load_model(self.folder / f"model-{self.number}")

    def split(self, home: Path) -> Split:
        """Return the split that it was fitted on."""
        return load_split(self.group, self.member, home)

    def scored(self, part: str, attributes: Iterable[str], home: Path) -> Scored:
        """Return a part with this model's scores, its groups crossed from ``attributes``."""
        rows: Part = getattr(self.split(home), part)
        code, levels = cross_groups(rows, attributes)
        score = read_signed(self.predictions()[part].score, "probability", rows.dataset)
        return Scored(score, rows.y, code, rows.weight, levels)


@dataclass(frozen=True, eq=False)
class ClassifierRow:
    """A row of the study at one setting, over its seeds.

    Attributes
    ----------
    label : str
        As the study has it.
    setting : str
        Canonical JSON, as points.parquet has it.
    then : mapping or None
        The post-processor: ``method`` and its parameters.
    attributes : tuple of str
        Whose cross product makes the groups of the post-processor.
    fits : mapping of int to Stored
        Seed -> fit, ascending.
    """

    label: str
    setting: str
    then: Mapping[str, Any] | None
    attributes: tuple[str, ...]
    fits: Mapping[int, Stored]

    def split(self, home: Path) -> Split:
        """Return the split of its first seed."""
        return next(iter(self.fits.values())).split(home)


@dataclass(frozen=True, eq=False)
class Classifier:
    """A row without a post-processor, and the rows that post-process its models.

    Attributes
    ----------
    base : ClassifierRow
        The unmodified classifier.
    processed : tuple of ClassifierRow
        In the order of the study.
    """

    base: ClassifierRow
    processed: tuple[ClassifierRow, ...]

    @property
    def label(self) -> str:
        """What the study calls the unmodified classifier."""
        return self.base.label

    @property
    def thresholds(self) -> ClassifierRow:
        """Its first row of randomised thresholds, which all that `list_classifiers` returns have.

        Raises
        ------
        LookupError
            When it has none.
        """
        row = self.find(THRESHOLDS)
        if row is None:
            raise LookupError(f"{self.label} has no {THRESHOLDS}")
        return row

    def positive(self, home: Path) -> str:
        """Return the name of class 1."""
        return self.base.split(home).train.classes[1]

    def find(self, method: str, attributes: Iterable[str] | None = None) -> ClassifierRow | None:
        """Return the first row of a post-processor for parity, of these attributes in any order."""
        wanted = None if attributes is None else set(attributes)
        for row in self.processed:
            then = row.then or {}
            # Other criteria of fairness answer other questions.
            fits = then["method"] == method and then.get("criterion", "parity") == "parity"
            if fits and wanted in (None, set(row.attributes)):
                return row
        return None


def list_classifiers(scene: Scene, figure: str) -> tuple[Classifier, ...]:
    """Return the classifiers of the study's frontier that have randomised thresholds.

    Parameters
    ----------
    scene : Scene
        Rows belong together whose models, before post-processing, are one entry of the store.
    figure : str
        Which figure asks, for messages.

    Returns
    -------
    tuple of Classifier
        At least one, in the order of the study.

    Raises
    ------
    ConfigError
        When no row has randomised thresholds, or the unmodified classifier is no row.
    """
    rows = list_rows(scene)
    bases = {_name_models(row, scene): row for row in rows if row.then is None}
    behind: dict[str, list[ClassifierRow]] = {}
    for row in rows:
        if row.then is not None:
            behind.setdefault(_name_models(row, scene), []).append(row)
    found = []
    for name, processed in behind.items():
        if Classifier(processed[0], tuple(processed)).find(THRESHOLDS) is None:
            continue
        if name not in bases:
            raise ConfigError(
                f"{scene.study.study}: {figure} shows the classifier of {processed[0].label!r} "
                "as it is without a post-processor, and no row has that.",
                f"Add a row like {processed[0].label!r} without `then`.",
            )
        found.append(Classifier(bases[name], tuple(processed)))
    if not found:
        raise ConfigError(
            f"{scene.study.study}: {figure} shows randomised thresholds, and no row has them.",
            f"Add a row with then: {{method: {THRESHOLDS}, attributes: NAME}}.",
        )
    return tuple(sorted(found, key=lambda each: rows.index(each.base)))


def require_row(
    classifier: Classifier, figure: str, method: str, attributes: Iterable[str]
) -> ClassifierRow:
    """Return a classifier's row of a post-processor on some attributes.

    Raises
    ------
    ConfigError
        Saying which row to add.
    """
    wanted = tuple(attributes)
    row = classifier.find(method, wanted)
    if row is None:
        told = wanted[0] if len(wanted) == 1 else f"[[{', '.join(wanted)}]]"
        raise ConfigError(
            f"{figure} shows {classifier.label!r} with {method} on {' × '.join(wanted)}, and no "
            "row of the study has that.",
            f"Add a row like {classifier.label!r} with "
            f"then: {{method: {method}, attributes: {told}}}.",
        )
    return row


def refuse_dataset(described: DatasetConfig) -> str | None:
    """Say why a dataset has no figure of post-processors; None where it has."""
    if described.label.task != "binary":
        return f"it shows decisions between two classes, and {described.dataset} has no such label"
    if described.split.calibration is None:
        return f"post-processors are fitted on a calibration part, and {described.dataset} has none"
    if not described.groups:
        return f"it compares groups, and {described.dataset} has none"
    return None


def cross_groups(part: Part, attributes: Iterable[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the codes of a cross product of attributes, int64, and the names of its levels."""
    code = np.zeros(part.n_samples, dtype=np.int64)
    levels: tuple[str, ...] = ("",)
    for name in attributes:
        code = code * len(part.attributes[name]) + part.group(name)
        levels = tuple(
            f"{left}×{right}" if left else right
            for left in levels
            for right in part.attributes[name]
        )
    return code, levels


def list_rows(scene: Scene) -> list[ClassifierRow]:
    """Return the rows of the frontier at each of their settings, without those left out."""
    found: dict[tuple[str, str], dict[int, Stored]] = {}
    for each in scene.plan:
        if "frontier" not in each.blocks:
            continue
        folder = scene.store.path(KIND, key(each.group, scene.store, scene.home))
        if not folder.is_dir() or read_facts(folder)["skipped"] is not None:
            continue
        for number, member in enumerate(each.group.members):
            row = found.setdefault((each.group.method, canonical_json(member.setting)), {})
            row[member.seed] = Stored(each.group, number, folder)
    rows = []
    for (label, setting), fits in found.items():
        ordered = dict(sorted(fits.items()))
        first = next(iter(ordered.values()))
        attributes: tuple[str, ...] = ()
        if first.group.then is not None:
            known = tuple(first.split(scene.home).train.attributes)
            attributes = _name_attributes(first.group.then.get("attributes"), known)
        rows.append(ClassifierRow(label, setting, first.group.then, attributes, ordered))
    return rows


def _name_attributes(given: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a post-processor's ``attributes`` names, by column or by name; None is all."""
    listed = given if isinstance(given, list | tuple) else [given]
    named = [each if isinstance(each, str) else known[each] for each in listed if each is not None]
    plain: dict[str, None] = {}
    for name in named or known:
        # An attribute may itself be a cross product of others: sex×race.
        parts = name.split("×")
        plain |= dict.fromkeys(parts if set(parts) <= set(known) else [name])
    return tuple(plain)


def _name_models(row: ClassifierRow, scene: Scene) -> str:
    """Return what tells the models of a row before post-processing from all others."""
    return canonical_json(
        [
            [seed, each.number, key(each.group.base, scene.store, scene.home)]
            for seed, each in row.fits.items()
        ]
    )
