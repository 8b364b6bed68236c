"""The audit flow: decisions with noisy groups in, what holds for every assignment out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import flow
from pydantic import ValidationError

from fairfrontier.audit.auditing import PASSES, check_config
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.files import FILES
from fairfrontier.cli.progress import PassProgress
from fairfrontier.prepare.table.stream import list_files
from fairfrontier.runtime.config import read_first_fault
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import find_home
from fairfrontier.study.run import check_folder
from flows.artifact import PUBLISH_SECONDS, make_key, publish_audit, show_progress, start_progress
from flows.history import mark_run
from tasks.evaluate import bound_rates_of, write_bounds


class AuditParameters(AuditConfig):
    """What an audit is asked for; the form that the Prefect server shows.

    Attributes
    ----------
    out : str or None
        The folder that gets the results; data/results/audit/NAME by default.
    home : str or None
        The project root; found from the current folder by default.
    """

    out: str | None = None
    home: str | None = None

    @property
    def name(self) -> str:
        """The name of the table or of the model's folder, without endings."""
        if self.table is not None:
            return Path(Path(self.table).name.removesuffix(".gz")).stem
        return Path(str(self.model)).name

    @property
    def root(self) -> Path:
        """The project."""
        return Path(self.home) if self.home else find_home()

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        if self.out is not None:
            return Path(self.out).expanduser().absolute()
        return self.root / "data" / "results" / "audit" / self.name

    def check(self) -> None:
        """Raise a FairfrontierError for what can be known to be wrong before anything is read."""
        check_config(self)
        check_folder(self.folder)
        self._refuse_overwriting()

    def _refuse_overwriting(self) -> None:
        """Refuse a folder of results in which an input would be replaced, or joined."""
        out = self.folder.resolve()
        written = {out / name for name in FILES}
        for given in (self.table, self.confusion, self.auxiliary, self.model):
            if given is None:
                continue
            path = Path(given).expanduser().resolve()
            read = {path} if path.is_dir() else {path, *map(Path.resolve, list_files(path))}
            if path == out or read & written:
                raise ConfigError(
                    f"The results in {out} would replace what is read: {path}.",
                    "Give another folder with --out.",
                )


def read_options(given: Mapping[str, Any]) -> AuditParameters:
    """Make parameters of the options of a command line.

    Raises
    ------
    ConfigError
        Names the option and what was expected.
    """
    options = dict(given)
    if isinstance(options.get("prior"), str):
        options["prior"] = _read_prior(options["prior"])
    try:
        return AuditParameters.model_validate(options)
    except ValidationError as error:
        first = read_first_fault(error)
        message = first.fault
        if not first.where:
            raise ConfigError(f"{message[0].upper()}{message[1:]}.", first.mend) from None
        option = first.where[0]
        raise ConfigError(
            f"--{option.replace('_', '-')} is {options[option]!r}: {message[0].lower()}"
            f"{message[1:]}.",
            "`fairfrontier audit --help` says what the options are.",
        ) from None


def _read_prior(text: str) -> dict[str, float]:
    """Read shares written as a=0.8,b=0.2; a name may hold = itself."""
    shares: dict[str, float] = {}
    for each in text.split(","):
        name, equals, share = each.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            equals = ""
        if not equals or not name.strip() or name.strip() in shares:
            raise ConfigError(
                f"--prior is {text!r}, and {each.strip()!r} is no share of a further group.",
                "Write the shares of all true groups as a=0.8,b=0.2.",
            )
        shares[name.strip()] = number
    return shares


@flow(name="audit", flow_run_name="{run.name}", persist_result=False)
def audit(run: AuditParameters) -> dict[str, Any]:
    """Bound the rates of true groups from decisions with noisy groups, and say what holds.

    Parameters
    ----------
    run : AuditParameters
        Which table or model, and what is known of the noise.

    Returns
    -------
    dict
        ``folder``, and what stands in audit.json.

    Raises
    ------
    FairfrontierError
        For whatever the user can mend; then no file of an earlier run has changed.
    """
    started = time.monotonic()
    mark_run()
    run.check()
    slug = make_key("audit", run.folder.name)
    artifact = start_progress(slug, "rows")
    with PassProgress(run.name, PASSES) as shown:
        published = started

        def progress(name: str, share: float) -> None:
            nonlocal published
            shown(name, share)
            if time.monotonic() - published > PUBLISH_SECONDS:
                published = time.monotonic()
                show_progress(artifact, shown.share)

        findings = bound_rates_of(run.name, run, run.root, progress)
        summary = write_bounds(run.name, findings, run.folder, started)
    show_progress(artifact, shown.share)
    publish_audit(slug, run.folder, FILES)
    return {"folder": str(run.folder), **summary}
