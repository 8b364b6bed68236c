"""Where a search looks for parameters, and what it tries next."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fairfrontier.runtime.errors import ConfigError

# Proposals that are drawn at random before the estimator of densities has something to go by.
STARTUP = 8


class Sampler:
    """Proposes parameters of a space, seeded.

    Parameters
    ----------
    space : mapping of str to distribution
        Optuna's distributions and lists of plain values, among which the tree-structured Parzen
        estimator looks; or scikit-learn's, anything with an ``rvs``, and lists, which are drawn at
        random.
    seed : int
        Of the draws.

    Raises
    ------
    ConfigError
        For other spaces, and those that mix the two kinds.
    """

    def __init__(self, space: Mapping[str, Any], seed: int) -> None:
        known = import_optuna().distributions
        ours = {
            name: known.CategoricalDistribution(each) if isinstance(each, list | tuple) else each
            for name, each in space.items()
        }
        self._space = ours
        self._study: Any = None
        self._draws: np.random.RandomState | None = None
        if all(isinstance(each, known.BaseDistribution) for each in ours.values()):
            self._study = _create_study(seed)
        elif wrong := [
            name
            for name, each in space.items()
            if not (isinstance(each, list | tuple) or hasattr(each, "rvs"))
        ]:
            raise ConfigError(
                f"The space of {wrong[0]} is {space[wrong[0]]!r}.",
                "Give distributions of Optuna for all parameters, or of scipy.stats, or lists.",
            )
        else:
            self._space = dict(space)
            self._draws = np.random.RandomState(seed)

    def ask(self) -> tuple[Any, dict[str, Any]]:
        """Return what `tell` is to be given, and parameters to try."""
        if self._study is not None:
            trial = self._study.ask(self._space)
            return trial, dict(trial.params)
        from sklearn.model_selection import ParameterSampler

        return None, dict(next(iter(ParameterSampler(self._space, 1, random_state=self._draws))))

    def tell(self, proposal: Any, value: float | None) -> None:
        """Record what a proposal came to, more is better; None where it failed."""
        if self._study is not None and proposal is not None:
            from optuna.trial import TrialState

            failed: Any = {"state": TrialState.FAIL} if value is None else {"values": value}
            self._study.tell(proposal, **failed)


def import_optuna() -> Any:
    """Return the library; in a notebook its progress bars, not used here, ask for another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import optuna
    return optuna


def _create_study(seed: int) -> Any:
    optuna = import_optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=STARTUP, multivariate=True, constant_liar=True
    )
    return optuna.create_study(direction="maximize", sampler=sampler)
