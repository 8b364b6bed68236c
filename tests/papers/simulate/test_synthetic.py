from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from fairfrontier import load
from fairfrontier.runtime.text_file import to_csv
from papers.simulate.synthetic import PATH, draw_table

ROOT = Path(__file__).resolve().parents[3]


def test_the_tracked_file_is_what_the_script_writes():
    assert (ROOT / PATH).read_bytes() == to_csv(draw_table(), float_format="%.2f")


def test_the_label_is_biased_along_the_horizontal_alone_and_follows_both():
    table = draw_table(20_000, seed=3)
    assert table[["horizontal", "vertical"]].abs().to_numpy().max() <= 2
    yes = (table["label"] == "yes").to_numpy()
    height = table["vertical"] + table["horizontal"]
    for low in (-1.0, -0.5, 0.0, 0.5):
        inside = height.between(low, low + 0.1)
        middle = 1 / (1 + np.exp(-3 * (low + 0.05)))
        assert abs(yes[inside].mean() - middle) < 0.07
    # At one height the label still depends on the side.
    level = table["vertical"].abs() < 0.1
    right = table["horizontal"] > 0
    assert yes[level & right].mean() - yes[level & ~right].mean() > 0.5


def test_the_datasheet_counts_right():
    table = draw_table()
    wrong = ((table["label"] == "yes") != (table["vertical"] > 0)).sum()
    sheet = (ROOT / "data" / "raw" / "synthetic.md").read_text()
    assert re.search(r"in (\d+) of the 400 rows", sheet).group(1) == str(wrong)


def test_axes_keep_their_units_and_versions_move_sideways():
    split = load("synthetic", home=ROOT)
    assert split.feature_names == ("horizontal", "vertical")
    np.testing.assert_array_equal(np.round(split.train.X, 2), split.train.X)
    assert split.protected_kinds == {"horizontal": "continuous"}
    left, right = split.test.counterfactuals["side"]
    for variant, place, side in ((left, -1, 0), (right, 1, 1)):
        assert (variant.X[:, 0] == place).all()
        np.testing.assert_array_equal(variant.X[:, 1], split.test.X[:, 1])
        assert (variant.groups[:, list(split.test.attributes).index("side")] == side).all()
