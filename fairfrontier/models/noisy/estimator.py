"""Classifiers trained on noisy groups, one for each way to stand in for the true groups.

Base of the classifiers that are fair to true groups, trained on rows whose groups are noisy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import expit

from fairfrontier.models.base import Classifier, unit_weight
from fairfrontier.models.group import take_attribute
from fairfrontier.models.neural.estimator import check_alike, pack_training, unpack_training
from fairfrontier.models.neural.network import Network
from fairfrontier.models.noisy.problem import (
    ALLOWED,
    ROBUST,
    TUNED,
    Approach,
    Best,
    ConstrainedProblem,
    Setting,
    Solution,
    build_problem,
    evaluate_constraints,
    list_candidates,
    rank_candidates,
    take_largest,
)
from fairfrontier.models.noisy.rate import CRITERIA
from fairfrontier.models.noisy.solver import INNERS, share_progress, solve
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.arrays import Backend
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.registry import Registry
from fairfrontier.runtime.seeds import uniforms

Progress = Callable[[int, int], None]
# What a fit takes for each row; models that are given the same objects train together.
TABLE = ("X", "y", "sensitive_features", "true_groups", "sample_weight")
# Fitted arrays, and numbers with what replaces them where they are not finite.
ARRAYS = ("probability", "level", "joint", "cell_mass", "trials")
NUMBERS = {"step": 0, "error": np.nan, "violation": -np.inf, "gap": np.nan}


@dataclass(kw_only=True, eq=False, repr=False)
class NoisyClassifier(Classifier):
    """Base of the classifiers that are fair to true groups, trained on noisy ones.

    min_θ E[(1 − ỹ φ_θ(x))₊]  s.t.  g_rj(θ) ≤ 0 for every rate r of the criterion and true group j

    where g_rj bounds by how much group j fares worse than all rows, TPR − TPR_j − α for true
    positive rates and FPR_j − FPR − α for false ones. Decisions are 1{φ ≥ 0}. Only noisy groups Ĝ
    are observed; subclasses differ in how they stand in for the true groups G.

    Parameters
    ----------
    criterion : str
        ``equal_opportunity`` (TPR), ``equalized_odds`` (TPR and FPR), ``demographic_parity``
        (selection rates within α on both sides) or ``accuracy``.
    attribute : int
        Column of the attribute in ``sensitive_features``; a study's YAML may name it.
    iterations : int
        Steps of training.
    learning_rate : float or list of float
        Of Adam on θ. Of lists of this and other rates, every combination is trained, and the one
        kept has the least error on the validation rows among those that satisfy the constraints
        there; if none does, it is the least violated.
    layers : int or sequence of int
        Widths of hidden layers; 0 for a linear model, which starts at 0.
    best : {"paper", "ranks", "last"}
        Which iterate is kept: the one of least error that satisfies the constraints as the inner
        player sees them, else the least violated; by Cotter's ranks among the recorded ones; or
        the last.
    record_every : int
        Steps between records of the history.
    dtype : {"float32", "float64"}
    backend : {"auto", "numpy", "cupy"}
    random_state : int
        Seed of the initial weights of nets, and of the decisions of stochastic classifiers.

    Attributes
    ----------
    network_, probability_, error_, violation_, gap_, step_, level_, joint_, cell_mass_, history_
        See ``problem.Solution``; ``violation_`` is the true worst case on the training rows.
    chosen_ : dict of str to float
        The slack and the rates of the chosen combination.
    trials_ : ndarray of float64, shape (n_combinations, 2)
        Error and largest constraint of every combination on the validation rows; on the training
        rows where ``fit`` was given no others.

    Notes
    -----
    Equal rows are merged, and models of one table train together: O(n d) a step and model for a
    linear model, in products of matrices, and as much again for ``noisy_dro``. P(Y=1|x) is reported
    as 1 / (1 + exp(−φ)), which is not calibrated.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust optimization for
    fairness with noisy protected groups. NeurIPS 2020.
    """

    approach: ClassVar[Approach]
    group_parameters: ClassVar[tuple[str, ...]] = ("attribute",)
    backends: ClassVar[tuple[str, ...]] = ("numpy", "cupy")
    batched: ClassVar[bool] = True
    across_splits: ClassVar[bool] = False
    paper: ClassVar[str] = (
        "Wang, Guo, Narasimhan, Cotter, Gupta, Jordan, Robust optimization for fairness with noisy "
        "protected groups, NeurIPS 2020"
    )
    # Parameters in which the models of a batch may differ.
    varies: ClassVar[frozenset[str]] = frozenset(
        {
            "budget",
            "slack",
            "level",
            "confusion",
            "radius",
            "learning_rate",
            "multiplier_rate",
            "inner_rate",
            "random_state",
        }
    )
    example: ClassVar[Mapping[str, Any]] = {
        "iterations": 10,
        "learning_rate": 0.3,
        "record_every": 5,
    }

    criterion: str = "equal_opportunity"
    attribute: int = 0
    iterations: int = 750
    learning_rate: float | Sequence[float] = 0.01
    layers: int | Sequence[int] = 0
    best: Best = "paper"
    record_every: int = 25
    dtype: Literal["float32", "float64"] = "float32"
    backend: Backend = "auto"
    random_state: int = 0

    network_: Network = field(init=False)
    probability_: np.ndarray = field(init=False)
    error_: float = field(init=False)
    violation_: float = field(init=False)
    gap_: float = field(init=False)
    step_: int = field(init=False)
    level_: np.ndarray = field(init=False)
    joint_: np.ndarray = field(init=False)
    cell_mass_: np.ndarray = field(init=False)
    history_: dict[str, np.ndarray] = field(init=False)
    chosen_: dict[str, float] = field(init=False)
    trials_: np.ndarray = field(init=False)

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        if isinstance(self.layers, Sequence):
            return tuple(self.layers)
        return (self.layers,) if self.layers else ()

    def structure(self) -> tuple[tuple[str, Any], ...]:
        """Return what the models of a batch must have in common; hashable."""
        parameters = self.get_params(deep=False)
        shared = {key: value for key, value in parameters.items() if key not in self.varies}
        return tuple(sorted({**shared, "layers": self.widths}.items()))

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        if self.criterion not in CRITERIA:
            raise ConfigError(
                f"The parameter 'criterion' of {self.name!r} is {self.criterion!r}.",
                nearest(str(self.criterion), CRITERIA),
            )
        parameters = self.get_params(deep=False)
        for name, (is_allowed, wanted) in ALLOWED.items():
            self.require(name, name not in parameters or is_allowed(parameters[name]), wanted)
        self.require("layers", all(width >= 1 for width in self.widths), "widths of 1 or more")
        if "inner" in parameters:
            INNERS.find(parameters["inner"])
        level, confusion = parameters.get("level"), parameters.get("confusion")
        single = self.approach == "dro" or np.ndim(level or 0) == 0
        self.require("level", single, "one share: a list is for noisy_dro")
        self.require("confusion", level is None or confusion is None, "it or the level, not both")

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        reason = super().supports(split)
        parameters = self.get_params(deep=False)
        described = parameters.get("level") is not None or parameters.get("confusion") is not None
        known = described or split.train.true_groups is not None
        if reason is None and self.approach in ROBUST and not known:
            return (
                f"{self.name} needs a noise level, a confusion or true groups, and "
                f"{split.dataset} injects no noise."
            )
        return reason

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on rows X with labels y of two classes and noisy groups.

        Parameters
        ----------
        X : array or frame, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        sensitive_features : ndarray of int64, shape (n_samples, n_attributes)
            Noisy groups, a column per attribute.
        sample_weight : ndarray of float64, shape (n_samples,), optional
        validation : Part, optional
            Rows that choose among listed slacks and rates.
        progress : callable, optional
            Called with (steps done, steps).

        Raises
        ------
        ConfigError
            For invalid parameters, among them a noise model that does not sum to 1.
        DataError
            For groups that are missing where they are needed.
        InputError
            For tables that are not numbers, and labels of other than two classes.
        """
        return self._fit_alone(
            progress,
            X=X,
            y=y,
            sensitive_features=sensitive_features,
            sample_weight=sample_weight,
            validation=validation,
        )

    def _fit_alone(self, progress: Progress | None, **data: Any) -> Self:
        type(self).fit_batch([self], [data], progress=progress)
        return self

    @classmethod
    def fit_batch(
        cls,
        models: Sequence[Self],
        data: Sequence[Mapping[str, Any]],
        *,
        progress: Progress | None = None,
    ) -> None:
        """Fit several models of one ``structure``, those with the same table at once.

        Each mapping of ``data`` holds X, y and the keywords of ``fit``; models whose mappings hold
        the same objects train together. ``progress`` counts the steps over all tables.
        """
        check_alike(models)
        tables: dict[tuple[int, ...], list[int]] = {}
        for index, keywords in enumerate(data):
            tables.setdefault(tuple(id(keywords.get(name)) for name in TABLE), []).append(index)
        for done, members in enumerate(tables.values()):
            candidates = {index: list_candidates(models[index].setting()) for index in members}
            settings = [setting for listed in candidates.values() for setting in listed]
            checked = [models[index]._validate(data[index]) for index in members]
            problems = cls._build_problems(settings, checked[0])
            solved = iter(solve(problems, settings, share_progress(progress, done, len(tables))))
            for (index, listed), table in zip(candidates.items(), checked, strict=True):
                # Labels that were given may be a column, or no array.
                given = {**data[index], "y": models[index].classes_[table["y"]]}
                models[index]._choose(listed, [next(solved) for _ in listed], given)

    def _validate(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data with rows and labels as arrays of numbers and codes."""
        aligned = (
            data.get("sensitive_features"),
            data.get("true_groups"),
            data.get("sample_weight"),
        )
        X, codes = self.validate_training(data["X"], data["y"], *aligned)
        return {**data, "X": X, "y": codes}

    @classmethod
    def _build_problems(
        cls, settings: Sequence[Setting], data: Mapping[str, Any]
    ) -> list[ConstrainedProblem]:
        """Return the problem of every setting; those of a batch differ in the noise only."""
        problems: dict[str, ConstrainedProblem] = {}
        noises = [repr((setting.level, setting.confusion)) for setting in settings]
        for noise, setting in zip(noises, settings, strict=True):
            if noise not in problems:
                problems[noise] = build_problem(data, setting, cls.name)
        return [problems[noise] for noise in noises]

    def _choose(
        self, settings: Sequence[Setting], solutions: Sequence[Solution], data: Mapping[str, Any]
    ) -> None:
        """Keep the best candidate on the validation rows, or on the training rows without any."""
        part = data.get("validation")
        self.trials_ = np.array(
            [
                (solution.error, solution.violation)
                if part is None
                else self._try_candidate(setting, solution, part)
                for setting, solution in zip(settings, solutions, strict=True)
            ]
        )
        best = rank_candidates(self.trials_)
        names = self.get_params(deep=False)
        self.chosen_ = {
            name: float(getattr(settings[best], name)) for name in TUNED if name in names
        }
        for attribute in fields(Solution):
            setattr(self, f"{attribute.name}_", getattr(solutions[best], attribute.name))
        if self.approach in ROBUST and settings[best].inner != "exact":
            # What the player had found by its steps may be far below the maximum.
            rows = [data[name] for name in ("X", "y", "sensitive_features")]
            self.violation_ = self.violation(*rows, sample_weight=data.get("sample_weight"))

    def _try_candidate(
        self, setting: Setting, solution: Solution, part: Part
    ) -> tuple[float, float]:
        """Return error and largest constraint of a candidate on validation rows.

        The constraints are those of the approach, or with ``validation_groups`` "true" those on the
        true groups.
        """
        weight = unit_weight(part.weight, len(part.y))
        decision, y = solution.decide(part.X), self.encode_labels(part.y)
        error = np.average(np.abs(decision @ solution.probability - y), weights=weight)
        if setting.validation_groups == "true":
            setting = replace(setting, approach="true_groups")
        codes = self._take_codes(setting, part.groups, part.true_groups)
        constraints = evaluate_constraints(
            setting, solution, decision, y, codes, weight, setting.inner
        )
        return float(error), take_largest(constraints)

    @staticmethod
    def _take_codes(
        setting: Setting, groups: np.ndarray, true_groups: np.ndarray | None
    ) -> np.ndarray:
        """Return the groups that the approach constrains."""
        if setting.approach == "true_groups" and true_groups is not None:
            groups = true_groups
        return take_attribute(groups, setting.attribute)

    def setting(self) -> Setting:
        """Return the parameters in the form that the solver takes."""
        parameters = self.get_params(deep=False)
        chosen = {
            option.name: parameters[option.name]
            for option in fields(Setting)
            if parameters.get(option.name) is not None
        }
        return Setting(approach=self.approach, widths=self.widths, mix=self.mix(), **chosen)

    def mix(self) -> Callable[..., Solution] | None:
        """Return what makes a mixture of the iterates, see `Setting`; None for single models."""
        return None

    def _solution(self) -> Solution:
        names = [attribute.name for attribute in fields(Solution)]
        return Solution(**{name: getattr(self, f"{name}_") for name in names})

    def constraints(
        self,
        X: np.ndarray,
        y: np.ndarray,
        groups: np.ndarray,
        *,
        true_groups: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
        inner: Literal["ascent", "exact"] = "exact",
    ) -> np.ndarray:
        """Return the constraints of the approach on any rows, with indicators.

        Parameters
        ----------
        X, y, groups, sample_weight
            As in ``fit``.
        true_groups : ndarray of int64, shape (n_samples, n_attributes), optional
            Constrained by ``noisy_true_groups``.
        inner : {"ascent", "exact"}, optional
            Which worst case. ``exact``: the true maximum over the ball or over W(θ), on these
            rows. ``ascent``: under the masses that the adversary had assigned to each noisy group,
            decision and label when the iterate was chosen, which may be far below.

        Returns
        -------
        ndarray of float64, shape (R, m)
            By rate and group, in units of the rate; ≤ 0 where satisfied, NaN where a group has no
            row of the event. Of shape (0, m) under ``noisy_unconstrained``. For a stochastic
            classifier the expectation of its classifiers' constraints.
        """
        decision, setting = self.decide(X), self.setting()
        if inner == "ascent" and self.approach in ROBUST and setting.inner == "exact":
            raise ConfigError(
                f"The parameter 'inner' of constraints is 'ascent', and this {self.name} was not "
                "trained by ascent.",
                "Leave it out, or ask for 'exact'.",
            )
        return evaluate_constraints(
            setting,
            self._solution(),
            decision,
            self.encode_labels(y),
            self._take_codes(setting, groups, true_groups),
            unit_weight(sample_weight, len(y)),
            inner,
        )

    def violation(self, X: np.ndarray, y: np.ndarray, groups: np.ndarray, **options: Any) -> float:
        """Return the largest of the ``constraints``, whose options it takes: ≤ 0 if satisfied.

        −∞ under ``noisy_unconstrained``, which has none; NaN where no group has a row of any event.
        """
        return take_largest(self.constraints(X, y, groups, **options))

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return φ of every classifier, float64, shape (n_samples, n_classifiers)."""
        rows = self.validate_rows(X)
        return self._solution().scores(rows)

    def decide(self, X: np.ndarray) -> np.ndarray:
        """Return 1{φ ≥ 0} of every classifier, float64, shape (n_samples, n_classifiers)."""
        return (self.scores(X) >= 0).astype(np.float64)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return probabilities of the decisions 0 and 1, float64, shape (n_samples, 2).

        For a deterministic classifier 1 / (1 + exp(−φ)), which is at least one half where the
        decision is 1; for a stochastic one the exact probabilities.
        """
        if self.randomized:
            positive = (self.decide(X) * self.probability_).sum(axis=1)
        else:
            positive = expit(self.scores(X)[:, 0])
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, X: np.ndarray, *, ids: np.ndarray | None = None) -> np.ndarray:
        """Return labels, shape (n_samples,).

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
        ids : ndarray of int64, shape (n_samples,), optional
            Row ids that determine random decisions; the rows' positions when None.
        """
        if self.randomized:
            positive = self.predict_proba(X)[:, 1]
            rows = np.arange(len(positive)) if ids is None else ids
            decision = uniforms(self.random_state, rows) < positive
        else:
            decision = self.scores(X)[:, 0] >= 0
        labels: np.ndarray = self.classes_[decision.astype(np.int64)]
        return labels

    def get_state(self) -> State:
        """Return the classifiers, the noise model and the history."""
        arrays = pack_training(self) | {name: getattr(self, f"{name}_") for name in ARRAYS}
        numbers = {name: getattr(self, f"{name}_") for name in NUMBERS}
        facts = {name: value if np.isfinite(value) else None for name, value in numbers.items()}
        return State(arrays=arrays, facts={**facts, "chosen": self.chosen_})

    def set_state(self, state: State) -> None:
        """Restore what ``get_state`` returned."""
        unpack_training(self, state.arrays)
        for name in ARRAYS:
            setattr(self, f"{name}_", state.arrays[name])
        for name, missing in NUMBERS.items():
            value = state.facts[name]
            setattr(self, f"{name}_", missing if value is None else value)
        self.chosen_ = state.facts["chosen"]


@method("noisy_unconstrained")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyUnconstrained(NoisyClassifier):
    """A classifier without constraints, as a baseline for those on noisy groups.

    Parameters and attributes are those of `NoisyClassifier`. The criterion and the attribute only
    determine what the history records.

    References
    ----------
    Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020.
    """

    approach: ClassVar[Approach] = "unconstrained"


@dataclass(kw_only=True, eq=False, repr=False)
class ConstrainedClassifier(NoisyClassifier):
    """Base of the classifiers with constraints.

    Parameters
    ----------
    budget : float
        α ≥ 0, the allowed difference.
    slack : float or list of float
        β ≥ 0, added to α for the hinges in training. With α + β < 1 no scores satisfy all hinge
        constraints, with α + β = 1 only scores within [−1, 1] do.
    radius : float
        R, the largest sum of multipliers.
    multiplier_rate : float or list of float
        Learning rate of Adam on λ.
    **others
        As in `NoisyClassifier`.
    """

    constrains_decisions: ClassVar[bool] = True

    budget: float = 0.05
    slack: float | Sequence[float] = 1.25
    radius: float = 1.0
    multiplier_rate: float | Sequence[float] = 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class InformedClassifier(ConstrainedClassifier):
    """Base of the classifiers that use the true groups of training rows where these are known."""

    def fit(  # type: ignore[override]
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        sensitive_features: np.ndarray,
        true_groups: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train as `NoisyClassifier.fit` does.

        ``true_groups``, int64 of the shape of ``sensitive_features``, are constrained by
        ``noisy_true_groups``, which falls back on the noisy ones. The other methods only estimate
        the noise model from them, unless it is given.
        """
        return self._fit_alone(
            progress,
            X=X,
            y=y,
            sensitive_features=sensitive_features,
            true_groups=true_groups,
            sample_weight=sample_weight,
            validation=validation,
        )


@method("noisy_true_groups")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyTrueGroups(InformedClassifier):
    """A classifier that is constrained on the true groups, which it is given.

    Parameters as in `ConstrainedClassifier`, attributes as in `NoisyClassifier`.

    References
    ----------
    Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020.
    """

    approach: ClassVar[Approach] = "true_groups"


@method("noisy_naive")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyNaive(ConstrainedClassifier):
    """A classifier that is constrained on the noisy groups as if they were the true ones.

    Parameters
    ----------
    validation_groups : {"noisy", "true"}
        Whose constraints choose among listed rates: the approach's own; or those on the true groups
        of the validation rows, which in practice need not be known.
    **others
        As in `ConstrainedClassifier`; attributes as in `NoisyClassifier`.

    References
    ----------
    Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020.
    """

    approach: ClassVar[Approach] = "naive"

    validation_groups: Literal["noisy", "true"] = "noisy"


@dataclass(kw_only=True, eq=False, repr=False)
class RobustClassifier(InformedClassifier):
    """Base of the classifiers that satisfy their constraints in the worst case under a noise model.

    Parameters
    ----------
    level : float or None
        The noise: the share γ of rows that are in a wrong group, all others being equally likely.
        None: the noise is estimated from ``true_groups``.
    confusion : list of list of float, optional
        The noise, instead of a level: P(Ĝ=k | G=j) in row j.
    validation_groups : {"noisy", "true"}
        As in `NoisyNaive`.
    **others
        As in `ConstrainedClassifier`; attributes as in `NoisyClassifier`.
    """

    solvers: ClassVar[Registry[Any] | None] = INNERS
    solver_parameter: ClassVar[str] = "inner"

    level: float | Sequence[float] | None = None
    confusion: Sequence[Sequence[float]] | None = None
    validation_groups: Literal["noisy", "true"] = "noisy"


@method("noisy_dro")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisyDRO(RobustClassifier):
    """A classifier that is fair under the worst distributions near those of the noisy groups.

    Constraints on group j hold for every distribution within total variation γ_j of that of the
    rows with Ĝ = j.

    Parameters
    ----------
    level : float, list of float or None
        As in `RobustClassifier`, or a list of γ_j, one for each group.
    tv : {"paper", "valid"}
        γ_j from a noise model: P(Ĝ≠j | G=j), which bounds the distance if P(G=j) = P(Ĝ=j); or
        max{P(Ĝ≠j | G=j), P(G≠j | Ĝ=j)}, which always does.
    inner : str
        How the worst case is found: ``exact`` in closed form at every step. The package of the
        papers adds ``ascent``, projected steps, which the published numbers come from; its
        solutions need not be robust.
    variant : {"paper", "authors"}
        Of the ascent. ``authors``, as in their code: constraints are ratios of the adversary's
        masses, one p̃_j serves all rates of a group, masses start at 0, and projections are rougher.
    inner_rate : float or list of float
        Learning rate of Adam on p̃, in the ascent.
    inner_steps : int
        Steps of ascent for each step of θ.
    **others
        As in `RobustClassifier`.

    References
    ----------
    Wang et al., NeurIPS 2020, algorithm 2.
    """

    approach: ClassVar[Approach] = "dro"
    example: ClassVar[Mapping[str, Any]] = {
        **NoisyClassifier.example,
        "level": 0.1,
        "tv": "valid",
        "budget": 0.2,
    }

    tv: Literal["paper", "valid"] = "paper"
    inner: str = "exact"
    variant: Literal["paper", "authors"] = "paper"
    inner_rate: float | Sequence[float] = 0.01
    inner_steps: int = 1


@method("noisy_soft_assignment")
@dataclass(kw_only=True, eq=False, repr=False)
class NoisySoftAssignment(RobustClassifier):
    """A classifier that is fair under the worst assignment of the rows to true groups.

    Constraints hold for every w(j | ŷ, y, k) that agrees with P(G=j | Ĝ=k).

    Parameters
    ----------
    inner : str
        As in `NoisyDRO`.
    variant : {"paper", "authors"}
        Of the ascent. ``authors``, as in their code: constraints are ratios of the adversary's
        masses, masses start at 0, and projections are rougher. Their code also sets
        ``validation_groups`` to ``true``.
    inner_rate, inner_steps
        As in `NoisyDRO`, for w.
    **others
        As in `RobustClassifier`.

    References
    ----------
    Wang et al., NeurIPS 2020, algorithm 4. N. Kallus, X. Mao, A. Zhou. Assessing algorithmic
    fairness with unobserved protected class using data combination. Management Science 68, 2022.
    """

    approach: ClassVar[Approach] = "soft_assignment"
    example: ClassVar[Mapping[str, Any]] = {**NoisyClassifier.example, "level": 0.05, "budget": 0.2}

    inner: str = "exact"
    variant: Literal["paper", "authors"] = "paper"
    inner_rate: float | Sequence[float] = 0.01
    inner_steps: int = 5
