"""What a dataset of texts goes through, from sentences to measures, without network or extra."""

from __future__ import annotations

import numpy as np
import pytest

from fairfrontier import create, evaluate, learn, load
from tests.prepare.text.conftest import HOME, make_comments

COMMENTS = """\
dataset: comments
source: {path: comments.csv}
text:
  column: comment
  mentions: identity
  versions:
    identity: {terms: identity, known: 40, draw: {train: 3}, rows: {test: 30}}
label: {column: opinion, positive: toxic}
features: {text: {encoder: tfidf}}
groups:
  muslim: {column: "mention:muslim"}
  homosexual: {column: "mention:homosexual"}
split: {kind: stratified, train: 0.6, test: 0.4}
"""
NET = {"hidden": 8, "learning_rate": 0.02, "batch_size": 40, "steps": 60}
ATTACK = {"subspace_steps": 5, "subspace_rate": 0.2, "full_steps": 5, "full_rate": 0.01}


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """Comments whose terms tell something of the label, which they should not."""
    home = tmp_path_factory.mktemp("texts")
    (home / "conf" / "vocabularies").mkdir(parents=True)
    name = "conf/vocabularies/identity.yaml"
    (home / name).write_text((HOME / name).read_text(encoding="utf-8"), encoding="utf-8")
    table = make_comments()
    suspected = table["term"].isin(sorted(table["term"].unique())[::2])
    wrong = np.random.default_rng(0).random(len(table)) < 0.4
    table.loc[wrong, "opinion"] = np.where(suspected[wrong], "toxic", "fine")
    table.to_csv(home / "comments.csv", index=False)
    path = home / "comments.yaml"
    path.write_text(COMMENTS, encoding="utf-8")
    return load(path, home=home)


@pytest.fixture(scope="module")
def metric(split):
    return learn("face", split, directions=5)


def measured(model, split):
    rows = evaluate(model, split.test)
    return rows.set_index(["measure", "group"])["value"]


def test_the_metric_ignores_what_terms_move(split, metric):
    train = split.train
    variants = train.counterfactuals["identity"]
    variant = next(iter(variants))
    rows = variants.rows
    moved = np.square(variant.X[rows] - train.X[rows]).sum(axis=1)
    fair = metric.distance(variant.X[rows], train.X[rows])
    assert fair.sum() < 0.5 * moved.sum()


@pytest.mark.parametrize("name", ["clp", "sensei"])
def test_fair_nets_tell_versions_apart_less_than_a_plain_one(name, split, metric):
    train = split.train
    plain = measured(create("nn", **NET).fit(train.X, train.y), split)
    given = {"clp": {"counterfactuals": train.counterfactuals}, "sensei": {"metric": metric}}
    attack = ATTACK if name == "sensei" else {}
    fair = create(name, strength=20.0, **NET, **attack).fit(train.X, train.y, **given[name])
    found = measured(fair, split)
    score = ("counterfactual_fairness", "identity")
    assert found[score] < 0.7 * plain[score]
    assert 0 <= found["consistency", "identity"] <= 1
