from pathlib import Path

import pytest

from fairfrontier.models.fit.group import KIND, FitGroup, Member
from fairfrontier.models.fit.key import key
from fairfrontier.runtime.store import Store
from fairfrontier.study import resolve
from fairfrontier.study.resolve import COLUMNS, Planned, list_models

ROOT = Path(__file__).resolve().parents[2]
MEMBERS = (Member(1, {"n_estimators": 3}, {"preset": "b"}), Member(0, {"n_estimators": 3}, {}))


@pytest.fixture
def groups(monkeypatch):
    # The datasets are those of the repository, the stores are not.
    monkeypatch.setattr(resolve, "key", lambda group, store, _: key(group, store, ROOT))
    plain = FitGroup("german", "plain", "gbdt", None, None, "train", 1, MEMBERS)
    ruled = FitGroup(
        "german", "ruled", "gbdt", None, None, "train", 1, MEMBERS, then={"method": "hardt"}
    )
    return plain, ruled


def keep(store, group, numbers):
    found = key(group, store, ROOT)
    with store.writing(KIND, found, {}) as folder:
        for number in numbers:
            (folder / f"model-{number}").mkdir()
            (folder / f"model-{number}" / "x").write_text("")
    return store.path(KIND, found)


def test_models_and_the_rules_behind_them_have_their_folders(tmp_path, groups):
    plain, ruled = groups
    home = tmp_path
    store = Store(home / "data" / "cache" / "store")
    models, rules = keep(store, plain, (0, 1)), keep(store, ruled, (0, 1))
    # A fit that both blocks ask for is planned once, and one that is planned twice is named once.
    plan = [Planned(("frontier", "published"), plain), Planned(("frontier",), ruled)]
    table = list_models([*plan, plan[0]], store, home)
    assert tuple(table.columns) == COLUMNS
    assert table["method"].tolist() == ["plain", "plain", "ruled", "ruled"]
    assert table["setting"].tolist() == ['{"preset":"b"}', "{}"] * 2
    assert table["seed"].tolist() == [1, 0] * 2
    assert [home / each for each in table["model"]] == [models / "model-0", models / "model-1"] * 2
    assert table["post_processor"][:2].tolist() == ["", ""]
    assert table["needs_groups"].tolist() == [False, False, True, True]
    ruled_folders = [home / each for each in table["post_processor"][2:]]
    assert ruled_folders == [rules / "model-0", rules / "model-1"]


def test_methods_that_were_left_out_have_no_row_and_no_path_is_absolute(tmp_path, groups):
    plain, ruled = groups
    store = Store(tmp_path / "store")
    keep(store, plain, ())
    keep(store, ruled, (0,))
    plan = [Planned(("frontier",), each) for each in (plain, ruled)]
    home = tmp_path / "home"
    home.mkdir()
    (row,) = list_models(plan, store, home).to_dict("records")
    assert row["method"] == "ruled"
    assert str(tmp_path) not in row["post_processor"]
    assert (home / row["post_processor"]).is_dir()
