"""The bundle: a chosen model that answers raw rows, in a folder without pickle."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from fairfrontier.deployment.answer import FILE as MIXTURE
from fairfrontier.deployment.answer import (
    Mixture,
    classify,
    find_chance,
    find_unfitted,
    judge,
    list_components,
    predict_numbers,
)
from fairfrontier.models.persistence import MANIFEST as MODEL_MANIFEST
from fairfrontier.models.persistence import reading
from fairfrontier.models.registry import load_model
from fairfrontier.models.thresholds.model import PostProcessed
from fairfrontier.prepare.embedding.saved import TOKENIZER
from fairfrontier.prepare.row import EncodedRows, RowEncoder
from fairfrontier.prepare.table.column import Cells
from fairfrontier.prepare.table.frame import to_pandas
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.runtime.option import BUNDLE_FILE, DECIDED, SIGNATURE
from fairfrontier.runtime.secret import find_key, sign
from fairfrontier.runtime.store import canonical_json, hash_file
from fairfrontier.runtime.text_file import read_json, read_numbers, write_json
from fairfrontier.runtime.writer import replacing, restore
from fairfrontier.similarity.fair_metric import FairMetric

FORMAT = 2
MANIFEST, REFERENCE, METRIC = BUNDLE_FILE, "reference.json", "metric.npz"
MODEL, RULE = "model", "rule"
ARRAYS = ("sigma", "basis", "directions")
MEND = "Export it again, or restore the folder from where it was copied."
ID, REFUSED = DECIDED
# They are read into memory; sparse files claim any size.
MOST_BYTES = 2**34


@dataclass(kw_only=True, eq=False, repr=False)
class Bundle(BaseEstimator):
    """A chosen model that answers raw rows: a scikit-learn estimator on data frames.

    A row that cannot be used is refused: `decide` says why, and the predictions of scikit-learn
    raise.

    Parameters
    ----------
    model : estimator, PostProcessed or Mixture
        What decides.
    encoder : RowEncoder
        How raw rows become arrays.
    manifest : mapping
        What bundle.json says beside the digests: ``study``, ``models`` (method, setting and
        probability of each), ``seed``, ``objective``, ``row_id`` and so on.
    reference : mapping
        What is known of the test rows in counts; see `describe_reference`.
    metric : FairMetric, optional
        The fair metric of the study, by which audits find similar rows.

    Attributes
    ----------
    feature_names_in_ : ndarray of str
        The raw columns that a frame has to have, in any order and among others.

    Notes
    -----
    Where answers are random, draws depend on the row id alone: the column ``row_id`` where the
    bundle names one, else the index of the frame, in a table the number of the row. Every row is
    answered by itself, so that neither order nor batches matter.
    """

    model: Any
    encoder: RowEncoder
    manifest: Mapping[str, Any]
    reference: Mapping[str, Any]
    metric: FairMetric | None = None

    # The column of `decide` that `predict` returns.
    answer: ClassVar[str]

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of `decide`."""

    @property
    @abstractmethod
    def randomized(self) -> bool:
        """Whether answers are drawn."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their codes; empty for a regression."""
        return self.encoder.classes

    @property
    def row_id(self) -> str | None:
        """The column of row ids."""
        name: str | None = self.manifest["row_id"]
        return name

    @cached_property
    def needed_groups(self) -> tuple[str, ...]:
        """The attributes that the rule looks at, beside the features."""
        return find_needed(self.model, [attribute.name for attribute in self.encoder.attributes])

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The raw columns that are needed."""
        grouped = self.encoder.find_columns(self.needed_groups)
        return np.array(list(dict.fromkeys((*self.encoder.features, *grouped))), dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of raw columns that are needed."""
        return len(self.feature_names_in_)

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: there is nothing to fit."""
        return True

    def __sklearn_clone__(self) -> Self:
        """Return itself, as a frozen estimator does."""
        return self

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002
        """Return itself unchanged."""
        return self

    def decide(self, frame: Any, row_id: str | None = None) -> pd.DataFrame:
        """Answer raw rows.

        Parameters
        ----------
        frame : DataFrame or object with ``__arrow_c_stream__``
            Raw columns, as in the table of the study; others are not looked at. Of pandas, polars,
            Arrow and so on; without an index rows are numbered.
        row_id : str, optional
            The column of row ids, in place of the bundle's.

        Returns
        -------
        DataFrame
            With the index of ``frame`` and the ``columns`` of the bundle: ``id``, those of its
            kind, and ``refused``, the reason, empty where there is an answer. A refused row has
            missing values.

        Raises
        ------
        ConfigError
            When a column is missing.
        DataError
            When an id is missing, or neither a whole number nor text.

        Notes
        -----
        O(n) calls of the model, in blocks; memory is a few copies of the encoded rows.
        """
        frame = to_pandas(frame)
        return self.judge_rows(frame, self.encode(frame), row_id)

    def encode(self, frame: pd.DataFrame) -> EncodedRows:
        """Return raw rows as arrays, with the reasons for which rows are refused."""
        rows = self.encoder.encode(frame, self.needed_groups)
        if self.needed_groups:
            reason = "the rule was fitted on no row of this combination of groups"
            rows.refusals.add(find_unfitted(self.model, rows.groups), reason)
        return rows

    def judge_rows(
        self, frame: pd.DataFrame, rows: EncodedRows, row_id: str | None = None
    ) -> pd.DataFrame:
        """Return what `decide` does, of a frame that is encoded."""
        names, words = read_ids(frame, row_id or self.row_id)
        accepted = rows.refusals.accepted
        answers = self._answer(rows.X[accepted], rows.groups[accepted], words[accepted])
        numbers = [column for column in answers.values() if column.dtype.kind == "f"]
        kept = rows.refusals.add_infinite(np.stack(numbers, axis=1))
        accepted = rows.refusals.accepted
        values = {name: _spread(column[kept], accepted) for name, column in answers.items()}
        decided = {ID: names, **values, REFUSED: rows.refusals.reasons}
        return pd.DataFrame(decided, index=frame.index).astype({REFUSED: "str"})

    @abstractmethod
    def _answer(
        self, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Return the columns of `decide` between ``id`` and ``refused``, of rows not refused."""

    def _require(self, X: Any) -> pd.DataFrame:
        """Return the decisions on rows none of which may be refused."""
        decided = self.decide(X)
        refused = decided[REFUSED].to_numpy() != ""
        if refused.any():
            row = int(refused.argmax())
            raise DataError(
                f"Row {decided.index[row]} is refused: {decided[REFUSED].iloc[row]}.",
                "Leave it out, or call decide(), which gives the reason of every refused row.",
            )
        return decided

    def write(self, folder: str | Path) -> Path:
        """Write the bundle to a new or empty folder, all at once; StoreError where it cannot be."""
        folder = Path(folder)
        if folder.is_dir() and any(folder.iterdir()):
            raise StoreError(
                f"The folder {folder} is not empty.", "Export the bundle to a new one."
            )
        with replacing(folder, what="bundle", mend="Give a folder that can be written.") as work:
            self.fill(work)
        return folder

    def fill(self, folder: Path) -> None:
        """Write the files of the bundle into an empty folder."""
        if isinstance(self.model, Mixture):
            self.model.save(folder / MODEL)
        elif isinstance(self.model, PostProcessed):
            self.model.model.save(folder / MODEL)
            self.model.processor.save(folder / RULE)
        else:
            self.model.save(folder / MODEL)
        self.encoder.save(folder)
        write_json(self.reference, folder / REFERENCE)
        if self.metric is not None:
            self.metric.save(folder / METRIC)
        manifest = {**self.manifest, "files": _digest_files(folder)}
        digest, key = _digest(manifest), find_key()
        signed = {} if key is None else {SIGNATURE: sign(key, digest.encode()).hex()}
        write_json({**manifest, "sha256": digest, **signed}, folder / MANIFEST)
        try:
            for name in (MANIFEST, *manifest["files"]):
                if name.endswith(".json") and not name.endswith(TOKENIZER):
                    read_json(folder / name)
        except ValueError as error:
            raise ConfigError(
                f"The bundle cannot be exported: {error}.",
                "Leave columns, attributes or levels of them out of the dataset.",
            ) from None


