from __future__ import annotations

import ast
import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fairfrontier.models.fit import key as keys
from fairfrontier.models.fit import training
from fairfrontier.models.fit.fitting import fit
from fairfrontier.models.fit.group import KIND, FitGroup, Member, read_facts
from fairfrontier.models.fit.key import WITHIN, WITHOUT, key
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare import loader as requests
from fairfrontier.prepare import loader as splits
from fairfrontier.runtime import source
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store
from fairfrontier.similarity import kept as metrics
from fairfrontier.similarity import registry
from fairfrontier.study.points import points_key
from tests.project import DATASET, ROOT, environment, make_project

NETS = {"nn", "project_nn", "sensei", "sensr"}
NOISY = {
    f"noisy_{name}" for name in ("dro", "naive", "soft_assignment", "true_groups", "unconstrained")
}
FRESH = "split: {kind: random, train: 0.4, calibration: 0.2, validation: 0.2, test: 0.2}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = DATASET.replace("split: {kind: random, train: 0.6, test: 0.4}", FRESH)
    return make_project(tmp_path_factory.mktemp("project"), dataset=dataset)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("copy")
    # What others compile meanwhile has such names until it is complete.
    ignored = shutil.ignore_patterns("*.pyc.*")
    shutil.copytree(ROOT / "fairfrontier", root / "fairfrontier", ignore=ignored)
    return root


