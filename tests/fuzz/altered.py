"""Copies of folders, each altered from a random state of its own, and what using them comes to."""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SECONDS = 10


def alter(
    base: Path,
    count: int,
    seed: int,
    *,
    folders: Mapping[str, Path],
    draw: Callable[[random.Random], Sequence[str]],
    mangle: Callable[[Path, random.Random], str],
    ask: Callable[..., str],
) -> Counter[str]:
    """Alter a copy of one folder, ``base``/work, ``count`` times; return how often what came of it.

    ``draw`` gives the folder's name and what else ``ask`` is told, ``mangle`` the file it altered.
    """
    rng = random.Random(seed)  # noqa: S311
    outcomes: Counter[str] = Counter()
    work = base / "work"
    for number in range(count):
        kind, *more = draw(rng)
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folders[kind], work)
        name = mangle(work, random.Random(f"{seed}/{number}"))  # noqa: S311
        case = " ".join([*more, f"{kind}/{name}", str(number)])
        started = time.process_time()
        try:
            outcome = ask(work, *more)
        except Exception as error:
            outcome = f"{type(error).__name__}: {case}: {error}"[:200]
            traceback.print_exc()
        if time.process_time() - started > SECONDS:
            outcome = f"slow: {case}"
        outcomes[outcome] += 1
    return outcomes


def start(run: Callable[[Path, int, int], Counter[str]]) -> None:
    """Run FOLDER COUNT SEED of the command line within 4 GiB, and print the outcomes."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
