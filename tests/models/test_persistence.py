import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import skops.io
from lightgbm import LGBMClassifier
from sklearn.linear_model import Ridge
from sklearn.preprocessing import FunctionTransformer

from fairfrontier import create
from fairfrontier.models.persistence import State, _digest, read_state, write_state
from fairfrontier.models.registry import METHODS, load_model
from fairfrontier.runtime.errors import ConfigError, FairfrontierError, StoreError
from fairfrontier.runtime.secret import VARIABLE
from fairfrontier.runtime.store import Store
from tests.models.tables import make_split


@pytest.fixture
def saved(tmp_path):
    split = make_split(100)
    model = create("gbdt", n_estimators=3).fit(split.train.X, split.train.y)
    return split, model, model.save(tmp_path / "model")


def test_a_model_comes_back_by_its_name(saved):
    split, model, folder = saved
    back = load_model(folder)
    assert type(back) is type(model)
    assert np.array_equal(back.predict_proba(split.test.X), model.predict_proba(split.test.X))


def test_an_altered_file_is_refused(saved):
    folder = saved[2]
    with (folder / "trees.ubj").open("ab") as file:
        file.write(b"x")
    with pytest.raises(StoreError, match=r"trees\.ubj"):
        load_model(folder)


def test_where_xgboost_was_in_its_own_code_is_not_told(saved):
    path = saved[2] / "trees.ubj"
    path.write_bytes(path.read_bytes().replace(b"\x0fbinary:logistic", b"\x0emulti:softprob"))
    sign(saved[2])
    with pytest.raises(StoreError, match=r"model: Invalid cast, from Null to Object\. Train"):
        load_model(saved[2])


def test_a_missing_file_and_an_empty_folder_are_refused(saved, tmp_path):
    folder = saved[2]
    (folder / "trees.ubj").unlink()
    with pytest.raises(StoreError):
        load_model(folder)
    with pytest.raises(StoreError):
        load_model(tmp_path / "nothing")


def test_the_manifest_names_no_file_outside_the_folder(saved, tmp_path):
    folder = saved[2]
    manifest = json.loads((folder / "manifest.json").read_text())
    (tmp_path / "trees.ubj").write_bytes(b"elsewhere")
    manifest["files"] = {"../trees.ubj": "0"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError):
        load_model(folder)


@pytest.mark.parametrize("name", ["0/trees.ubj", "./trees.ubj", "trees.ubj/", "..", ""])
def test_no_file_is_read_under_several_names(saved, name):
    manifest = json.loads((saved[2] / "manifest.json").read_text())
    manifest["files"][name] = manifest["files"]["trees.ubj"]
    (saved[2] / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError):
        load_model(saved[2])


def test_a_model_of_a_store_is_signed_with_the_secret(saved, tmp_path, monkeypatch):
    _, model, folder = saved
    monkeypatch.setenv(VARIABLE, str(tmp_path / "secret"))
    load_model(folder)
    store = Store(tmp_path / "store")
    key = store.key("fit", {})
    with store.writing("fit", key, {}) as work:
        model.save(work / "model-0")
    kept = store.path("fit", key) / "model-0"
    load_model(kept)
    link = tmp_path / "link"
    link.symlink_to(kept)
    load_model(link)
    facts = kept / "manifest.json"
    facts.write_text(facts.read_text().replace('"facts"', ' "facts"'))
    for folder in (kept, link):
        with pytest.raises(StoreError):
            load_model(folder)
    monkeypatch.delenv(VARIABLE)
    load_model(kept)


def test_no_draft_takes_the_place_of_a_signed_model(saved, tmp_path, monkeypatch):
    split, _, folder = saved
    monkeypatch.setenv(VARIABLE, str(tmp_path / "secret"))
    store = Store(tmp_path / "store")
    key = store.key("fit", {})
    with store.writing("fit", key, {}) as work:
        create("gbdt", n_estimators=1).fit(split.train.X, 1 - split.train.y).save(work / "model-0")
    kept = store.path("fit", key) / "model-0"
    draft = kept / ".complete@x"
    draft.mkdir()
    (folder / ".plan").touch()
    for path in folder.iterdir():
        (draft / path.name).symlink_to(path)
    with pytest.raises(StoreError, match=r"not to be trusted: model-0/.complete@x.* is not in"):
        load_model(kept)
    assert store.read("fit", key) is None


