"""What the flows on a table have in common: checks, and progress on the terminal and the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from fairfrontier.cli.progress import PassProgress
from fairfrontier.runtime.option import ResultOptions
from flows.artifact import PUBLISH_SECONDS, make_key, show_progress, start_progress
from flows.history import mark_run

Options = TypeVar("Options", bound=ResultOptions)


@contextmanager
def open_run(
    options: Options, check: Callable[[Options], None], passes: Sequence[str]
) -> Iterator[tuple[str, Callable[[str, float], None]]]:
    """Check the options of the calling flow, and yield its artifacts' slug and a progress callback.

    The callback takes the name of a pass and the share of it that is done, from 0 to 1.
    """
    mark_run()
    check(options)
    slug = make_key(options.command, options.folder.name)
    artifact = start_progress(slug, "rows")
    with PassProgress(options.name, passes) as shown:
        published = time.monotonic()

        def progress(name: str, share: float) -> None:
            nonlocal published
            shown(name, share)
            if time.monotonic() - published > PUBLISH_SECONDS:
                published = time.monotonic()
                show_progress(artifact, shown.share)

        yield slug, progress
    show_progress(artifact, shown.share)
