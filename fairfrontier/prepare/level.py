"""Levels: scalars of tables and of YAML as text."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

# Software without a type for whole numbers with missing cells writes 2 as 2.0.
WHOLE_NUMBER = re.compile(r"^([+-]?[0-9]+)\.0+$")
# R and Excel write TRUE, Python True, databases true.
TRUTH = re.compile(r"^(?i:true|false)$")


def level_text(value: Any) -> Any:
    """Return a scalar of YAML or of a table as a level: 2, 2.0, "2" and " 2.0" are all "2".

    Truth values are True and False, whatever program wrote them.
    """
    if isinstance(value, str):
        text = value.strip()
        return text.capitalize() if TRUTH.match(text) else WHOLE_NUMBER.sub(r"\1", text)
    if isinstance(value, Integral):
        return str(value)
    if isinstance(value, Real):
        value = float(value)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        if value == int(value):
            return str(int(value))
        # A Decimal has zeros up to its scale, and ``normalize`` would round it.
        return f"{value:f}".rstrip("0") if isinstance(value, Decimal) else repr(value)
    return value
