import array_api_strict
import numpy as np
import pytest

from tasks.train.individual.budro.geometry import build_geometry, sample_columns
from tests.train.individual.budro.problems import draw_problem


@pytest.mark.parametrize("namespace", [np, array_api_strict])
@pytest.mark.parametrize("share", [1e-6, 0.1, 0.5])
def test_some_columns_carry_the_mass_of_all_of_a_label(namespace, share):
    z, label, _ = draw_problem(0, n=60, n_labels=3)
    label[label == 1] = 2
    mass = np.random.default_rng(0).exponential(size=60)
    geometry = build_geometry(namespace.asarray(z), namespace.asarray(label), mass=mass)
    some = sample_columns(geometry, share)
    kept = np.asarray(some.column_mass.tolist() if namespace is np else some.column_mass._array)
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
