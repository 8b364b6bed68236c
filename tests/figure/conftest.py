from __future__ import annotations

import pytest

from fairfrontier.study.drawing import Scene
from tests.figure.certified_study import make_certified


@pytest.fixture(scope="session")
def certified(tmp_path_factory) -> Scene:
    """Return the small study with a certificate, run."""
    return make_certified(tmp_path_factory.mktemp("certified"))
