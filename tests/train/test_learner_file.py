import io
import json
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVR
from sklearn.tree._tree import NODE_DTYPE, Tree

from fairfrontier import create
from fairfrontier.runtime.errors import StoreError
from fairfrontier.train import learner_file
from fairfrontier.train.base import Classifier
from fairfrontier.train.individual.fair_boosting.learner import LEARNERS, make_learner
from fairfrontier.train.learner_file import read_learner, write_learner
from fairfrontier.train.persistence import State
from fairfrontier.train.registry import load_model
from fairfrontier.train.regression.oracle import oracle
from tests.fuzz.model import SPLIT, save_boosting
from tests.train.test_persistence import sign

SVR_NAME = "sklearn.svm._classes.SVR"
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)


def keep(learner, tmp_path):
    path = tmp_path / "learner.skops"
    write_learner(learner, path)
    return path


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_of_fair_boosting_come_back(name, tmp_path):
    made = [make_learner(name, None).fit(X, X[:, 0]) for _ in range(2)]
    back = read_learner(keep(made, tmp_path), ())
    for each, again in zip(made, back, strict=True):
        assert again.predict(X).tobytes() == each.predict(X).tobytes()


@pytest.mark.parametrize("classifier", [False, True])
@pytest.mark.parametrize("name", oracle.LEARNERS)
def test_learners_of_regressions_come_back(name, classifier, tmp_path):
    learner = oracle.make_learner(name, classifier=classifier, random_state=0, n_jobs=None)
    learner.fit(X, Y)
    again = read_learner(keep(learner, tmp_path), ())
    assert again.predict(X).tobytes() == learner.predict(X).tobytes()


@pytest.mark.parametrize(
    "learner", [SVR(), make_pipeline(StandardScaler(), SVR()), GradientBoostingRegressor()]
)
def test_a_class_that_has_no_name_here_is_not_built_unasked(learner, tmp_path, monkeypatch):
    path = keep([learner.fit(X, X[:, 0])], tmp_path)
    monkeypatch.setattr("skops.io._audit.Node.construct", None)
    with pytest.raises(StoreError, match=r"not read unasked: .*sklearn\.") as refused:
        read_learner(path, ())
    assert "trusted=[...]" in refused.value.mend


def test_native_code_gets_no_arrays_of_a_stranger(tmp_path):
    # libsvm would end the process.
    learner = SVR().fit(SPLIT.train.X, SPLIT.train.X[:, 0])
    learner.support_ = np.zeros(12_000_000, dtype=np.int32)
    folder = save_boosting(tmp_path / "model")
    skops.io.dump([learner], folder / "rounds.skops", compression=zipfile.ZIP_DEFLATED)
    sign(folder)
    with pytest.raises(StoreError, match=rf"not read unasked: {SVR_NAME}\."):
        load_model(folder)


def test_an_own_learner_is_read_by_whoever_names_it(tmp_path):
    model = create("fair_boosting", learner=SVR(), n_estimators=2, budget=0.0)
    folder = save_boosting(tmp_path / "model", model)
    for load in (load_model, type(model).load):
        with pytest.raises(StoreError, match="not read unasked"):
            load(folder)
        back = load(folder, trusted=[SVR_NAME])
        assert np.array_equal(back.predict_proba(SPLIT.test.X), model.predict_proba(SPLIT.test.X))


def test_no_name_lets_code_in(tmp_path):
    path = tmp_path / "learner.skops"
    skops.io.dump(FunctionTransformer(func=keep), path)
    named = [f"{__name__}.keep", "builtins.function", "FunctionTransformer"]
    with pytest.raises(StoreError, match="not trusted"):
        read_learner(path, named)
    with pytest.raises(StoreError, match=rf"not saved: {__name__}\.keep\."):
        keep(FunctionTransformer(func=keep), tmp_path)


class Bayes(Classifier):
    """A method of another package's, around a learner that has no name here."""

    name = "bayes"

    def fit(self, X, y):
        X, codes = self.validate_training(X, y)
        self.bayes_ = GaussianNB().fit(X, codes)
        return self

    def predict_proba(self, X):
        return self.bayes_.predict_proba(self.validate_rows(X))

    def get_state(self):
        return State(learners={"bayes": self.bayes_})

    def set_state(self, state):
        self.bayes_ = state.learners["bayes"]


