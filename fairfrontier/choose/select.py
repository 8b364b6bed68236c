"""From a frontier to one model: the best setting within bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.runtime.errors import ConfigError, StoreError, nearest
from fairfrontier.runtime.secret import find_key
from fairfrontier.runtime.text_file import read_csv
from fairfrontier.study.frontier import orient, summarise
from fairfrontier.study.run import open_store
from fairfrontier.train.fit.kept import KIND
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.registry import load_model

KEYS = ["method", "setting"]
COLUMNS = ["name", "value", "sd", "low", "high", "n", "n_seeds"]


@dataclass(frozen=True, eq=False)
class Choice:
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
    folder : Path
        Where the model is stored.
    post_processor : Path or None
        Where the rule that post-processes it is stored.
    """

    method: str
    setting: Mapping[str, Any]
    seed: int
    selected: Mapping[str, float]
    measures: pd.DataFrame
    folder: Path
    post_processor: Path | None

    @cached_property
    def model(self) -> Any:
        """The fitted model; a `PostProcessed` where a rule post-processes it."""
        model = load_model(self.folder)
        if self.post_processor is None:
            return model
        return PostProcessed(model, load_model(self.post_processor))


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
        ``study``, ``profile``, ``folder``, ``fits``, ``trained``, ``skipped``, ``seconds``.
    """

    folder: Path
    home: Path
    facts: Mapping[str, Any]

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """The frontier: one row per fairness measure × method × setting."""
        return read_csv(self.folder / "frontier.csv")

    @cached_property
    def points(self) -> pd.DataFrame:
        """Every measure of every fit."""
        return pd.read_parquet(self.folder / "points.parquet")

    @cached_property
    def models(self) -> pd.DataFrame:
        """The folder of every model, by method, setting and seed."""
        return read_csv(self.folder / "models.csv", keep_default_na=False)

    @cached_property
    def objective(self) -> str:
        """The measure of the study's objective."""
        summary = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
        return str(summary["accuracy"])

    def select(
        self,
        measure: str | None = None,
        subject_to: Mapping[str, float] | None = None,
        *,
        seed: int | None = None,
    ) -> Choice:
        """Choose the best setting within bounds; see `select`."""
        return select(self, measure, subject_to, seed=seed)


def select(
    study: Study,
    measure: str | None = None,
    subject_to: Mapping[str, float] | None = None,
    *,
    seed: int | None = None,
) -> Choice:
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
    subject_to : mapping of str to float, optional
        Measure -> bound.
    seed : int, optional
        Which split's model is returned; the first by default.

    Returns
    -------
    Choice

    Raises
    ------
    ConfigError
        When a measure is unknown or was not estimated, no setting satisfies the bounds (the message
        names the nearest one), or there is no such seed.
    StoreError
        When the store no longer holds the model.

    Notes
    -----
    O(points). The reported measures were not used for choosing, but they are those of the best of
    several settings on one table. Of equally good settings the first by method and setting is
    taken.
    """
    measure = study.objective if measure is None else measure
    bounds = dict(subject_to or {})
    names = list(dict.fromkeys([measure, *bounds]))
    rows = study.frontier[KEYS].drop_duplicates()
    fits = study.points[[*KEYS, "seed"]].drop_duplicates().merge(rows, on=KEYS)
    part = str(json.loads(rows["setting"].iloc[0])["select_on"])
    means = summarise(study.points, fits, part).set_index(KEYS)
    known = set(means["name"])
    for name in names:
        if name not in known:
            raise ConfigError(
                f"The study holds no measure {name!r} on its {part} rows.", nearest(name, known)
            )
    table = pd.concat({name: means.loc[means["name"] == name, "value"] for name in names}, axis=1)
    table = table.dropna().sort_index()
    if table.empty:
        raise ConfigError(
            f"No setting of the study has estimates of all of {', '.join(names)}.",
            "Choose by measures of larger groups.",
        )
    scores = {name: orient(name, table[name].to_numpy()) for name in names}
    # How far each setting exceeds the bound that it violates most.
    excess = np.zeros(len(table))
    for name, bound in bounds.items():
        excess = np.maximum(excess, orient(name, np.array([bound])) - scores[name])
    best = int(np.lexsort((-scores[measure], excess))[0])
    if excess[best] > 0:
        raise ConfigError(
            f"No setting satisfies {_write(bounds)} on the {part} rows.",
            f"Loosen the bounds: {_name(table.index[best])} comes nearest, with "
            f"{_write(table.iloc[best].to_dict())}.",
        )
    method, setting = table.index[best]
    return _describe(study, str(method), str(setting), seed, table.iloc[best].to_dict(), fits)


def _describe(
    study: Study,
    method: str,
    setting: str,
    seed: int | None,
    selected: dict[Any, float],
    fits: pd.DataFrame,
) -> Choice:
    models = study.models
    models = models[(models["method"] == method) & (models["setting"] == setting)]
    models = models.sort_values("seed")
    if seed is not None:
        if seed not in set(models["seed"]):
            raise ConfigError(
                f"There is no model of seed {seed} among those of {_name((method, setting))}.",
                f"Give one of {', '.join(map(str, models['seed']))}.",
            )
        models = models[models["seed"] == seed]
    folders = [
        study.home / str(folder)
        for name in ("model", "post_processor")
        for folder in models[name].iloc[:1]
        if folder
    ]
    if not folders or not all(_is_stored(folder, study.home) for folder in folders):
        raise StoreError(
            f"The model of {_name((method, setting))} is no longer in the store.",
            "Run the study again.",
        )
    row = models.iloc[0]
    own = fits[(fits["method"] == method) & (fits["setting"] == setting)]
    return Choice(
        method=method,
        setting=json.loads(setting),
        seed=int(row["seed"]),
        selected={str(name): float(value) for name, value in selected.items()},
        measures=summarise(study.points, own, "test")[COLUMNS],
        folder=folders[0],
        post_processor=folders[1] if len(folders) > 1 else None,
    )


def _is_stored(folder: Path, home: Path) -> bool:
    """Return whether the store has a model, with its signature where entries are signed."""
    if find_key() is None:
        return folder.is_dir()
    return open_store(home).read(KIND, folder.parent.name) is not None


def _name(key: Any) -> str:
    method, setting = key
    shown = {name: value for name, value in json.loads(setting).items() if name != "select_on"}
    return f"{method} {json.dumps(shown)}" if shown else str(method)


def _write(values: Mapping[Any, float]) -> str:
    return ", ".join(f"{name} = {value:.4g}" for name, value in values.items())