@pytest.mark.parametrize("name", ["manifest.json", "trees.ubj"])
def test_a_pipe_in_a_folder_is_not_waited_for(saved, name):
    folder = saved[2]
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(StoreError):
        load_model(folder)


@pytest.mark.parametrize(
    "alter",
    [
        lambda manifest: manifest.pop("facts"),
        lambda manifest: manifest.pop("parameters"),
        lambda manifest: manifest["facts"].clear(),
        lambda manifest: manifest["parameters"].update(from_next_year=1),
    ],
)
def test_what_another_version_wrote_is_refused(saved, alter):
    folder = saved[2]
    manifest = json.loads((folder / "manifest.json").read_text())
    alter(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError):
        load_model(folder)


def test_another_class_does_not_load_it(saved):
    with pytest.raises(StoreError):
        METHODS.all()["budro"].load(saved[2])


def test_a_full_folder_is_not_written_over(saved):
    _, model, folder = saved
    with pytest.raises(StoreError):
        model.save(folder)


def test_unknown_names_offer_the_nearest():
    with pytest.raises(ConfigError):
        create("budor")
    with pytest.raises(ConfigError):
        create("budro", bugdet=1.0)


class Stranger:
    """A type that no list names."""

    built = 0

    def __init__(self):
        Stranger.built += 1


@pytest.fixture
def forest(tmp_path):
    split = make_split(100)
    model = create("random_forest", n_estimators=3).fit(split.train.X, split.train.y)
    return model.save(tmp_path / "forest")


def sign(folder):
    """Write the digests of what lies in the folder, as someone who tampers with it can."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {name: _digest(folder / name) for name in manifest["files"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_an_altered_learner_is_refused(forest):
    with (forest / "forest.skops").open("ab") as file:
        file.write(b"x")
    with pytest.raises(StoreError, match=r"forest\.skops is not what was saved"):
        load_model(forest)


def test_what_is_no_learner_is_refused(forest):
    (forest / "forest.skops").write_bytes(b"not a file of skops")
    sign(forest)
    with pytest.raises(StoreError):
        load_model(forest)


def test_types_that_are_not_trusted_are_refused_unbuilt(forest):
    skops.io.dump({"trees": [1, 2], "more": Stranger()}, forest / "forest.skops")
    sign(forest)
    made = Stranger.built
    with pytest.raises(StoreError) as refused:
        load_model(forest)
    assert "trusted=[...]" in refused.value.mend
    assert Stranger.built == made


def test_functions_are_refused(forest):
    # A trusted estimator may carry a function that is not.
    skops.io.dump(FunctionTransformer(func=make_split), forest / "forest.skops")
    sign(forest)
    with pytest.raises(StoreError):
        load_model(forest)


def test_learners_of_libraries_that_are_known_are_read_again_and_no_booster_is_taken_for_another(
    tmp_path,
):
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = LGBMClassifier(n_estimators=2, min_child_samples=5, verbose=-1).fit(X, X[:, 0] > 0)
    write_state(tmp_path / "learner", "guest", {}, State(learners={"trees": model}), ())
    back = read_state(tmp_path / "learner", "guest")[1].learners["trees"]
    assert np.array_equal(back.predict_proba(X), model.predict_proba(X))
    with pytest.raises(StoreError, match=r"Booster of lightgbm\.basic"):
        write_state(
            tmp_path / "booster", "guest", {}, State(boosters={"trees": model.booster_}), ()
        )
    assert [path.name for path in tmp_path.iterdir()] == ["learner"]


def rewrite(path, change):
    """Write an archive again, its members changed by ``change(name, content)``."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
        compression = archive.infolist()[0].compress_type
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, change(name, content))
    sign(path.parent)


