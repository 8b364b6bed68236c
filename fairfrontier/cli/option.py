"""Commands whose options are the fields of a pydantic model, the same that a flow takes."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from rich.markup import escape
from typer.core import TyperCommand

from fairfrontier.cli.terminal import find_project
from fairfrontier.runtime.errors import ConfigError, FairfrontierError
from fairfrontier.runtime.finder import Kind, list_names

# What the shell completes: names of the project, found without importing what computes.

# A shell would evaluate what other names of files may hold, and a command take some for options.
PLAIN = re.compile(r"(?!-)[\w@+.,/-]+")
Completion = Callable[[Any, str], list[str]]


def find_completion(command: str, name: str, values: Sequence[Any]) -> Completion | None:
    """Return what completes an option of a command: by its values, or else by its name."""
    if values:
        return lambda ctx, incomplete: [*map(str, values)]  # noqa: ARG005
    find = FINDERS.get(f"{command}.{name}") or FINDERS.get(name)
    return None if find is None else _guard(find)


def _guard(find: Callable[[Any, Path], Iterable[str]]) -> Completion:
    """Return a completion of the project's names; a fault of the project completes nothing."""

    def complete(ctx: Any, incomplete: str) -> list[str]:  # noqa: ARG001
        try:
            return sorted(filter(PLAIN.fullmatch, find(ctx, find_project(ctx.params.get("conf")))))
        # YAML may hold anything.
        except (FairfrontierError, OSError, ValueError, AttributeError, TypeError):
            return []

    return complete


def _find_yaml(kind: Kind, *others: str) -> Callable[[Any, Path], Iterable[str]]:
    return lambda _, home: {*list_names(kind, home), *others}


def _find_profiles(ctx: Any, home: Path) -> Iterable[str]:
    from fairfrontier.runtime.config import read_yaml
    from fairfrontier.runtime.finder import find_yaml

    # Parsing ends at --profile, which has no value yet, and leaves the words before it.
    study = ctx.params.get("study") or next(iter(ctx.args), "")
    content = read_yaml(find_yaml("study", study, home))
    return ["default", *map(str, content.get("profiles") or ())]


def _find_bundles(_: Any, home: Path) -> Iterable[str]:
    """Return the bundles of finished studies, as they are reached from the current folder."""
    here = Path.cwd()
    found = (path.parent for path in home.glob("data/results/*/choice/bundle/bundle.json"))
    return [str(path.relative_to(here) if path.is_relative_to(here) else path) for path in found]


def _find_results(_: Any, home: Path) -> Iterable[str]:
    return {path.parent.name for path in home.glob("data/results/*/summary.json")}


def _find_limits(_: Any, __: Path) -> Iterable[str]:
    from fairfrontier.deployment.config import LIMITED

    # Shells split words at a colon: the attribute is typed.
    return [name.removesuffix(":") for name in LIMITED]


# By the name of an option, or by COMMAND.NAME where commands differ.
FINDERS: dict[str, Callable[[Any, Path], Iterable[str]]] = {
    "study": _find_yaml("study"),
    "clean.study": _find_results,
    "dataset": _find_yaml("dataset"),
    "cluster": _find_yaml("cluster", "auto"),
    "profile": _find_profiles,
    "bundle": _find_bundles,
    "model": _find_bundles,
    "limit": _find_limits,
}


ModelType = TypeVar("ModelType")


