"""Training a fit group into the store, unless it holds the group already."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fairfrontier.runtime.store import Store
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.kept import KIND
from fairfrontier.train.fit.key import describe
from fairfrontier.train.fit.post_processing import fit_behind
from fairfrontier.train.fit.score_file import write_scores
from fairfrontier.train.fit.training import train

if TYPE_CHECKING:
    from distributed import Client


def fit(
    group: FitGroup,
    store: Store,
    home: Path,
    *,
    client: Client | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """Train a fit group unless the store holds it, and return its key.

    The entry holds, for member i, ``model-i/`` (as the estimator saves it) and ``scores-i.npz``
    (scores and decisions on every part and on every counterfactual variant); and ``fit.json``
    (seconds; why the method was skipped where it does not support the split, or found no model
    within its constraints and says so in ``infeasible_``; what its models report of their training
    in ``report_``, plain numbers and lists of them). A group with a post-processor trains, or
    finds, the models in an entry of their own; its ``model-i/`` is the post-processor.

    Parameters
    ----------
    group : FitGroup
        The fit.
    store : Store
        Where it is kept.
    home : Path
        The project root.
    client : distributed.Client, optional
        For estimators that train distributed.
    progress : callable, optional
        Called with (steps done, steps) by estimators that report progress.

    Returns
    -------
    str
        Key of the entry of kind ``"fit"``.

    Raises
    ------
    FairfrontierError
        For whatever the user can mend in configuration or data.
    """
    description = describe(group, home)
    found = store.key(KIND, description)
    if store.read(KIND, found) is not None:
        return found
    started = time.monotonic()
    if group.then is None:
        fitted = train(group, home, client, progress)
    else:
        base = store.path(KIND, fit(group.base, store, home, client=client, progress=progress))
        fitted = fit_behind(group, base, home)
    with store.writing(KIND, found, description) as folder:
        for number, parts in enumerate(fitted.predictions):
            fitted.models[number].save(folder / f"model-{number}")
            write_scores(folder / f"scores-{number}.npz", parts)
        facts = {
            "seconds": round(time.monotonic() - started, 3),
            "skipped": fitted.skipped,
            "reports": [getattr(model, "report_", {}) for model in fitted.models],
        }
        (folder / "fit.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    return found
