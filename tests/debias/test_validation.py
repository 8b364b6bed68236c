from __future__ import annotations

import pytest

from fairfrontier.debias.validation import describe_doubt


def expect(**bias):
    """Return what cross-validation says, of attributes with their bias before and after."""
    return {
        "bias": [
            {"attribute": name, "before": before, "after": after}
            for name, (before, after) in bias.items()
        ]
    }


@pytest.mark.parametrize(
    "found",
    [
        {},
        expect(sex=(0.0, 0.0)),
        expect(sex=(0.2, 0.1), race=(0.1, 0.1)),
        # As they are shown both are .010, or one more in the last digit than it should be.
        expect(sex=(0.0102, 0.0104)),
        expect(sex=(0.0104, 0.0106)),
    ],
)
def test_a_rule_that_adds_no_bias_is_not_doubted(found):
    assert describe_doubt(found) == ""


def test_one_sentence_names_all_attributes_between_whose_levels_bias_is_added():
    found = expect(sex=(0.0, 0.0012), race=(0.3, 0.1), age=(0.01, 0.02))
    assert describe_doubt(found) == (
        "On fresh rows (cross-validated) the rule is expected to raise the bias between the levels "
        "of sex from 0.000 to 0.001, age from 0.010 to 0.020."
    )