def as_npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content", [as_npy(np.array(["no", "yes", "maybe"])), as_npy(np.zeros(2))[:-9], b"nothing"]
)
def test_arrays_that_cannot_be_are_refused(saved, content):
    rewrite(saved[2] / "arrays.npz", lambda *_: content)
    with pytest.raises(StoreError):
        load_model(saved[2])


def test_arrays_that_unpack_to_more_than_their_file_are_refused(saved):
    path = saved[2] / "arrays.npz"
    np.savez_compressed(path, **np.load(path), more=np.zeros(10**6, np.int8))
    sign(saved[2])
    with pytest.raises(StoreError, match=r"arrays\.npz unpacks to more than its size"):
        load_model(saved[2])


def test_an_archive_that_unpacks_to_gigabytes_is_refused(forest):
    with zipfile.ZipFile(forest / "forest.skops", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(2**27))
    sign(forest)
    with pytest.raises(StoreError) as refused:
        load_model(forest)
    assert "would unpack" in str(refused.value.__cause__)


@pytest.mark.parametrize(
    "alter",
    [
        lambda manifest: manifest.update(method=["gbdt"]),
        lambda manifest: manifest.update(files=3),
        lambda manifest: manifest.update(parameters=[]),
        lambda manifest: manifest.update(facts="x"),
        lambda manifest: manifest["facts"].update(n_features_in_="5"),
        lambda manifest: manifest["facts"].update(n_features_in_=True),
        lambda manifest: manifest["facts"].update(n_features_in_=6),
        lambda manifest: manifest["facts"].update(n_features_in_=10**12),
    ],
)
def test_a_manifest_of_other_types_is_refused_in_a_sentence(saved, alter):
    manifest = json.loads((saved[2] / "manifest.json").read_text())
    alter(manifest)
    (saved[2] / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FairfrontierError) as refused:
        load_model(saved[2])
    assert "\n" not in str(refused.value)


def test_a_manifest_nested_too_deep_is_refused(saved):
    (saved[2] / "manifest.json").write_text('{"method": ' + "[" * 100_000)
    with pytest.raises(StoreError):
        load_model(saved[2])


def test_state_holds_several_kinds_at_once(tmp_path):
    learner = Ridge().fit(np.eye(2), np.ones(2))
    state = State({"a": np.arange(3.0)}, {}, {"b": learner}, {"c": [1, "d"]})
    _, back = read_state(write_state(tmp_path / "model", "made", {"e": 2}, state), "made")
    assert back.arrays["a"].tolist() == [0.0, 1.0, 2.0]
    assert isinstance(back.learners["b"], Ridge)
    assert back.facts == {"c": [1, "d"]}


def test_a_model_that_a_killed_process_was_saving_is_not_half_there(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    split = make_split(100)
    model = create("random_forest", n_estimators=2).fit(split.train.X, split.train.y)
    monkeypatch.setattr(json, "dumps", stop)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    monkeypatch.undo()
    (tmp_path / "model").mkdir()
    assert load_model(model.save(tmp_path / "model")).n_features_in_ == model.n_features_in_


def test_reading_a_model_moves_no_file(saved):
    folder = saved[2]
    draft = folder / ".complete@x"
    draft.mkdir()
    (draft / ".plan").touch()
    (draft / "manifest.json").write_text("{}")
    load_model(folder)
    assert (draft / "manifest.json").is_file()


def test_a_link_in_a_model_is_not_followed(saved, tmp_path):
    path = (saved[2] / "trees.ubj").rename(tmp_path / "elsewhere")
    (saved[2] / "trees.ubj").symlink_to(path)
    with pytest.raises(StoreError):
        load_model(saved[2])


def test_a_manifest_that_would_fill_the_memory_is_refused_unread(saved):
    with (saved[2] / "manifest.json").open("r+b") as file:
        file.truncate(2**33)
    with pytest.raises(StoreError) as refused:
        load_model(saved[2])
    assert "bytes that are read" in str(refused.value.__cause__)


def test_a_file_is_digested_in_pieces(saved, monkeypatch):
    path = saved[2] / "trees.ubj"
    whole = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(Path, "read_bytes", pytest.fail)
    assert _digest(path) == whole
