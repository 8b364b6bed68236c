from __future__ import annotations

import importlib
import json
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from fairfrontier.cli import doctor
from fairfrontier.cli.doctor import DoctorConfig, Finding, examine
from fairfrontier.runtime.store import open_store
from tests.project import call_here, make_project

TLS = "kind: scheduler\naddress: tls://127.0.0.1:9\n" + "".join(
    f"tls_{name}: nowhere.pem\n" for name in ("ca_file", "cert", "key")
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def home(tmp_path):
    (tmp_path / "conf" / "clusters").mkdir(parents=True)
    return tmp_path


def look(home, **options) -> dict[str, Finding]:
    return {each.about: each for each in examine(DoctorConfig(conf=home, **options))}


def test_all_that_is_needed_works_here(project):
    told = call_here(project, "doctor", "--json")
    facts = json.loads(told.stdout)
    wrong = [each for each in facts["findings"] if each["state"] == "wrong"]
    assert (told.returncode, facts["works"], wrong) == (0, True, []), told.stdout
    found = {each["about"]: each["found"] for each in facts["findings"]}
    assert f"numpy {metadata.version('numpy')}" in found["libraries"]
    assert found["project"].startswith(f"{project}, by FAIRFRONTIER_HOME; datasets of its own: 1")
    assert "not signed" in found["store"]
    assert {"memory", "device", "extra cpu", "data/cache", "data/results", "clusters"} <= {*found}
    # Nothing is made by looking.
    assert not (project / "data" / "cache").exists()


def test_what_is_wrong_comes_with_its_mend_and_exit_code(home):
    (home / "conf" / "clusters" / "far.yaml").write_text(TLS)
    (home / "conf" / "clusters" / "odd.yaml").write_text("kind: other\n")
    told = call_here(home, "doctor")
    assert told.returncode == 2
    assert "wrong   cluster far: there is no TLS file nowhere.pem" in told.stdout
    assert "wrong   cluster odd: " in told.stdout
    assert told.stdout.endswith("To be mended: cluster far, cluster odd.\n")
    nowhere = call_here(home, "doctor", FAIRFRONTIER_HOME=str(home / "nowhere"))
    assert nowhere.returncode == 2
    assert "wrong   project: FAIRFRONTIER_HOME is" in nowhere.stdout


def test_libraries_are_missing_old_or_broken(home, monkeypatch):
    real, importer = metadata.version, importlib.import_module

    def version(name):
        if name == "optuna":
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "jinja2" else real(name)

    def import_module(name, *rest):
        if name == "scipy":
            raise OSError("libgfortran.so.5: cannot open shared object file")
        return importer(name, *rest)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(importlib, "import_module", import_module)
    found = look(home)
    assert found["optuna"].mend.startswith("pip install 'optuna")
    assert found["jinja2"].found.startswith("0.1 is not >=")
    assert "libgfortran" in found["scipy"].found
    assert {found[name].state for name in ("optuna", "jinja2", "scipy")} == {"wrong"}
    assert "libraries" not in found


def test_one_build_of_xgboost_is_needed(home, monkeypatch):
    monkeypatch.setattr(doctor, "_has", lambda requirement: not requirement.name.startswith("xgb"))
    found = look(home)
    assert found["xgboost"].state == "wrong"
    assert "fairfrontier[cpu]" in found["xgboost"].mend
    assert "extra cpu" not in found


def test_why_there_is_no_device(home, monkeypatch):
    def refuse():
        raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    runtime = SimpleNamespace(getDeviceCount=refuse)
    cupy = SimpleNamespace(__version__="14.2", cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    found = look(home)["device"]
    assert (found.state, "no CUDA-capable device" in found.found) == ("absent", True)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert look(home)["device"].state == "absent"


def test_damage_of_the_store_is_found_when_asked_for(home, monkeypatch):
    store = open_store(home)
    for number in range(3):
        with store.writing("fit", store.key("fit", {"n": number}), {"n": number}) as work:
            (work / "file").write_text("x" * 100)
    assert look(home)["store"].found.startswith(f"{found_bytes(home)} (fit 3); not signed")
    assert "digests" not in look(home)
    assert look(home, verify=True)["digests"].state == "ok"
    next(home.rglob("file")).write_text("y" * 100)
    damaged = look(home, verify=True)["digests"]
    assert (damaged.state, damaged.found[:6]) == ("wrong", "1 of 3")
    assert "clean --damaged --yes" in damaged.mend
    assert len(list(store.list_entries())) == 3
    monkeypatch.setenv("FAIRFRONTIER_SECRET", str(home / "none" / "secret"))
    assert look(home)["store"].state == "wrong"


def found_bytes(home):
    count = sum(path.stat().st_size for path in home.rglob("fit/*/*/*"))
    return f"{count / 1024:.3g} KiB"


def test_folders_have_to_be_writable_and_have_room(home, monkeypatch):
    usage = SimpleNamespace(free=doctor.LEAST_BYTES - 1)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    found = look(home)
    assert found["data/results"].state == "wrong"
    assert "fairfrontier clean" in found["data/results"].mend
    (home / "data").write_text("a file")
    assert look(home)["data/cache"].state == "wrong"


def test_a_cluster_is_opened_when_it_is_named(home):
    assert look(home, cluster="inline")["cluster inline"].state == "ok"
    (home / "conf" / "clusters" / "gone.yaml").write_text(
        "kind: scheduler\naddress: tcp://127.0.0.1:9\ntimeout: 0.2\n"
    )
    assert look(home, cluster="gone")["cluster"].state == "wrong"
