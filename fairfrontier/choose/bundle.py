"""The bundle: a chosen model that decides on raw rows, in a folder without pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin

from fairfrontier.choose.judgement import find_unfitted, judge, list_components
from fairfrontier.choose.mixture import FILE as MIXTURE
from fairfrontier.choose.mixture import Mixture
from fairfrontier.choose.reference import describe_rows
from fairfrontier.evaluate.verb import evaluate
from fairfrontier.prepare.loader import FittedTable, fit_table, make_request
from fairfrontier.prepare.row import EncodedRows, RowEncoder, Unseen
from fairfrontier.prepare.split import Part
from fairfrontier.prepare.table.batch_column import BatchColumn
from fairfrontier.prepare.table.score_table import number_ids
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.runtime.store import canonical_json, hash_file
from fairfrontier.runtime.text_file import write_json
from fairfrontier.runtime.writer import replacing
from fairfrontier.train.persistence import MANIFEST as MODEL_MANIFEST
from fairfrontier.train.persistence import reading
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.registry import load_model

if TYPE_CHECKING:
    from fairfrontier.choose.choice import Choice, MixedChoice

FORMAT = 1
MANIFEST, ENCODER, REFERENCE = "bundle.json", "encoder.json", "reference.json"
MODEL, RULE = "model", "rule"
MEND = "Export it again, or restore the folder from where it was copied."
COLUMNS = ("id", "score", "probability", "decision", "refused")


@dataclass(kw_only=True, eq=False, repr=False)
class Bundle(ClassifierMixin, BaseEstimator):
    """A chosen model that decides on raw rows: a scikit-learn classifier on data frames.

    Decisions are 0 and 1; 1 is the positive class of the dataset's label. A row that cannot be used
    is refused: `decide` says why, and the predictions of scikit-learn raise.

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
        What is known of the test rows in counts; see `describe_rows`.

    Attributes
    ----------
    classes_ : ndarray of int64
        0 and 1, whose names are ``class_names``.
    feature_names_in_ : ndarray of str
        The raw columns that a frame has to have, in any order and among others.

    Notes
    -----
    Where the rule is random, draws depend on the row id alone: the column ``row_id`` where the
    bundle names one, else the index of the frame, in a table the number of the row. Every row is
    decided by itself, so that neither order nor batches matter.
    """

    model: Any
    encoder: RowEncoder
    manifest: Mapping[str, Any]
    reference: Mapping[str, Any]

    @property
    def classes_(self) -> np.ndarray:
        """The decisions in ascending order."""
        return np.arange(2)

    @property
    def class_names(self) -> tuple[str, ...]:
        """What 0 and 1 mean."""
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
    def randomized(self) -> bool:
        """Whether decisions are drawn."""
        return bool(self.model.randomized)

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

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Return decisions 0 and 1, int64, shape (n_samples,); DataError for a refused row."""
        return self._require(X)["decision"].to_numpy(dtype=np.int64)

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Return P(Y=0|x) and P(Y=1|x), float64, (n_samples, 2); DataError for a refused row.

        These are scores; what `decide` calls ``probability`` is that of the decision.
        """
        score = self._require(X)["score"].to_numpy(dtype=np.float64)
        return np.column_stack([1.0 - score, score])

    def decide(self, frame: pd.DataFrame, row_id: str | None = None) -> pd.DataFrame:
        """Decide on raw rows.

        Parameters
        ----------
        frame : DataFrame
            Raw columns, as in the table of the study; others are not looked at.
        row_id : str, optional
            The column of row ids, in place of the bundle's.

        Returns
        -------
        DataFrame
            With the index of ``frame``: ``id``; ``score``, P(Y=1|x); ``probability``, that of
            deciding 1, which is 0 or 1 unless decisions are drawn; ``decision``, Int8; ``refused``,
            the reason, empty where there is a decision. A refused row has missing values.

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
        judged = judge(self.model, rows.X[accepted], rows.groups[accepted], words[accepted])
        score, probability = np.full((2, len(frame)), np.nan)
        score[accepted], probability[accepted] = judged.score, judged.probability
        code = np.zeros(len(frame), dtype=np.int8)
        code[accepted] = judged.decision
        decision = pd.arrays.IntegerArray(code, ~accepted)
        values = (names, score, probability, decision, rows.refusals.reasons)
        decided = pd.DataFrame(dict(zip(COLUMNS, values, strict=True)), index=frame.index)
        return decided.astype({"refused": "str"})

    def _require(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the decisions on rows none of which may be refused."""
        if not isinstance(X, pd.DataFrame):
            raise ConfigError(
                f"A bundle decides on raw rows, and was given {type(X).__name__}.",
                "Give a pandas DataFrame with the columns of the study's table.",
            )
        decided = self.decide(X)
        refused = decided["refused"].to_numpy() != ""
        if refused.any():
            row = int(refused.argmax())
            raise DataError(
                f"Row {X.index[row]} is refused: {decided['refused'].iloc[row]}.",
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
        write_json(self.encoder.to_json(), folder / ENCODER)
        write_json(self.reference, folder / REFERENCE)
        manifest = {**self.manifest, "files": _digest_files(folder)}
        write_json({**manifest, "sha256": _digest(manifest)}, folder / MANIFEST)


def load_bundle(folder: str | Path) -> Bundle:
    """Load a bundle, a scikit-learn classifier on raw data frames; nothing is unpickled.

    Parameters
    ----------
    folder : str or Path
        What `Choice.export` or ``fairfrontier select`` wrote.

    Raises
    ------
    StoreError
        When a file is missing, was added or altered, or the bundle is of another format. Digests
        protect against accidents, not against those who may write to the folder.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    with reading(folder, "Name the folder of a bundle, with its file bundle.json."):
        if not path.is_file() or path.is_symlink():
            # A pipe would be waited for.
            raise FileNotFoundError(path)
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise StoreError(
                f"{folder} is a bundle of format {manifest['format']}, and this version reads "
                f"{FORMAT}.",
                "Export it again with this version of fairfrontier.",
            )
        if manifest.pop("sha256") != _digest(manifest):
            raise StoreError(f"The file {path} is not what was exported.", MEND)
        files = manifest.pop("files")
    found = _digest_files(folder)
    altered = sorted(name for name in {*files, *found} if files.get(name) != found.get(name))
    if altered:
        raise StoreError(f"The file {folder / altered[0]} is not what was exported.", MEND)
    with reading(folder, MEND):
        if f"{MODEL}/{MIXTURE}" in files:
            model: Any = Mixture.load(folder / MODEL)
        else:
            model = load_model(folder / MODEL)
            if f"{RULE}/{MODEL_MANIFEST}" in files:
                model = PostProcessed(model, load_model(folder / RULE))
        encoder = RowEncoder.from_json(json.loads((folder / ENCODER).read_text(encoding="utf-8")))
        reference = json.loads((folder / REFERENCE).read_text(encoding="utf-8"))
    return Bundle(model=model, encoder=encoder, manifest=manifest, reference=reference)


def find_needed(model: Any, attributes: Sequence[str]) -> tuple[str, ...]:
    """Return the attributes that a model looks at when it decides, in their order."""
    needed: set[int] = set()
    for component in list_components(model):
        if isinstance(component, PostProcessed):
            needed |= set(component.processor.cross(np.arange(len(attributes))[None, :])[0])
    return tuple(name for position, name in enumerate(attributes) if position in needed)


def read_ids(frame: pd.DataFrame, column: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of rows as they are written, and the words that seed their draws.

    They are those of a column, else the index; see `number_ids`.
    """
    if column is not None and column not in frame:
        raise ConfigError(
            f"The table has no column {column!r} of row ids.",
            "Add it: draws belong to row ids. Or name another one with row_id (--row-id).",
        )
    values = frame.index.to_series() if column is None else frame[column]
    cells = pa.array(values, from_pandas=True)
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    names, words = number_ids(BatchColumn(cells, column or "index", "row-id", Path("The table")))
    return np.asarray(names.to_numpy(zero_copy_only=False)), words


@dataclass(frozen=True, eq=False)
class Export:
    """A bundle to be written.

    ``table`` is what its encoder was fitted on, ``test`` the encoded test rows, and ``decided``
    what `Bundle.decide` returns of the raw ones.
    """

    bundle: Bundle
    table: FittedTable
    test: Part
    decided: pd.DataFrame


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
        A level of a categorical column that no training row had is encoded as zeros, as in the
        study, or its row is refused.

    Raises
    ------
    ConfigError
        When the label is not of two classes, features are vectors of texts, or the table lacks the
        column of row ids.
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
    split = asdict(components[0][0].find_split())
    request = make_request(split.pop("dataset"), home=study.home, **split)
    config = request.config
    if config.label.task != "binary" or config.features.text is not None:
        raise ConfigError(
            f"{config.dataset} has texts as features, or a label that is not of two classes.",
            "A bundle decides between two classes by columns of numbers and levels: save the model "
            "alone, with choice.model.save(folder).",
        )
    table = fit_table(request)
    part = table.encode().test
    if part is None:
        raise ConfigError(f"{config.dataset} has no test part.", "Give its split one.")
    for component, _ in components:
        _check_same(component, part)
    encoder = RowEncoder.of(table, unseen)
    needed = find_needed(choice.model, [attribute.name for attribute in encoder.attributes])
    minimum = int(study.facts["minimum"])
    manifest = {
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
        "classes": list(encoder.classes),
        "label": encoder.config.label.column,
        "row_id": row_id,
        "randomized": bool(choice.model.randomized),
        "features": list(encoder.features),
        "groups": list(encoder.grouped),
        # The attributes that the rule looks at, beside the features.
        "needed_groups": list(needed),
        # What becomes of rows that are not like those of training.
        "missing_columns": "error",
        "missing_groups": "refuse" if needed else "ignore",
        "unseen_levels": unseen,
        "minimum": minimum,
    }
    bundle = Bundle(model=choice.model, encoder=encoder, manifest=manifest, reference={})
    test = table.raw.frame.loc[part.ids]
    encoded = bundle.encode(test)
    decided = bundle.judge_rows(test, encoded)
    labels = encoder.read_labels(test)
    bundle.reference = describe_rows(encoder, encoded, decided, labels, minimum)
    return Export(bundle, table, part, decided)


def _check_same(choice: Choice, test: Part) -> None:
    """Raise a StoreError where a model does not do on the test rows what the study measured."""
    points = choice.study.points
    own = points[
        (points["method"] == choice.method)
        & (points["setting"] == canonical_json(choice.setting))
        & (points["seed"] == choice.seed)
        & (points["part"] == "test")
        & (points["measure"] == "accuracy")
        & (points["group"] == "")
    ]
    if own.empty:
        return
    measured = evaluate(choice.model, test, ["accuracy"])
    now = float(measured.loc[measured["group"] == "", "value"].iloc[0])
    if abs(now - float(own["value"].iloc[0])) > 1e-9:
        raise StoreError(
            f"{choice.method} has an accuracy of {now:.4f} on the test rows, and had one of "
            f"{float(own['value'].iloc[0]):.4f} in the study: the table, or its YAML, changed.",
            "Run the study again, then choose.",
        )


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(manifest).encode()).hexdigest()


def _digest_files(folder: Path) -> dict[str, str]:
    """Return file -> sha256 of all files in a folder but the manifest; links are none."""
    return {
        path.relative_to(folder).as_posix(): hash_file(path)
        for path in sorted(folder.rglob("*"))
        if path != folder / MANIFEST and path.is_file() and not path.is_symlink()
    }
