from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier import learn
from fairfrontier.figure.certificate import (
    TOLERANCE,
    certify_chosen,
    draw_certificate,
    expose_chosen,
    refuse_regressions,
    spread_labels,
    trace_lines,
)
from fairfrontier.metrics.certificate.certificate import certify
from fairfrontier.models.fit.group import KIND, load_split
from fairfrontier.models.fit.key import key
from fairfrontier.models.registry import load_model
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.report.files import write_results
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.runtime.store import Store
from fairfrontier.study.config import CertificateConfig
from fairfrontier.study.frontier import build_results
from tests.figure.certified_study import EVIL
from tests.report.test_page import Reader


def test_lines_pass_through_the_studys_own_budgets(certified):
    lines = trace_lines(certified)
    chosen = list(certify_chosen(certified))
    assert len(lines) == sum(len(each.certificates) for each in chosen)
    assert len({(each.label, each.loss) for each in lines}) == len(lines)
    certificates = [found for each in chosen for found in each.certificates]
    for line, found in zip(lines, certificates, strict=True):
        assert line.loss == found.loss
        assert np.all(np.diff(line.budget) > 0)
        assert np.all(np.diff(line.value) >= 0)
        assert np.all((line.low <= line.value) & (line.value <= line.high))
        # As a concave function of the budget has it.
        slope = np.diff(line.value) / np.diff(line.budget)
        assert np.all(np.diff(slope) <= 0.01 * slope[0])
        for gap in found.gaps:
            there = line.value[line.budget == gap.budget]
            assert there == pytest.approx([gap.value], rel=TOLERANCE, abs=1e-12)


def test_labels_say_what_a_rows_settings_differ_in(certified):
    labels = {each.label for each in trace_lines(certified)}
    assert labels <= {"linear", "threshold", "tree n estimators 3", "tree n estimators 6"}
    assert "linear" in labels


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.3))
def test_labels_are_moved_apart_and_no_further_than_needed(heights, gap):
    height = np.array(heights)
    placed = spread_labels(height, gap)
    order = np.argsort(height, kind="stable")
    assert np.all(np.diff(placed[order]) >= gap - 1e-9)
    assert placed.min() >= 0
    room = gap * (len(height) - 1) <= 1
    assert placed.max() <= 1 + 1e-9 if room else placed.min() == 0
    # The optimum's conditions: a run of touching labels keeps its mean unless it is at an end of
    # the axis, which pushes it inwards, and pulls apart nowhere.
    runs = np.split(order, np.flatnonzero(np.diff(placed[order]) > gap + 1e-9) + 1)
    for run in runs:
        pull = np.cumsum(placed[run] - height[run])
        at_foot, at_top = placed[run[0]] < 1e-9, placed[run[-1]] > 1 - 1e-9
        if not at_foot and not at_top:
            assert pull[-1] == pytest.approx(0, abs=1e-9)
        if not at_foot:
            assert np.all(pull <= 1e-9)
        if not at_top:
            assert np.all(pull[-1] - pull >= -1e-9)


def test_the_picture_and_its_words(certified):
    from matplotlib.image import imread

    picture = draw_certificate(certified)
    assert imread(io.BytesIO(picture.png)).shape[2] == 4
    assert "linear" in picture.alt
    assert "at ε = 0.5" in picture.alt


def test_what_cannot_be_drawn_is_refused(certified, tmp_path):
    bare = certified.study.model_copy(update={"certificate": None})
    with pytest.raises(ConfigError):
        trace_lines(replace(certified, study=bare))
    with pytest.raises(StoreError):
        trace_lines(replace(certified, store=Store(tmp_path)))
    datasets = Path(__file__).resolve().parents[2] / "conf" / "datasets"
    assert "no classes" in str(refuse_regressions(read_dataset(datasets / "communities.yaml")))
    assert refuse_regressions(read_dataset(datasets / "adult.yaml")) is None


