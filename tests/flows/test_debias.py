from __future__ import annotations

import json
import logging

import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from fairfrontier.cli import command as cli
from fairfrontier.debias.files import FILES
from fairfrontier.prepare import load
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.train import post_process
from fairfrontier.train.postprocess.rulebook import export_rulebook
from flows.debias import DebiasParameters, debias, read_options
from tests.debias.scored import make_scores
from tests.project import DATASET, call, make_project


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "loans.v2.csv.gz"
    make_scores(1500).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def done(harness, project, scored):
    asked = {"scores": "s", "groups": ("sex", "race"), "labels": "y", "ids": "id"}
    return debias(DebiasParameters(table=str(scored), home=str(project), **asked))


def test_a_csv_of_scores_becomes_a_folder_of_results(done, project):
    folder = project / "data" / "results" / "debias" / "loans.v2"
    assert done["folder"] == str(folder)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert len(pd.read_parquet(folder / "decisions.parquet")) == 1500


def test_the_server_shows_groups_bias_card_links_and_progress(done):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(like_="debias-loans-v2"))
        )
    by_key = {artifact.key.removeprefix("debias-loans-v2-"): artifact for artifact in found}
    assert {"groups", "bias", "card", "rows", "files"} <= set(by_key)
    assert json.loads(by_key["bias"].data)[0]["attribute"] == "sex"
    assert "[thresholds.json](file:///" in by_key["files"].data
    assert by_key["rows"].data == 100.0
    assert "data:image/png;base64," in by_key["card"].data


def test_what_fails_leaves_the_results_as_they_were(done, project, scored, tmp_path):
    folder = project / "data" / "results" / "debias" / "loans.v2"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    frame = make_scores(1500)
    frame.loc[1400, "s"] = 3.0
    frame.to_csv(tmp_path / "loans.v2.csv", index=False)
    asked = {"scores": "s", "groups": ("sex",), "home": str(project)}
    with pytest.raises(DataError, match="row 1400"):
        debias(DebiasParameters(table=str(tmp_path / "loans.v2.csv"), **asked))
    with pytest.raises(StoreError, match="--out"):
        debias(DebiasParameters(table=str(scored), out="/proc/nowhere", **asked))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_earlier_rule_is_applied_from_the_command_line(done, scored, fresh):
    rule = f"{done['folder']}/thresholds.json"
    out = fresh / "out"
    result = call(fresh, "debias", str(scored), "--apply", rule, "--out", str(out))
    assert result.returncode == 0, result.stderr
    assert "sex×race" in result.stdout
    assert f"Report: {out / 'report.html'}" in result.stdout.replace("\n", "")
    assert result.stderr == ""
    first = pd.read_parquet(f"{done['folder']}/decisions.parquet")
    pd.testing.assert_frame_equal(first, pd.read_parquet(out / "decisions.parquet"))
    assert not (fresh / "data" / "results").exists()


def test_thresholds_from_python_decide_alike_on_a_table(harness, tmp_path):
    dataset = DATASET.replace(
        "  origin: {column: origin}\n",
        "  origin: {column: origin}\n  age: {column: age, below: 40, names: [young, older]}\n",
    ).replace("train: 0.6, test: 0.4", "train: 0.4, calibration: 0.3, test: 0.3")
    home = make_project(tmp_path, dataset=dataset)
    split = load("loans", home=home)
    model = LogisticRegression(max_iter=1000).fit(split.train.X, split.train.y)
    fair = post_process(
        model, split, attributes=["age", "origin"], width=0.6, rate=0.4, random_state=11
    )
    export_rulebook(fair, split).write(home / "thresholds.json")
    part = split.test
    table = pd.DataFrame({"id": part.ids, "score": model.predict_proba(part.X)[:, 1]})
    for name, levels in part.attributes.items():
        table[name] = pd.Categorical.from_codes(part.group(name), levels)
    table.to_parquet(home / "applicants.parquet")
    asked = {"table": str(home / "applicants.parquet"), "apply": str(home / "thresholds.json")}
    done = debias(read_options({**asked, "home": str(home)}))
    found = pd.read_parquet(f"{done['folder']}/decisions.parquet")
    assert found["id"].tolist() == part.ids.tolist()
    decided = fair.predict(part.X, groups=part.groups, ids=part.ids)
    assert found["decision"].tolist() == decided.tolist()
    h = fair.predict_proba(part.X, groups=part.groups)[:, 1]
    assert found["probability"].tolist() == h.tolist()
    # Draws decide on a good part of the rows.
    assert ((h > 0) & (h < 1)).mean() > 0.3


def test_bad_options_are_one_line_and_exit_code_two(scored, fresh):
    result = call(fresh, "debias", str(scored), "--scores", "s", "--groups", "sex,rase")
    assert result.returncode == 2
    assert "no column 'rase' (--groups). Did you mean 'race'?" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (fresh / "data" / "results").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"scale": "prob"}, r"^--scale is 'prob': input should be 'probability', 'margin' or"),
        ({"rate": 2.0}, r"^--rate is 2.0: input should be less than or equal to 1"),
        ({"apply": "thresholds.json"}, r"^Groups is given beside apply.* Leave out groups"),
    ],
)
def test_an_option_that_cannot_be_is_named(options, told):
    with pytest.raises(ConfigError, match=told):
        read_options({"table": "a.csv", "scores": "s", "groups": ["sex"], **options})


def test_the_command_line_passes_on_what_was_given(scored, project, monkeypatch):
    asked = []
    monkeypatch.setattr(cli, "_show_debiasing", lambda done: None)
    monkeypatch.setattr(cli, "with_server", lambda home, make, *_: asked.append(make()))
    monkeypatch.setenv("FAIRFRONTIER_HOME", str(project))
    options = ["--scores", "s", "--groups", "sex, race", "--budget", "0.05", "--width", "0"]
    cli.app(["debias", str(scored), *options, "--seed", "0"], standalone_mode=False)
    assert asked[0].groups == ("sex", "race")
    assert (asked[0].budget, asked[0].width, asked[0].seed) == (0.05, 0.0, 0)
    assert asked[0].model_fields_set == {
        *("table", "scores", "groups", "budget", "width", "seed", "home"),
    }
    logging.getLogger("fairfrontier").handlers.clear()


@pytest.mark.parametrize("name", ["groups.csv", "decisions.parquet", "curve.csv"])
def test_results_never_replace_what_is_read(tmp_path, name):
    table = tmp_path / name
    table.write_text("s,sex\n0.5,f\n")
    asked = DebiasParameters(table=str(table), scores="s", groups=("sex",), out=str(tmp_path))
    with pytest.raises(ConfigError, match=f"would replace what is read.*{name}"):
        asked.check()


def test_results_do_not_join_the_parts_of_the_table(tmp_path):
    pd.DataFrame({"s": [0.5], "sex": ["f"]}).to_parquet(tmp_path / "part.parquet")
    asked = DebiasParameters(table=str(tmp_path), scores="s", groups=("sex",), out=str(tmp_path))
    with pytest.raises(ConfigError, match="would replace what is read"):
        asked.check()
