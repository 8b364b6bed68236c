"""The synthetic table: a merit that a biased label mixes with a trait that should not matter.

``python -m papers.simulate.synthetic`` writes data/raw/synthetic.csv again, byte for
byte.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.runtime.text_file import to_csv

PATH = "data/raw/synthetic.csv"
ROWS = 400
SEED = 2021
REACH = 2.0
STEEPNESS = 3.0


def draw_table(rows: int = ROWS, seed: int = SEED) -> pd.DataFrame:
    """Draw points of a square and labels that are biased along its horizontal axis.

        horizontal, vertical ~ U(−2, 2),   P(label = yes) = σ(3 (vertical + horizontal))

    Points of equal height are alike in merit, 1{vertical > 0}; the label is likelier to the
    right, so that the best boundary for it runs at 45° where that for merit is horizontal.
    Columns: horizontal and vertical, two decimals each, and label, ``no`` or ``yes``. The
    counter-based generator does not change with versions of libraries.

    References
    ----------
    M. Yurochkin, Y. Sun. SenSeI: sensitive set invariance for enforcing individual fairness. ICLR
    2021, Figure 1, which describes such data but not how they were drawn.
    """
    ids = np.arange(rows)
    first, second, third = (uniforms(seed + column, ids) for column in range(3))
    horizontal = np.round(REACH * (2.0 * first - 1.0), 2)
    vertical = np.round(REACH * (2.0 * second - 1.0), 2)
    chance = 1.0 / (1.0 + np.exp(-STEEPNESS * (vertical + horizontal)))
    label = np.where(third < chance, "yes", "no")
    # Adding 0 turns −0.00 into 0.00.
    return pd.DataFrame({"horizontal": horizontal + 0, "vertical": vertical + 0, "label": label})


if __name__ == "__main__":
    (find_home() / PATH).write_bytes(to_csv(draw_table(), float_format="%.2f"))
