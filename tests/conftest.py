"""What holds for the whole test run: threads, figures without a screen, repeatable draws."""

from __future__ import annotations

import gc
import os
from functools import wraps

# Before any library that reads them is imported; Dask's workers inherit them.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["MPLBACKEND"] = "Agg"
# The project under test is this checkout, whatever the shell says.
os.environ.pop("FAIRFRONTIER_HOME", None)

from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.loans import loans as loans
from tests.loans import raw as raw
from tests.project import make_project

# Shared machines stall now and then: a slow example is no fault.
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable")
# Collecting thousands of tests leaves no garbage to search for.
gc.disable()

ROOT = Path(__file__).resolve().parents[1]
# What depends on the order in which matrix products are summed: marked blas.
PRODUCTS = (
    "tests/benchmarks/test_noisy.py",
    "tests/metrics/certificate/",
    "tests/similarity/",
    "tests/papers/rival/",
    "tests/models/baseline/",
    "tests/models/individual/",
    "tests/models/neural/",
    "tests/models/noisy/test_estimator.py",
    "tests/models/noisy/test_lagrangian.py",
    "tests/models/noisy/test_problem.py",
    "tests/papers/rival/test_threshold_descent.py",
    "tests/models/regression/",
)
# Whole runs and processes, servers, rows in blocks, folders of files, crafted ones, pictures, draws
# against fairlearn, and what scikit-learn checks of every estimator, which takes long: marked once.
PROCESSES = (
    "tests/auditing/test_subject.py",
    "tests/benchmarks/",
    "tests/deployment/test_bundle.py",
    "tests/deployment/test_explanation.py",
    "tests/choose/test_choosing.py",
    "tests/study/test_comparison.py",
    "tests/deployment/test_scoring.py",
    "tests/choose/test_select.py",
    "tests/choose/test_tracking.py",
    "tests/deployment/test_view.py",
    "tests/cli/test_apart.py",
    "tests/contracts/test_meaning.py",
    "tests/contracts/test_partitions.py",
    "tests/contracts/test_sklearn.py",
    "tests/auditing/test_debiased.py",
    "tests/docs/",
    "tests/figure/",
    "tests/flows/test_audit.py",
    "tests/flows/test_debias.py",
    "tests/flows/test_monitor.py",
    "tests/metrics/test_frame.py",
    "tests/metrics/test_grouped.py",
    "tests/flows/test_reproduce.py",
    "tests/fuzz/",
    "tests/deployment/test_monitoring.py",
    "tests/prepare/embedding/test_saved.py",
    "tests/prepare/test_collection.py",
    "tests/papers/figure/",
    "tests/report/test_files.py",
    "tests/report/test_page.py",
    "tests/runtime/cluster/test_open.py",
    "tests/security/",
    "tests/study/test_draft.py",
    "tests/test_documents.py",
    "tests/test_release.py",
    "tests/test_runner.py",
    "tests/models/individual/budro/test_collection.py",
    "tests/models/regression/test_collection.py",
)
# Their files share a Prefect server, or studies that take seconds: one process takes such a room.
TOGETHER = ("tests/flows/", "tests/choose/", "tests/deployment/", "tests/figure/", "tests/papers/")
# Files that take longest: begun last, one of them would leave the other process without work.
LONGEST = (
    "tests/flows/",
    "tests/test_notebooks.py",
    "tests/contracts/test_sklearn.py",
    "tests/test_runner.py",
    "tests/models/individual/budro/test_collection.py",
    "tests/auditing/test_debiased.py",
    "tests/test_documents.py",
    "tests/cli/",
    "tests/models/fit/test_key.py",
    "tests/fuzz/",
    "tests/contracts/",
    "tests/prepare/test_collection.py",
    "tests/models/regression/test_collection.py",
    "tests/runtime/cluster",
    "tests/test_entry_points.py",
    "tests/models/noisy/",
    "tests/papers/",
    "tests/figure/",
)


# To import the library in two processes takes as long as the tests of so many files.
FEW = 4


class Pictures:
    """Blank but in tests of figures: drawing them took a sixth of all tests' time."""

    drawn = True
    # One transparent pixel.
    BLANK = bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000 1f15c489"
        "0000000a49444154789c63000100000500010d0a2db40000000049454e44ae426082"
    )


def pytest_configure() -> None:
    """Let pictures be blank."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    draw = FigureCanvasAgg.print_png

    # Matplotlib reads the signature of what it calls.
    @wraps(draw)
    def print_png(canvas, sink, **options):
        if Pictures.drawn:
            draw(canvas, sink, **options)
        else:
            sink.write(Pictures.BLANK)

    FigureCanvasAgg.print_png = print_png


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw where a test is of figures; ahead of its fixtures."""
    Pictures.drawn = any(name in item.nodeid for name in ("figure", "picture", "scoreboard"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the processes of `make test`: 2, or 0 for few files.

    With 0 all tests run in pytest's own process.
    """
    named = [Path(each.partition("::")[0]) for each in config.args]
    files = {file for path in named for file in [path, *path.rglob("test_*.py")] if file.is_file()}
    return 0 if len(files) <= FEW else 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their rooms, and put the longest files first."""

    def place(item: pytest.Item) -> int:
        found = (at for at, name in enumerate(LONGEST) if item.nodeid.startswith(name))
        return next(found, len(LONGEST))

    for item in items:
        # Processes of a cluster take long to start, and sum as threads do.
        apart = "processes" in getattr(item, "fixturenames", ())
        if item.nodeid.startswith(PRODUCTS) and not apart:
            item.add_marker("blas")
        if item.nodeid.startswith(PROCESSES):
            item.add_marker("once")
    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Search for garbage from now on, but not among the tests."""
    gc.freeze()
    gc.enable()


class Spreading(LoadFileScheduling):
    """Gives each file to one process, and some rooms as a whole."""

    def _split_scope(self, nodeid: str) -> str:
        return next(filter(nodeid.startswith, TOGETHER), None) or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Spreading:
    """Return what spreads the tests over processes."""
    return Spreading(config, log)


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of this checkout."""
    return ROOT


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project that the tests share: its store fills as they go."""
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """Return a project of one test's own."""
    return make_project(tmp_path)
