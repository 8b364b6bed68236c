"""The section of a dataset's YAML that says what is learnt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from fairfrontier.prepare.config.section import Level, Levels, Name
from fairfrontier.runtime.config import Model, fault


class Label(Model):
    """What is learnt."""

    column: Name = Field(description="The column that holds it.")
    task: Literal["binary", "multiclass", "regression"] = Field(
        default="binary", description="Two classes, several, or a number."
    )
    positive: Levels | None = Field(
        default=None,
        description="Levels that are class 1. Of a regression, the target is 1 there and 0 "
        "elsewhere: a share is predicted, not a class.",
    )
    above: float | None = Field(
        default=None,
        description="Class 1 is where the column holds a number above this.",
        examples=[50_000],
    )
    names: tuple[Name, Name] | None = Field(
        default=None, description="What class 0 and class 1 are called."
    )
    favourable: Level | None = Field(
        default=None,
        description="The class that is good for the person, by its name; of two classes 1 by "
        "default. Selection rates are of decisions for it; tpr, fpr and their like are of class 1 "
        "all the same.",
    )
    meaning: str = Field(default="", description="What the positive class is, in words.")
    range: tuple[float, float] | None = Field(
        default=None, description="Lowest and highest target, which become 0 and 1."
    )
    clip: bool = Field(
        default=False, description="Whether targets outside ``range`` move to its nearer end."
    )

    def find_favourable(self, classes: Sequence[str]) -> int | None:
        """Return the code of the favourable class; None where nothing says which of several it is.

        ``classes`` are the names by code. Of two classes a level of the column names one, too.
        """
        if self.favourable is None:
            return 1 if len(classes) == 2 else None
        if self.favourable in classes:
            return list(classes).index(self.favourable)
        return int(self.favourable in (self.positive or ()))

    @model_validator(mode="after")
    def _check(self) -> Label:
        if (self.task == "multiclass" and self.positive) or (self.task != "binary" and self.names):
            raise fault(f"positive and names belong to a binary label, and this one is {self.task}")
        if self.names and self.names[0] == self.names[1]:
            raise fault(f"names calls both classes {self.names[0]!r}: give them two names")
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
