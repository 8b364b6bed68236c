"""The classifiers of a study, the post-processors of each, and the scores they decide from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.figure.certificate import StoredModel, list_stored
from fairfrontier.models.fit.key import key
from fairfrontier.models.thresholds.base import read_scores
from fairfrontier.models.thresholds.calibration import Calibration
from fairfrontier.models.thresholds.threshold import ThresholdProblem, build_problem
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.drawing import Scene

THRESHOLDS = "randomized_threshold"


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows of one part as a post-processor sees them, with their labels.

    ``score`` is f = 2 P(Y=1|x) − 1, in [−1, 1], ``y`` the labels 0 or 1, ``weight`` the case
    weights and ``code`` the group of each row among ``levels``: every combination of the
    attributes' levels, with rows or without. Arrays have the shape (n_samples,).
    """

    score: np.ndarray
    y: np.ndarray
    code: np.ndarray
    weight: np.ndarray
    levels: tuple[str, ...]

    def calibrated(self, calibration: Calibration | None) -> Scored:
        """Return the rows with scores as a post-processor calibrates them, if it does."""
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
class ClassifierRow:
    """A row of the study at one setting: its fits by ascending seed.

    ``setting`` is canonical JSON; ``then`` is the post-processor, ``method`` and its parameters,
    whose groups are the cross product of ``attributes``.
    """

    label: str
    setting: str
    then: Mapping[str, Any] | None
    attributes: tuple[str, ...]
    fits: Mapping[int, StoredModel]

    @property
    def first(self) -> StoredModel:
        """The fit of the first seed."""
        return next(iter(self.fits.values()))


@dataclass(frozen=True, eq=False)
class Classifier:
    """A row without a post-processor, and the rows that post-process its models, in study order."""

    base: ClassifierRow
    processed: tuple[ClassifierRow, ...]

    @property
    def label(self) -> str:
        """The label of the unmodified classifier."""
        return self.base.label

    @property
    def thresholds(self) -> ClassifierRow:
        """The first row of randomised thresholds."""
        row = self.find(THRESHOLDS)
        assert row is not None  # noqa: S101 - ensured by list_classifiers
        return row

    def positive(self, home: Path) -> str:
        """Return the name of class 1."""
        return self.base.first.split(home).train.classes[1]

    def find(self, method: str, attributes: Iterable[str] | None = None) -> ClassifierRow | None:
        """Return the first row of a post-processor for parity, on ``attributes`` in any order."""
        wanted = None if attributes is None else set(attributes)
        for row in self.processed:
            then = row.then or {}
            parity = then.get("criterion", "parity") == "parity"
            if then["method"] == method and parity and wanted in (None, set(row.attributes)):
                return row
        return None


def list_classifiers(scene: Scene, figure: str) -> tuple[Classifier, ...]:
    """Return the frontier's classifiers that have randomised thresholds, in study order.

    Rows belong together whose models, before post-processing, are the same entry of the store. A
    ConfigError names the row to add where there are no thresholds, or no unmodified classifier.
    """
    rows = list_rows(scene)
    bases = {_identify_models(row, scene): row for row in rows if row.then is None}
    behind: dict[str, list[ClassifierRow]] = {}
    for row in rows:
        if row.then is not None:
            behind.setdefault(_identify_models(row, scene), []).append(row)
    classifiers = []
    for models, processed in behind.items():
        if Classifier(processed[0], tuple(processed)).find(THRESHOLDS) is None:
            continue
        if models not in bases:
            raise ConfigError(
                f"{scene.study.study}: {figure} shows the classifier of {processed[0].label!r} "
                "without a post-processor, and no row has that.",
                f"Add a row like {processed[0].label!r} without `then`.",
            )
        classifiers.append(Classifier(bases[models], tuple(processed)))
    if not classifiers:
        raise ConfigError(
            f"{scene.study.study}: {figure} shows randomised thresholds, and no row has them.",
            f"Add a row with then: {{method: {THRESHOLDS}, attributes: NAME}}.",
        )
    return tuple(sorted(classifiers, key=lambda classifier: rows.index(classifier.base)))


def require_row(
    classifier: Classifier, figure: str, method: str, attributes: Iterable[str]
) -> ClassifierRow:
    """Return a classifier's row of a post-processor; a ConfigError names the row to add."""
    wanted = tuple(attributes)
    row = classifier.find(method, wanted)
    if row is None:
        listed = wanted[0] if len(wanted) == 1 else f"[[{', '.join(wanted)}]]"
        raise ConfigError(
            f"{figure} shows {classifier.label!r} with {method} on {' × '.join(wanted)}, and no "
            "row of the study has that.",
            f"Add a row like {classifier.label!r} with "
            f"then: {{method: {method}, attributes: {listed}}}.",
        )
    return row


def refuse_dataset(dataset: DatasetConfig) -> str | None:
    """Return why a dataset has no figure of post-processors; None where it has."""
    if dataset.label.task != "binary":
        return f"it shows decisions between two classes, and {dataset.dataset} has no such label"
    if dataset.split.calibration is None:
        return f"post-processors are fitted on a calibration part, and {dataset.dataset} has none"
    if not dataset.groups:
        return f"it compares groups, and {dataset.dataset} has none"
    return None


def score_part(stored: StoredModel, part: str, attributes: Iterable[str], home: Path) -> Scored:
    """Return a part with the scores of a model, its groups crossed from ``attributes``."""
    rows: Part = getattr(stored.split(home), part)
    code, levels = cross_groups(rows, attributes)
    score = read_scores(stored.predictions()[part].score, "probability", rows.dataset)
    return Scored(score, rows.y, code, rows.weight, levels)


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
    """Return the rows of the frontier at each of their settings, except skipped ones."""
    settings: dict[tuple[str, str], dict[int, StoredModel]] = {}
    for stored in list_stored(scene, lambda *_: True):
        settings.setdefault(stored.row, {})[stored.member.seed] = stored
    rows = []
    for (label, setting), fits in settings.items():
        row = ClassifierRow(label, setting, None, (), dict(sorted(fits.items())))
        then = row.first.group.then
        if then is not None:
            known = tuple(row.first.split(scene.home).train.attributes)
            attributes = _name_attributes(then.get("attributes"), known)
            row = replace(row, then=then, attributes=attributes)
        rows.append(row)
    return rows


def _name_attributes(listed: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a post-processor's ``attributes``, names or columns; None is all."""
    columns = listed if isinstance(listed, list | tuple) else [listed]
    names = [item if isinstance(item, str) else known[item] for item in columns if item is not None]
    plain: dict[str, None] = {}
    for name in names or known:
        # An attribute may itself be a cross product of others: sex×race.
        parts = name.split("×")
        plain |= dict.fromkeys(parts if set(parts) <= set(known) else [name])
    return tuple(plain)


def _identify_models(row: ClassifierRow, scene: Scene) -> str:
    """Return an identifier of the models of a row before post-processing."""
    return canonical_json(
        [
            [seed, fit.number, key(fit.group.base, scene.store, scene.home)]
            for seed, fit in row.fits.items()
        ]
    )
