"""Methods by their short names: a decorator registers, walking the package discovers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fairfrontier.models.base import Estimator
from fairfrontier.models.persistence import KNOWN, read_manifest, reading
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.registry import Registry
from fairfrontier.runtime.store import refuse_unsigned

Class = TypeVar("Class", bound=type[Estimator])
METHODS: Registry[type[Estimator]] = Registry(
    "method", "method", ("fairfrontier.models",), "fairfrontier.methods"
)


def method(name: str) -> Callable[[Class], Class]:
    """Register an estimator class under a short name, which YAML and ``create`` use."""

    def register(cls: Class) -> Class:
        METHODS.add(name, cls, cls)
        cls.name = name
        return cls

    return register


def list_classes() -> set[str]:
    """Return the names of the registered classes, and of what their learners are made of."""
    methods = METHODS.all().values()
    own = {f"{method.__module__}.{method.__qualname__}" for method in methods}
    return own.union(*(method.trusted for method in methods))


KNOWN.append(list_classes)


def create(name: str, **parameters: Any) -> Estimator:
    """Create an unfitted estimator by its short name.

    Parameters
    ----------
    name : str
        A registered method, as listed by ``fairfrontier list methods``.
    **parameters
        Its parameters; defaults are those of the class.

    Raises
    ------
    ConfigError
        For an unknown method or parameter, or a value it does not take.
    """
    cls = METHODS.find(name)
    known = [key for key in inspect.signature(cls).parameters if key != "self"]
    for key in parameters:
        if key not in known:
            raise ConfigError(f"The method {name!r} has no parameter {key!r}.", nearest(key, known))
    return cls(**parameters)


def load_model(folder: str | Path, *, trusted: Collection[str] = ()) -> Estimator:
    """Load a saved estimator of the registered method that its manifest names.

    ``trusted`` names classes of scikit-learn that a learner of your own is made of; see
    `Estimator.load`.

    Where FAIRFRONTIER_SECRET is set, models of a store have to be signed with that secret; digests
    alone do not protect a model against those who may write to its folder.
    """
    refuse_unsigned(Path(folder).parent)
    with reading(Path(folder), "Name a folder that save() wrote."):
        name = str(read_manifest(Path(folder))["method"])
    return METHODS.find(name).load(folder, trusted=trusted)


def name_columns(
    cls: type[Estimator],
    parameters: Mapping[str, Any],
    attributes: Sequence[str],
    dataset: str,
    label: str,
) -> dict[str, Any]:
    """Replace names of group attributes by their columns, in the ``group_parameters`` of a class.

    ``label`` is the user's name of the row, for the message: ConfigError for unknown attributes.
    """

    def column(name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in attributes:
            raise ConfigError(
                f"{label}: {name} is {value!r}, which is no group attribute of {dataset}.",
                nearest(value, attributes),
            )
        return attributes.index(value)

    named = dict(parameters)
    for name in cls.group_parameters:
        value = named.get(name)
        if isinstance(value, list | tuple):
            named[name] = [column(name, entry) for entry in value]
        elif value is not None:
            named[name] = column(name, value)
    return named
