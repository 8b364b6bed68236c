"""What an audit of noisy groups is asked for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fairfrontier.audit.bound import RATES
from fairfrontier.prepare.table.audit_table import DecisionColumns
from fairfrontier.runtime.config import Model, fault
from fairfrontier.runtime.errors import nearest

CRITERIA = {
    "equal_opportunity": ("tpr",),
    "equalized_odds": ("tpr", "fpr"),
    "demographic_parity": ("selection_rate",),
    **{rate: (rate,) for rate in RATES},
}
TABLE = (
    "labels",
    "group",
    "decisions",
    "scores",
    "threshold",
    "randomised",
    "accepted",
    "positive",
    "weights",
)
FITTED = ("dataset", "part", "attribute", "seed", "noise")
Name = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class AuditConfig(Model):
    """What an audit is asked for.

    Attributes
    ----------
    table : str or None
        A Parquet file, a folder of them, or a CSV file, with a decision in every row.
    labels, group, decisions, scores, threshold, accepted, positive, weights
        See `DecisionColumns`.
    randomised : bool
        Whether scores are the probabilities with which a rule decides 1.
    model : str or None
        In place of a table: the folder of a saved model.
    dataset, part, attribute, seed : str, str, str or None, int
        What the model is asked about: a part of a split, and its noisy attribute.
    noise : float or None
        Share of wrong groups that is injected, in place of the dataset's own.
    level : float or None
        γ of uniform flips.
    confusion : str or None
        A table of P(Ĝ=k | G=j), true groups in rows.
    auxiliary, true_group : str or None
        A table that holds both groups of its rows, and its column of true ones. That of noisy ones
        has the name of ``group`` or ``attribute``. Without any of these three, the true groups of
        the training part say what noise was injected.
    prior : mapping of str to float, or None
        P(G=j), with level or confusion; by default what makes the noisy shares of the rows.
    budget : float
        α: the margin of comparisons with all rows.
    criterion : tuple of str
        Rates, or criteria that are made of them; all rates by default.
    confidence : float
        Of each statement, where the noise was estimated.
    """

    table: Name | None = None
    labels: Name | None = None
    group: Name | None = None
    decisions: Name | None = None
    scores: Name | None = None
    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = None
    randomised: bool = False
    accepted: Name | None = None
    positive: Name | None = None
    weights: Name | None = None
    model: Name | None = None
    dataset: Name | None = None
    part: Literal["train", "calibration", "validation", "test"] = "test"
    attribute: Name | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    noise: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    level: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    confusion: Name | None = None
    auxiliary: Name | None = None
    true_group: Name | None = None
    prior: dict[str, Share] | None = None
    budget: Share = 0.05
    criterion: tuple[Name, ...] = ()
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95

    @model_validator(mode="after")
    def _check(self) -> AuditConfig:
        if (self.table is None) == (self.model is None):
            raise fault(
                "an audit is of a table or of a model, one of the two",
                "Give the path of a table, or --model and --dataset.",
            )
        self._refuse(FITTED if self.model is None else TABLE)
        if self.model is None:
            self._check_table()
        elif self.dataset is None:
            raise fault(
                "a model alone decides on nothing", "Name rows for it with --dataset and --part."
            )
        self._check_noise()
        for name in self.criterion:
            if name not in CRITERIA:
                raise fault(f"there is no criterion {name!r}", nearest(name, CRITERIA))
        return self

    def _refuse(self, names: tuple[str, ...]) -> None:
        given = list(self.given(names))
        if given:
            kind = "table" if self.model is None else "model"
            raise fault(f"--{given[0]} is not for the audit of a {kind}", "Leave it out.")

    def _check_table(self) -> None:
        if self.labels is None or self.group is None or not (self.decisions or self.scores):
            raise fault(
                "an audit needs decisions, labels and noisy groups",
                "Name their columns with "
                "--decisions (or --scores and --threshold), --labels and --group.",
            )
        if self.decisions is not None and self.scores is not None:
            raise fault("decisions and scores are both given", "Leave one of them out.")
        named = [
            each
            for each in (self.decisions, self.scores, self.labels, self.group, self.weights)
            if each is not None
        ]
        twice = sorted({each for each in named if named.count(each) > 1})
        if twice:
            raise fault(
                f"the column {twice[0]!r} is named twice", "Name a column for each purpose."
            )
        if self.scores is not None and (self.threshold is None) != self.randomised:
            raise fault(
                "scores become decisions by a threshold, or are probabilities of deciding 1",
                "Give one of --threshold and --randomised.",
            )
        if self.scores is None and (self.threshold is not None or self.randomised):
            raise fault("a threshold is given without scores", "Name their column with --scores.")
        if self.accepted is not None and self.decisions is None:
            raise fault(
                "accepted is given without decisions", "Name their column with --decisions."
            )

    def _check_noise(self) -> None:
        known = ("level", "confusion", "auxiliary")
        given = [name for name in known if getattr(self, name) is not None]
        if len(given) > 1:
            raise fault(
                f"{' and '.join(given)} are both given", "Say in one way what the noise is."
            )
        if not given and self.model is None:
            raise fault(
                "nothing says how wrong the groups are",
                "Give --level, --confusion, or --auxiliary with --true-group.",
            )
        if (self.auxiliary is None) != (self.true_group is None):
            raise fault(
                "an auxiliary table and its column of true groups go together",
                "Give both --auxiliary and --true-group.",
            )
        if self.prior is not None and not {"level", "confusion"} & set(given):
            raise fault("prior is given, and the table estimates it", "Leave --prior out.")

    def given(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return those of the parameters that are not what they are by default."""
        fields = type(self).model_fields
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value != fields[name].default}

    @property
    def rates(self) -> tuple[str, ...]:
        """The rates that are bounded, in their usual order."""
        asked = {rate for name in self.criterion for rate in CRITERIA[name]}
        return tuple(rate for rate in RATES if not asked or rate in asked)

    def columns(self) -> DecisionColumns:
        """Return which columns of the table are read."""
        return DecisionColumns(
            labels=str(self.labels),
            group=str(self.group),
            decisions=self.decisions,
            scores=self.scores,
            threshold=self.threshold,
            accepted=self.accepted,
            positive=self.positive,
            weights=self.weights,
        )
