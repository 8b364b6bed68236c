"""What bundles' scores are made of: by raw column, by group, in the card and from the command."""

from __future__ import annotations

import re
from itertools import combinations
from math import comb
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

import fairfrontier as ff
from fairfrontier.cli.command import app
from fairfrontier.cli.terminal import run_app
from fairfrontier.deployment import explanation
from fairfrontier.deployment.bundle import Mixture
from fairfrontier.deployment.config import ExplainConfig
from fairfrontier.deployment.explanation import (
    Explanation,
    attribute_score,
    draw_rows,
    explain_table,
)
from fairfrontier.models.base import Classifier, Regressor
from fairfrontier.models.registry import create
from fairfrontier.prepare.table import text
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.text_file import read_csv
from tests.deployment.test_bundle import choose

COLUMNS = ["income", "age", "region", "job"]


@pytest.fixture(scope="module")
def folders(loans, tmp_path_factory):
    base = tmp_path_factory.mktemp("explained")
    return {name: choose(loans, name).export(base / name) for name in ("gbdt", "linear", "drawn")}


@pytest.mark.parametrize("method", ["gbdt", "linear", "drawn"])
def test_values_of_raw_columns_add_up_to_the_scores(folders, raw, method):
    explanation = ff.explain(folders[method], raw)
    assert explanation.unit == "log-odds"
    assert list(explanation.values) == COLUMNS
    decided = ff.load_bundle(folders[method]).decide(raw)
    kept = decided[decided["refused"] == ""]
    assert explanation.values.index.equals(kept.index)
    scores = logit(kept["score"])
    np.testing.assert_allclose(explanation.base + explanation.values.sum(axis=1), scores, atol=1e-5)
    # So do the means of a group.
    table = explanation.tabulate().set_index(["attribute", "level"])
    for level in ("north", "south", "island"):
        rows = raw.loc[kept.index, "origin"] == level
        group = table.loc["origin", level]
        assert (group["n"] == rows.sum()).all()
        gap = scores[rows].mean() - explanation.base
        assert group["mean"].sum() == pytest.approx(gap, abs=1e-5)


@pytest.mark.parametrize("method", ["gbdt", "linear"])
def test_neither_the_order_of_rows_nor_of_columns_matters(folders, raw, method):
    values = ff.explain(folders[method], raw).values
    shuffled = raw.sample(frac=1, random_state=1)[raw.columns[::-1]]
    again = ff.explain(folders[method], shuffled).values.loc[values.index]
    pd.testing.assert_frame_equal(again, values, atol=1e-12)


def test_levels_of_few_rows_are_one_and_fewer_have_no_means(folders, raw):
    some = pd.concat([raw[raw["origin"] == "north"][:40], raw[raw["origin"] == "south"][:6]])
    some = pd.concat([some, raw[raw["origin"] == "island"][:7]])
    explanation = ff.explain(folders["linear"], some.assign(age=30))
    table = explanation.tabulate(10)
    levels = table[table["attribute"] == "origin"].groupby("level", sort=False)["n"].first()
    assert levels.to_dict() == {"north": 40, "other (2 levels)": 13}
    assert table["mean"].notna().all()
    table = explanation.tabulate(20).set_index("level")
    assert table.loc["other (2 levels)", ["mean", "mean_abs"]].isna().all(axis=None)
    assert explanation.tabulate(60)["mean"].isna().all()


def test_means_are_those_of_the_values():
    values = pd.DataFrame({"a": [1.0, -1.0, 2.0], "b": [-3.0, -3.0, 0.0]})
    groups = pd.DataFrame({"sex": pd.Categorical(["f", "m", None])})
    table = Explanation(values, 0.0, "log-odds", groups, {}).tabulate(1)
    assert table.to_numpy().tolist() == [
        ["", "", 3, "b", 2.0, -2.0],
        ["", "", 3, "a", pytest.approx(4 / 3), pytest.approx(2 / 3)],
        ["sex", "f", 1, "b", 3.0, -3.0],
        ["sex", "f", 1, "a", 1.0, 1.0],
        ["sex", "m", 1, "b", 3.0, -3.0],
        ["sex", "m", 1, "a", 1.0, -1.0],
    ]


