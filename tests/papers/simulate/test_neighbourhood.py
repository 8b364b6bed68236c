from __future__ import annotations

from pathlib import Path

import numpy as np

from fairfrontier import load
from fairfrontier.runtime.text_file import to_csv
from papers.simulate.neighbourhood import MINORITY, PARTS, PATH, SHIFT, draw_table

ROOT = Path(__file__).resolve().parents[3]


def test_the_tracked_file_is_what_the_script_writes():
    assert (ROOT / PATH).read_bytes() == to_csv(draw_table(), float_format="%.2f")


def test_labels_follow_the_diagonals_of_the_training_rows():
    # Columns do not tell the cluster near 0; well to the sides there is one only.
    table = draw_table()
    own = table[table["part"] == "train"]
    assert len(own) == PARTS["train"]
    for side in (-1, 1):
        cluster = table[table["nonwhite"] * side > 0.75 * SHIFT]
        u = cluster["nonwhite"] - side * SHIFT
        approved = (cluster["label"] == "approved").to_numpy()
        # Both lines pass near the cluster's centre, rising on the left and falling on the right.
        slope = np.polyfit(u, cluster["score"] - 2.0 * approved, 1)[0]
        assert -side * slope > 0


def test_a_sixth_of_every_part_is_of_the_minority():
    table = draw_table({"train": 6000, "test": 3000}, seed=5)
    for _, part in table.groupby("part"):
        # Of every cluster half lies beyond its centre.
        beyond = (part["nonwhite"] > SHIFT).mean()
        assert abs(beyond - MINORITY / 2) < 0.03
        assert abs(part["nonwhite"].mean() - SHIFT * (2 * MINORITY - 1)) < 0.1
        assert abs(part["score"].std() - 1) < 0.06
    # The same score is approved less often in the one place than in the other.
    near = table[table["score"].between(0.2, 0.8)]
    approved = near["label"] == "approved"
    middle = near["nonwhite"].between(-1, 1)
    assert approved[~middle].mean() - approved[middle].mean() > 0.3


def test_parts_are_those_of_the_file_and_versions_move_sideways():
    split = load("neighbourhoods", home=ROOT)
    assert {name: part.n_samples for name, part in split.parts()} == PARTS
    assert split.feature_names == ("nonwhite", "score")
    assert split.protected_kinds == {"nonwhite": "continuous"}
    for variant, place in zip(split.test.counterfactuals["area"], (-2, 0, 2), strict=True):
        assert (variant.X[:, 0] == place).all()
        np.testing.assert_array_equal(variant.X[:, 1], split.test.X[:, 1])
