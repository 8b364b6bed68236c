"""Commands that use a bundle which nobody here has signed, each in a process of its own.

The native code of XGBoost, scikit-learn and onnxruntime believes what a model's files say: made up
ones crash it, or keep it busy for ever. That ends the process, and is a sentence.
"""

from __future__ import annotations

import faulthandler
import hmac
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from fairfrontier.cli.terminal import INTERRUPTED, run_app
from fairfrontier.runtime.errors import StoreError

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.runtime.option import ProjectOptions

# The modules are found where this process found them, and none in the current folder. Who
# interrupts it before it is ready sees no traceback.
CODE = (
    "import json, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "given = json.loads(sys.argv.pop()); sys.path[:] = given['paths']; "
    "sys.argv[:] = given['words']; from fairfrontier.cli.apart import serve; serve(given)"
)
# Seconds that a model may take for all that a command asks of it before rows are read, or for a
# batch of rows.
PATIENCE = 3600.0
# Those of the command itself: done, a traceback, a sentence, limits that are exceeded, interrupted.
CODES = (0, 1, 2, 3, 4, INTERRUPTED)
# In such a process, the file that says when it was late.
_late: IO[str] | None = None
_patience = PATIENCE


def apart(find: Callable[[Any], Path | None]) -> Callable[[Callable[[Any], None]], Any]:
    """Return a decorator that runs a command in another process if its bundle is not signed.

    ``find`` returns the folder of the bundle in the command's options, None without one.
    """

    def decorate(command: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(command)
        def call(config: ProjectOptions) -> None:
            bundle = find(config)
            if _late is not None or bundle is None or not _is_foreign(bundle):
                command(config)
            elif code := _run_apart(command, config, bundle):
                raise typer.Exit(code)

        return call

    return decorate


def _is_foreign(folder: Path) -> bool:
    """Return whether a folder is a bundle without the signature of the project's secret.

    It is one of the digest in the bundle, with which `load_bundle` compares all files.
    """
    # Not every command needs pydantic, which these modules import.
    from fairfrontier.runtime.option import BUNDLE_FILE, SIGNATURE
    from fairfrontier.runtime.secret import find_key, sign
    from fairfrontier.runtime.text_file import read_json

    path, key = folder / BUNDLE_FILE, find_key()
    if key is None or not path.is_file():
        # What is wrong with a folder that is no bundle is said by the command.
        return path.is_file()
    try:
        manifest = read_json(path)
        signature, digest = str(manifest[SIGNATURE]), str(manifest["sha256"])
    except (OSError, ValueError, LookupError, TypeError):
        return True
    return not hmac.compare_digest(signature.encode(), sign(key, digest.encode()).hex().encode())


def _run_apart(command: Callable[[Any], None], config: ProjectOptions, bundle: Path) -> int:
    """Return the exit code of a command that runs in another process; StoreError for its end."""
    with tempfile.TemporaryDirectory(prefix="fairfrontier-") as folder:
        late = Path(folder) / "late"
        given = {
            "paths": sys.path,
            "words": sys.argv,
            "command": [command.__module__, command.__name__],
            "options": [type(config).__module__, type(config).__name__],
            "values": config.model_dump(mode="json", exclude_unset=True),
            "late": str(late),
            "patience": PATIENCE,
        }
        # Standard output of tests and notebooks is no file.
        with ExitStack() as files:
            told = [
                None if now is real else files.enter_context((Path(folder) / name).open("w+"))
                for name, now, real in (
                    ("out", sys.stdout, sys.__stdout__),
                    ("error", sys.stderr, sys.__stderr__),
                )
            ]
            with subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-c", CODE, json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=told[0],
                stderr=told[1],
            ) as process:
                # It is interrupted, too, and says what is kept.
                while process.poll() is None:
                    with suppress(KeyboardInterrupt):
                        process.wait()
            for stream, file in zip((sys.stdout, sys.stderr), told, strict=True):
                if file is not None:
                    file.seek(0)
                    stream.write(file.read())
        if process.returncode == -signal.SIGINT:
            return INTERRUPTED
        if process.returncode in CODES and not (late.is_file() and late.stat().st_size):
            return process.returncode
        reason = f"it ended with {process.returncode}"
        if late.is_file() and late.stat().st_size:
            reason = f"a batch of rows took more than {PATIENCE / 60:g} minutes"
    raise StoreError(
        f"The process that used the bundle {bundle} did not finish: {reason}.",
        "Export the bundle again, or restore the folder from where it was copied.",
    )


def serve(given: dict[str, Any]) -> None:
    """Run a command within this process, which ends with the one that started it, or when late."""
    global _late, _patience
    _patience = given["patience"]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Where memory is short Linux ends this process, and not another one.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    module, name = given["options"]
    model = getattr(importlib.import_module(module), name)
    module, name = given["command"]
    command = getattr(importlib.import_module(module), name)
    with Path(given["late"]).open("w", encoding="utf-8") as _late:
        beat()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run_app(lambda **_: _call(command, model.model_validate(given["values"])))


def beat() -> None:
    """Say that a batch of rows is done: a process that says so too late is ended."""
    if _late is not None:
        faulthandler.dump_traceback_later(_patience, file=_late, exit=True)


def _call(command: Callable[[Any], None], config: Any) -> int:
    try:
        command(config)
    except typer.Exit as end:
        return end.exit_code
    return 0


def _end_with_parent() -> None:
    """End this process when nobody holds the other end of its standard input any more."""
    while os.read(0, 1):
        pass
    os._exit(INTERRUPTED)
