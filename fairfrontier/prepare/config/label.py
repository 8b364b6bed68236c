"""The section of a dataset's YAML that says what is learnt."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from fairfrontier.prepare.config.section import Level, Levels, Name
from fairfrontier.runtime.config import Model, fault


class Label(Model):
    """What is learnt.

    A number becomes a binary label by ``above``: 1 where the column holds more than that.
    Regression targets are mapped from ``range`` to [0, 1] when it is given; ``clip`` moves values
    outside it to the nearer end. With ``positive`` a regression target is 1 where the column
    holds one of these levels and 0 elsewhere: a share is predicted, not a class.
    """

    column: Name
    task: Literal["binary", "multiclass", "regression"] = "binary"
    positive: Levels | None = None
    above: float | None = None
    names: tuple[Name, Name] | None = None
    favourable: Level | None = None
    meaning: str = ""
    range: tuple[float, float] | None = None
    clip: bool = False

    @model_validator(mode="after")
    def _check(self) -> Label:
        if (self.task == "multiclass" and self.positive) or (self.task != "binary" and self.names):
            raise fault(f"positive and names belong to a binary label, and this one is {self.task}")
        if self.above is not None and (self.task != "binary" or self.positive):
            raise fault("above makes two classes of a number: leave out task and positive")
        if self.task == "regression" and self.positive and self.range:
            raise fault("positive makes targets of 0 and 1, range maps numbers: give one of them")
        if self.task != "regression" and self.range:
            raise fault(f"range belongs to a regression label, and this one is {self.task}")
        if self.clip and not self.range:
            raise fault("clip needs a range to clip to")
        if self.range and not self.range[0] < self.range[1]:
            raise fault("range must be [lowest, highest] with lowest < highest")
        return self
