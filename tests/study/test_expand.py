from __future__ import annotations

from pathlib import Path

import pytest

from fairfrontier.models.fit.group import Member
from fairfrontier.models.registry import METHODS
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.check import load_study
from fairfrontier.study.resolve import _share_out, expand
from tests.study.planned import DATASET, STUDY, Boosting, Fair, make_home, write


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    return make_home(tmp_path, monkeypatch)


class Batched(Boosting):
    batched = True

    def structure(self):
        return (self.depth,)


def test_a_batched_method_is_trained_in_one_group(home, monkeypatch):
    monkeypatch.setattr(METHODS, "_entries", {"boosting": Batched, "fair": Fair})
    methods = {"boosting": {"depth": [3, 5], "layers": [[1], [2]]}, "fair": {}}
    write(home / "conf/studies/toy.yaml", {**STUDY, "methods": methods, "claims": []})
    groups = [each.group for each in expand(load_study("toy", home=home))]
    batches = [group for group in groups if group.method == "boosting" and group.rows]
    # Two seeds and two values of what may differ, apart from those of another structure.
    assert [len(group.members) for group in batches] == [4, 4]
    assert [group.seeds for group in batches] == [(0, 1), (0, 1)]
    assert {member.parameters["depth"] for member in batches[0].members} == {3}
    assert all(len(group.members) == 1 for group in groups if group.method == "fair")


@pytest.mark.parametrize("n", [1, 5, 6, 11])
def test_long_sweeps_are_shared_out_evenly_and_in_order(n):
    members = [Member(seed, {}, {}, None) for seed in range(n)]
    parts = list(_share_out(members))
    sizes = [len(part) for part in parts]
    assert max(sizes) <= 5
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == -(-n // 5)
    assert [each for part in parts for each in part] == members


def test_a_batch_holds_one_split_where_more_do_not_pay(home, monkeypatch):
    apart = type("Apart", (Batched,), {"across_splits": False})
    noisy_study(home, monkeypatch)
    monkeypatch.setattr(METHODS, "_entries", {"boosting": apart, "fair": Fair})
    found = expand(load_study("toy", home=home))
    both = [each for each in found if each.group.method == "boosting"]
    assert sorted((m.seed, m.noise) for each in both for m in each.group.members) == [
        (seed, noise) for seed in (0, 1) for noise in (0.1, 0.3)
    ]
    assert all(len(each.group.members) == 1 for each in both)


def noisy_study(home, monkeypatch, **frontier):
    """Write a study both of whose blocks sweep the noise of a batched method."""
    monkeypatch.setattr(METHODS, "_entries", {"boosting": Batched, "fair": Fair})
    noisy = {**DATASET, "perturb": {"noisy_groups": {"race": {"share": 0.0}}}}
    write(home / "conf/datasets/toy.yaml", noisy)
    row = {"preset": "published", "noise": [0.1, 0.3]}
    published = {**STUDY["published"], "methods": {"boosting": row}, "seeds": 2}
    content = {
        **STUDY,
        "rows": None,
        "select_on": "train",
        "methods": {"boosting": row, "fair": {}},
        "published": published,
        "claims": [],
        **frontier,
    }
    write(home / "conf/studies/toy.yaml", content)


def test_a_batch_that_both_blocks_ask_for_is_trained_once(home, monkeypatch):
    noisy_study(home, monkeypatch)
    found = expand(load_study("toy", home=home))
    both = [each for each in found if each.group.method == "boosting"]
    assert [each.blocks for each in both] == [("published", "frontier")]
    assert {(member.seed, member.noise) for member in both[0].group.members} == {
        (seed, noise) for seed in (0, 1) for noise in (0.1, 0.3)
    }


def test_a_batch_of_which_a_block_asks_for_a_part_is_refused(home, monkeypatch):
    noisy_study(home, monkeypatch, seeds=1)
    study = load_study("toy", home=home)
    with pytest.raises(ConfigError, match="frontier block asks for 2 of the 4 fits of boosting"):
        expand(study)
