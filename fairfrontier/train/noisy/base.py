"""Base of the classifiers that are fair to true groups, trained on rows whose groups are noisy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import expit

from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.arrays import Backend
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.train.base import Classifier, take_attribute, unit_weight
from fairfrontier.train.neural.network import Network
from fairfrontier.train.noisy.constraint import evaluate_constraints, take_largest
from fairfrontier.train.noisy.lagrangian import Best
from fairfrontier.train.noisy.parameter import ALLOWED
from fairfrontier.train.noisy.problem import (
    ROBUST,
    Approach,
    ConstrainedProblem,
    Setting,
    Solution,
    build_problem,
)
from fairfrontier.train.noisy.rate import CRITERIA
from fairfrontier.train.noisy.selection import describe_choice, list_candidates, rank_candidates
from fairfrontier.train.noisy.solver import share_progress, solve
from fairfrontier.train.persistence import State

Progress = Callable[[int, int], None]
# What a fit takes for each row; models that are given the same objects train together.
TABLE = ("X", "y", "groups", "true_groups", "sample_weight")


@dataclass(kw_only=True, eq=False, repr=False)
class NoisyClassifier(Classifier):
    """Base of the classifiers that are fair to true groups, trained on noisy ones.

    min_θ E[(1 − ỹ φ_θ(x))₊]  s.t.  g_rj(θ) ≤ 0 for every rate r of the criterion and true group j

    where g_rj bounds by how much group j fares worse than all rows, TPR − TPR_j − α for true
    positive rates and FPR_j − FPR − α for false ones. Decisions are 1{φ ≥ 0}. Of the groups G only
    noisy ones Ĝ are seen; every subclass says what stands for them.

    Parameters
    ----------
    criterion : str
        ``equal_opportunity`` (TPR), ``equalized_odds`` (TPR and FPR), ``demographic_parity``
        (selection rates within α on both sides) or ``accuracy``.
    attribute : int
        Column of the attribute in ``groups``; a study's YAML may name it.
    iterations : int
        Steps of training.
    learning_rate : float or list of float
        Of Adam on θ. Of lists of this and other rates, every combination is trained, and that is
        kept which has the least error on the validation rows among those that satisfy the
        constraints there, else the least violated.
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
        Seed of the start of nets, and of the decisions of stochastic classifiers.

    Attributes
    ----------
    network_, probability_, error_, violation_, gap_, step_, level_, joint_, cell_mass_, history_
        See ``problem.Solution``.
    chosen_ : dict of str to float
        The slack and the rates it was trained with.
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
    # How the worst case may be found; none is sought by approaches without an adversary.
    inners: ClassVar[tuple[str, ...]] = ()
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
        "iterations": 30,
        "learning_rate": 0.1,
        "record_every": 10,
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
        """Raise ConfigError for parameters that cannot be."""
        if self.criterion not in CRITERIA:
            raise ConfigError(
                f"The parameter 'criterion' of {self.name!r} is {self.criterion!r}.",
                nearest(str(self.criterion), CRITERIA),
            )
        parameters = self.get_params(deep=False)
        for name, (allows, wanted) in ALLOWED.items():
            self.require(name, name not in parameters or allows(parameters[name]), wanted)
        self.require("layers", all(each >= 1 for each in self.widths), "widths of 1 or more")
        known = "inner" not in parameters or parameters["inner"] in self.inners
        self.require("inner", known, " or ".join(self.inners))
        level, confusion = parameters.get("level"), parameters.get("confusion")
        single = self.approach == "dro" or np.ndim(level or 0) == 0
        self.require("level", single, "one share: a list is for noisy_dro")
        self.require("confusion", level is None or confusion is None, "it or the level, not both")

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        reason = super().supports(split)
        parameters = self.get_params(deep=False)
        given = parameters.get("level") is not None or parameters.get("confusion") is not None
        known = given or split.train.true_groups is not None
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
        groups: np.ndarray,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on rows X with labels y of two classes and noisy groups.

        Parameters
        ----------
        X : array or frame, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        groups : ndarray of int64, shape (n_samples, n_attributes)
            Noisy groups, a column per attribute.
        sample_weight : ndarray of float64, shape (n_samples,), optional
        validation : Part, optional
            Rows that choose among listed slacks and rates.
        progress : callable, optional
            Called with (steps done, steps).

        Raises
        ------
        ConfigError
            For parameters that cannot be, among them a noise model that does not sum to 1.
        DataError
            For groups that are missing where they are needed.
        InputError
            For tables that are not numbers, and labels of other than two classes.
        """
        data = {
            "X": X,
            "y": y,
            "groups": groups,
            "sample_weight": sample_weight,
            "validation": validation,
        }
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
        """Fit several models, those on the same table at once.

        Parameters
        ----------
        models : sequence of NoisyClassifier
            Of one class and of equal ``structure``.
        data : sequence of mapping
            For each model X, y and the keywords that ``fit`` takes, but ``progress``. Models that
            are given the same objects train together.
        progress : callable, optional
            Called with (steps done, steps), over all tables.
        """
        wanted = dict(models[0].structure())
        tables: dict[tuple[int, ...], list[int]] = {}
        for place, (model, each) in enumerate(zip(models, data, strict=True)):
            model.check()
            for key, value in model.structure():
                if value != wanted[key]:
                    raise ConfigError(
                        f"Models of {cls.name!r} with {key} {wanted[key]!r} and {value!r} cannot "
                        "be fitted in one batch.",
                        f"Vary only {', '.join(sorted(cls.varies))} within a batch.",
                    )
            tables.setdefault(tuple(id(each.get(name)) for name in TABLE), []).append(place)
        for number, places in enumerate(tables.values()):
            candidates = [list_candidates(models[place].setting()) for place in places]
            every = [setting for some in candidates for setting in some]
            checked = [models[place]._validate(data[place]) for place in places]
            problems = cls._build_problems(every, checked[0])
            solved = iter(solve(problems, every, share_progress(progress, number, len(tables))))
            for place, some in zip(places, candidates, strict=True):
                found = [next(solved) for _ in some]
                models[place]._choose(some, found, data[place])

    def _validate(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data with rows and labels as arrays of numbers and codes."""
        aligned = (data.get("groups"), data.get("true_groups"), data.get("sample_weight"))
        X, codes = self.validate_training(data["X"], data["y"], *aligned)
        return {**data, "X": X, "y": codes}

    @classmethod
    def _build_problems(
        cls, settings: Sequence[Setting], data: Mapping[str, Any]
    ) -> list[ConstrainedProblem]:
        """Return the problem of every setting; only the noise tells those of a batch apart."""
        built: dict[str, ConstrainedProblem] = {}
        for each in settings:
            noise = repr((each.level, each.confusion))
            if noise not in built:
                built[noise] = build_problem(data, each, cls.name)
        return [built[repr((each.level, each.confusion))] for each in settings]

    def _choose(
        self, settings: Sequence[Setting], found: Sequence[Solution], data: Mapping[str, Any]
    ) -> None:
        """Become the candidate that validation rows choose, or training rows where none are."""
        trials = np.array([(each.error, each.violation) for each in found])
        part = data.get("validation")
        if part is not None:
            weight = unit_weight(part.weight, len(part.y))
            trials = np.array(
                [
                    self._try_candidate(setting, solution, part, weight)
                    for setting, solution in zip(settings, found, strict=True)
                ]
            )
        place = rank_candidates(trials)
        self.trials_ = trials
        self.chosen_ = describe_choice(settings[place], self.get_params(deep=False))
        self._keep(found[place])

    def _try_candidate(
        self, setting: Setting, solution: Solution, part: Part, weight: np.ndarray
    ) -> tuple[float, float]:
        """Return error and largest constraint of a candidate on validation rows.

        The constraints are those of the approach; with ``validation_groups`` "true" they are those
        on the true groups.
        """
        decision, y = solution.decide(part.X), self.encode_labels(part.y)
        error = np.average(np.abs(decision @ solution.probability - y), weights=weight)
        if setting.validation_groups == "true":
            setting = replace(setting, approach="true_groups")
        codes = self._take_codes(setting, part.groups, part.true_groups)
        inner = _default_inner(setting)
        found = evaluate_constraints(setting, solution, decision, y, codes, weight, inner)
        return float(error), take_largest(found)

    @staticmethod
    def _take_codes(
        setting: Setting, groups: np.ndarray, true_groups: np.ndarray | None
    ) -> np.ndarray:
        """Return the groups that the approach constrains."""
        if setting.approach == "true_groups" and true_groups is not None:
            groups = true_groups
        return take_attribute(groups, setting.attribute)

    def setting(self) -> Setting:
        """Return the parameters as what the solver takes."""
        known = {each.name for each in fields(Setting)}
        given = {
            key: value
            for key, value in self.get_params(deep=False).items()
            if key in known and value is not None
        }
        return Setting(approach=self.approach, widths=self.widths, **given)

    def _keep(self, solution: Solution) -> None:
        for each in fields(Solution):
            setattr(self, f"{each.name}_", getattr(solution, each.name))

    def _solution(self) -> Solution:
        names = [each.name for each in fields(Solution)]
        return Solution(**{name: getattr(self, f"{name}_") for name in names})

    def constraints(
        self,
        X: np.ndarray,
        y: np.ndarray,
        groups: np.ndarray,
        *,
        true_groups: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
        inner: Literal["ascent", "exact"] | None = None,
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
            rows. ``ascent``: under the masses that the adversary had given each noisy group,
            decision and label when the iterate was chosen. By default as in training.

        Returns
        -------
        ndarray of float64, shape (R, m)
            By rate and group, in units of the rate; ≤ 0 where satisfied, NaN where a group has no
            row of the event. Under ``noisy_unconstrained`` there are none: shape (0, m). Of a
            stochastic classifier the expectation of its classifiers' constraints.
        """
        setting = self.setting()
        if inner == "ascent" and self.inners and _default_inner(setting) == "exact":
            raise ConfigError(
                f"The parameter 'inner' of constraints is 'ascent', and this {self.name} was not "
                "trained by ascent.",
                "Leave it out, or ask for 'exact'.",
            )
        codes = self._take_codes(setting, groups, true_groups)
        weight = unit_weight(sample_weight, len(y))
        return evaluate_constraints(
            setting,
            self._solution(),
            self.decide(X),
            self.encode_labels(y),
            codes,
            weight,
            inner or _default_inner(setting),
        )

    def violation(self, X: np.ndarray, y: np.ndarray, groups: np.ndarray, **options: Any) -> float:
        """Return the largest of the ``constraints``, whose options it takes: ≤ 0 if satisfied.

        −∞ under ``noisy_unconstrained``, which has none; NaN where no group has a row of any event.
        """
        return take_largest(self.constraints(X, y, groups, **options))

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return φ of every classifier, float64, shape (n_samples, n_classifiers)."""
        return self._solution().scores(self.validate_rows(X))

    def decide(self, X: np.ndarray) -> np.ndarray:
        """Return 1{φ ≥ 0} of every classifier, float64, shape (n_samples, n_classifiers)."""
        return self._solution().decide(self.validate_rows(X))

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return probabilities of the decisions 0 and 1, float64, shape (n_samples, 2).

        Of a deterministic classifier 1 / (1 + exp(−φ)), which says of the decision only on which
        side of one half it lies; of a stochastic one the exact probabilities.
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
            Row ids, by which stochastic decisions are drawn; the rows' places when None.
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
        arrays = {f"parameter_{i}": each for i, each in enumerate(self.network_.arrays)}
        arrays |= {f"history_{key}": each for key, each in self.history_.items()}
        arrays |= {name: getattr(self, f"{name}_") for name in _ARRAYS}
        numbers = {name: getattr(self, f"{name}_") for name in _NUMBERS}
        facts = {name: value if np.isfinite(value) else None for name, value in numbers.items()}
        return State(arrays=arrays, facts={**facts, "chosen": self.chosen_})

    def set_state(self, state: State) -> None:
        """Restore what ``get_state`` returned."""
        count = sum(key.startswith("parameter_") for key in state.arrays)
        self.network_ = Network.of([state.arrays[f"parameter_{i}"] for i in range(count)])
        self.history_ = {
            key.removeprefix("history_"): each
            for key, each in state.arrays.items()
            if key.startswith("history_")
        }
        for name in _ARRAYS:
            setattr(self, f"{name}_", state.arrays[name])
        for name, missing in _NUMBERS.items():
            value = state.facts[name]
            setattr(self, f"{name}_", missing if value is None else value)
        self.chosen_ = state.facts["chosen"]


# Fitted arrays, and numbers with what stands for them where they are not finite.
_ARRAYS = ("probability", "level", "joint", "cell_mass", "trials")
_NUMBERS = {"step": 0, "error": np.nan, "violation": -np.inf, "gap": np.nan}


def _default_inner(setting: Setting) -> Literal["ascent", "exact"]:
    """Return how the worst case was found in training."""
    return "ascent" if setting.inner == "ascent" else "exact"
