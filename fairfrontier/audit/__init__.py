"""Decisions or scores in, with groups that may be noisy; what can be said of the groups out."""

from fairfrontier.runtime.room import make_callable

make_callable(__name__, "fairfrontier.audit.verb", "audit")