def command_from(
    app: typer.Typer, model: str, *arguments: str
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Return a decorator that makes a command of a function of one model.

    The command has the function's name and docstring. Every field of the model, ``module:class``,
    is an option with the field's type, description and default, or a positional argument, in the
    order of ``arguments``. Lists are separated by commas, or their option is repeated. The module
    is imported only when this command is called.
    """

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        name = function.__name__

        class Command(TyperCommand):
            """Builds the command when it is called."""

            def make_context(self, *given: Any, **settings: Any) -> Any:
                module, _, cls = model.partition(":")
                built = build_command(
                    getattr(importlib.import_module(module), cls), function, *arguments
                )
                refuse_repeated(built, given[1])
                return built.make_context(*given, **settings)

        @app.command(name, cls=Command, help=inspect.getdoc(function))
        def stand_in() -> None:
            pass

        return function

    return register


def build_command(model: type[Any], function: Callable[[Any], None], *arguments: str) -> Any:
    """Return a command that calls a function with a model of its options."""
    fields = _order_fields(model)
    fields = {**{name: fields[name] for name in arguments if name in fields}, **fields}
    parameters = [
        _make_parameter(name, field, name in arguments, function.__name__)
        for name, field in fields.items()
    ]

    def call(**options: Any) -> None:
        values = {
            name: ",".join(value) if isinstance(value, list) else value
            for name, value in options.items()
            # An option that can be repeated, and was not given, is an empty list.
            if value not in (None, [])
        }
        function(read_options(model, values, function.__name__))

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in parameters}
    call.__doc__ = inspect.getdoc(function)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(function.__name__)(call)
    return typer.main.get_command(app)


def refuse_repeated(command: Any, words: Sequence[str]) -> None:
    """Raise ConfigError for an option that is given twice, and of which one value counts."""
    single = {
        name
        for option in command.params
        if option.param_type_name == "option" and not (option.multiple or option.is_flag)
        for name in option.opts
    }
    given = [word.partition("=")[0] for word in takewhile(lambda word: word != "--", words)]
    if twice := [name for name in given if name in single and given.count(name) > 1]:
        raise ConfigError(f"{twice[0]} is given twice, and takes one value.", "Give it once.")


def read_options(model: type[ModelType], values: Mapping[str, Any], command: str) -> ModelType:
    """Return the model of a command's options, by field; ConfigError names a wrong option."""
    from pydantic import ValidationError

    from fairfrontier.runtime.config import read_first_fault

    try:
        return model(**values)
    except ValidationError as error:
        first = read_first_fault(error)
        if not first.where:
            raise ConfigError(f"{first.fault[0].upper()}{first.fault[1:]}.", first.mend) from None
        name = first.where[0]
        fault = f"{first.fault[0].lower()}{first.fault[1:]}"
        if (value := values.get(name)) is not None:
            fault = f"{str(value) if isinstance(value, Path) else value!r}: {fault}"
        raise ConfigError(
            f"--{name.replace('_', '-')} is {fault}.",
            first.mend or f"`fairfrontier {command} --help` shows the options.",
        ) from None


def _order_fields(model: type[Any]) -> dict[str, Any]:
    """Return the fields of a model: its own, then the inherited ones."""
    own = inspect.get_annotations(model)
    return dict(sorted(model.model_fields.items(), key=lambda field: field[0] not in own))


def _make_parameter(name: str, field: Any, positional: bool, command: str) -> inspect.Parameter:
    """Return the parameter of a command for a field of a model."""
    from fairfrontier.runtime.config import spell

    kind = _find_type(field.annotation)
    values = _list_values(field.annotation)
    complete = find_completion(command, name, values)
    if positional:
        about: Any = typer.Argument(help=_describe(field), autocompletion=complete)
    else:
        spelt = [f"--{key.replace('_', '-')}" for key in spell(name, field)]
        choices = "|".join(map(str, values)) if values and kind is str else None
        about = typer.Option(
            *spelt, help=_describe(field), metavar=choices, autocompletion=complete
        )
    annotation: Any = Annotated[kind | None, about]
    default: Any = None
    if field.is_required():
        annotation, default = Annotated[kind, about], inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _describe(field: Any) -> str:
    """Return a field's description, with its default where it has one to name."""
    text = escape(str(field.description))
    stated = field.default not in ("", None) and not isinstance(field.default, bool | tuple | dict)
    if field.is_required() or not stated:
        return text
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{text.removesuffix('.')}; {default} by default."


def _find_type(annotation: Any) -> Any:
    """Return the type that the command line reads: a number, path, flag or list, else text."""
    first = _strip(annotation)
    if get_origin(first) in (tuple, dict):
        return list[str]
    return first if first in (bool, int, float, Path) else str


def _strip(annotation: Any) -> Any:
    """Return the first alternative of a union, without annotations."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        annotation = get_args(annotation)[0]
    return annotation


def _list_values(annotation: Any) -> tuple[Any, ...]:
    """Return the values of a literal, or of those in a list; none for another type."""
    first = _strip(annotation)
    if get_origin(first) is tuple:
        first = _strip(get_args(first)[0])
    return get_args(first) if get_origin(first) is Literal else ()
