"""The command line's explanation of a bundle's scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairfrontier.cli.apart import apart
from fairfrontier.cli.table import print_table, print_unseen
from fairfrontier.cli.terminal import show

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.choose.config import ExplainConfig


@apart(lambda config: config.bundle)
def explain(config: ExplainConfig) -> None:
    """Say which columns a bundle's scores are made of, for all rows and by group."""
    import pandas as pd

    from fairfrontier.choose.explanation import (
        COLUMNS_AT_MOST,
        PASSES,
        check_options,
        explain_table,
        write_explanation,
    )
    from fairfrontier.cli.progress import show_passes
    from fairfrontier.report.finding import show_number

    with show_passes(config, check_options, PASSES) as progress:
        explanation = explain_table(config, progress)
        table = write_explanation(explanation, config)
    rows = table.loc[table["attribute"] == ""].head(COLUMNS_AT_MOST)
    means = rows[["mean_abs", "mean"]].map(show_number)
    shown = pd.concat([rows["column"], means], axis=1)
    print_table(f"{config.name}: SHAP values in {explanation.unit}", shown)
    print_unseen(explanation.unseen, len(explanation.values))
    show(
        f"Means over {len(explanation.values):,} rows; scores start from {explanation.base:.3f}. "
        f"All columns, and by group: {config.folder / 'explain.csv'} and explain.png"
    )
