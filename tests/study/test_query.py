"""A choice in words; what cannot be read is pointed at."""

from __future__ import annotations

import pytest

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.query import read_query

DIFFERENCE = "selection_rate_difference:sex"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", (None, {})),
        ("max accuracy", ("accuracy", {})),
        (f"max accuracy subject to {DIFFERENCE} <= 0.05", ("accuracy", {DIFFERENCE: 0.05})),
        (
            f"subject to {DIFFERENCE} | department <= 0.05 and selection_rate <= 0.1",
            (None, {f"{DIFFERENCE} | department": 0.05, "selection_rate": 0.1}),
        ),
        (
            "max tpr subject to share:race=Black >= 0.12 and tpr_ratio:sex to overall >= 0.8",
            ("tpr", {"share:race=Black": 0.12, "tpr_ratio:sex to overall": 0.8}),
        ),
        (
            f"  max  tpr:sex=F  subject  to {DIFFERENCE}<=.05 and consistency:spouse ≥ 0.95 ",
            ("tpr:sex=F", {DIFFERENCE: 0.05, "consistency:spouse": 0.95}),
        ),
        (f"subject to {DIFFERENCE} ≤ 1e-2", (None, {DIFFERENCE: 0.01})),
        ("min fpr subject to tpr:origin=south and east >= 0.5", "and east >= 0.5"),
        ("max tpr:race=Pacific Islander", ("tpr:race=Pacific Islander", {})),
    ],
)
def test_a_choice_is_read(text, wanted):
    if isinstance(wanted, str):
        with pytest.raises(ConfigError):
            read_query(text)
    else:
        query = read_query(text)
        assert query.measure == wanted[0]
        assert {name: bound.limit for name, bound in query.bounds.items()} == wanted[1]


@pytest.mark.parametrize(
    ("text", "word", "told"),
    [
        ("best accuracy", "best", "expected max, min or subject to"),
        ("max acuracy", "acuracy", "Did you mean 'accuracy'"),
        ("min accuracy", "min", "accuracy is better when it is higher"),
        ("max accuracy <= 0.5", "<=", "bounds stand behind 'subject to'"),
        ("subject to tpr >= 0.5 subject to fpr <= 0.1", "subject to", "expected 'and'"),
        ("subject to tpr <= 0.5", "<=", "tpr is better when it is higher: use >="),
        (f"subject to {DIFFERENCE} < 0.5", f"{DIFFERENCE} < 0.5", "expected MEASURE <= NUMBER"),
        ("subject to tpr >= half", "half", "expected a number"),
        ("subject to tpr >= 0.5 and tpr >= 0.6", "tpr", "it is bounded twice"),
        ("subject to share:race >= 0.1", "share", "share needs a group"),
        ("max selection_rate", "selection_rate", "no value of this measure is better"),
    ],
)
def test_an_error_points_at_the_word(text, word, told):
    with pytest.raises(ConfigError) as caught:
        read_query(text)
    assert told in caught.value.fault
    assert f"⟦{word}⟧" in caught.value.fault
    assert "Write it as in: max accuracy" in caught.value.mend
