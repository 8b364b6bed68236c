"""How far a flow has read a table, on the terminal and in an artifact of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fairfrontier.cli.progress import PassProgress
from flows.artifact import PUBLISH_SECONDS, show_progress, start_progress


@contextmanager
def show_passes(
    title: str, passes: Sequence[str], slug: str
) -> Iterator[Callable[[str, float], None]]:
    """Yield a callback that shows that so much of a pass is done, from 0 to 1.

    Parameters
    ----------
    title : str
        What runs.
    passes : sequence of str
        Names of the passes, in their order.
    slug : str
        Names the artifact.
    """
    artifact = start_progress(slug, "rows")
    with PassProgress(title, passes) as shown:
        published = time.monotonic()

        def progress(name: str, share: float) -> None:
            nonlocal published
            shown(name, share)
            if time.monotonic() - published > PUBLISH_SECONDS:
                published = time.monotonic()
                show_progress(artifact, shown.share)

        yield progress
    show_progress(artifact, shown.share)
