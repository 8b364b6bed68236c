"""Fair classifiers from noisy groups: naive, distributionally robust, and by soft assignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from scipy.special import expit

from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.arrays import Backend
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.train.neural.estimator import PREDICTION_ROWS
from fairfrontier.train.neural.network import Network, forward
from fairfrontier.train.noisy.constrained import Constrained
from fairfrontier.train.noisy.fitting import fit_table, share_progress
from fairfrontier.train.noisy.rate import CRITERIA
from fairfrontier.train.noisy.selection import CHOSEN, list_candidates, settle
from fairfrontier.train.noisy.training_table import ROBUST
from fairfrontier.train.persistence import State
from fairfrontier.train.registry import method

Array = Any
Progress = Callable[[int, int], None]
Approach = Literal[
    "unconstrained",
    "true_groups",
    "naive",
    "dro",
    "soft_assignments",
    "soft_assignments_ideal",
]
APPROACHES: tuple[str, ...] = get_args(Approach)


@method("noisy_groups")
class NoisyGroups(Constrained):
    """Classifiers that are fair to true groups, trained on rows whose groups are noisy.

    min_θ E[(1 − ỹ φ_θ(x))₊]  s.t.  g_rj(θ) ≤ 0 for every rate r of the criterion and true group j

    where g_rj bounds by how much group j fares worse than all rows, TPR − TPR_j − α for true
    positive rates and FPR_j − FPR − α for false ones. Decisions are 1{φ ≥ 0}. Of the groups G only
    noisy ones Ĝ are seen, and the approach says what stands for them.

    Parameters
    ----------
    approach : str
        ``unconstrained``; ``true_groups`` (needs them); ``naive``: Ĝ as if it were G; ``dro``: the
        worst distribution within total variation γ_j of the rows of Ĝ = j; ``soft_assignments``:
        the worst w(j | ŷ, y, k) that agrees with P(G=j | Ĝ=k); ``soft_assignments_ideal``: a
        stochastic classifier from a finite class, near-optimal and near-feasible (small problems).
    criterion : str
        ``equal_opportunity`` (TPR), ``equalized_odds`` (TPR and FPR), ``demographic_parity``
        (selection rates within α on both sides) or ``accuracy``.
    budget : float
        α ≥ 0, the allowed difference.
    slack : float or list of float
        β ≥ 0, added to α for hinges in training. With α + β < 1 no scores satisfy all hinge
        constraints, with α + β = 1 only scores within [−1, 1] do.
    attribute : int
        Column of the attribute in ``groups``; a study's YAML may name it.
    level : float, list of float or None
        The noise: the share γ of rows that are in a wrong group, each other one being as likely.
        A list gives γ_j of ``dro``, one for each group. None: estimated from ``true_groups``.
    confusion : list of list of float, optional
        The noise, instead: P(Ĝ=k | G=j) in row j.
    tv : {"paper", "valid"}
        γ_j of ``dro`` from a noise model: P(Ĝ≠j | G=j), which bounds the distance if P(G=j) =
        P(Ĝ=j); or max{P(Ĝ≠j | G=j), P(G≠j | Ĝ=j)}, which always does.
    inner : {"ascent", "exact", "joint"}
        How the worst case is found: by projected ascent, a step at a time (what the published
        numbers come from; its solutions need not be robust), or in closed form at every step.
        ``joint``, for soft assignments: one assignment for the sum of all constraints (HiGHS).
    variant : {"paper", "authors"}
        Of the ascent. ``authors``, as their code: constraints as ratios of the adversary's masses,
        one p̃_j for all rates of a group, masses from 0 on, and rougher projections.
    radius : float
        R, the largest sum of multipliers.
    iterations : int
        Steps of training.
    learning_rate, multiplier_rate, inner_rate : float or list of float
        Of Adam, on θ, on λ, and on p̃ or w. Of lists, and of a list of slacks, every combination is
        trained, and that is kept which has the least error on the validation rows among those
        that satisfy the approach's constraints there, else the least violated.
    validation_groups : {"noisy", "true"}
        Whose constraints choose: the approach's own; or those on the true groups of the validation
        rows, which need not be known, as the authors' code does for soft assignments.
    inner_steps : int, optional
        Steps of ascent for each step of θ; 1 for ``dro``, 5 for soft assignments by default.
    layers : int or sequence of int
        Widths of hidden layers; 0 for a linear model, which starts at 0.
    best : {"paper", "ranks", "last"}
        Which iterate is kept: the one of least error that satisfies the constraints as the inner
        player sees them, else the least violated; by Cotter's ranks among the recorded ones; or
        the last.
    record_every : int
        Steps between records of the history.
    response : {"exact", "nested"}
        Best responses of the ideal algorithm: in closed form, or by its algorithm 3.
    response_steps, game_steps : int
        Q of algorithm 3 and T of algorithm 1, whose radius is T^{1/4}.
    response_slack, response_tolerance, response_radius : float
        τ, κ and R' of algorithm 3; R' = B'/τ when None.
    dtype : {"float32", "float64"}
    backend : {"auto", "numpy", "cupy"}
    random_state : int
        Seed of the start of nets, and of the decisions of stochastic classifiers.

    Attributes
    ----------
    network_ : Network
        Weights and biases, float64, with an axis for the classifiers of a mixture, else of
        length 1.
    probability_ : ndarray of float64, shape (n_classifiers,)
        Of each.
    step_ : int
        Which iterate it is.
    error_, violation_ : float
        Its error and largest constraint in training, as the inner player saw it.
    level_ : ndarray of float64, shape (m,)
        γ_j of ``dro``.
    chosen_ : dict of str to float
        The slack and the rates it was trained with.
    trials_ : ndarray of float64, shape (n_combinations, 2)
        Error and largest constraint of every combination on the validation rows; on the training
        rows where ``fit`` was given no others.
    joint_ : ndarray of float64, shape (m, m̂)
        P(G=j, Ĝ=k) of the noise model; empty where none is used.
    carried_ : ndarray of float64, shape (R, m, m̂, 4)
        The adversary's masses of the cells, relative to their weight; see ``constraints``.
    history_ : dict of str to float64 ndarray
        See ``lagrangian.Training``.

    Notes
    -----
    Equal rows are merged, and models of one table train together: O(n d) a step and model for a
    linear model, in products of matrices, and as much again for ``dro``. The constraints are told
    of any rows by ``constraints`` and ``violation``. P(Y=1|x) is reported as 1 / (1 + exp(−φ)),
    which is not calibrated.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust optimization for
    fairness with noisy protected groups. NeurIPS 2020. N. Kallus, X. Mao, A. Zhou. Assessing
    algorithmic fairness with unobserved protected class using data combination. Management Science
    68, 2022.
    """

    fit_needs: ClassVar[frozenset[str]] = frozenset({"groups"})
    fit_takes: ClassVar[frozenset[str]] = frozenset(
        {"groups", "true_groups", "sample_weight", "validation", "progress"}
    )
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
        "approach": "dro",
        "level": 0.1,
        "tv": "valid",
        "budget": 0.2,
        "iterations": 30,
        "learning_rate": 0.1,
        "record_every": 10,
    }

    network_: Network
    probability_: np.ndarray
    step_: int
    error_: float
    violation_: float
    level_: np.ndarray
    joint_: np.ndarray
    carried_: np.ndarray
    chosen_: dict[str, float]
    trials_: np.ndarray
    history_: dict[str, np.ndarray]

    def __init__(
        self,
        *,
        approach: Approach = "naive",
        criterion: str = "equal_opportunity",
        budget: float = 0.05,
        slack: float | Sequence[float] = 1.25,
        attribute: int = 0,
        level: float | Sequence[float] | None = None,
        confusion: Sequence[Sequence[float]] | None = None,
        tv: Literal["paper", "valid"] = "paper",
        inner: Literal["ascent", "exact", "joint"] = "ascent",
        variant: Literal["paper", "authors"] = "paper",
        radius: float = 1.0,
        iterations: int = 750,
        validation_groups: Literal["noisy", "true"] = "noisy",
        learning_rate: float | Sequence[float] = 0.01,
        multiplier_rate: float | Sequence[float] = 0.5,
        inner_rate: float | Sequence[float] = 0.01,
        inner_steps: int | None = None,
        layers: int | Sequence[int] = 0,
        best: Literal["paper", "ranks", "last"] = "paper",
        record_every: int = 25,
        response: Literal["exact", "nested"] = "exact",
        game_steps: int = 2000,
        response_steps: int = 200,
        response_slack: float = 0.01,
        response_tolerance: float = 0.0,
        response_radius: float | None = None,
        dtype: Literal["float32", "float64"] = "float32",
        backend: Backend = "auto",
        random_state: int = 0,
    ) -> None:
        self.approach = approach
        self.criterion = criterion
        self.budget = budget
        self.slack = slack
        self.attribute = attribute
        self.level = level
        self.confusion = confusion
        self.tv = tv
        self.inner = inner
        self.variant = variant
        self.radius = radius
        self.iterations = iterations
        self.validation_groups = validation_groups
        self.learning_rate = learning_rate
        self.multiplier_rate = multiplier_rate
        self.inner_rate = inner_rate
        self.inner_steps = inner_steps
        self.layers = layers
        self.best = best
        self.record_every = record_every
        self.response = response
        self.game_steps = game_steps
        self.response_steps = response_steps
        self.response_slack = response_slack
        self.response_tolerance = response_tolerance
        self.response_radius = response_radius
        self.dtype = dtype
        self.backend = backend
        self.random_state = random_state

    @property
    def randomized(self) -> bool:  # type: ignore[override]
        """Whether decisions are drawn: those of the ideal algorithm."""
        return self.approach == "soft_assignments_ideal"

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
        for name, known in (("approach", APPROACHES), ("criterion", tuple(CRITERIA))):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"The parameter {name!r} of {self.name!r} is {getattr(self, name)!r}.",
                    nearest(str(getattr(self, name)), known),
                )
        self.require("tv", self.tv in ("paper", "valid"), "paper or valid")
        self.require("inner", self.inner in ("ascent", "exact", "joint"), "ascent, exact or joint")
        self.require("variant", self.variant in ("paper", "authors"), "paper or authors")
        told = self.validation_groups in ("noisy", "true")
        self.require("validation_groups", told, "noisy or true")
        self.require("best", self.best in ("paper", "ranks", "last"), "paper, ranks or last")
        self.require("response", self.response in ("exact", "nested"), "exact or nested")
        self.require("dtype", self.dtype in ("float32", "float64"), "float32 or float64")
        joint = self.inner != "joint" or self.approach == "soft_assignments"
        self.require("inner", joint, "ascent or exact: joint is for soft_assignments")
        self.require("budget", 0 <= self.budget < np.inf, "a number of 0 or more")
        for name in ("radius", "response_slack"):
            self.require(name, 0 < getattr(self, name) < np.inf, "a number above 0")
        for name in CHOSEN:
            given = np.atleast_1d(getattr(self, name))
            least = given >= 0 if name == "slack" else given > 0
            allowed = given.ndim == 1 and given.size > 0 and (least & np.isfinite(given)).all()
            wanted = "0 or more" if name == "slack" else "more than 0"
            self.require(name, bool(allowed), f"a number of {wanted}, or a list of them")
        for name in ("iterations", "record_every", "game_steps", "response_steps"):
            self.require(name, getattr(self, name) >= 1, "1 or more")
        self.require("inner_steps", (self.inner_steps or 1) >= 1, "1 or more, or null")
        self.require("response_tolerance", self.response_tolerance >= 0, "a number of 0 or more")
        self.require("layers", all(each >= 1 for each in self.widths), "widths of 1 or more")
        levels = [] if self.level is None else np.atleast_1d(self.level).tolist()
        self.require("level", all(0 <= each < 1 for each in levels), "shares in [0, 1), or null")
        single = self.approach == "dro" or np.ndim(self.level or 0) == 0
        self.require("level", single, "one share: a list is for dro")
        both = self.level is None or self.confusion is None
        self.require("confusion", both, "the confusion or the level, not both")

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        reason = super().supports(split)
        given = self.level is not None or self.confusion is not None
        if reason is None and self.approach in ROBUST and not given:
            if split.train.true_groups is not None:
                return None
            return (
                f"{self.name} needs a noise level, a confusion or true groups for "
                f"{self.approach}, and {split.dataset} injects no noise."
            )
        return reason

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        groups: np.ndarray,
        true_groups: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on rows X with labels y (0 and 1) and noisy groups.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
        y : ndarray of int64, shape (n_samples,)
        groups : ndarray of int64, shape (n_samples, n_attributes)
            Noisy groups, a column per attribute.
        true_groups : ndarray of int64, shape (n_samples, n_attributes), optional
            Constrained under ``true_groups``, where the noisy ones are taken when None; elsewhere
            only the noise model is estimated from them, unless it is given.
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
            For labels other than 0 and 1, and groups that are missing where they are needed.
        """
        data = {
            "X": X,
            "y": y,
            "groups": groups,
            "true_groups": true_groups,
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
        models : sequence of NoisyGroups
            Of equal ``structure``.
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
            names = ("X", "y", "groups", "true_groups", "sample_weight")
            tables.setdefault(tuple(id(each.get(name)) for name in names), []).append(place)
        rounds = len(tables)
        for number, places in enumerate(tables.values()):
            told = share_progress(progress, number, rounds)
            trained = [list_candidates(models[place]) for place in places]
            fit_table([each for some in trained for each in some], data[places[0]], told)
            for place, candidates in zip(places, trained, strict=True):
                settle(models[place], candidates, data[place])

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
        """Return decisions, int64, shape (n_samples,).

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
        ids : ndarray of int64, shape (n_samples,), optional
            Row ids, by which stochastic decisions are drawn; the rows' places when None.
        """
        if not self.randomized:
            return (self.scores(X)[:, 0] >= 0).astype(np.int64)
        positive = self.predict_proba(X)[:, 1]
        rows = np.arange(len(positive)) if ids is None else ids
        return (uniforms(self.random_state, rows) < positive).astype(np.int64)

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return φ of every classifier, float64, shape (n_samples, n_classifiers)."""
        rows = np.asarray(X, dtype=np.float64)
        if len(self.network_.weight) == 1:
            found = rows @ self.network_.weight[0][:, :, 0].T
            return np.asarray(found + self.network_.bias[0][:, 0, 0])
        parts = [
            forward(self.network_, rows[start : start + PREDICTION_ROWS]).logits[..., 0].T
            for start in range(0, len(rows), PREDICTION_ROWS)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.probability_)))

    def decide(self, X: np.ndarray) -> np.ndarray:
        """Return 1{φ ≥ 0} of every classifier, float64, shape (n_samples, n_classifiers)."""
        return (self.scores(X) >= 0).astype(np.float64)

    def get_state(self) -> State:
        """Return the classifiers, the noise model and the history."""
        arrays = {f"parameter_{i}": each for i, each in enumerate(self.network_.arrays)}
        arrays |= {f"history_{key}": each for key, each in self.history_.items()}
        arrays |= {
            "probability": self.probability_,
            "level": self.level_,
            "joint": self.joint_,
            "carried": self.carried_,
            "trials": self.trials_,
        }
        facts = {
            "n_features": self.n_features_in_,
            "step": self.step_,
            "error": self.error_,
            "violation": None if np.isinf(self.violation_) else self.violation_,
            "chosen": self.chosen_,
        }
        return State(arrays=arrays, facts=facts)

    def set_state(self, state: State) -> None:
        """Restore what ``get_state`` returned."""
        count = sum(key.startswith("parameter_") for key in state.arrays)
        self.network_ = Network.of([state.arrays[f"parameter_{i}"] for i in range(count)])
        self.history_ = {
            key.removeprefix("history_"): each
            for key, each in state.arrays.items()
            if key.startswith("history_")
        }
        self.probability_, self.level_ = state.arrays["probability"], state.arrays["level"]
        self.joint_, self.carried_ = state.arrays["joint"], state.arrays["carried"]
        self.n_features_in_ = state.facts["n_features"]
        self.step_, self.error_ = state.facts["step"], state.facts["error"]
        self.trials_, self.chosen_ = state.arrays["trials"], state.facts["chosen"]
        violation = state.facts["violation"]
        self.violation_ = -np.inf if violation is None else violation
