"""A neural net without any notion of fairness, and one that does not see the sensitive subspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.neural.estimator import NeuralNetwork, Progress
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.similarity.fair_metric import FairMetric


@dataclass(kw_only=True, eq=False, repr=False)
class BaseNet(NeuralNetwork):
    """Base of the nets with the parameters of `Net`."""

    example: ClassVar[Mapping[str, Any]] = {
        "hidden": 8,
        "learning_rate": 0.01,
        "batch_size": 20,
        "steps": 20,
    }

    hidden: int | Sequence[int] = 100
    learning_rate: float = 1e-3
    batch_size: int = 1000
    steps: int = 1000
    replacement: bool = True
    balanced: bool = True
    dtype: Literal["float32", "float64"] = "float32"
    backend: Literal["auto", "numpy", "cupy"] = "auto"
    record_every: int = 100
    random_state: int = 0


@method("nn")
class Net(BaseNet):
    """A multilayer perceptron with ReLU, trained on minibatches by Adam.

    min_θ  mean over classes k of E[ℓ(y, h_θ(x)) | y = k],   ℓ the softmax cross-entropy

    or, where minibatches are not balanced, E ℓ(y, h_θ(x)).

    Parameters
    ----------
    hidden : int or list of int
        Widths of the hidden layers.
    learning_rate : float
        Of Adam.
    batch_size, steps : int
        Rows of a minibatch; number of minibatches.
    replacement : bool
        Whether a row can occur in a minibatch more than once.
    balanced : bool
        Whether every class has the same share of a minibatch. Probabilities are then those of
        equally frequent classes.
    dtype : {"float32", "float64"}
        Of the training; predictions are float64.
    backend : {"auto", "numpy", "cupy"}
        Where it is trained.
    record_every : int
        Steps between two entries of ``history_``.
    random_state : int
        Seed of the weights and of the minibatches.

    Attributes
    ----------
    network_, history_
        As in `NeuralNetwork`.

    Notes
    -----
    A step costs a forward and a backward pass of a minibatch, whatever n: O(batch_size W) for W
    weights. Memory O(n d).

    References
    ----------
    M. Yurochkin, A. Bower, Y. Sun. Training individually fair ML models with sensitive subspace
    robustness. ICLR 2020, Appendix D (Baseline).
    """

    paper: ClassVar[str] = "Yurochkin et al., Sensitive subspace robustness, ICLR 2020 (Baseline)"

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        sample_weight: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on rows X with labels y."""
        return self._fit({"X": X, "y": y, "sample_weight": sample_weight}, progress)


@method("project_nn")
class ProjectedNet(BaseNet):
    """The net of `Net` on x Σ: on the part of x that the fair metric sees.

    Parameters are those of `Net`.

    Attributes
    ----------
    sigma_ : ndarray of float64, shape (n_features, n_features)
        The metric's Σ.

    Notes
    -----
    O(n d²) for x Σ beside what `Net` costs.

    References
    ----------
    M. Yurochkin, A. Bower, Y. Sun. Training individually fair ML models with sensitive subspace
    robustness. ICLR 2020, Appendix D (Project).
    """

    paper: ClassVar[str] = "Yurochkin et al., Sensitive subspace robustness, ICLR 2020 (Project)"

    sigma_: np.ndarray

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        metric: FairMetric,
        sample_weight: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on the projected rows."""
        data = {"X": X, "y": y, "metric": metric, "sample_weight": sample_weight}
        return self._fit(data, progress)

    @classmethod
    def _prepare(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**data, "X": data["X"] @ data["metric"].sigma}

    def _keep(self, data: Mapping[str, Any]) -> None:
        self.sigma_ = data["metric"].sigma

    def _project(self, X: np.ndarray) -> np.ndarray:
        projected: np.ndarray = X @ self.sigma_
        return projected

    def get_state(self) -> State:
        """Return the net, the history and Σ."""
        state = super().get_state()
        return replace(state, arrays={**state.arrays, "sigma": self.sigma_})

    def set_state(self, state: State) -> None:
        """Restore the net, the history and Σ."""
        super().set_state(state)
        self.sigma_ = state.arrays["sigma"]
