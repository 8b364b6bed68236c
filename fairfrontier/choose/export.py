"""The bundle of a choice: fitted on the study's training rows again, and checked on test rows."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fairfrontier.choose.bundle import FORMAT, Bundle, ClassifierBundle, list_facts, make_bundle
from fairfrontier.choose.view import describe_reference
from fairfrontier.evaluate.verb import evaluate
from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.metric.kept import MetricRequest, load_metric
from fairfrontier.prepare.config.section import Unseen
from fairfrontier.prepare.loader import FittedTable, fit_table, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.split import Part
from fairfrontier.prepare.table.rows import read_table
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.runtime.store import canonical_json, open_store
from fairfrontier.train.prediction import task_of

if TYPE_CHECKING:
    from fairfrontier.choose.select import Choice, MixedChoice

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
