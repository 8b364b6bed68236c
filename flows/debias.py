"""The debias flow: a table of any model's scores in, thresholds, decisions and an audit out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import flow
from pydantic import ValidationError

from fairfrontier.cli.progress import PassProgress
from fairfrontier.debias.debiasing import PASSES, DebiasConfig, check_config
from fairfrontier.debias.files import FILES
from fairfrontier.runtime.config import read_first_fault
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import find_home
from fairfrontier.study.run import check_folder
from flows.artifact import (
    PUBLISH_SECONDS,
    make_key,
    publish_debiasing,
    show_progress,
    start_progress,
)
from flows.history import mark_run
from tasks.evaluate import fit_thresholds, write_decisions


class DebiasParameters(DebiasConfig):
    """What a debias run is asked for; the form that the Prefect server shows.

    Attributes
    ----------
    out : str or None
        The folder that gets the results; data/results/debias/NAME by default.
    home : str or None
        The project root; found from the current folder by default.
    """

    out: str | None = None
    home: str | None = None

    @property
    def name(self) -> str:
        """The table's name without its endings."""
        return Path(Path(self.table).name.removesuffix(".gz")).stem

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        if self.out is not None:
            return Path(self.out).expanduser().absolute()
        home = Path(self.home) if self.home else find_home()
        return home / "data" / "results" / "debias" / self.name

    def check(self) -> None:
        """Raise a FairfrontierError for what can be known to be wrong before anything is read."""
        check_config(self)
        check_folder(self.folder)
        self._refuse_overwriting()

    def _refuse_overwriting(self) -> None:
        """Refuse a folder of results in which an input would be replaced."""
        out, table = self.folder.resolve(), Path(self.table).expanduser().resolve()
        written = {out / name: name for name in FILES}
        rule = None if self.apply is None else Path(self.apply).expanduser().resolve()
        lost = table if table == out or table in written else None
        # A rule may be applied where it lies: it is written again as it is.
        if rule in written and written[rule] != "thresholds.json":
            lost = rule
        if lost is not None:
            raise ConfigError(
                f"The results in {out} would replace what is read: {lost}.",
                "Give another folder with --out.",
            )


def read_options(given: Mapping[str, Any]) -> DebiasParameters:
    """Make parameters of the options of a command line.

    Raises
    ------
    ConfigError
        Names the option and what was expected.
    """
    try:
        return DebiasParameters.model_validate(given)
    except ValidationError as error:
        first = read_first_fault(error)
        message = first.fault
        if not first.where:
            raise ConfigError(f"{message[0].upper()}{message[1:]}.", first.mend) from None
        option = first.where[0]
        raise ConfigError(
            f"--{option} is {given[option]!r}: {message[0].lower()}{message[1:]}.",
            "`fairfrontier debias --help` says what the options are.",
        ) from None


@flow(name="debias", flow_run_name="{run.name}", persist_result=False)
def debias(run: DebiasParameters) -> dict[str, Any]:
    """Fit thresholds by group on a table of scores, decide on its rows, and audit the decisions.

    Parameters
    ----------
    run : DebiasParameters
        Which table and columns, and what the decisions are held to.

    Returns
    -------
    dict
        ``folder``, and what stands in summary.json.

    Raises
    ------
    FairfrontierError
        For whatever the user can mend; then no file of an earlier run has changed.
    """
    started = time.monotonic()
    mark_run()
    run.check()
    slug = make_key("debias", run.folder.name)
    artifact = start_progress(slug, "rows")
    with PassProgress(run.name, PASSES) as shown:
        published = started

        def progress(name: str, share: float) -> None:
            nonlocal published
            shown(name, share)
            if time.monotonic() - published > PUBLISH_SECONDS:
                published = time.monotonic()
                show_progress(artifact, shown.share)

        debiasing = fit_thresholds(run.name, run, progress)
        summary = write_decisions(run.name, debiasing, run.folder, started, progress)
    show_progress(artifact, shown.share)
    publish_debiasing(slug, run.folder, FILES)
    return {"folder": str(run.folder), **summary}
