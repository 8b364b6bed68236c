from __future__ import annotations

import pandas as pd
import pytest

from fairfrontier.cli.select_command import show_choice

MODELS = [
    {"method": "constant", "setting": {}, "probability": 0.375},
    {"method": "gbdt", "setting": {"max_depth": 3, "eta": 0.1}, "probability": 0.625},
]


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (MODELS, "chosen: gbdt max_depth=3 with probability 0.625, else constant"),
        (MODELS[1:], "chosen: gbdt max_depth=3"),
    ],
)
def test_what_a_bound_is_asked_of_stays_on_a_narrow_terminal(models, said, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = "selection_rate_difference:marital_status"
    measures = pd.DataFrame({"name": [name], "value": [0.031], "low": [0.002], "high": [0.061]})
    measures["left_out"] = 0
    show_choice(
        {
            "measures": measures,
            "selected": {"balanced_accuracy": 0.741, name: 0.028},
            "part": "validation",
            "certified": {name: 0.049},
            "passed": [],
            "models": models,
            "swept": {"gbdt": ["max_depth"], "constant": []},
            "folder": "results/loans/choice",
            "needed_groups": [],
            "commands": {},
        }
    )
    shown = capsys.readouterr().out
    assert said in " ".join(shown.split())
    assert "certified" in shown
    assert "0.049" in shown
    assert "Omitted for lack of space: certified" not in shown
