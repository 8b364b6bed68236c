from __future__ import annotations

import pytest

from fairfrontier.deployment.config import MonitorConfig
from fairfrontier.deployment.monitoring import FILES
from fairfrontier.runtime.text_file import read_csv
from flows import monitor as door
from flows.monitor import ALARM, monitor
from tests.cli.process import wait_for
from tests.deployment.watched import make_bundle, make_rows


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("watched")
    make_bundle(home)
    return home


def test_an_alarm_is_an_event_once(harness, home, monkeypatch):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    events = []

    def emit(*what, **more):
        events.append((what, more))
        return events

    monkeypatch.setattr(door, "emit_event", emit)
    scheduled = door.flow_run.get_scheduled_start_time()
    make_rows(1, 1500, 0.8).to_csv(home / f"{scheduled:%G}.csv", index=False)
    run = MonitorConfig(bundle=home / "lines", table=home / "%G.csv", conf=home)
    done = monitor(run)
    assert done["period"] == f"{scheduled:%G}"
    assert set(FILES) <= {path.name for path in run.folder.iterdir()}
    names = [more["payload"]["name"] for _, more in events]
    assert "selection_rate:sex=woman" in names
    assert names == done["raised"]
    (name, resource), _ = events[0]
    assert name == ALARM
    assert resource["prefect.resource.id"] == "fairfrontier.bundle.lines"
    assert resource["fairfrontier.study"] == "credit-lines"
    # The alarm stays, and nothing new is known.
    again = monitor(run)
    assert [each["name"] for each in again["alarms"]] == names
    assert len(events) == len(names)
    with get_client(sync_client=True) as client:
        keys = ArtifactFilter(key=ArtifactFilterKey(like_="monitor-lines"))
        found = {artifact.key for artifact in client.read_artifacts(artifact_filter=keys)}
    assert {"monitor-lines-checks", "monitor-lines-card", "monitor-lines-rows"} <= found


@pytest.mark.parametrize("ended", ["emit_event", "publish_monitor", "mark_announced"])
@pytest.mark.once
def test_an_alarm_is_an_event_even_if_a_run_ends_before(
    harness, home, monkeypatch, tmp_path, ended
):
    class KilledError(Exception):
        pass

    def kill(*_, **__):
        raise KilledError

    events = []
    # Prefect refused it, or took it.
    answers = [None, *range(1, 99)]

    def emit(*_, payload):
        events.append(payload["name"])
        return answers[len(events) - 1] if ended == "emit_event" else payload

    make_rows(4, 1500, 0.8).to_csv(home / "W4.csv", index=False)
    run = MonitorConfig(bundle=home / "lines", table=home / "W4.csv", out=tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(door, "emit_event", emit)
        patch.setattr(door, ended, kill)
        with pytest.raises(KilledError):
            monitor(run)
    events.clear()
    monkeypatch.setattr(door, "emit_event", emit)
    raised = monitor(run)["raised"]
    assert "selection_rate:sex=woman" in raised
    assert sorted(events) == sorted(raised)
    # One that Prefect did not take is tried again.
    refused = events[:1] if ended == "emit_event" else []
    assert monitor(run)["raised"] == refused
    assert monitor(run)["raised"] == []


@pytest.mark.slow
def test_an_alarm_arrives_at_the_server(harness, home):
    from prefect.client.orchestration import get_client
    from prefect.events.filters import EventFilter, EventNameFilter

    make_rows(2, 1500, 0.8).to_csv(home / "W2.csv", index=False)
    limit = {"selection_rate_difference:sex": 0.1}
    run = MonitorConfig(bundle=home / "lines", table=home / "W2.csv", limit=limit, out=home / "out")
    done = monitor(run)
    assert "selection_rate_difference:sex" in done["raised"]
    wanted = EventFilter(event=EventNameFilter(name=[ALARM]))
    found = []

    def arrived():
        with get_client(sync_client=True) as client:
            found[:] = client.read_events(wanted, limit=50).events
        return len(found) == len(done["raised"])

    wait_for(arrived, 60)
    assert {event.resource.id for event in found} == {"fairfrontier.bundle.out"}
    by_name = {event.payload["name"]: event.payload for event in found}
    assert set(by_name) == set(done["raised"])
    passed = by_name["selection_rate_difference:sex"]
    assert (passed["kind"], passed["high"], passed["period"]) == ("limit", 0.1, "W2")
    # Names and numbers of groups; no row.
    assert set(passed) == {"period", "sentence", *read_csv(run.folder / "checks.csv").columns}
