"""The command line, from its first import on."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; also whoever interrupts its imports sees no traceback."""
    try:
        from fairfrontier.cli.command import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
