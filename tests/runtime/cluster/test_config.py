from __future__ import annotations

import pytest
from pydantic import ValidationError

from fairfrontier.runtime.cluster.config import ClusterConfig, load_cluster
from fairfrontier.runtime.errors import ConfigError


@pytest.mark.parametrize("name", ["inline", "local", "cuda", "scheduler", "slurm", "kubernetes"])
def test_the_shipped_clusters_are_read(name):
    assert load_cluster(name).kind == name


def test_a_project_without_clusters_has_the_shipped_ones(tmp_path):
    assert load_cluster("inline", tmp_path).kind == "inline"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "slrum"}, "Did you mean 'slurm'"),
        ({"kind": "scheduler"}, "address"),
        ({"kind": "scheduler", "address": "tls://x:1", "tls_key": "k"}, "together"),
        ({"kind": "inline", "options": {"a": 1}}, "no options"),
        # A file, an address or text of Python that every worker runs; their environment.
        ({"kind": "local", "options": {"preload": ["x.py"]}}, "options: there is no key 'preload'"),
        ({"kind": "cuda", "options": {"pre_import": "x"}}, "options: there is no key 'pre_import'"),
        ({"kind": "cuda", "options": {"protocol": "tcp"}}, "options.protocol: .*ucx"),
        ({"memory": "lots"}, "'lots' is no amount of memory"),
        ({"workers": 0}, "workers"),
        ({"timeout": 1e300}, "timeout"),
    ],
)
def test_impossible_combinations_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        ClusterConfig(**fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: local\nwrokers: 2\n", "Did you mean 'workers'"),
        ("kind: local\nworkers: many\n", "workers"),
        ("kind: [\n", "is not valid YAML"),
        ("- local\n", "keys and values"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml") as caught:
        load_cluster(path)
    assert message in str(caught.value)


def test_a_project_cannot_pass_another_cluster_off_as_a_local_one(tmp_path):
    folder = tmp_path / "conf" / "clusters"
    folder.mkdir(parents=True)
    (folder / "local.yaml").write_text("kind: scheduler\naddress: tcp://evil.example:8786\n")
    with pytest.raises(ConfigError):
        load_cluster("local", tmp_path)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'local'"):
        load_cluster("locall")
