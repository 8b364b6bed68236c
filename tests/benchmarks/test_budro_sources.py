from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from benchmarks import budro_sources
from benchmarks.budro_sources import measure


def test_the_optimum_is_between_the_bounds_and_gaps_close_with_sources():
    exact, few, many = measure(800, [64, 400], 2, 1, exact=800)
    assert [each.sources for each in (exact, few, many)] == [None, 64, 400]
    assert exact.gap_share < 1e-3 < many.gap_share < few.gap_share < 1
    assert all(each.first_seconds > 0 and each.later_seconds > 0 for each in (exact, few, many))


def test_bounds_that_leave_the_optimum_out_are_an_error(monkeypatch):
    play = budro_sources.play

    def lower(given, sources, threads):
        line, found = play(given, sources, threads)
        shift = 0.0 if sources is None else 1.0
        return line, [replace(each, dual_value=each.dual_value - shift) for each in found]

    monkeypatch.setattr(budro_sources, "play", lower)
    with pytest.raises(AssertionError):
        measure(300, [64], 2, 1, exact=300)


def test_figures_are_written_where_they_are_kept(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(budro_sources, "find_home", lambda: tmp_path)
    options = "budro_sources --rows 300 --sources 64 --rounds 2 --exact 0 --record"
    monkeypatch.setattr(sys, "argv", options.split())
    budro_sources.main()
    assert "300       64" in capsys.readouterr().out
    (line,) = json.loads((tmp_path / "data/reference/runs/budro-sources.json").read_text())
    assert (line["n"], line["sources"], line["rounds"]) == (300, 64, 2)
    assert 0 < line["gap_share"] < 1
