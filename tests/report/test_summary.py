from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fairfrontier import load
from fairfrontier.models.fit.group import FitGroup, Member
from fairfrontier.prepare.description import describe_split
from fairfrontier.prepare.embedding.encoder import LatentSemantic
from fairfrontier.report.files import build_summary, find_worse
from fairfrontier.report.finding import list_versions
from fairfrontier.runner import run_plain
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.check import load_study
from fairfrontier.study.config import RunOptions, StudyConfig
from fairfrontier.study.frontier import Searched, build_results
from fairfrontier.study.resolve import Planned, expand
from fairfrontier.study.run import start_study
from papers.checking import check_claims
from tests.contracts.test_text import COMMENTS
from tests.prepare.text.conftest import HOME, make_comments, make_occupations
from tests.study.synthetic import make_plan, make_points, make_study


def test_the_summary_is_plain_json():
    study = make_study()
    plan = make_plan(study)
    points = make_points(plan)
    results = build_results(study, plan, points, {"x": "y"})
    claims = check_claims(study, points, plan)
    summary = build_summary(results, claims, 12.3456)
    again = json.loads(json.dumps(summary, allow_nan=False))
    assert again["counts"]["claims_held"] == 2
    assert again["counts"]["settings"] == 9
    assert again["seconds"] == 12.346
    assert {"budget": 0.05, "rows": 8000, "select_on": "validation"} in [
        each["setting"] for each in again["frontier"]
    ]
    assert all(each["on_frontier"] or each["on_joint_frontier"] for each in again["frontier"])
    assert again["failed_trials"] == []
    assert "trials" not in again["counts"]
    assert {"python", "numpy", "pandas"} <= set(list_versions())


def test_failed_trials_are_counted_by_row_and_reason():
    study = make_study()
    plan = make_plan(study)
    failed = (("gbdt", "no room"), ("budro", "no room"), ("gbdt", "no room"), ("gbdt", "no luck"))
    searched = Searched(9, 9, 9, failed, {})
    results = build_results(study, plan, make_points(plan), {}, searched=searched)
    summary = json.loads(json.dumps(build_summary(results, (), 1.0)))
    assert (summary["counts"]["trials"], summary["counts"]["failed_trials"]) == (9, 4)
    assert summary["failed_trials"] == [
        {"row": "gbdt", "reason": "no room", "trials": 2},
        {"row": "budro", "reason": "no room", "trials": 1},
        {"row": "gbdt", "reason": "no luck", "trials": 1},
    ]


RULE = {"method": "hardt", "attributes": "sex"}
STUDY = StudyConfig.model_validate(
    {
        "study": "made",
        "dataset": "made",
        "methods": {"gbdt": {}},
        "frontier": {"fairness": ["consistency:sex", "gap_rms:sex"]},
    }
)


def plan_row(label, estimator, then=None):
    group = FitGroup(
        dataset="made", method=label, estimator=estimator, metric=None, rows=None,
        select_on="validation", threads=1, members=(Member(0, {}, {}),), then=then,
    )  # fmt: skip
    return Planned(("frontier",), group)


def find(row, trained=None, **planned):
    """Compare a row (accuracy, consistency, gap, AUC) with plain boosting's .7, .9, .1 and .8."""
    label = next(iter(planned))
    plan = [plan_row("gbdt", "gbdt"), plan_row(label, *planned[label])]
    numbers = {"gbdt": (0.7, 0.9, 0.1, 0.8), label: row}
    points = [
        (name, canonical_json({}), 0, part, measure, group, value, 0.0, 1.0, 100)
        for name, values in numbers.items()
        for part in ("train", "test")
        for (measure, group), value in zip(
            (("balanced_accuracy", ""), ("consistency", "sex"), ("gap_rms", "sex"), ("auc", "")),
            values if part == "test" or name == "gbdt" else (trained or values[0], *values[1:]),
            strict=True,
        )
    ]
    columns = ["method", "setting", "seed", "part", "measure", "group", "value", "low", "high", "n"]
    worse = find_worse(STUDY, plan, pd.DataFrame(points, columns=columns))
    assert all(key == (label, "{}") and why["plain"] == "gbdt" for key, why in worse.items())
    return next((why["reason"] for why in worse.values()), None)


@pytest.mark.parametrize(
    ("trained", "auc", "reason"),
    [
        (0.8, 0.7, "so overfits"),
        (None, 0.7, "its AUC is 0.10 lower"),
        (None, 0.8, "order rows as well"),
        (None, 0.785, "chance"),
    ],
)
def test_the_likely_reason(trained, auc, reason):
    assert reason in find((0.6, 0.8, 0.2, auc), trained, fair=("budro",))


def test_only_its_own_kind_of_fairness_counts():
    inconsistent, unequal = (0.6, 0.8, 0.0, 0.7), (0.6, 1.0, 0.3, 0.7)
    assert find(inconsistent, fair=("budro",)) is not None
    assert find(unequal, fair=("budro",)) is None
    assert find(inconsistent, weighted=("reweigh",)) is None
    assert find(unequal, weighted=("reweigh",)) is not None
    assert find(inconsistent, ruled=("gbdt", RULE)) is None
    assert find(unequal, ruled=("gbdt", RULE)) is not None


def test_a_row_is_not_worse_that_is_as_good_in_one_of_them_or_has_another_base():
    assert find((0.695, 0.8, 0.2, 0.7), fair=("budro",)) is None
    assert find((0.6, 0.895, 0.2, 0.7), fair=("budro",)) is None
    assert find((0.6, 0.8, 0.2, 0.7), fair=("sensei",)) is None
    assert find((0.6, 0.8, 0.2, 0.7), plain=("gbdt",)) is None
    assert find((0.6, 0.8, 0.2, 0.7), elsewhere=("of_another_package",)) is None


STUDY_CHANGES = """\
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
    (home / "conf/studies/comments.yaml").write_text(STUDY_CHANGES, encoding="utf-8")
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
