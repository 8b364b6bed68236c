"""Group attributes by name: the columns of ``groups`` that parameters mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairfrontier.prepare.split import Split
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.train.base import Estimator


def name_columns(
    cls: type[Estimator], parameters: Mapping[str, Any], split: Split, label: str
) -> dict[str, Any]:
    """Replace names of group attributes by their columns, in the parameters that take them.

    Parameters
    ----------
    cls : type of Estimator
        Its ``group_parameters`` say which parameters those are.
    parameters : mapping
        Names, columns, or lists of either.
    split : Split
        Whose attributes are meant.
    label : str
        What the user calls the row, for the message.

    Raises
    ------
    ConfigError
        For an unknown attribute; the sentence offers the nearest.
    """
    attributes = list(split.train.attributes)

    def column(name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in attributes:
            raise ConfigError(
                f"{label}: {name} is {value!r}, which is no group attribute of {split.dataset}.",
                nearest(value, attributes),
            )
        return attributes.index(value)

    named = dict(parameters)
    for name in cls.group_parameters:
        value = named.get(name)
        if isinstance(value, list | tuple):
            named[name] = [column(name, each) for each in value]
        elif value is not None:
            named[name] = column(name, value)
    return named
