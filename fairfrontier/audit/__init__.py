"""Decisions in, with noisy groups; what can be said of the true groups out."""

from fairfrontier.runtime.room import make_callable

make_callable(__name__, "fairfrontier.audit.auditing", "run_audit")