class TrustedBayes(Bayes):
    trusted = ("sklearn.naive_bayes.GaussianNB",)


def test_a_method_reads_back_what_it_saves_or_does_not_save_it(tmp_path):
    with pytest.raises(StoreError, match=TrustedBayes.trusted[0]):
        Bayes().fit(X, Y).save(tmp_path / "unread")
    assert not (tmp_path / "unread").exists()
    model = TrustedBayes().fit(X, Y)
    again = TrustedBayes.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_loader_makes_its_own_types_only(tmp_path):
    path = keep({"a": LEARNERS["linear"]()}, tmp_path)

    def rename(schema):
        schema["key_types"]["content"][0].update(
            __module__="sklearn.linear_model._ridge", __class__="Ridge"
        )

    rewrite_schema(path, rename)
    with pytest.raises(StoreError, match=r"not (read unasked|trusted): sklearn.*Ridge"):
        read_learner(path, ())


def test_a_forest_starts_no_threads_and_counts_its_trees(tmp_path):
    learner = oracle.make_learner("random_forest", classifier=True, random_state=0, n_jobs=1)
    learner.set_params(n_estimators=3).fit(X, Y)
    learner.n_jobs = 5000
    assert read_learner(keep(learner, tmp_path), ()).n_jobs == 1
    learner.n_estimators = 5000
    with pytest.raises(ValueError, match="3 trees, not 5000"):
        read_learner(keep(learner, tmp_path), ())


def refer(node):
    """Return what stands for an object where it is used again."""
    return {key: node[key] for key in ("__class__", "__module__", "__loader__", "__id__")}


