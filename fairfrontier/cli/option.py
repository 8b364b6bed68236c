"""Commands whose options are the fields of a pydantic model, the same that a flow takes."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from rich.markup import escape
from typer.core import TyperCommand

from fairfrontier.runtime.errors import ConfigError

ModelType = TypeVar("ModelType")


def command_from(
    app: typer.Typer, model: str, argument: str | None = None
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Return a decorator that makes a command of a function of one model.

    The command is called after the function and described by its docstring. Every field of the
    model is an option ``--its-name``, of the field's type, with its description and its default.
    Lists are written with commas between; what a model accepts as text besides, its own validators
    say.

    Parameters
    ----------
    app : Typer
        Gets the command.
    model : str
        ``module:class``. The module is imported when the command is called, and not when the
        others are.
    argument : str, optional
        The field that is given by its place instead of by ``--name``.
    """

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        name = function.__name__

        class Command(TyperCommand):
            """Stands for the command until it is called."""

            def make_context(self, *given: Any, **named: Any) -> Any:
                module, _, cls = model.partition(":")
                built = build_command(
                    getattr(importlib.import_module(module), cls), function, argument
                )
                return built.make_context(*given, **named)

        @app.command(name, cls=Command, help=inspect.getdoc(function))
        def stand_in() -> None:
            pass

        return function

    return register


def build_command(model: type[Any], function: Callable[[Any], None], argument: str | None) -> Any:
    """Return a command that calls a function with a model of its options."""
    parameters = [
        _make_parameter(name, field, argument) for name, field in _order_fields(model).items()
    ]

    def call(**options: Any) -> None:
        given = {name: value for name, value in options.items() if value is not None}
        function(read_options(model, given, function.__name__))

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__doc__ = inspect.getdoc(function)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(function.__name__)(call)
    return typer.main.get_command(app)


def read_options(model: type[ModelType], given: Mapping[str, Any], command: str) -> ModelType:
    """Return the model of a command's options.

    Parameters
    ----------
    model : type of pydantic model
        What is expected.
    given : mapping of str to object
        Options that were given, by the names of their fields.
    command : str
        Named in errors.

    Raises
    ------
    ConfigError
        Names the option and what was expected.
    """
    from pydantic import ValidationError

    from fairfrontier.runtime.config import read_first_fault

    try:
        return model(**given)
    except ValidationError as error:
        first = read_first_fault(error)
        if not first.where:
            raise ConfigError(f"{first.fault[0].upper()}{first.fault[1:]}.", first.mend) from None
        name = first.where[0]
        fault = f"{first.fault[0].lower()}{first.fault[1:]}"
        if name in given:
            value = given[name]
            shown = str(value) if isinstance(value, Path) else value
            fault = f"{shown!r}: {fault}"
        raise ConfigError(
            f"--{name.replace('_', '-')} is {fault}.",
            first.mend or f"`fairfrontier {command} --help` shows the options.",
        ) from None


def _order_fields(model: type[Any]) -> dict[str, Any]:
    """Return the fields of a model: its own, then those that it shares with other models."""
    own = [name for name in model.model_fields if name in inspect.get_annotations(model)]
    rest = [name for name in model.model_fields if name not in own]
    return {name: model.model_fields[name] for name in (*own, *rest)}


def _make_parameter(name: str, field: Any, argument: str | None) -> inspect.Parameter:
    """Return the parameter of a command that a field of a model stands for."""
    kind = _find_type(field.annotation)
    if name == argument:
        about: Any = typer.Argument(help=_describe(field))
    elif kind is bool:
        about = typer.Option(f"--{name.replace('_', '-')}", help=_describe(field))
    else:
        about = typer.Option(help=_describe(field), metavar=_name_choices(field.annotation))
    annotation: Any = Annotated[kind | None, about]
    default: Any = None
    if field.is_required():
        annotation, default = Annotated[kind, about], inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _describe(field: Any) -> str:
    """Return a field's description, with its default where it has one to name."""
    # No part of a description is markup.
    text = escape(str(field.description))
    if field.is_required() or field.default is None or isinstance(field.default, bool | tuple):
        return text
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{text.removesuffix('.')}; {default} by default."


def _find_type(annotation: Any) -> type:
    """Return what the command line reads: a number, a path, a flag, else text."""
    options = [each for each in _list_options(annotation) if each is not type(None)]
    kinds: tuple[type, ...] = (bool, int, float, Path)
    return next((kind for kind in kinds if options[0] is kind), str)


def _list_options(annotation: Any) -> list[Any]:
    """Return the alternatives of a union, without what annotates them."""
    if get_origin(annotation) is Annotated:
        return _list_options(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [option for each in get_args(annotation) for option in _list_options(each)]
    return [annotation]


def _name_choices(annotation: Any) -> str | None:
    """Return the values of a literal as a reader of --help sees them."""
    first = _list_options(annotation)[0]
    return "|".join(map(str, get_args(first))) if get_origin(first) is Literal else None
