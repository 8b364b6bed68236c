"""BuDRO: boosting against the worst redistribution of the training rows within a fair budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import xgboost

from fairfrontier.models.base import Classifier
from fairfrontier.models.individual.budro.round import (
    Boosted,
    BoostingSetting,
    boost,
    check_rows,
    embed,
)
from fairfrontier.models.individual.budro.solver import check_transport
from fairfrontier.models.individual.budro.transport import SOLVERS
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.stopping import Watch, check_stopping, watch
from fairfrontier.models.tree.boosting import (
    PositiveWeight,
    check_trees,
    probabilities,
    refuse_scale,
    scale_classes,
)
from fairfrontier.prepare.split import Part, Split, Task
from fairfrontier.runtime.cluster.executor import Rows, fit_rows, is_collection
from fairfrontier.runtime.registry import Registry
from fairfrontier.similarity.fair_metric import FairMetric

if TYPE_CHECKING:
    from distributed import Client


@method("budro")
@dataclass(kw_only=True, eq=False, repr=False)
class BuDRO(Classifier):
    """Individually fair gradient boosting.

    min_f L(f),   L(f) = sup { E_P ℓ(f(X), Y) : W(P, P_n) ≤ ε },

    where P lives on the training rows with any label, and W is the transport distance whose cost
    is the fair distance between rows (infinite between labels). Every round solves the inner
    problem for the present margins (`solver`) and takes one boosting step with the weights
    w(x_i, k) = P*(x_i, k) on the gradients and hessians of the original n rows, which is the same
    step as boosting on all pairs (x_i, k) with those weights. ℓ is the logistic loss, or with K > 2
    classes the softmax cross-entropy of K margins.

    Parameters
    ----------
    budget : float or None
        ε ≥ 0: mean fair distance that rows may be moved, in squared units of the metric; None for
        a share of how far apart rows are.
    budget_share : float
        Without a ``budget``, ε over the mean fair distance E d(X, X') of two training rows drawn at
        random. What it costs depends on the table: .0003 is much on COMPAS, .01 little on Adult.
    solver : str
        ``exact`` meets the budget in every round, to ``tolerance``. The package of the papers adds
        ``sgd``, the paper's stochastic steps on the dual, restarted from ``dual_start`` in every
        round, and ``sinkhorn`` and ``sinkhorn_sgd``, the root and the steps with entropy, whose
        weights do not depend on how ties are broken.
    tolerance : float
        Duality gap of ``exact``, and of ``sinkhorn``'s entropic problem, relative to what moving
        rows gains.
    column_share : float or None
        Of ``exact`` and ``sinkhorn``: share of the rows, in (0, 1], on which η is sought before all
        of them are moved. It saves ``sinkhorn`` passes; ``exact`` has bounds that save more.
    sources : int or None
        Of ``exact``: number of points that each row may be moved to, the best for the rows near it,
        chosen anew in every round; None for all. For tables too large for all pairs, from some
        100,000 rows: the optimum of (2.8) then lies between ``objective`` and ``objective`` +
        ``gap`` of ``history_``, see `restricted` for the certificate.
    entropy_weight : float
        γ > 0 of the entropic solvers, in units of the loss; the default is the paper's for COMPAS.
    dual_start, batch_size, steps, momentum, dual_learning_rate
        Of the stochastic solvers; the defaults are the paper's for Adult.
    variant : {"paper", "authors"}
        First round: one plain step on the doubled rows, which is a constant (paper), or on the
        original rows with weight 1 (authors' code).
    early_stopping : int or None
        Where ``fit`` is given validation rows, rounds without a lower log loss on them after which
        it ends; those up to the lowest are kept. Classes are weighted as in the boosting step.
    n_estimators : int
        Boosting rounds at most, the first included.
    max_depth, learning_rate, reg_lambda, tree_method
        As XGBoost's. All weights of a round sum to 1, so that ``reg_lambda`` acts on that scale.
    min_child_rows : float
        Smallest hessian of a leaf in units of one row's weight, 1/n.
    scale_pos_weight : float or "balanced"
        Factor on the weights of class 1 in the boosting step. ``"balanced"`` gives every class the
        weight of the first one; with more than two classes it is that or 1.
    backend : {"auto", "numpy", "cupy"}
        Where the transport is computed.
    n_jobs : int
        Threads of XGBoost.
    random_state : int
        Seed of the stochastic solver's batches.

    Attributes
    ----------
    booster_ : xgboost.Booster
        The trees, which start from margin 0.
    report_ : dict of str to float
        ``budget`` and ``budget_share``, whichever was given, and ``rounds``, those that were kept.
    history_ : dict of str to ndarray of shape (rounds - 1,)
        Per round: η, cost, objective, duality gap of (2.8) and passes (or steps) of the transport.

    Notes
    -----
    A round costs O(n² k) operations for k embedded dimensions, of which bounds leave ``exact`` and
    ``sgd`` some hundredths on NumPy, in O(n k) memory and a table of at most 512 MiB; see
    `transport` and `geometry`. The entropic solvers' gap holds what entropy costs, at most
    γ log n with rows of equal weight.

    References
    ----------
    A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
    Algorithms 1-7.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    plain: ClassVar[str] = "gbdt"
    solvers: ClassVar[Registry[Any] | None] = SOLVERS
    backends: ClassVar[tuple[str, ...]] = ("numpy", "cupy")
    takes_blocks: ClassVar[bool] = True
    needs_workers: ClassVar[bool] = True
    # Coincident rows share weight, but hist's sketch counts rows.
    weights_are_counts: ClassVar[bool] = False
    paper: ClassVar[str] = "Vargo et al., Individually fair gradient boosting, ICLR 2021"
    example: ClassVar[Mapping[str, Any]] = {"n_estimators": 4, "max_depth": 3, "budget": 0.2}

    budget: float | None = None
    budget_share: float = 0.003
    early_stopping: int | None = None
    solver: str = "exact"
    tolerance: float = 1e-3
    column_share: float | None = None
    sources: int | None = None
    entropy_weight: float = 5e-5
    dual_start: float = 0.1
    batch_size: int = 200
    steps: int = 100
    momentum: float = 0.9
    dual_learning_rate: float = 1e-4
    variant: Literal["paper", "authors"] = "paper"
    n_estimators: int = 100
    max_depth: int = 4
    learning_rate: float = 0.1
    reg_lambda: float = 1e-4
    min_child_rows: float = 0.1
    scale_pos_weight: PositiveWeight = "balanced"
    tree_method: str = "hist"
    backend: Literal["auto", "numpy", "cupy"] = "auto"
    n_jobs: int = 1
    random_state: int = 0
    booster_: xgboost.Booster = field(init=False)
    history_: dict[str, np.ndarray] = field(init=False)
    report_: dict[str, float] = field(init=False)

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        metric: FairMetric,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
        client: Client | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Boost on rows X with labels y under a fair metric.

        Parameters
        ----------
        X : ndarray or dask array of float64, shape (n_samples, n_features)
            Encoded rows. Those of a Dask array stay with the workers, which boost together; see
            `boost`.
        y : ndarray or dask array, shape (n_samples,)
            Labels.
        metric : FairMetric
            What "similar" means.
        sample_weight : ndarray or dask array of float64, shape (n_samples,), optional
            Case weights: the masses of the rows before they move. A row of weight 0 is left out,
            also as a destination.
        validation : Part, optional
            Rows for ``early_stopping``.
        client : distributed.Client, optional
            Required for Dask arrays, whose rows its workers hold; rows in memory are fitted in
            this process.
        progress : callable, optional
            Called with (rounds done, rounds) after each round.

        Raises
        ------
        ConfigError
            For a budget below 0, a solver or variant that does not exist, and a factor on class 1
            where there are more than two classes.
        DataError
            For arrays of different lengths, invalid labels, embedded rows that are
            not finite, and where no row has a weight above 0.
        ClusterError
            When workers that hold rows were lost, and again at a second try.
        """
        self.check()
        X, codes, weight, _ = self.read_training(X, y, sample_weight, client=client)
        used, setting = np.flatnonzero(weight > 0), self.setting()
        check_rows(codes[used])
        watched = self._watch(validation)
        sources = None if self.sources is None or self.sources >= used.size else self.sources

        def play(rows: Rows) -> Boosted:
            if used.size < rows.n_samples:
                rows, whole = rows.take(used), rows
                whole.drop()
            return boost(setting, rows, progress, watched)

        boosted = fit_rows(
            play,
            X,
            client=client,
            name=self.name,
            prepare=partial(embed, metric=metric, single=sources is not None and is_collection(X)),
            dtype=np.float32,
            y=codes,
            weight=weight,
        )
        self.booster_, self.history_ = boosted.booster, dict(boosted.history)
        self.report_ = {
            **boosted.budget._asdict(),
            "rounds": float(boosted.booster.num_boosted_rounds()),
        }
        return self

    def needs_all_rows(self, n_samples: int, n_features: int, n_classes: int) -> str | None:
        """Return why rows in blocks do not suit the parameters; see `Estimator`."""
        if self.tree_method == "exact":
            return "Budro's tree method exact needs all rows in one place: choose hist or approx."
        return super().needs_all_rows(n_samples, n_features, n_classes)

    def _watch(self, validation: Part | None) -> Watch | None:
        watched = watch(self, validation)
        if watched is not None:
            n_classes = max(2, self.classes_.size)
            scale = scale_classes(self.setting(), watched.y, watched.weight, n_classes)
            watched.weight *= scale[watched.y]
        return watched

    def setting(self) -> BoostingSetting:
        """Return the parameters for `boost`."""
        return BoostingSetting.of(self)

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        check_trees(self)
        check_transport(self)
        check_stopping(self)
        self.require("variant", self.variant in ("paper", "authors"), "paper or authors")
        finite = "a finite number above 0"
        self.require("learning_rate", 0 < self.learning_rate < math.inf, finite)
        share = self.column_share
        self.require("column_share", share is None or 0 < share <= 1, "a number in (0, 1], or null")
        sources, is_exact = self.sources, self.solver == "exact"
        self.require("sources", sources is None or sources >= 1, "1 or more, or null for all")
        self.require("sources", sources is None or is_exact, "null with another solver than exact")
        for name in ("reg_lambda", "min_child_rows"):
            value = getattr(self, name)
            self.require(name, 0 <= value < math.inf, "a finite number that is 0 or more")

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        return super().supports(split) or refuse_scale(self, split)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, n_classes)."""
        rows = self.validate_rows(X)
        return probabilities(self.booster_, rows, self.n_jobs)

    def get_state(self) -> State:
        """Return the trees and the history."""
        return State(arrays=self.history_, boosters={"trees": self.booster_})

    def set_state(self, state: State) -> None:
        """Restore the trees and the history."""
        self.booster_ = state.boosters["trees"]
        self.history_ = dict(state.arrays)
