from __future__ import annotations

import re

import pytest

from benchmarks.score import run


@pytest.mark.slow
def test_every_case_tells_its_speed(capsys):
    run(rows=500, trees=3)
    told = re.findall(
        r"^(.+), (csv|parquet): .* ([\d,]+) rows a minute$", capsys.readouterr().out, re.M
    )
    assert [(label, form) for label, form, _ in told] == [
        ("boosted trees", "csv"),
        ("boosted trees", "parquet"),
        ("with a rule by group", "csv"),
        ("with a rule by group", "parquet"),
    ]
    assert all(int(speed.replace(",", "")) > 0 for *_, speed in told)
