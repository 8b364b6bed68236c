"""An estimator and a part of a Split in; rows of measures out."""

from fairfrontier.runtime.room import make_callable

make_callable(__name__, "fairfrontier.evaluate.verb", "evaluate")
