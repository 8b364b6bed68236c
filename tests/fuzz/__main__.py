"""`make fuzz`: 100,000 inputs, in pieces that are added up; what was tried is kept.

A piece is the fuzz tests with a seed of their own, and a line of data/results/fuzz/pieces.jsonl. An
interrupted call goes on with the next seed. What a piece finds stands in SEED.log beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

from tests.project import ROOT

FOLDER = ROOT / "data" / "results" / "fuzz"
# Edited files of a piece, in seven groups.
PIECE = 1750


def try_piece(seed: int) -> dict[str, float]:
    """Run the fuzz tests with a seed; return what was tried."""
    report, started = FOLDER / "report.json", time.monotonic()
    report.unlink(missing_ok=True)
    changes = {"FUZZ": PIECE, "FUZZ_SEED": seed, "FUZZ_REPORT": report}
    words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
    done = subprocess.run(
        [sys.executable, *words, "tests/fuzz"],
        env={**os.environ, **{name: str(value) for name, value in changes.items()}},
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    tried = json.loads(report.read_text()) if report.exists() else {"inputs": 0, "slowest": 0.0}
    if done.returncode:
        (FOLDER / f"{seed}.log").write_text(done.stdout + done.stderr)
    return {
        "seed": seed,
        "failed": done.returncode,
        "files": tried["inputs"],
        "slowest": round(tried["slowest"], 2),
        "mebibytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10,
        "seconds": round(time.monotonic() - started),
    }


def main() -> int:
    """Try pieces until there are as many inputs as asked for; 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    wanted = parser.parse_args().inputs
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "pieces.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    while (total := sum(row["files"] for row in rows)) < wanted:
        rows.append(try_piece(max((row["seed"] for row in rows), default=0) + 1))
        with kept.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(rows[-1], flush=True)
    failed = [row["seed"] for row in rows if row["failed"]]
    slowest, most = (max(row[key] for row in rows) for key in ("slowest", "mebibytes"))
    print(f"{total:,} inputs, seeds that failed: {failed}, slowest {slowest} s, {most} MiB")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
