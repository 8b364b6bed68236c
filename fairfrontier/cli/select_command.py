"""The command line's choice of one model from a study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairfrontier.cli.table import join_interval, print_table
from fairfrontier.cli.terminal import log_to_terminal, show

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.choose.config import SelectConfig


def select(config: SelectConfig) -> None:
    """Choose one model of a finished study, and leave its bundle and card behind."""
    from fairfrontier.choose.choosing import choose, write_choice
    from fairfrontier.runtime.store import CACHE
    from fairfrontier.runtime.writer import sharing

    log_to_terminal()
    with sharing(config.home / CACHE):
        summary = write_choice(choose(config), config)
    show_choice(summary)


def show_choice(summary: dict[str, Any]) -> None:
    """Print the chosen model, its measures on the rows it was chosen on and of test; what next."""
    import pandas as pd

    measures = summary["measures"].set_index("name")
    rows = []
    for name, value in summary["selected"].items():
        row = {"measure": name, f"on {summary['part']}": f"{value:.3f}"}
        if name in summary["certified"]:
            row["certified"] = f"{summary['certified'][name]:.3f}"
        if name in measures.index:
            tested = measures.loc[name, ["value", "low", "high"]]
            row["on test"] = join_interval(*map(float, tested))
        rows.append(row)
    labels = [each["method"] for each in summary["models"]]
    print_table(f"chosen: {' or '.join(labels)}", pd.DataFrame(rows).fillna("-"))
    needed = summary["needed_groups"]
    if needed:
        show(
            f"Its rule looks at {', '.join(needed)} of every row, which the law may forbid: the "
            "card says where."
        )
    show(f"Bundle and card: {summary['folder']}. Next:")
    for name, command in summary["commands"].items():
        if name not in ("run", "select"):
            show(f"  {command}")
