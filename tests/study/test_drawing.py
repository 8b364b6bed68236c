from __future__ import annotations

import pytest

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study import drawing
from fairfrontier.study.drawing import FIGURES, Picture, figure


@pytest.fixture
def registry(monkeypatch):
    FIGURES.all()
    monkeypatch.setattr(drawing.FIGURES, "_entries", dict(drawing.FIGURES.all()))
    monkeypatch.setattr(drawing.FIGURES, "_origins", dict(drawing.FIGURES._origins))


def draw(_) -> Picture:
    return Picture(b"", "")


def test_figures_are_found_by_walking():
    assert list(FIGURES.all()) == sorted(FIGURES.all())
    assert FIGURES.find("surfaces").name == "surfaces"
    with pytest.raises(ConfigError, match="Did you mean 'surfaces'"):
        FIGURES.find("surface")


def test_every_figure_says_what_it_is():
    for each in FIGURES.all().values():
        assert each.title
        assert each.what.endswith(".")


def test_a_name_is_taken_once(registry):
    figure("other", title="Other", what="Another.")(draw)
    figure("other", title="Other", what="Another.")(draw)
    with pytest.raises(ValueError, match="two figures"):
        figure("other", title="Other", what="Another.")(test_figures_are_found_by_walking)
    with pytest.raises(ValueError, match="every study has a figure 'frontier'"):
        figure("frontier", title="Frontier", what="x")(draw)
