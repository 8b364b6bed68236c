"""A bundle and a new period in, what changed since it was chosen out."""

from fairfrontier.runtime.room import make_callable

make_callable(__name__, "fairfrontier.monitor.monitoring", "run_monitor")
