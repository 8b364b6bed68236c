from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fairfrontier.cli.terminal import join_interval, print_table, write_settings


def show(table, width=80, **options):
    console = Console(file=io.StringIO(), width=width)
    print_table("title", table, console=console, **options)
    return console.file.getvalue()


def make_frontier():
    settings = [
        {"attribute": "sex", "epochs": 20, "strength": strength, "layers": [50, 100], "rate": 1e-3}
        for strength in (0.01, 1.0)
    ]
    methods = ["adversarial_debiasing"] * 2 + ["gbdt"]
    written = write_settings(methods, map(json.dumps, [*settings, {"n_estimators": 10}]))
    return pd.DataFrame(
        {
            "": ["*", "", "*"],
            "method and setting": [f"{m} {s}" for m, s in zip(methods, written, strict=True)],
            "balanced_accuracy": [join_interval(0.8, 0.78, 0.82)] * 3,
            "true_selection_rate_difference:sex×race": [
                *[join_interval(0.02, 0.01, 0.03)] * 2,
                join_interval(np.nan, np.nan, np.nan),
            ],
        }
    )


def test_a_frontier_fits_eighty_columns_with_all_its_columns():
    shown = show(make_frontier(), complete="frontier.csv")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert "Omitted" not in shown
    # No row breaks into more than two lines, and no interval is broken inside.
    assert len(lines) <= 5 + 2 * 3 + 1
    assert "[0.780, 0.820]" in shown
    assert "strength=0.01" in shown
    assert "epochs" not in shown
    assert "not estimable" in shown


def test_columns_without_room_are_named_with_the_place_of_the_whole_table():
    words = " ".join(["word"] * 20)
    table = pd.DataFrame({"name": ["x"], "about": [words], **{f"c{i}": [words] for i in range(6)}})
    shown = show(table, keep=("name", "about"), complete="list --json")
    assert "Omitted for lack of space: " in shown
    assert shown.strip().endswith("c5. All columns: list --json")
    assert max(map(len, shown.splitlines()[:-1])) <= 80
    assert shown.count("word") >= 40


def test_numbers_are_aligned_and_never_wrapped():
    shown = show(pd.DataFrame({"name": ["a", "b"], "value": [1.5, 12345.0]}))
    ends = [len(line.rstrip()) for line in shown.splitlines() if line.startswith(("  a", "  b"))]
    assert ends[0] == ends[1]


def test_nothing_in_a_table_is_markup():
    shown = show(pd.DataFrame({"[b]name": ["[red]x[/red]"]}))
    assert "[red]x[/red]" in shown
    assert "[b]name" in shown


@pytest.mark.parametrize(
    ("settings", "written"),
    [
        ([{"a": 1, "b": [1, 2.5]}, {"a": 1, "b": [3]}], ["b=1,2.5", "b=3"]),
        ([{"a": 1}, {"a": 1, "c": "x y"}], ["", "c=x y"]),
        ([{"a": 0.10}], [""]),
    ],
)
def test_settings_show_what_differs_within_a_method(settings, written):
    assert write_settings(["m"] * len(settings), map(json.dumps, settings)) == written


def test_cells_are_neither_markup_nor_commands():
    evil = "[bold]x[/] \x1b]0;title\x07 \x9b2J \u202ey \x7f"
    shown = show(pd.DataFrame({evil: [evil]}), width=200, complete=evil)
    # The name of the column is broken into lines.
    assert shown.count(r"[bold]x[/] \x1b]0;title\x07 \x9b2J \u202ey \x7f") == 1
    assert shown.replace("\n", "").isprintable()
    titled = io.StringIO()
    print_table(evil, pd.DataFrame({"a": ["word " * 20]}), console=Console(file=titled, width=200))
    assert r"[bold]x[/] \x1b]0;title\x07" in titled.getvalue()
