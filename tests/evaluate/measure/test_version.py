import numpy as np

from fairfrontier.evaluate.measure.version import weigh_versions
from tests.evaluate.made import MadeSet, make_part


def test_weights_of_the_rows_with_versions():
    sets = {"all": MadeSet(()), "some": MadeSet((), np.array([1, 3]))}
    part = make_part(
        np.zeros(4, dtype=int), np.zeros((4, 0)), {}, weight=np.array([1, 2, 3, 4]),
        counterfactuals=sets,
    )  # fmt: skip
    assert weigh_versions(part, "all").tolist() == [1, 2, 3, 4]
    assert weigh_versions(part, "some").tolist() == [2, 4]
