"""What was chosen from a study: one setting or a mixture of two, with models and measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairfrontier.choose.export import export_choice
from fairfrontier.choose.mixture import TOLERANCE, Mixture
from fairfrontier.prepare.loader import SplitRequest
from fairfrontier.study.frontier import orient
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.registry import load_model

if TYPE_CHECKING:
    from fairfrontier.choose.select import Study


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
    certified : mapping of str to float
        Where a confidence was asked for, the bound on each bounded measure that holds for all
        settings at once.
    folder : Path
        Where the model is stored.
    post_processor : Path or None
        Where the rule that post-processes it is stored.
    study : Study
        What it was chosen from.
    bounds : mapping of str to float
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
    bounds: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def model(self) -> Any:
        """The fitted model; a `PostProcessed` where a rule post-processes it."""
        model = load_model(self.folder)
        if self.post_processor is None:
            return model
        return PostProcessed(model, load_model(self.post_processor))

    @property
    def components(self) -> tuple[tuple[Choice, float], ...]:
        """Itself, with the probability 1 that it decides."""
        return ((self, 1.0),)

    @property
    def passed(self) -> pd.DataFrame:
        """The bounds that `measures` do not keep; see `find_passed`."""
        return find_passed(self.bounds, self.measures)

    def find_split(self) -> SplitRequest:
        """Return the split that the model was trained on."""
        rows, noise = self.setting.get("rows"), self.setting.get("noise")
        select_on = self.setting["select_on"]
        return SplitRequest(self.study.dataset, self.seed, rows, select_on, noise)

    def export(self, folder: str | Path, **options: Any) -> Path:
        """Write the bundle of this choice to a new folder; see `export_choice`."""
        return export_choice(self, folder, **options)


@dataclass(frozen=True, eq=False)
class MixedChoice:
    """Two chosen settings of which one, drawn for every row, decides.

    Attributes
    ----------
    first, second : Choice
        The two settings, with their own models and measures.
    share : float
        The probability that the second decides.
    selected, certified, bounds : mapping of str to float
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
    bounds: Mapping[str, float] = field(default_factory=dict)

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

    @property
    def passed(self) -> pd.DataFrame:
        """The bounds that `measures` do not keep; see `find_passed`."""
        return find_passed(self.bounds, self.measures)

    def export(self, folder: str | Path, **options: Any) -> Path:
        """Write the bundle of this choice to a new folder; see `export_choice`."""
        return export_choice(self, folder, **options)

    @cached_property
    def model(self) -> Mixture:
        """Both models, with the draw by row id."""
        return Mixture(self.first.model, self.second.model, self.share)


def find_passed(bounds: Mapping[str, float], measures: pd.DataFrame) -> pd.DataFrame:
    """Return the bounds that measures do not keep, or of which nothing is known.

    The columns are name, bound, value, low and high; the last three are NaN where not known.
    """
    table = measures.set_index("name").reindex(index=[*bounds], columns=["value", "low", "high"])
    table.insert(0, "bound", pd.Series(bounds, dtype=np.float64))
    pairs = table[["bound", "value"]].to_numpy()
    scores = [orient(name, pair) for name, pair in zip(bounds, pairs, strict=True)]
    # Not kept where it is NaN, either.
    passed = [not value >= bound - TOLERANCE for bound, value in scores]
    return table[passed].rename_axis("name").reset_index()
