"""How long an oracle takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Stopwatch:
    """Adds up the wall-clock seconds of calls.

    Attributes
    ----------
    calls : int
    seconds : float
    """

    def __init__(self) -> None:
        self.calls, self.seconds = 0, 0.0

    def time(self, function: Callable[[Question], Answer]) -> Callable[[Question], Answer]:
        """Return the function, whose calls are counted from now on."""

        def timed(question: Question) -> Answer:
            started = time.perf_counter()
            try:
                return function(question)
            finally:
                self.calls += 1
                self.seconds += time.perf_counter() - started

        return timed
