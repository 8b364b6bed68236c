"""The options of the commands on a finished study and on its bundle; light, for completion."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from fairfrontier.prepare.config.section import Unseen
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.option import Name, Seed
from fairfrontier.study.config import StudyOptions

KNEE, IDEAL, WITHIN = "knee", "closest-to-ideal", "least-disparity-within"
NAMES = f"{KNEE}, {IDEAL} or {WITHIN}=0.01"


def read_policy(text: str) -> tuple[str, float]:
    """Return the name of a policy and its tolerance, 0 without one; ConfigError for another."""
    found = re.fullmatch(rf"({KNEE}|{IDEAL})|({WITHIN})=(\d+\.?\d*|\.\d+)", text, re.ASCII)
    if found is None:
        raise ConfigError(f"There is no policy {text!r}.", f"Give {NAMES}.")
    return found[1] or found[2], float(found[3] or 0.0)


def _check_policy(text: str) -> str:
    read_policy(text)
    return text


class SelectConfig(StudyOptions):
    """What is chosen from a study: the options of a command."""

    query: str = Field(
        default="",
        description='As "max accuracy subject to selection_rate_difference:sex <= 0.05"; the '
        "study's objective without bounds by default.",
    )
    policy: Annotated[str, AfterValidator(_check_policy)] | None = Field(
        default=None, description=f"Which of those within the bounds: {NAMES}."
    )
    certified: bool = Field(
        default=False, description="Bounds have to hold on fresh rows, with the confidence."
    )
    confidence: float = Field(default=0.95, gt=0.0, lt=1.0, description="Of certified bounds.")
    mixture: bool = Field(default=False, description="Two models may decide, one drawn by row id.")
    no_groups_at_decision: bool = Field(
        default=False, description="Without rules that look at the group of a row."
    )
    seed: Seed | None = Field(
        default=None, description="Which split's model; the first by default."
    )
    explain_rows: int | None = Field(
        default=None,
        ge=1,
        description="Rows whose scores the card explains, by 32 drawn orders of the columns where "
        "there is no formula; by default 1000, or what takes some 2 s, by 16.",
    )
    row_id: Name | None = Field(
        default=None, description="Column of row ids, by which random decisions are drawn."
    )
    unseen: Unseen = Field(
        default="zeros", description="Levels that training had not: encoded as zeros, or refused."
    )

    def write_commands(self, name_path: Callable[[Path], str]) -> dict[str, str]:
        """Return the commands that ran the study and that choose; ``name_path`` writes paths."""
        study, *options = self._list_words(type(self), name_path)
        select = [study, *([self.query] if self.query else []), *options]
        words = {"run": self._list_words(StudyOptions, name_path), "select": select}
        return {name: shlex.join(["fairfrontier", name, *given]) for name, given in words.items()}

    def _list_words(
        self, options: type[StudyOptions], name_path: Callable[[Path], str]
    ) -> list[str]:
        """Return the study, and those of the options that are not as they are by default."""
        words = [name_path(Path(self.study))]
        for name, field in options.model_fields.items():
            value = getattr(self, name)
            if name not in ("study", "query", "conf") and value != field.default:
                option = f"--{name.replace('_', '-')}"
                shown = name_path(value) if isinstance(value, Path) else str(value)
                words += [option] if value is True else [option, shown]
        return words


class LogConfig(StudyOptions):
    """Which study is logged, and where: the options of a command."""

    to: Name | None = Field(
        default=None,
        description="MLflow's tracking URI, as http://127.0.0.1:5000 or sqlite:///mlflow.db; that "
        "of MLFLOW_TRACKING_URI by default.",
    )
    experiment: Name | None = Field(
        default=None, description="The experiment; the name of the study by default."
    )
