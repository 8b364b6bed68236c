from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fairfrontier import load
from fairfrontier.prepare.description import describe_split
from fairfrontier.prepare.embedding.latent import LatentSemantic
from fairfrontier.runner import run_plain
from fairfrontier.study.expand import expand, load_study
from fairfrontier.study.option import RunOptions
from fairfrontier.study.run import start_study
from tests.contracts.test_text import COMMENTS
from tests.prepare.text.conftest import HOME, make_comments, make_occupations

STUDY = """\
dataset: comments
metric: {name: face, directions: 5}
methods:
  nn: {hidden: 4, batch_size: 20, steps: 5}
  clp: {hidden: 4, batch_size: 20, steps: 5, strength: [1, 10]}
seeds: 2
select_on: train
frontier: {fairness: ["consistency:identity", "counterfactual_fairness:identity"]}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A project of comments, some of which look like a formula or like HTML."""
    home = tmp_path_factory.mktemp("texts")
    for folder in ("conf/vocabularies", "conf/datasets", "conf/studies"):
        (home / folder).mkdir(parents=True)
    name = "conf/vocabularies/identity.yaml"
    (home / name).write_text((HOME / name).read_text(encoding="utf-8"), encoding="utf-8")
    table = make_comments()
    table["comment"] = "<b>So</b>, " + table["comment"]
    table.to_csv(home / "comments.csv", index=False)
    described = COMMENTS.replace("path: comments.csv", "path: ../../comments.csv")
    (home / "conf/datasets/comments.yaml").write_text(described, encoding="utf-8")
    (home / "conf/studies/comments.yaml").write_text(STUDY, encoding="utf-8")
    return home


def test_texts_are_encoded_before_anything_is_trained(home, monkeypatch):
    asked = RunOptions(study="comments", conf=str(home), cluster="inline")
    learn, encoded = LatentSemantic._learn, []

    def watch(self, texts):
        encoded.append(len(texts))
        return learn(self, texts)

    monkeypatch.setattr(LatentSemantic, "_learn", watch)
    done = run_plain(start_study(asked))
    # Once for each of two splits, whatever trains on them.
    assert len(encoded) == 2
    folder = Path(done["folder"])
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["encoder"] == "tfidf"
    assert "Texts are encoded by tfidf." in (folder / "report.html").read_text(encoding="utf-8")
    points = pd.read_parquet(folder / "points.parquet")
    score = points[points["measure"].eq("counterfactual_fairness") & points["part"].eq("test")]
    assert set(score["n"]) == {30}
    changes = pd.read_csv(folder / "changes.csv")
    assert len(changes) == 200
    assert list(changes.columns[:4]) == ["set", "version", "row", "position"]
    assert (changes["from"] != changes["to"]).all()
    again = run_plain(start_study(asked))
    assert again["trained"] == 0
    assert len(encoded) == 2
    assert pd.read_csv(folder / "changes.csv").equals(changes)
    # As other results left it.
    (folder / "changes.csv").write_text("stale")
    points[:0].to_parquet(folder / "points.parquet")
    run_plain(start_study(asked))
    assert pd.read_csv(folder / "changes.csv").equals(changes)


@pytest.fixture
def biographies(tmp_path):
    """A project with the repository's study of biographies, and 108 of our own making."""
    for name in ("datasets/bios", "datasets/occupations", "methods/nn", "vocabularies/gender"):
        place = tmp_path / "conf" / f"{name}.yaml"
        place.parent.mkdir(exist_ok=True, parents=True)
        content = (HOME / "conf" / f"{name}.yaml").read_text(encoding="utf-8")
        # Nothing is fetched.
        place.write_text(content.replace("encoder: auto", "encoder: tfidf"), encoding="utf-8")
    study = yaml.safe_load((HOME / "conf/studies/bios.yaml").read_text(encoding="utf-8"))
    study |= {"methods": {"nn": {**study["methods"]["nn"], "steps": 5}}, "seeds": 1, "minimum": 1}
    (tmp_path / "conf/studies").mkdir()
    shortened = {key: study[key] for key in study if key not in ("claims", "figures")}
    (tmp_path / "conf/studies/bios.yaml").write_text(yaml.safe_dump(shortened))
    rows = make_occupations()
    table = pd.DataFrame(
        {
            "hard_text": rows["sentence"],
            "profession": rows["job"].map({"Nurse": 13, "Pilot": 2, "Author": 0}),
            "gender": rows["pronoun"].eq("her").astype(int),
        }
    )
    folder = tmp_path / "data/raw/bias_in_bios"
    folder.mkdir(parents=True)
    table[::2].to_parquet(folder / "test-00000-of-00001.parquet", index=False)
    table[1::2].to_parquet(folder / "train-00000-of-00001.parquet", index=False)
    return tmp_path


def test_the_study_of_biographies_runs_on_a_copy_of_ones_own(biographies):
    parts = describe_split(load("bios", home=biographies))
    assert {each["part"]: each["rows"] for each in parts} == {
        "train": 68,
        "validation": 8,
        "test": 32,
    }
    assert {each["texts by"] for each in parts} == {"tfidf"}
    assert sum(each["rows"] * each["gender=female"] for each in parts) == pytest.approx(54, abs=0.1)
    done = run_plain(start_study(RunOptions(study="bios", conf=str(biographies), cluster="inline")))
    assert (done["fits"], done["trained"], done["skipped"]) == (1, 1, {})
    folder = Path(done["folder"])
    points = pd.read_parquet(folder / "points.parquet")
    test = points[points["part"].eq("test")].set_index("measure")["value"]
    assert test.loc[["balanced_accuracy", "consistency", "gap_rms", "gap_abs"]].between(0, 1).all()
    changes = pd.read_csv(folder / "changes.csv")
    assert set(zip(changes["from"], changes["to"], strict=True)) == {("his", "her"), ("her", "his")}


def test_the_study_of_biographies_has_the_papers_constants():
    study = load_study("bios", "paper", HOME)
    assert not study.study.reproduced
    members = [(each.group, member) for each in expand(study) for member in each.group.members]
    assert {member.seed for _, member in members} == set(range(10))
    assert {member.parameters["hidden"] for _, member in members} == {2000}
    for method in ("clp", "sensei"):
        strengths = {m.parameters["strength"] for group, m in members if group.method == method}
        assert 5 in strengths
    metrics = [group.metric for group, _ in members if group.metric]
    assert {metric["directions"] for metric in metrics} == {25}
