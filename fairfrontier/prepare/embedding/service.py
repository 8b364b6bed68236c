"""What the process of a sentence encoder does: it encodes texts within limits; see `process`."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fairfrontier.prepare.embedding.process import MEND
from fairfrontier.prepare.embedding.saved import WEIGHTS, SavedTransformer, load_encoder
from fairfrontier.runtime.errors import FairfrontierError

# For a batch: of a processor and each thread, and of the clock, which a busy machine may need.
SECONDS, CLOCK = 60, 600
# For every text of a request, beside those of a batch, since slow batches that end would otherwise
# add up to years. MiniLM takes 0.06 s of a processor at 256 tokens, and 0.13 s at 512.
TEXT_SECONDS, TEXT_CLOCK = 5, 50
# Of a protocol buffer.
MOST_GRAPH = 2**31
# Letters of a fault.
FAULT = 1000
# Of address space, beside what the weights and each thread take.
BYTES, THREAD_BYTES, COPIES = 2**33, 2**28, 4


def serve(folder: str, threads: str) -> None:
    """Answer requests, a line of JSON each, until there are no more: null and vectors, or a fault.

    The process is killed where a batch or all texts take too long, and has no more memory than some
    gigabytes.
    """
    # Libraries may write to the standard output, too.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    encoder = None

    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    _limit_memory(Path(folder) / WEIGHTS, int(threads))
    for line in sys.stdin.buffer:
        try:
            texts = json.loads(line)
            begin = _limit_time(len(texts), int(threads))
            encoder = encoder or load_encoder(Path(folder), int(threads))
            assert isinstance(encoder, SavedTransformer)  # noqa: S101
            answer = b"null\n" + encoder.encode_here(texts, begin).tobytes()
        except FairfrontierError as error:
            answer = json.dumps([error.fault[:FAULT], error.mend[:FAULT]]).encode() + b"\n"
        # Panics of tokenizers are no Exceptions.
        except BaseException as error:
            fault = f"The encoder of texts in {folder} cannot be run: {type(error).__name__}."
            answer = json.dumps([fault, MEND]).encode() + b"\n"
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(answer)
        answers.flush()


def _limit_time(texts: int, threads: int) -> Callable[[], None]:
    """Begin a request and its first batch; return what is to be called before another one."""
    limits = (
        (signal.ITIMER_PROF, time.process_time, SECONDS * threads, TEXT_SECONDS),
        (signal.ITIMER_REAL, time.monotonic, CLOCK, TEXT_CLOCK),
    )
    ends = [clock() + batch + text * texts for _, clock, batch, text in limits]

    def begin() -> None:
        """Let the process be killed unless this is called again in time."""
        for (timer, clock, batch, _), end in zip(limits, ends, strict=True):
            # 0 would be no limit.
            signal.setitimer(timer, max(min(batch, end - clock()), 1e-3))

    begin()
    return begin


def _limit_memory(weights: Path, threads: int) -> None:
    """Limit the address space, and leave no core dump, where the system knows such limits."""
    size = BYTES + THREAD_BYTES * threads
    with suppress(OSError):
        # No graph is larger, whatever the size of its file.
        size += COPIES * min(weights.stat().st_size, MOST_GRAPH)
    for kind, most in ((resource.RLIMIT_AS, size), (resource.RLIMIT_CORE, 0)):
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))
