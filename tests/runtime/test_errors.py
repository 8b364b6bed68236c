from __future__ import annotations

from copy import copy

from fairfrontier.runtime.errors import GroupError, InputError


def test_a_group_is_named_after_the_way_back_from_a_worker():
    error = GroupError("No row is of {group}.", "Add one.", {2: 1, 0: 0})
    assert str(error) == "No row is of [1, 0]. Add one."
    # By what pickle calls, too.
    found = copy(error)
    assert (type(found), str(found)) == (GroupError, str(error))
    named = found.name({"sex": ("F", "M"), "age": ("old",), "race": ("A", "B{group}")})
    assert type(named) is InputError
    assert str(named) == "No row is of race=B{group}, sex=F. Add one."
