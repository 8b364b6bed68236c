"""Values for readers."""

from __future__ import annotations

import json

import pytest

from fairfrontier.report.finding import show_setting


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ({"max_depth": 3, "select_on": "validation"}, ["max depth 3"]),
        ({"settings": [{"max_depth": 3}, {"max_depth": 4}]}, ["2 settings"]),
        ({"layers": [100, 50]}, ["layers [100, 50]"]),
        ({"layers": []}, ["layers []"]),
    ],
)
def test_settings_are_shown_by_parameter(setting, shown):
    assert show_setting(json.dumps(setting)) == shown


def test_budgets_of_models_follow():
    assert show_setting('{"budget": 1}', {"budget": 2.0, "share": 0.12345}) == [
        "budget 1",
        "share 0.123",
    ]
