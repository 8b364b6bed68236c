from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.prepare import loader
from fairfrontier.prepare.loader import SplitRequest, digest_split, knows_split
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.store import Store


def test_a_table_that_is_replaced_before_it_is_read_is_refused(fresh, monkeypatch):
    table = fresh / "data" / "raw" / "loans.csv"
    rows, store = table.read_text(), Store(fresh / "store")
    load = loader.load

    def load_another(*arguments, **options):
        table.write_text(rows.replace("smith", "baker"))
        return load(*arguments, **options)

    monkeypatch.setattr(loader, "load", load_another)
    with pytest.raises(DataError):
        digest_split(SplitRequest("loans"), store, fresh)
    # Nothing is kept under the name of what it was.
    table.write_text(rows)
    assert not knows_split(SplitRequest("loans"), store, fresh)


def test_rows_that_stay_in_files_have_a_digest_of_their_own(fresh):
    path = fresh / "conf" / "datasets" / "loans.yaml"
    store, asked = Store(fresh / "store"), SplitRequest("loans", select_on="validation")
    inside = digest_split(asked, store, fresh)
    path.write_text(path.read_text() + "memory: dask\n")
    lazy = digest_split(asked, store, fresh)
    assert knows_split(asked, store, fresh)
    assert lazy.facts == inside.facts
    for part, fields in inside.parts.items():
        assert lazy.parts[part].keys() == fields.keys()
        assert lazy.parts[part]["X"] != fields["X"]
    # What is no feature is hashed as it is, in the order of the table.
    assert set(lazy.parts) == set(inside.parts)
    split = asked.load(fresh)
    assert isinstance(split.train.y, np.ndarray)
    assert split.train.X.numblocks[1] == 1
    table = fresh / "data" / "raw" / "loans.csv"
    table.write_text(table.read_text().replace("smith", "baker", 1))
    assert digest_split(asked, store, fresh).parts["train"]["X"] != lazy.parts["train"]["X"]
