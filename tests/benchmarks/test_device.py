from __future__ import annotations

import pytest

from benchmarks import device
from benchmarks.device import Case, list_cases, measure
from fairfrontier.models.registry import METHODS


def test_cases_are_of_methods_that_compute_on_a_device():
    cases = list(list_cases())
    assert {case.method for case in cases} == {"budro", "nn", "sensei", "noisy_naive"}
    assert all("cupy" in METHODS.all()[case.method].backends for case in cases)


def test_a_case_is_measured_beside_both_backends(monkeypatch):
    fitted = []
    monkeypatch.setattr(Case, "fit", lambda self, backend: fitted.append((self.n, backend)))
    records = measure(Case("nn", 50, {"steps": 2}), 2)
    assert [(record.peer, record.backend) for record in records] == [
        ("NumPy", "cupy"),
        ("the faster of both", "auto"),
    ]
    assert records[1].peer_seconds == min(records[0].ours_seconds, records[0].peer_seconds)
    assert fitted == [(50, backend) for backend in ("numpy", "cupy", "auto") for _ in range(3)]


@pytest.mark.parametrize("method", ["nn", "sensei", "noisy_naive"])
def test_cases_can_be_fitted(method):
    case = next(each for each in list_cases() if each.method == method)
    case.fit("numpy")


def test_without_a_device_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(device, "device_present", lambda: False)
    monkeypatch.setattr("sys.argv", ["device"])
    device.main()
    assert "nothing to measure" in capsys.readouterr().out
