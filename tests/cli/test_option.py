from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import typer
from pydantic import AliasChoices, Field
from typer.testing import CliRunner

from fairfrontier.cli.option import build_command, command_from, read_options
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.option import File, NameOrFile, Names, ProjectOptions, Seed, Share


class Wish(ProjectOptions):
    """What a test is asked for."""

    subject: NameOrFile = Field(description="What it is of.")
    kind: Literal["plain", "fancy"] = Field(default="plain", description="How [it] is done.")
    share: Share | None = Field(default=None, description="Of rows.")
    seed: Seed = Field(default=0, description="Of draws.")
    parts: Names = Field(default=(), description="Which.")
    from_file: File | None = Field(default=None, description="Where it is.")
    loud: bool = Field(default=False, description="Not quiet.")


def call(*arguments):
    asked = []

    def wish(given: Wish) -> None:
        """Ask for something."""
        asked.append(given)

    build_command(Wish, wish, "subject").main(list(arguments), standalone_mode=False)
    return asked[0]


def test_a_command_gives_its_function_what_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = call("a.yaml", "--share", "0", "--parts", "a, b", "--from-file", "x.csv", "--loud")
    assert asked.subject == str(tmp_path / "a.yaml")
    assert (asked.share, asked.parts, asked.loud) == (0.0, ("a", "b"), True)
    assert asked.from_file == tmp_path / "x.csv"
    assert asked.model_fields_set == {"subject", "share", "parts", "from_file", "loud"}
    assert call("a").subject == "a"


@pytest.mark.parametrize(
    ("options", "fault", "mend"),
    [
        (("--share", "2"), "--share is 2.0: input should be less than or equal to 1.", "--help"),
        (("--kind", "odd"), "--kind is 'odd': input should be 'plain' or 'fancy'.", "wish --help"),
        (("--seed", "-1"), "--seed is -1: input should be greater", "--help"),
    ],
)
def test_what_cannot_be_is_named_with_its_mend_apart(options, fault, mend):
    with pytest.raises(ConfigError) as error:
        call("a", *options)
    assert error.value.fault.startswith(fault)
    assert mend in error.value.mend


def test_an_unknown_option_gets_the_nearest():
    with pytest.raises(ConfigError, match=r"^There is no key 'shre' here\. Did you mean 'share'"):
        read_options(Wish, {"subject": "a", "shre": 1}, "wish")


def test_help_shows_descriptions_choices_and_defaults():
    app = typer.Typer()
    app.callback()(lambda: None)

    def wish(given: Wish) -> None:
        """Ask for something."""

    command_from(app, f"{__name__}:Wish", "subject")(wish)
    shown = CliRunner().invoke(app, ["wish", "--help"], env={"COLUMNS": "120"}).output
    for text in (
        "Ask for something.",
        "plain|fancy",
        "How [it] is done; plain by default.",
        "Of draws; 0 by default.",
        "--from-file",
        "The conf folder, or the project root that holds it.",
    ):
        assert text in shown


@pytest.mark.once
def test_plain_commands_import_no_prefect(root):
    commands = [["--help"], ["debias", "--help"], ["list", "figures"]]
    code = (
        "import sys; from fairfrontier.cli.command import app\n"
        f"for words in {commands!r}: app(words, standalone_mode=False)\n"
        "heavy = {'prefect', 'distributed', 'flows', 'tasks'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(root), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]


def test_lists_are_separated_by_commas_or_given_again():
    assert call("x", "--parts", "a,b", "--parts", "c").parts == ("a", "b", "c")
    assert call("x").parts == ()


def test_an_option_of_one_value_is_not_given_twice():
    app, asked = typer.Typer(), []
    app.callback()(lambda: None)

    def wish(given: Wish) -> None:
        """Ask for something."""
        asked.append(given)

    command_from(app, f"{__name__}:Wish", "subject")(wish)
    told = CliRunner().invoke(app, ["wish", "x", "--share", "0.1", "--share=0.2"])
    assert isinstance(told.exception, ConfigError)
    assert "--share" in told.exception.fault
    CliRunner().invoke(app, ["wish", "x", "--parts", "a", "--parts", "b", "--share", "0.1"])
    assert [each.share for each in asked] == [0.1]


def test_an_option_may_have_a_second_name():
    class Named(ProjectOptions):
        parts: Names = Field(
            default=(), validation_alias=AliasChoices("parts", "part"), description="Which."
        )

    asked = []

    def name(given: Named) -> None:
        """Name parts."""
        asked.append(given)

    for option in ("--parts", "--part"):
        build_command(Named, name, None).main([option, "a"], standalone_mode=False)
    assert [each.parts for each in asked] == [("a",), ("a",)]
    assert Named(part="a,b").parts == ("a", "b")
    with pytest.raises(ConfigError, match="Did you mean 'parts'"):
        read_options(Named, {"prt": "a"}, "name")
