"""The command line's choice of one model from a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairfrontier.cli.table import join_interval, print_table, write_setting
from fairfrontier.cli.terminal import log_to_terminal, say, show

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.choose.config import SelectConfig

# What a bound is asked of is the last to be left out.
KEPT = ("measure", "certified")


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
        if summary["certified"]:
            certified = summary["certified"].get(name)
            row["certified"] = "-" if certified is None else f"{certified:.3f}"
        if name in measures.index:
            tested = measures.loc[name, ["value", "low", "high", "left_out"]]
            row["on test"] = join_interval(*map(float, tested))
        rows.append(row)
    title = f"chosen: {_name_models(summary['models'], summary['swept'])}"
    complete = str(Path(summary["folder"]) / "measures.csv")
    print_table(title, pd.DataFrame(rows).fillna("-"), keep=KEPT, complete=complete)
    for row in summary["passed"]:
        say(
            f"Warning: {row['bound']} was asked for on {summary['part']}, and does not hold on "
            f"test, where the value is {join_interval(row['value'], row['low'], row['high'])}."
        )
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


def _name_models(models: Sequence[Mapping[str, Any]], swept: Mapping[str, Sequence[str]]) -> str:
    """Return the chosen models with their settings, the likelier of a mixture first."""
    ordered = sorted(models, key=lambda model: -model["probability"])
    names = [
        f"{model['method']} {write_setting(model['setting'], swept[model['method']])}".strip()
        for model in ordered
    ]
    if len(names) == 1:
        return names[0]
    share = ordered[0]["probability"]
    written = f"{share:.3f}" if share < 0.9995 else f"{share:.6f}"
    return f"{names[0]} with probability {written}, else {names[1]}"