def test_rows_of_a_table_are_drawn_the_same_in_any_batches(folders, raw, tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    raw.to_csv(path, index=False)
    config = ExplainConfig(bundle=folders["gbdt"], table=path, rows=120)
    whole = explain_table(config).values
    drawn = draw_rows(raw, 120)
    assert len(drawn) == 120
    assert whole.index.equals(drawn.index[drawn["age"] >= 20])
    monkeypatch.setattr(text, "BLOCK_BYTES", 2000)
    pd.testing.assert_frame_equal(explain_table(config).values, whole)


def test_the_command_leaves_a_table_and_a_figure(folders, raw, tmp_path, monkeypatch, capsys):
    raw.to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, folders["gbdt"], "table.csv", "--out", "made")
    told = capsys.readouterr().out
    assert "in log-odds" in told
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"explain.csv", "explain.png"}
    table = read_csv(tmp_path / "made" / "explain.csv")
    explanation = ff.explain(folders["gbdt"], raw)
    assert list(table) == ["attribute", "level", "n", "column", "mean_abs", "mean", "base", "unit"]
    np.testing.assert_allclose(table["mean"], explanation.tabulate()["mean"], atol=1e-9)
    lines = {line.split()[0]: line.split()[-2:] for line in told.splitlines() if line.strip()}
    shown = [number for name in explanation.values.columns for number in lines[name]]
    assert all(re.fullmatch(r"−?\d+\.\d{3}", number) for number in shown)


def test_levels_that_training_had_not_are_told(folders, raw, tmp_path, monkeypatch, capsys):
    raw.assign(region="0" + raw["region"].astype("str")).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, folders["gbdt"], "t.csv", "--out", "made")
    told = " ".join(capsys.readouterr().out.split())
    assert "No cell of region is a level that training had" in told
    assert not ff.explain(folders["gbdt"], raw).unseen


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda raw: raw.drop(columns="job"), "has no column 'job', which the model decides by"),
        (lambda raw: raw[:0], "holds no rows"),
        (lambda raw: raw.assign(age=3), "No row can be explained: age is outside"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(
    folders, raw, tmp_path, monkeypatch, capsys, change, told
):
    change(raw).to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, folders["gbdt"], "table.csv", "--out", "made", code=2)
    assert told in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_groups_may_be_missing_where_no_rule_needs_them(folders, raw):
    explanation = ff.explain(folders["gbdt"], raw.drop(columns="origin"))
    assert set(explanation.tabulate()["attribute"]) == {"", "old"}
    with pytest.raises(DataError, match="No row can be explained: there is none"):
        ff.explain(folders["gbdt"], raw[:0])


def run(monkeypatch, *words: object, code: int = 0) -> None:
    monkeypatch.setattr("sys.argv", ["fairfrontier", "explain", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        run_app(app)
    assert (ended.value.code or 0) == code


# Column 2 is encoded as three features, two of them apart from the third.
SPANS = ((slice(0, 1),), (slice(1, 2),), (slice(2, 4), slice(5, 6)), (slice(4, 5),))
KINDS = {
    "gbdt": "log-odds",
    "linear": "log-odds",
    "project": "probability",
    "random_forest": "probability",
    "nn": "probability",
    "mixture": "probability",
    "post-processed": "log-odds",
}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(160, 6))
    score = X @ [1.5, -1.0, 0.7, 0.0, 0.4, 0.9] + X[:, 0] * X[:, 1]
    return X, (score + rng.normal(size=160) > 0).astype(np.int64)


@pytest.fixture(scope="module")
def fitted(rows):
    """Return a function that fits a model of a kind."""
    X, y = rows
    groups = (X[:, :1] > 0).astype(np.int64)

    def fit(kind: str):
        if kind == "mixture":
            return Mixture(fit("post-processed"), fit("random_forest"), 0.3)
        if kind == "post-processed":
            model = fit("gbdt")
            rule = create("hardt", attributes=[0])
            rule.fit(model.predict_proba(X)[:, 1], y, sensitive_features=groups)
            return rule.behind(model)
        model = create(kind, **dict(create(kind).example))
        metric = SimpleNamespace(sigma=np.eye(6) - np.full((6, 6), 1 / 6))
        return model.fit(X, y, **({"metric": metric} if kind == "project" else {}))

    return fit


def enumerate_values(predict, X: np.ndarray, number: int) -> np.ndarray:
    """Return φ_j(x) = Σ_S (v(S ∪ j) − v(S)) / (p C(p − 1, |S|)), v the mean over rows of X."""
    x, columns = X[number], range(len(SPANS))

    def value(subset: tuple[int, ...]) -> float:
        mixed = X.copy()
        for column in subset:
            for span in SPANS[column]:
                mixed[:, span] = x[span]
        return float(predict(mixed).mean())

    return np.array(
        [
            sum(
                (value((*subset, j)) - value(subset)) / (len(SPANS) * comb(len(SPANS) - 1, size))
                for size in range(len(SPANS))
                for subset in combinations([k for k in columns if k != j], size)
            )
            for j in columns
        ]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_values_add_up_to_the_score(fitted, rows, kind):
    X, _ = rows
    model = fitted(kind)
    found = attribute_score(model, X, SPANS)
    assert found.unit == KINDS[kind]
    if kind == "mixture":
        chance = 0.7 * model.first.estimator_.predict_proba(X) + 0.3 * model.second.predict_proba(X)
    else:
        chance = getattr(model, "estimator_", model).predict_proba(X)
    score = logit(chance[:, 1]) if found.unit == "log-odds" else chance[:, 1]
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), score, atol=1e-5)


