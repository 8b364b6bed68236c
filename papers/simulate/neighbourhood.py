"""The neighbourhood table: two clusters of applicants whose labels follow crossing diagonals.

``python -m papers.simulate.neighbourhood`` writes data/raw/neighbourhoods.csv again,
byte for byte.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtri

from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.runtime.text_file import to_csv

PATH = "data/raw/neighbourhoods.csv"
SEED = 2020
# The paper's table, and two further draws with the same lines.
PARTS = {"train": 150, "validation": 150, "test": 300}
MINORITY = 1 / 6
SHIFT = 2.0


def draw_table(parts: dict[str, int] | None = None, seed: int = SEED) -> pd.DataFrame:
    """Draw applicants of two kinds of neighbourhoods.

        (u, v) ~ N(0, I),   label = 1{(u, v) above L_1} and nonwhite = u − 2 for five of six rows,
                            label = 1{(u, v) above L_2} and nonwhite = u + 2 for the sixth

    L_1 and L_2 are the rising and the falling diagonal of the training points' bounding box, and
    score = v. At the same score the label depends on the neighbourhood, by a mirror. ``parts`` maps
    parts to row counts; the first part's rows determine the lines. By default there are 150
    training rows, as in the paper, and 150 and 300 further ones. Columns: nonwhite and score, two
    decimals each, label, ``declined`` or ``approved``, and part.

    Notes
    -----
    The counter-based generator does not change with versions of libraries. The paper does not
    say whether its rectangle of minimum area is parallel to the axes; here it is.

    References
    ----------
    A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
    Appendix C.1 and Figure 1, which has 150 rows and no others.
    """
    sizes = PARTS if parts is None else parts
    part = np.repeat(list(sizes), list(sizes.values()))
    ids = np.arange(len(part))
    first, second, third = (uniforms(seed + column, ids) for column in range(3))
    u, v = np.round(ndtri(first), 2), np.round(ndtri(second), 2)
    minority = np.zeros(len(part), dtype=bool)
    for name in sizes:
        rows = np.flatnonzero(part == name)
        order = rows[np.argsort(third[rows], kind="stable")]
        minority[order[: round(MINORITY * len(rows))]] = True
    own = part == part[0]
    left, right, low, high = u[own].min(), u[own].max(), v[own].min(), v[own].max()
    share = (u - left) / (right - left)
    line = low + (high - low) * np.where(minority, 1.0 - share, share)
    return pd.DataFrame(
        {
            "nonwhite": np.round(u + np.where(minority, SHIFT, -SHIFT), 2) + 0.0,
            "score": v + 0.0,
            "label": np.where(v > line, "approved", "declined"),
            "part": part,
        }
    )


if __name__ == "__main__":
    (find_home() / PATH).write_bytes(to_csv(draw_table(), float_format="%.2f"))
