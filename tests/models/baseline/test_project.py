import numpy as np

from fairfrontier import learn
from fairfrontier.models.baseline.project import Project
from tests.models.tables import make_split


def test_project_is_blind_to_movement_along_the_sensitive_directions():
    split = make_split(400)
    metric = learn("subspace", split)
    model = Project(n_estimators=10).fit(split.train.X, split.train.y, metric=metric)
    flipped = split.test.X.copy()
    flipped[:, 0] = 1 - flipped[:, 0]
    assert np.array_equal(model.predict(split.test.X), model.predict(flipped))
    moved = split.test.X + 3.0 * metric.directions[0] - 2.0 * metric.directions[1]
    assert np.mean(model.predict(split.test.X) == model.predict(moved)) > 0.99