class ClassifierBundle(ClassifierMixin, Bundle):  # type: ignore[misc]
    """A bundle of a classifier.

    Of two classes decisions are 0 and 1; 1 is the positive class of the dataset's label. `decide`
    gives ``score``, P(Y=1|x); ``probability``, that of deciding 1, which is 0 or 1 unless decisions
    are drawn; and ``decision``, Int8. Of several classes it gives P(Y=k|x) as ``score:NAME`` of
    every class, and as ``decision`` the name of the class with the largest.

    Attributes
    ----------
    classes_ : ndarray
        0 and 1, whose names are ``class_names``; of several classes their names.
    """

    answer: ClassVar[str] = "decision"

    @property
    def favourable(self) -> int | None:
        """The code of the favourable class; None where none of several is named so."""
        return self.encoder.config.label.find_favourable(self.class_names)

    @property
    def several(self) -> bool:
        """Whether there are more classes than two."""
        return len(self.class_names) > 2

    @property
    def classes_(self) -> np.ndarray:
        """The decisions."""
        return np.array(self.class_names, dtype=object) if self.several else np.arange(2)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `decide`."""
        scores = self._scores if self.several else ("score", "probability")
        return (ID, *scores, self.answer, REFUSED)

    @property
    def _scores(self) -> tuple[str, ...]:
        return tuple(f"score:{name}" for name in self.class_names)

    @property
    def randomized(self) -> bool:
        """Whether decisions are drawn."""
        return bool(self.model.randomized)

    def predict(self, X: Any) -> np.ndarray:
        """Return decisions, shape (n_samples,): int64 0 and 1, or the names of several classes.

        DataError for a refused row.
        """
        decided = self._require(X)[self.answer]
        return decided.to_numpy(dtype=object if self.several else np.int64)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return P(Y=k|x), float64, (n_samples, n_classes); DataError for a refused row.

        These are scores; what `decide` calls ``probability`` is that of the decision.
        """
        decided = self._require(X)
        if self.several:
            return decided[list(self._scores)].to_numpy(dtype=np.float64)
        score = decided["score"].to_numpy(dtype=np.float64)
        return np.column_stack([1.0 - score, score])

    def _answer(
        self, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        if self.several:
            chance = classify(self.model, X, groups, ids, len(self.class_names))
            decision = np.array(self.class_names, dtype=object)[chance.argmax(axis=1)]
            return {**dict(zip(self._scores, chance.T, strict=True)), self.answer: decision}
        judged = judge(self.model, X, groups, ids)
        decision = judged.decision.astype(np.int8)
        return {"score": judged.score, "probability": judged.probability, self.answer: decision}


class RegressorBundle(RegressorMixin, Bundle):  # type: ignore[misc]
    """A bundle of a regression, which predicts in the units of the label's column.

    `decide` gives ``prediction``, drawn by row id where the model draws one of several regressors,
    and ``score``, its expectation.
    """

    answer: ClassVar[str] = "prediction"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `decide`."""
        return (ID, "score", self.answer, REFUSED)

    @property
    def randomized(self) -> bool:
        """Whether predictions are drawn."""
        return find_chance(self.model).size > 1

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, float64, shape (n_samples,); DataError for a refused row."""
        return self._require(X)[self.answer].to_numpy(dtype=np.float64)

    def _answer(
        self, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        values, chance, drawn = predict_numbers(self.model, X, groups, ids)
        unscale = self.encoder.unscale
        # A product of matrices would add in an order that depends on the number of rows.
        mean = np.sum(np.ascontiguousarray(values) * chance, axis=1)
        return {"score": unscale(mean), self.answer: unscale(drawn)}


def make_bundle(
    model: Any,
    encoder: RowEncoder,
    manifest: Mapping[str, Any],
    reference: Mapping[str, Any] | None = None,
    metric: FairMetric | None = None,
) -> Bundle:
    """Return the bundle of a model, of the kind that the encoder's label asks for."""
    kind = ClassifierBundle if encoder.classes else RegressorBundle
    found = {} if reference is None else reference
    return kind(model=model, encoder=encoder, manifest=manifest, reference=found, metric=metric)


def load_bundle(folder: str | Path) -> Bundle:
    """Load a bundle, a scikit-learn estimator on raw data frames; nothing is unpickled.

    Parameters
    ----------
    folder : str or Path
        What `Choice.export` or ``fairfrontier select`` wrote.

    Raises
    ------
    StoreError
        When a file is missing, was added, altered or is too large, or the bundle is of another
        format. Digests protect against accidents, not against those who may write to the folder:
        native code believes what a model's files say, so load bundles of those whom you trust.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    restore(folder)
    with reading(folder, "Name the folder of a bundle, with its file bundle.json.", "bundle"):
        if not path.is_file() or path.is_symlink():
            # A pipe would be waited for.
            raise FileNotFoundError(f"there is no file {MANIFEST}")
        found = _list_files(folder)
        manifest = read_json(path)
        if manifest["format"] != FORMAT:
            raise StoreError(
                f"{folder} is a bundle of format {manifest['format']}, and this version reads "
                f"{FORMAT}.",
                "Export it again with this version of fairfrontier.",
            )
        manifest.pop(SIGNATURE, None)
        if manifest.pop("sha256") != _digest(manifest):
            raise StoreError(f"The file {path} is not what was exported.", MEND)
        files = manifest.pop("files")
    with reading(folder, MEND, "bundle"):
        for name in sorted({*files, *found}):
            if name not in files or name not in found or hash_file(folder / name) != files[name]:
                raise StoreError(f"The file {folder / name} is not what was exported.", MEND)
        encoder = RowEncoder.load(folder)
        if f"{MODEL}/{MIXTURE}" in files:
            model: Any = Mixture.load(folder / MODEL)
        else:
            model = load_model(folder / MODEL)
            if f"{RULE}/{MODEL_MANIFEST}" in files:
                model = PostProcessed(model, load_model(folder / RULE))
        reference = read_json(folder / REFERENCE)
        metric = FairMetric(*read_numbers(folder / METRIC, *ARRAYS)) if METRIC in files else None
        return make_bundle(model, encoder, manifest, reference, metric)


def list_facts(bundle: Bundle) -> dict[str, Any]:
    """Return what bundle.json says of the encoder and the model, for readers of it alone."""
    return {
        "classes": list(bundle.encoder.classes),
        "label": bundle.encoder.config.label.column,
        "randomized": bundle.randomized,
        "features": list(bundle.encoder.features),
        "groups": list(bundle.encoder.grouped),
        # The attributes that the rule looks at, beside the features.
        "needed_groups": list(bundle.needed_groups),
    }


def find_needed(model: Any, attributes: Sequence[str]) -> tuple[str, ...]:
    """Return the attributes that a model looks at when it decides, in their order."""
    needed: set[int] = set()
    for component in list_components(model):
        if isinstance(component, PostProcessed):
            needed |= set(component.processor.cross(np.arange(len(attributes))[None, :])[0])
    return tuple(name for position, name in enumerate(attributes) if position in needed)


def read_ids(frame: pd.DataFrame, column: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of rows as they are written, and the words that seed their draws.

    They are those of a column, else the index; see `Cells.ids`.
    """
    if column is not None and column not in frame:
        raise ConfigError(
            f"The table has no column {column!r} of row ids.",
            "Add it: draws belong to row ids. Or name another one with row_id (--row-id).",
        )
    values = frame.index.to_series(name="index") if column is None else frame[column]
    return Cells(values, "row-id", "The table").ids()


def _spread(values: np.ndarray, accepted: np.ndarray) -> Any:
    """Return the values of accepted rows among all rows, the others missing."""
    if values.dtype.kind == "i":
        code = np.zeros(accepted.size, dtype=values.dtype)
        code[accepted] = values
        return pd.arrays.IntegerArray(code, ~accepted)
    whole = np.full(accepted.size, None if values.dtype.kind == "O" else np.nan, values.dtype)
    whole[accepted] = values
    return pd.array(whole, dtype="str") if values.dtype.kind == "O" else whole


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(manifest).encode()).hexdigest()


def _digest_files(folder: Path) -> dict[str, str]:
    """Return file -> sha256 of all files in a folder but the manifest."""
    return {name: hash_file(folder / name) for name in _list_files(folder)}


def _list_files(folder: Path) -> list[str]:
    """Return the files in a folder but the manifest; StoreError for a link, a size and so on."""
    paths, size = sorted(folder.rglob("*")), 0
    for path in paths:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{path} is a link or no file, which no bundle holds.", MEND)
        size += path.stat().st_size
    if size > MOST_BYTES:
        raise StoreError(f"{folder} holds {size:,} bytes, more than any bundle may.", MEND)
    files = [path for path in paths if path.is_file() and path != folder / MANIFEST]
    return [path.relative_to(folder).as_posix() for path in files]