def test_chosen_models_are_certified_as_their_points_say(certified):
    points = certified.points
    found = list(certify_chosen(certified))
    assert {each.method for each in found} == {"linear", "threshold", "tree"}
    for each in found:
        post_processed = each.method == "threshold"
        losses = [certificate.loss for certificate in each.certificates]
        assert losses == (["error"] if post_processed else ["log", "error"])
        own = points[(points.method == each.method) & (points.setting == each.setting)]
        own = own[own.part == "test"].set_index(["measure", "group"])
        assert ("adversarial_gap" in own.index.get_level_values(0)) != post_processed
        for certificate in each.certificates:
            name = "adversarial_gap" if certificate.loss == "log" else "adversarial_error_gap"
            for gap in certificate.gaps:
                row = own.loc[name, f"budget={gap.budget:g}"]
                assert (row.value, row.low, row.high) == (gap.value, gap.low, gap.high)
                assert row.n == 80


def test_models_of_other_splits_and_of_the_published_table_are_not_certified(certified):
    names = [(each.method, each.setting) for each in certify_chosen(certified)]
    published = [replace(each, blocks=("published",)) for each in certified.plan]
    both = replace(certified, plan=[*published, *certified.plan])
    assert [(each.method, each.setting) for each in certify_chosen(both)] == names
    # The first split is another one than those of the plan.
    study = certified.study.model_copy(update={"seeds": (7, *certified.study.seeds)})
    assert not list(certify_chosen(replace(certified, study=study)))


def test_a_stored_model_gets_the_same_certificate_from_python(certified):
    each = next(iter(certify_chosen(certified)))
    assert each.method == "linear"
    folder = certified.store.path(KIND, key(each.group, certified.store, certified.home))
    split = load_split(each.group, each.group.members[0], certified.home)
    metric = learn("subspace", split, regress=[])
    again = certify(load_model(folder / "model-0"), split.test, metric, [0.0, 0.05, 0.5], rows=80)
    assert again.gaps == each.certificates[0].gaps


def test_moves_are_exposed_at_the_smallest_budget_above_0(certified):
    exposed = expose_chosen(certified)
    assert len(exposed) == len(list(certify_chosen(certified)))
    for exposure in exposed.values():
        assert exposure.gap.budget == 0.05
        assert 0 < len(exposure.pairs) <= 10
        assert sum(each.share for each in exposure.pairs) <= 1 + 1e-9
        for pair in exposure.pairs:
            assert {each.column for each in pair.changes} <= {"skill", "<i>years", "job", "sex"}
            assert len(pair.changes) + pair.same == 4


def test_without_the_table_encoded_columns_are_shown(certified, monkeypatch):
    def refuse(*_):
        raise DataError("It is gone.", "Fetch it.")

    monkeypatch.setattr("fairfrontier.figure.certificate.read_source_rows", refuse)
    columns = {
        change.column
        for exposure in expose_chosen(certified).values()
        for pair in exposure.pairs
        for change in pair.changes
    }
    assert columns <= {"skill", "<i>years", "job", f"sex_{EVIL}"}
    assert "skill" in columns


def test_no_row_is_exposed_unless_the_study_says_so(certified):
    plain = CertificateConfig(budgets=[0.05], rows=80)
    hidden = certified.study.model_copy(update={"certificate": plain})
    assert expose_chosen(replace(certified, study=hidden)) == {}


def test_a_study_without_a_certificate_or_fits_exposes_nothing(certified, tmp_path):
    bare = certified.study.model_copy(update={"certificate": None})
    assert expose_chosen(replace(certified, study=bare)) == {}
    assert expose_chosen(replace(certified, store=Store(tmp_path / "empty"))) == {}


@pytest.fixture
def report(certified, tmp_path):
    certified = replace(certified, study=certified.study.model_copy(update={"figures": ()}))
    results = build_results(certified.study, certified.plan, certified.points, {})
    written = write_results(
        results, tmp_path / "results", 1.0, home=certified.home, store=certified.store
    )
    yield written["report.html"].read_text(encoding="utf-8"), sorted(written)
    shutil.rmtree(tmp_path / "results")


def test_the_report_shows_gaps_and_moves_and_escapes_them(report):
    html, files = report
    assert "report.html" in files
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    assert not [tag for tag, _ in reader.tags if tag == "i"]
    # The explorer's.
    assert [tag for tag, _ in reader.tags].count("script") == 2
    assert EVIL not in html
    text = " ".join(reader.text.split())
    assert "Worst moves at ε = 0.05: who becomes whom" in text
    assert "decisions only" in text
    assert "yes<b> → no<b>" in text
    assert "<i>years" in text
    assert EVIL in text