@pytest.fixture(scope="module")
def reworded(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy with other words in every file."""
    root = tmp_path_factory.mktemp("reworded")
    shutil.copytree(copy, root, dirs_exist_ok=True)
    for path in root.rglob("*.py"):
        path.write_text(ast.unparse(Rewording().visit(ast.parse(path.read_text()))) + "  # why\n")
    return root


def make_group(estimator: str = "gbdt", **changes: object) -> FitGroup:
    parameters = {"n_estimators": 2} if estimator in ("gbdt", "budro", "reweigh") else {}
    return FitGroup(
        **{
            "dataset": "loans",
            "method": "row",
            "estimator": estimator,
            "metric": {"name": "subspace"},
            "rows": None,
            "select_on": "validation",
            "threads": 1,
            "members": (Member(0, parameters, {}),),
            **changes,
        }
    )


def forget() -> None:
    """Forget what a process knows of splits and metrics: another one would begin so."""
    for cached in (splits._digest, requests._load, metrics._digest, source._keep):
        cached.cache_clear()


READ: dict[tuple[bytes, str], source._File] = {}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sources be known by their bytes: few of them differ between the copies."""
    read = source._read.__wrapped__

    def recall(path: Path, module: str, root: Path) -> source._File:
        name = (path.read_bytes(), module)
        if name not in READ:
            READ[name] = read(path, module, root)
        return READ[name]

    monkeypatch.setattr(source, "_read", recall)


def digest_methods(root: Path, within: tuple[str, ...] = WITHIN) -> dict[str, str]:
    """Return the digest of the source of every method of ours in a copy of the package."""
    source._digest.cache_clear()
    beside = [training.__name__]
    return {
        name: source_digest([*beside, cls.__module__], within=within, without=WITHOUT, root=root)
        for name, cls in METHODS.all().items()
        if cls.__module__.startswith("fairfrontier.")
    }


def find_moved(root: Path, file: str, old: str, new: str) -> set[str]:
    """Return the methods whose source has another digest once a file was edited."""
    before = digest_methods(root)
    path = root / "fairfrontier" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    after = digest_methods(root)
    path.write_text(text)
    return {name for name in before if before[name] != after[name]}


class Rewording(ast.NodeTransformer):
    """Other docstrings and other words in all that is raised."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant("Another sentence."))
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        for each in ast.walk(node):
            for field, value in ast.iter_fields(each):
                if isinstance(value, list) and not isinstance(each, ast.JoinedStr):
                    setattr(each, field, [self.reword(one) for one in value])
        return node

    def reword(self, node: object) -> object:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        return ast.Constant("Other words.") if is_text or isinstance(node, ast.JoinedStr) else node


@pytest.mark.once
def test_other_words_in_every_file_move_no_method(copy, reworded, quick):
    assert digest_methods(reworded) == digest_methods(copy)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("runtime/store.py", "indent=1", "indent=2"),
        ("prepare/splitting/encoder.py", "import", "import  "),
        ("prepare/source/download.py", "def ", "async def "),
        ("similarity/subspace.py", "1e-14", "1e-13"),
        ("models/persistence.py", "def ", "async def "),
        ("models/fit/group.py", "minimum: int = 10", "minimum: int = 11"),
        ("models/fit/fitting.py", "time.monotonic()", "time.time()"),
        ("metrics/verb.py", "def ", "async def "),
        ("report/files.py", "def ", "async def "),
    ],
)
def test_what_does_not_train_moves_no_method(copy, quick, file, old, new):
    assert find_moved(copy, file, old, new) == set()


@pytest.mark.parametrize(
    ("file", "moved"),
    [
        ("models/individual/budro/search.py", {"budro"}),
        ("models/neural/network.py", NETS | NOISY),
        ("models/baseline/linear.py", {"linear", "linear_post"}),
        ("models/regression/oracle.py", {"fair_regression", "fair_regression_classifier"}),
    ],
)
def test_a_kernel_moves_the_methods_that_run_it(copy, quick, file, moved):
    text = (copy / "fairfrontier" / file).read_text()
    assert find_moved(copy, file, text, f"{text}\n\ndef added(): ...\n") == moved


def test_what_computes_below_is_there():
    for module in (*WITHIN, *WITHOUT):
        assert source._find(module, ROOT), module


SCRIPT = """
import json, sys
from pathlib import Path
from fairfrontier.prepare import loader as request
from fairfrontier.runtime.store import Store
from fairfrontier.study.points import points_key
from fairfrontier.models.fit.group import FitGroup, Member
from fairfrontier.models.fit.key import key

prepared = []
load = request.load
request.load = lambda *args, **options: prepared.append(args) or load(*args, **options)
home, store = Path(sys.argv[1]), Store(sys.argv[2])
found = {}
for name, then in (("gbdt", None), ("budro", None), ("linear", {"method": "hardt"})):
    group = FitGroup(
        "loans", name, name, {"name": "subspace"}, None, "validation", 1, (Member(0, {}, {}),),
        {"metric": {"name": "subspace"}, "budgets": [0.1], "rows": 10, "parts": ["test"]}, then,
    )
    found[name] = key(group, store, home)
    found[name + " points"] = points_key(found[name], group, store, home)
print(json.dumps([found, len(prepared)]))
"""


@pytest.mark.once
def test_an_edited_message_in_every_room_moves_no_key(copy, reworded, home, store):
    def look(root: Path) -> tuple[dict[str, str], int]:
        command = [sys.executable, "-c", SCRIPT, str(home), str(store.folder)]
        settings = environment(home, PYTHONPATH=str(root))
        done = subprocess.run(
            command, env=settings, cwd=root, capture_output=True, text=True, check=True, timeout=120
        )
        return tuple(json.loads(done.stdout))  # type: ignore[return-value]

    found, prepared = look(copy)
    assert prepared == 1
    kernel = reworded / "fairfrontier" / "models" / "individual" / "budro" / "search.py"
    text = kernel.read_text()
    kernel.write_text(f"{text}\n\ndef added(): ...\n")
    after, prepared = look(reworded)
    kernel.write_text(text)
    # Its code has other bytes, so that the split is made once more, and is found equal.
    assert prepared == 1
    assert [name for name in found if after[name] == found[name]] == ["gbdt", "linear"]


@pytest.mark.parametrize(
    ("method", "part", "field", "moves"),
    [
        ("gbdt", "train", "X", True),
        ("gbdt", "test", "X", True),
        ("gbdt", "test", "variants", True),
        ("gbdt", "train", "y", True),
        ("gbdt", "train", "weight", True),
        ("gbdt", "test", "y", False),
        ("gbdt", "train", "groups", False),
        ("gbdt", "train", "protected", False),
        ("reweigh", "train", "groups", True),
        ("reweigh", "test", "groups", False),
        ("clp", "train", "variant_groups", True),
        ("clp", "test", "variant_groups", False),
    ],
)
def test_a_key_holds_the_arrays_that_the_method_takes(
    home, store, monkeypatch, method, part, field, moves
):
    group = make_group(method)
    before = key(group, store, home)
    assert field in splits.digest_split(group.find_split(group.members[0]), store, home).parts[part]

    def change(*args: object) -> splits.SplitDigest:
        found = splits.digest_split(*args)
        parts = {**found.parts, part: {**found.parts[part], field: "other"}}
        return splits.SplitDigest(found.facts, parts)

    monkeypatch.setattr(keys, "digest_split", change)
    assert (key(group, store, home) != before) is moves
    behind = make_group("linear", then={"method": "hardt", "attributes": "origin"})
    assert key(behind, store, home)


def test_a_key_holds_the_source_of_a_learner(home, store, monkeypatch):
    seen = []
    monkeypatch.setattr(keys, "source_digest", lambda modules, **_: seen.append(list(modules)))
    for learners in (("gbdt",), ("gbdt", "linear")):
        members = tuple(Member(0, {"learner": learner}, {}) for learner in learners)
        key(make_group("reductions", members=members), store, home)
    key(make_group("reductions", members=(Member(0, {}, {}),)), store, home)
    room = "fairfrontier.models.baseline."
    assert [[name.removeprefix(room) for name in names[3:]] for names in seen] == [
        ["gbdt"],
        ["gbdt", "linear"],
        ["linear"],
    ]


def test_a_key_holds_the_source_of_a_solver(home, store, monkeypatch):
    seen = []
    monkeypatch.setattr(keys, "source_digest", lambda modules, **_: seen.append(set(modules)))
    for solver in ("exact", "sgd"):
        key(make_group("budro", members=(Member(0, {"solver": solver}, {}),)), store, home)
    assert seen[1] - seen[0] == {"papers.rival.budro_descent"}


def test_points_hold_all_arrays(home, store):
    noisy = [make_group(members=(Member(seed, {}, {}),)) for seed in (0, 1)]
    assert len({points_key("fit", each, store, home) for each in noisy}) == 2


def test_a_known_split_is_not_prepared(home, store, monkeypatch):
    groups = [make_group(), make_group("budro"), make_group("linear", then={"method": "hardt"})]
    found = [key(each, store, home) for each in groups]
    forget()
    monkeypatch.setattr(requests, "load", None)
    assert [key(each, store, home) for each in groups] == found


@pytest.mark.parametrize("kind", ["split", "metric", "source"])
def test_a_damaged_digest_is_made_again(home, store, kind):
    found = key(make_group("budro"), store, home)
    for entry in store.folder.glob(f"{kind}/*/*/*.json"):
        if entry.name != "manifest.json":
            entry.write_text("{}")
    forget()
    assert key(make_group("budro"), store, home) == found


def test_a_store_that_cannot_be_written_has_keys(home, tmp_path, store):
    found = key(make_group("budro"), store, home)
    forget()
    (tmp_path / "file").write_text("no folder")
    assert key(make_group("budro"), Store(tmp_path / "file"), home) == found


def test_a_metric_is_learnt_once(home, store, monkeypatch):
    learnt = []

    def learn(*args: object, **parameters: object) -> object:
        learnt.append(args)
        return registry.learn(*args, **parameters)

    monkeypatch.setattr(metrics, "learn", learn)
    for budget in (0.1, 0.2):
        member = Member(0, {"n_estimators": 2, "budget": budget}, {})
        fit(make_group("budro", members=(member,)), store, home)
    assert len(learnt) == 1


def test_metrics_of_equal_arrays_share_their_fits(home, store):
    names = [
        {"name": "subspace"},
        {"name": "subspace", "penalty": 0.1},
        {"name": "subspace", "penalty": 0.2},
    ]
    found = [key(make_group("budro", metric=each), store, home) for each in names]
    assert found[0] == found[1] != found[2]
    # It takes none.
    assert len({key(make_group("gbdt", metric=each), store, home) for each in names}) == 1


def test_a_metric_that_cannot_be_learnt_is_said_by_the_fit(home, store):
    group = make_group("budro", metric={"name": "subspace", "attributes": ["orgin"]})
    assert key(group, store, home) == key(group, store, home)
    with pytest.raises(ConfigError):
        fit(group, store, home)
    unsuited = make_group("clp", dataset="plain", metric={"name": "subspace"})
    (home / "conf" / "datasets" / "plain.yaml").write_text(
        re.sub(r"counterfactuals:\n.*\n", "", DATASET)
        .replace("protected: [origin]\n", "")
        .replace("dataset: loans", "dataset: plain")
    )
    entry = store.path(KIND, fit(unsuited, store, home))
    assert "counterfactual" in read_facts(entry)["skipped"]
    sensei = make_group("sensei", dataset="plain")
    assert (
        "needs a fair metric" in read_facts(store.path(KIND, fit(sensei, store, home)))["skipped"]
    )


def test_arrays_have_the_digests_of_what_they_hold(home):
    split = make_group().find_split(Member(0, {}, {})).load(home)
    found = splits.digest_arrays(split)
    assert splits.digest_arrays(split) == found
    X = split.test.X.copy()
    X[3, 1] += 1e-12
    other = splits.digest_arrays(split.replace(test=dataclasses.replace(split.test, X=X)))
    assert other.facts == found.facts
    assert other.parts["train"] == found.parts["train"]
    fields = found.parts["test"]
    assert {name for name in fields if other.parts["test"][name] != fields[name]} == {
        "X",
        "variants",
    }
    fewer = splits.digest_arrays(split.replace(test=split.test.take(np.arange(5))))
    assert all(fewer.parts["test"][name] != fields[name] for name in fields)
    assert splits.digest_arrays(split.replace(favourable=0)).facts != found.facts
    assert splits.digest_arrays(split.replace(digest="other")) == found


def test_versions_that_change_other_cells_have_another_digest(home):
    split = make_group().find_split(Member(0, {}, {})).load(home)
    edits = split.test.counterfactuals["origin"]
    before = splits.digest_arrays(split).parts["test"]
    for changes, field in (
        ({"features": {0: 1.5}}, "variants"),
        ({"groups": {0: 1}}, "variant_groups"),
    ):
        changed = [dataclasses.replace(each, **changes) for each in edits.edits]
        sets = {"origin": dataclasses.replace(edits, edits=tuple(changed))}
        part = dataclasses.replace(split.test, counterfactuals=sets)
        after = splits.digest_arrays(split.replace(test=part)).parts["test"]
        assert [name for name in before if before[name] != after[name]] == [field]


def test_an_objective_belongs_to_the_key_where_it_chooses_the_cut(home, store):
    plain = key(make_group(), store, home)
    assert key(make_group(objective="accuracy"), store, home) != plain
    assert key(make_group(objective="f1"), store, home) != key(
        make_group(objective="accuracy"), store, home
    )
    drawn = make_group("noisy_ideal", objective="accuracy")
    assert key(drawn, store, home) == key(make_group("noisy_ideal"), store, home)
