import numpy as np
import pytest

from fairfrontier.models.individual.budro.geometry import (
    build_geometry,
    keep_columns,
    sample_columns,
)
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import DataError
from tests.models.individual.budro.problems import draw_problem
from tests.namespaces import namespaces


@pytest.mark.parametrize("namespace", namespaces())
@pytest.mark.parametrize("share", [1e-6, 0.1, 0.5])
def test_some_columns_carry_the_mass_of_all_of_a_label(namespace, share):
    xp = namespace()
    z, label, _ = draw_problem(0, n=60, n_labels=3)
    label[label == 1] = 2
    mass = np.random.default_rng(0).exponential(size=60)
    geometry = build_geometry(xp.asarray(z), xp.asarray(label), mass=mass)
    some = sample_columns(geometry, share)
    kept = to_numpy(some.column_mass)
    for k, (first, last) in enumerate(some.columns):
        size = np.count_nonzero(label == k)
        assert last - first == (max(1, round(share * size)) if size else 0)
        assert kept[first:last].sum() == pytest.approx(mass[label == k].sum())


def test_a_share_of_one_is_everything():
    z, label, _ = draw_problem(0, n=60)
    geometry = build_geometry(z, label)
    some = sample_columns(geometry, 1.0)
    assert some.columns == geometry.columns
    assert np.array_equal(some.column_point, geometry.column_point)
    assert some.column_mass == pytest.approx(geometry.column_mass)


def test_coincident_rows_are_one_point_and_equal_labels_one_column():
    z = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0 + 1e-12], [-0.0, 0.0], [1.0, 2.0]])
    label = np.array([0, 1, 0, 0, 1])
    geometry = build_geometry(z, label, mass=np.array([0.1, 0.2, 0.3, 0.15, 0.25]))
    assert geometry.point.tolist() == [[0.0, 0.0], [1.0, 2.0]]
    assert geometry.row_point.tolist() == [1, 0, 1, 0, 1]
    assert geometry.columns == ((0, 2), (2, 4))
    assert geometry.column_mass == pytest.approx([0.15, 0.4, 0.2, 0.25])
    assert geometry.row_mass == pytest.approx([0.1, 0.2, 0.3, 0.15, 0.25])


@pytest.mark.parametrize("share", [0.01, 0.2, 1.0])
def test_the_columns_of_all_processes_are_all_columns_and_so_are_samples_of_them(share):
    z, label, _ = draw_problem(1, n=60, n_labels=3, copies=10)
    label[label == 1] = 0
    mass = np.random.default_rng(0).exponential(size=60)
    whole = build_geometry(z, label, n_labels=3, mass=mass)
    n = whole.column_point.shape[0]
    parts = [np.arange(first, n, 3) for first in range(3)]
    sent, asked = [], []
    for part in parts:
        sample_columns(keep_columns(whole, part, lambda sums: sent.append(sums) or sums), share)
    total = sum(sent)
    for part in parts:
        kept = keep_columns(whole, part, lambda sums: total)
        own = kept.row_column[kept.row_column >= 0]
        assert np.array_equal(part[own], whole.row_column[kept.row_column >= 0])
        asked.append((kept, sample_columns(kept, share)))
    for found, wanted in zip(
        zip(*asked, strict=True), (whole, sample_columns(whole, share)), strict=True
    ):
        for k, (first, last) in enumerate(wanted.columns):
            held = [slice(*each.columns[k]) for each in found]
            point, weight = (
                np.concatenate(
                    [getattr(each, name)[at] for each, at in zip(found, held, strict=True)]
                )
                for name in ("column_point", "column_mass")
            )
            order = np.argsort(point)
            assert np.array_equal(point[order], wanted.column_point[first:last])
            assert weight[order] == pytest.approx(wanted.column_mass[first:last])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_coordinates_that_are_not_finite_are_refused(value):
    z, label, _ = draw_problem(0, n=10)
    z[3, 1] = value
    with pytest.raises(DataError, match="embedding of row 3 is not finite"):
        build_geometry(z, label)
