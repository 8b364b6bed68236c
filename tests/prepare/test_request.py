from __future__ import annotations

import pytest

from fairfrontier.prepare import request
from fairfrontier.prepare.digest import digest_split, knows_split
from fairfrontier.prepare.request import SplitRequest
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.store import Store


def test_a_table_that_is_replaced_before_it_is_read_is_refused(fresh, monkeypatch):
    table = fresh / "data" / "raw" / "loans.csv"
    rows, store = table.read_text(), Store(fresh / "store")
    load = request.load

    def load_another(*arguments, **options):
        table.write_text(rows.replace("smith", "baker"))
        return load(*arguments, **options)

    monkeypatch.setattr(request, "load", load_another)
    with pytest.raises(DataError, match="loans changed while it was read"):
        digest_split(SplitRequest("loans"), store, fresh)
    # Nothing is kept under the name of what it was.
    table.write_text(rows)
    assert not knows_split(SplitRequest("loans"), store, fresh)