def rewrite_schema(path, change):
    """Write an archive again, its schema changed in place."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    change(schema)
    members["schema.json"] = json.dumps(schema).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("whole", [False, True])
def test_a_small_file_holds_no_forest_of_one_tree_many_times(whole, tmp_path, monkeypatch):
    def repeat(schema):
        state = schema["content"]["content"]
        tree = state["estimators_"]["content"][0]
        state["estimators_"]["content"] = [tree, *[tree if whole else refer(tree)] * 2000]
        state["n_estimators"].update(content="2001", __id__=1)

    learner = oracle.make_learner("random_forest", classifier=True, random_state=0, n_jobs=1)
    path = keep(learner.set_params(n_estimators=1).fit(X, Y), tmp_path)
    rewrite_schema(path, repeat)
    monkeypatch.setattr("skops.io._audit.get_tree", None)
    with pytest.raises(ValueError, match="file of this size" if whole else "does not write out"):
        read_learner(path, ())


def test_lists_of_lists_are_not_followed_once_for_each_use(tmp_path, monkeypatch):
    def nest(schema):
        inner = schema["content"].pop()
        for number in range(60):
            schema["content"] = [inner, refer(inner)]
            inner = {**schema, "__id__": number + 1}

    path = keep([[0.5]], tmp_path)
    rewrite_schema(path, nest)
    monkeypatch.setattr("skops.io._audit.Node.get_unsafe_set", None)
    with pytest.raises(ValueError, match="does not write out"):
        read_learner(path, ())


def test_neighbours_are_of_the_shapes_that_their_kernels_believe(tmp_path):
    learner = KNeighborsRegressor(2, algorithm="brute").fit(X, X[:, 0])
    learner._fit_X = X[:, :1].copy()
    learner.n_samples_fit_ = 10**9
    back = read_learner(keep(learner, tmp_path), ())
    assert (back.n_features_in_, back.n_samples_fit_) == (1, 60)
    learner._fit_X = X[:7]
    with pytest.raises(StoreError, match="neither saved nor read"):
        keep(learner, tmp_path)


@pytest.mark.parametrize(
    ("name", "classifier", "changes"),
    [
        ("random_forest", True, {"n_classes_": 10**9}),
        ("random_forest", True, {"n_classes_": [2] * 100}),
        ("random_forest", False, {"n_outputs_": 10**9}),
        ("extra_trees", True, {"n_outputs_": 10**9}),
        ("decision_tree", True, {"n_classes_": 10**9}),
        ("decision_tree", True, {"classes_": np.arange(1000)}),
        ("decision_tree", False, {"n_outputs_": 10**9}),
    ],
)
def test_outputs_are_those_of_the_trees(name, classifier, changes, tmp_path):
    learner = oracle.make_learner(name, classifier=classifier, random_state=0, n_jobs=None)
    vars(learner.fit(X, Y)).update(changes)
    with pytest.raises(ValueError, match="other outputs or classes than its trees"):
        read_learner(keep(learner, tmp_path), ())


@pytest.mark.parametrize("classifier", [False, True])
def test_trees_have_one_output(classifier, tmp_path):
    learner = oracle.make_learner("extra_trees", classifier=classifier, random_state=0, n_jobs=None)
    learner.set_params(n_estimators=2).fit(X, np.column_stack([Y, np.arange(60) % 3]))
    with pytest.raises(ValueError, match="other outputs or classes"):
        read_learner(keep(learner, tmp_path), ())


def test_trees_of_numbers_have_no_classes(tmp_path):
    # Their predictions take the first of all columns.
    learner = LEARNERS["tree"]().fit(X, X[:, 0])
    tree = Tree(3, np.array([1000]), 1)
    state = learner.tree_.__getstate__()
    tree.__setstate__({**state, "values": np.repeat(state["values"], 1000, axis=2)})
    learner.tree_ = tree
    with pytest.raises(ValueError, match="other outputs or classes"):
        read_learner(keep(learner, tmp_path), ())


def test_nodes_of_trees_hold_numbers(tmp_path):
    path = keep(LEARNERS["stump"]().fit(X, X[:, 0]), tmp_path)
    kind = [(name, (each[0], (1,))) for name, each in NODE_DTYPE.fields.items()]
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, content in members.items():
        array = np.load(io.BytesIO(content)) if name.endswith(".npy") else None
        if array is not None and array.dtype.names:
            stream = io.BytesIO()
            np.save(stream, np.zeros(len(array), kind))
            members[name] = stream.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(StoreError, match="nodes that lead nowhere"):
        read_learner(path, ())


LARGE = np.zeros((2**17, 3))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("linear", lambda learner: setattr(learner, "coef_", np.zeros((1000, 3)))),
        ("linear", lambda learner: setattr(learner, "intercept_", np.zeros(1000))),
        ("k_neighbors", lambda learner: learner.fit(X, np.zeros((60, 1000)))),
        ("k_neighbors", lambda learner: learner.fit(LARGE, LARGE[:, 0])),
        ("k_neighbors", lambda learner: learner.set_params(n_neighbors=5000)),
        ("k_neighbors", lambda learner: learner.fit(np.zeros((2**14, 100)), LARGE[: 2**14, 0])),
        ("spline", lambda learner: learner.set_params(n_knots=4000).fit(X, Y)),
        ("spline", lambda learner: learner.fit(np.zeros((4, 3000)), Y[:4])),
        ("spline", lambda learner: learner.set_params(degree=101).fit(X, Y)),
    ],
)
def test_no_learner_takes_memory_that_is_not_its(name, change, tmp_path, monkeypatch):
    learner = make_learner(name, None).fit(X, X[:, 0])
    change(learner)
    with pytest.raises(StoreError, match="neither saved nor read"):
        keep(learner, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(learner_file, "_check_arrays", lambda *_: None)
        path = keep(learner, tmp_path)
    with pytest.raises(StoreError, match="neither saved nor read"):
        read_learner(path, ())


@pytest.mark.parametrize("number", [1, 0, None])
def test_a_member_of_the_archive_is_not_unpacked_for_many_arrays(number, tmp_path, monkeypatch):
    shared = np.zeros(1000)
    path = keep([shared, shared], tmp_path)
    first, second = read_learner(path, ())
    assert first is second

    def copy(schema):
        for each in schema["content"][:: -1 if number else 1][: 1 if number else 2]:
            each["__id__"] = number

    rewrite_schema(path, copy)
    monkeypatch.setattr("skops.io._numpy.NdArrayNode.__init__", None)
    with pytest.raises(ValueError, match="several of its objects"):
        read_learner(path, ())
