"""Any model's scores in, decisions of equal rates between groups out."""

from fairfrontier.runtime.room import make_callable

make_callable(__name__, "fairfrontier.debias.debiasing", "fit_debiasing")