def test_values_of_a_linear_model_are_those_of_the_definition(fitted, rows):
    X = rows[0]
    model = fitted("linear")
    found = attribute_score(model, X, SPANS)
    for number in (0, 7):
        wanted = enumerate_values(lambda Z: logit(model.predict_proba(Z)[:, 1]), X, number)
        np.testing.assert_allclose(found.values[number], wanted, atol=1e-9)


def test_trees_of_one_split_each_are_valued_by_hand(rows):
    # Such trees are additive in the columns: the value is the leaf less the mean over the rows,
    # which in the first round have the weight 1/4 each.
    X, y = rows
    model = create("gbdt", n_estimators=1, max_depth=1, base_score=0.5).fit(X, y)
    found = attribute_score(model, X, SPANS)
    margin = logit(model.predict_proba(X)[:, 1])
    assert np.unique(margin).size == 2
    used = np.abs(found.values).max(axis=0) > 0
    assert used.sum() == 1
    np.testing.assert_allclose(found.values[:, used][:, 0], margin - margin.mean(), atol=1e-6)


def test_drawn_values_are_exact_where_at_most_two_columns_interact(rows, monkeypatch):
    # An order and its reverse give each pair both of its orders.
    X = rows[0][:8]
    monkeypatch.setattr(explanation, "ORDERS", 8)

    def predict(Z: np.ndarray) -> np.ndarray:
        return Z[:, 0] * Z[:, 3] - Z[:, 1] * Z[:, 4] + Z[:, 5]

    found = attribute_score(stub(predict), X, SPANS)
    for number in range(8):
        wanted = enumerate_values(predict, X, number)
        np.testing.assert_allclose(found.values[number], wanted, atol=1e-12)


def test_drawn_values_come_near_the_definition_with_more_orders(rows, monkeypatch):
    X = rows[0][:8]

    def predict(Z: np.ndarray) -> np.ndarray:
        return expit(3 * Z[:, 0] * Z[:, 1] * Z[:, 4] + Z[:, 2] * Z[:, 0])

    wanted = np.array([enumerate_values(predict, X, number) for number in range(8)])
    errors = []
    for orders in (8, 2048):
        monkeypatch.setattr(explanation, "ORDERS", orders)
        errors.append(np.abs(attribute_score(stub(predict), X, SPANS).values - wanted).mean())
    # Of drawn means the error falls with the root: here by 16.
    assert errors[1] < 0.005 < errors[0] / 4


@pytest.mark.parametrize("kind", ["gbdt", "linear", "random_forest"])
def test_a_column_that_the_model_does_not_use_has_no_value(fitted, rows, kind):
    X, y = rows
    constant = X.copy()
    constant[:, 4] = 1.0
    model = create(kind, **dict(create(kind).example)).fit(constant, y)
    np.testing.assert_allclose(attribute_score(model, X, SPANS).values[:, 3], 0.0, atol=1e-9)


@pytest.mark.parametrize("kind", ["gbdt", "linear"])
def test_a_column_has_the_sum_of_the_values_of_its_features(fitted, rows, kind):
    X = rows[0]
    apart = attribute_score(fitted(kind), X, [(slice(j, j + 1),) for j in range(6)]).values
    merged = attribute_score(fitted(kind), X, SPANS).values
    np.testing.assert_allclose(merged[:, 2], apart[:, [2, 3, 5]].sum(axis=1), atol=1e-6)
    np.testing.assert_array_equal(merged[:, [0, 1, 3]], apart[:, [0, 1, 4]])


@pytest.mark.parametrize("base", [Classifier, Regressor])
def test_a_booster_of_another_library_is_not_taken_for_xgboosts(rows, base):
    X = rows[0][:8]

    class Foreign(base):
        # As LightGBM names its own.
        booster_ = object()

        def predict(self, Z):
            return expit(Z[:, 0] - 2 * Z[:, 4])

        def predict_proba(self, Z):
            return np.column_stack([1 - self.predict(Z), self.predict(Z)])

    found = attribute_score(Foreign(), X, SPANS)
    wanted = expit(X[:, 0] - 2 * X[:, 4])
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), wanted, atol=1e-12)


def stub(predict) -> SimpleNamespace:
    """Return a model whose P(Y=1|x) is a function."""
    return SimpleNamespace(predict_proba=lambda Z: np.column_stack([1 - predict(Z), predict(Z)]))
