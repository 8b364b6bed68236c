"""The command line's decisions of a bundle on a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairfrontier.cli.apart import apart
from fairfrontier.cli.table import print_table, print_unseen
from fairfrontier.cli.terminal import log_to_terminal, show, telling_how_to_resume

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.choose.config import ScoreConfig
    from fairfrontier.choose.scoring import Scored


# Decisions that are counted in the last line.
KINDS_AT_MOST = 6


@apart(lambda config: config.bundle)
def score(config: ScoreConfig) -> None:
    """Decide on the raw rows of a table, with a bundle that select wrote."""
    from fairfrontier.choose.scoring import PASSES
    from fairfrontier.choose.scoring import score as decide
    from fairfrontier.cli.progress import PassProgress

    log_to_terminal()
    with (
        telling_how_to_resume("No file was changed", "start again"),
        PassProgress(config.name, PASSES) as progress,
    ):
        scored = decide(
            config.bundle,
            config.table,
            config.out,
            row_id=config.row_id,
            keep=config.keep,
            drop_refused=config.drop_refused,
            progress=progress,
        )
    show_scored(scored, config)


def show_scored(scored: Scored, config: ScoreConfig) -> None:
    """Print how many rows were decided, and why others were not."""
    import pandas as pd

    if scored.refused:
        reasons = pd.DataFrame({"refused": scored.refused.keys(), "rows": scored.refused.values()})
        print_table(f"{sum(scored.refused.values()):,} rows were refused", reasons)
        if not config.drop_refused:
            show("--drop-refused leaves them out of the file, as an audit needs it.")
    if scored.randomized and scored.row_id is None:
        show(
            "Decisions are drawn by the number of the row, since no column names rows: they change "
            "when rows change places. --row-id names one."
        )
    decided = scored.rows - sum(scored.refused.values())
    print_unseen(scored.unseen, decided)
    counts = [f"{count:,} × {name}" for name, count in scored.decided.items()]
    if len(counts) > KINDS_AT_MOST:
        counts = [*counts[:KINDS_AT_MOST], "…"]
    kinds = f" ({', '.join(counts)})" if counts else ""
    show(
        f"{decided:,} of {scored.rows:,} rows decided{kinds} in {scored.seconds:.0f} s. "
        f"Decisions: {scored.path}"
    )
