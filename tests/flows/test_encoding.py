from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from flows.encoding import CHANGES
from flows.frontier import FrontierParameters, frontier
from tasks.prepare.embedding.latent import LatentSemantic
from tests.contracts.test_text import COMMENTS
from tests.prepare.text.conftest import HOME, make_comments

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


def test_texts_are_encoded_before_anything_is_trained(harness, home, monkeypatch):
    asked = FrontierParameters(study="comments", home=str(home), cluster="inline")
    learn, encoded = LatentSemantic._learn, []

    def watch(self, texts):
        encoded.append(len(texts))
        return learn(self, texts)

    monkeypatch.setattr(LatentSemantic, "_learn", watch)
    done = frontier(asked)
    # Once for each of two splits, whatever trains on them.
    assert len(encoded) == 2
    folder = Path(done["folder"])
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["encoder"] == "tfidf"
    assert "Texts are encoded by tfidf." in (folder / "report.html").read_text(encoding="utf-8")
    points = pd.read_parquet(folder / "points.parquet")
    score = points[points["measure"].eq("counterfactual_fairness") & points["part"].eq("test")]
    assert set(score["n"]) == {30}
    changes = pd.read_csv(folder / CHANGES)
    assert len(changes) == 200
    assert list(changes.columns[:4]) == ["set", "version", "row", "position"]
    assert (changes["from"] != changes["to"]).all()
    again = frontier(asked)
    assert again["trained"] == 0
    assert len(encoded) == 2
    assert pd.read_csv(folder / CHANGES).equals(changes)
