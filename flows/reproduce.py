"""The reproduce flow: every study that reproduces a table or a figure of a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow
from pydantic import BaseModel, ConfigDict

from flows.frontier import FrontierParameters, frontier
from flows.history import mark_run
from tasks.evaluate.plan import load_study, studies
from tasks.evaluate.study import DEFAULT_PROFILE
from tasks.prepare.download import FetchError
from tasks.runtime.errors import ConfigError, FairfrontierError, nearest
from tasks.runtime.home import find_home


class ReproduceParameters(BaseModel):
    """How much is reproduced, and where; see `flows.frontier.FrontierParameters`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: str = DEFAULT_PROFILE
    cluster: str = "local"
    out: str | None = None
    home: str | None = None

    def plan(self) -> list[FrontierParameters]:
        """Return one frontier run per study that reproduces something and has the profile."""
        home = Path(self.home) if self.home else find_home()
        reproducing = []
        known = {DEFAULT_PROFILE}
        for name in studies(home):
            study = load_study(name, home=home)
            if study.reproduced:
                reproducing.append((name, {DEFAULT_PROFILE, *study.profiles}))
                known |= reproducing[-1][1]
        if not reproducing:
            raise ConfigError(
                f"No study in {home / 'conf' / 'studies'} reproduces a table or a figure.",
                "Give one a `published` block, or list the figures under `reproduces`.",
            )
        if self.profile not in known:
            raise ConfigError(
                f"No study that reproduces something has a profile {self.profile!r}.",
                nearest(self.profile, known),
            )
        return [
            FrontierParameters(
                study=name,
                profile=self.profile,
                cluster=self.cluster,
                out=self.out,
                home=self.home,
            )
            for name, profiles in reproducing
            if self.profile in profiles
        ]

    def check(self) -> None:
        """Raise a FairfrontierError for what can be known to be wrong before anything runs."""
        for each in self.plan():
            each.check()


@flow(name="reproduce", flow_run_name="reproduce {run.profile}", persist_result=False)
def reproduce(run: ReproduceParameters) -> list[dict[str, Any]]:
    """Run every study that reproduces something; one that fails does not stop the others.

    One whose data cannot be fetched, as on a machine without a network, is left out and named.

    Parameters
    ----------
    run : ReproduceParameters
        Which profile, and where.

    Returns
    -------
    list of dict
        What `flows.frontier.frontier` returns, per study; for one that was left out ``study`` and
        ``unavailable``, a sentence.

    Raises
    ------
    FairfrontierError
        The first fault, after all studies have had their turn.
    """
    mark_run()
    done = []
    faults: list[Exception] = []
    for each in run.plan():
        try:
            done.append(frontier(each))
        except FetchError as error:
            done.append({"study": each.study, "unavailable": error.fault})
        except FairfrontierError as error:
            faults.append(type(error)(f"Study {each.study}: {error.fault}", error.mend))
        except Exception as error:
            error.add_note(f"In study {each.study}.")
            faults.append(error)
    if faults:
        raise faults[0]
    return done
