"""All benchmarks, or one with its options: ``python -m benchmarks [NAME [OPTIONS]]``."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import benchmarks
from fairfrontier.runtime.errors import nearest

# What the benchmarks are written with.
SHARED = ("__main__", "record", "scoreboard")
# Take hours: by name alone.
LONG = ("default", "frontier", "reproduce")


def names() -> list[str]:
    """Return the benchmarks of this package: its modules that can be run."""
    return sorted(
        module.name for module in pkgutil.iter_modules(benchmarks.__path__)
        if module.name not in SHARED
    )  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run each in a process of its own, so that none warms or crowds another."""
    known = names()
    if arguments[:1] in (["-h"], ["--help"]):
        print(f"{__doc__}\nBenchmarks: {', '.join(known)}.")
        return 0
    usual = [name for name in known if name not in LONG]
    chosen, options = (arguments[:1], arguments[1:]) if arguments else (usual, [])
    if chosen[0] not in known:
        print(f"There is no benchmark {chosen[0]!r}. {nearest(chosen[0], known)}", file=sys.stderr)
        return 2
    codes = [
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False)
        for name in chosen
    ]
    return max(each.returncode for each in codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
