"""prefect.yaml: what it deploys exists, and takes the parameters that it gives."""

from __future__ import annotations

import importlib
from zoneinfo import ZoneInfo

import pytest
import yaml
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.client.schemas.schedules import CronSchedule
from prefect.events import DeploymentEventTrigger
from prefect.events.schemas.events import Resource

from flows.monitor import ALARM
from flows.service import POOL

FIELDS = {
    *("name", "entrypoint", "parameters", "work_pool", "concurrency_limit", "schedules"),
    *("description", "tags"),
}


@pytest.fixture(scope="module")
def described(root):
    return yaml.safe_load((root / "prefect.yaml").read_text())


def flow_of(deployment):
    path, _, name = deployment["entrypoint"].partition(":")
    return getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)


def test_every_flow_that_runs_long_is_deployed(described):
    flows = {flow_of(each).name for each in described["deployments"]}
    assert flows == {"audit", "debias", "frontier", "monitor", "reproduce"}
    assert len({each["name"] for each in described["deployments"]}) == len(flows)


def test_every_deployment_is_whole(described):
    for deployment in described["deployments"]:
        assert set(deployment) - {"triggers"} == FIELDS
        assert deployment["work_pool"]["name"] == POOL
        assert ConcurrencyLimitConfig.model_validate(deployment["concurrency_limit"]).limit >= 1
        if deployment["schedules"]:
            flow_of(deployment).validate_parameters(deployment["parameters"])
        for schedule in deployment["schedules"]:
            assert schedule["slug"]
            ZoneInfo(schedule["timezone"])
            CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])


def test_an_alarm_of_its_bundle_trains_a_study_again(described):
    (trained,) = (each for each in described["deployments"] if each.get("triggers"))
    (trigger,) = (DeploymentEventTrigger.model_validate(each) for each in trained["triggers"])
    assert trigger.expect == {ALARM}
    alarm = Resource(
        {"prefect.resource.id": "fairfrontier.bundle.b", "fairfrontier.study": "adult"}
    )
    assert trigger.match.matches(alarm)
    assert trained["parameters"]["run"]["study"] == "adult"
    assert not trigger.match.matches(Resource({**alarm.root, "fairfrontier.study": "german"}))
