"""The models of a study's frontier that the store holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairfrontier.prepare.split import Split
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.drawing import Scene
from fairfrontier.train.fit.group import FitGroup, Member
from fairfrontier.train.fit.input import load_split
from fairfrontier.train.fit.kept import KIND, read_facts
from fairfrontier.train.fit.key import key
from fairfrontier.train.fit.score_file import read_scores
from fairfrontier.train.prediction import Prediction
from fairfrontier.train.registry import load_model


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A stored model: the ``number``-th of its fit group, whose files are in ``folder``."""

    group: FitGroup
    number: int
    folder: Path

    @property
    def member(self) -> Member:
        """Its seed, parameters and setting."""
        return self.group.members[self.number]

    @property
    def row(self) -> tuple[str, str]:
        """Method and setting as in points.parquet."""
        return self.group.method, canonical_json(self.member.setting)

    def split(self, home: Path) -> Split:
        """Return the split that it was trained on."""
        return load_split(self.group, self.member, home)

    def predictions(self) -> Mapping[str, Prediction]:
        """Return its scores and decisions by part."""
        return read_scores(self.folder / f"scores-{self.number}.npz")

    def test_scores(self) -> Prediction:
        """Return its predictions for the test part."""
        return self.predictions()["test"]

    def model(self) -> Any:
        """Return the fitted model, or the post-processor where the row has one."""
        return load_model(self.folder / f"model-{self.number}")


def list_stored(scene: Scene, wanted: Callable[[FitGroup, Member], bool]) -> Iterator[StoredModel]:
    """Yield the wanted models of the frontier's block that are stored, in the plan's order."""
    for planned in scene.plan:
        group = planned.group
        numbers = [i for i, member in enumerate(group.members) if wanted(group, member)]
        if not numbers or "frontier" not in planned.blocks:
            continue
        folder = scene.store.path(KIND, key(group, scene.store, scene.home))
        if folder.is_dir() and read_facts(folder)["skipped"] is None:
            yield from (StoredModel(group, number, folder) for number in numbers)
