"""A sample of different rows of a stream does not depend on their order."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.audit.rows import Sample


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 12), st.data())
@settings(max_examples=60, deadline=None)
def test_a_sample_of_different_rows_counts_each(values, most, data):
    rows = np.array(values, dtype=np.float64)[:, None]
    samples = []
    for order in (rows, rows[data.draw(st.permutations(range(len(rows))))]):
        sample = Sample(most)
        for batch in np.array_split(order, data.draw(st.integers(1, 5))):
            sample.add(batch, np.array([f"{row[0]:g}" for row in batch], dtype=object))
        samples.append(sample)
    kept, counts = samples[0].rows, samples[0].counts
    assert np.array_equal(kept, samples[1].rows)
    assert np.array_equal(counts, samples[1].counts)
    assert samples[0].texts == samples[1].texts == [f"{row[0]:g}" for row in kept]
    assert len(kept) == min(most, len(set(values)))
    assert dict(zip(kept[:, 0], counts, strict=True)).items() <= Counter(map(float, values)).items()
