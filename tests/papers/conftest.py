from __future__ import annotations

from pathlib import Path

import pytest

from fairfrontier.study.drawing import Scene
from tests.papers.debiased import make_scene
from tests.papers.noised import make_noised


@pytest.fixture(scope="session")
def debiased_folder(tmp_path_factory) -> Path:
    """Return the folder that keeps the fits of the small study of post-processors."""
    return tmp_path_factory.mktemp("debiased")


@pytest.fixture(scope="session")
def debiased(debiased_folder) -> Scene:
    """Return the small study of post-processors, run."""
    return make_scene(debiased_folder)


@pytest.fixture(scope="session")
def noised_folder(tmp_path_factory) -> Path:
    """Return the folder that keeps the fits of the small study on noisy groups."""
    return tmp_path_factory.mktemp("noised")


@pytest.fixture(scope="session")
def noised(noised_folder) -> Scene:
    """Return the small study on noisy groups, run."""
    return make_noised(noised_folder)
