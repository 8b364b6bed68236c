"""What is saved decides as before, on frames and on tables written of them, or says why not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import fairfrontier as ff
from fairfrontier.deployment.estimator import FrameEstimator, Layout
from fairfrontier.deployment.monitoring import run_monitor
from fairfrontier.deployment.scoring import score
from fairfrontier.frontier.saving import ShippedApartWarning
from fairfrontier.models.registry import METHODS
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.runtime.errors import StoreError

N = 600
GAP = "selection_rate_difference:sex"


def make_people(seed=0):
    rng = np.random.default_rng(seed)
    lacks = rng.random(N) < 0.1
    sex = rng.choice(["f", "m"], N)
    X = pd.DataFrame(
        {
            "income": rng.normal(size=N).astype(np.float32) + (sex == "m"),
            "years": np.where(lacks, np.nan, rng.integers(0, 40, N)),
            "children": rng.integers(0, 4, N),
            "job": np.where(lacks, None, rng.choice(["cook", " nurse", "NA", "1.0"], N)),
            "town": pd.Categorical(rng.choice(["b", "a", "c"], N), categories=["c", "b", "a", "d"]),
            "band": pd.Categorical(rng.choice([1, 2], N)),
            "owns": rng.random(N) < 0.5,
            "rents": pd.array(np.where(lacks, None, rng.random(N) < 0.5), dtype="boolean"),
            "cars": pd.array(np.where(lacks, None, rng.integers(0, 3, N)), dtype="Int64"),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 9, N), "D"),
            "rooms": pd.Series(np.where(lacks, None, rng.integers(1, 4, N)), dtype=object),
            "note": rng.choice(["paid late", "paid early", "x"], N),
        }
    )
    groups = pd.DataFrame({"sex": sex, "old": rng.random(N) < 0.4})
    paid = X["income"] + X["owns"] + 0.1 * X["children"] + rng.normal(size=N) > 1
    return X, np.where(paid, "repaid", "default"), groups


X, Y, GROUPS = make_people()
CODES = (Y == "repaid").astype(int)
TABLE = X.assign(**GROUPS, label=Y)


def encode(final, unknown="ignore"):
    one_hot = OneHotEncoder(handle_unknown=unknown, sparse_output=False)
    levels = ["job", "town", "band", "rents", "rooms"]
    numbers = ["income", "years", "children", "owns", "cars"]
    return make_pipeline(
        make_column_transformer((one_hot, levels), ("passthrough", numbers)).set_output(
            transform="pandas"
        ),
        final,
    )


LOGISTIC = encode(make_pipeline(SimpleImputer(), LogisticRegression()))
TYPED = make_column_transformer(
    (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["job"]),
    ("passthrough", ["town", "income"]),
    verbose_feature_names_out=False,
).set_output(transform="pandas")
MEMBERS = {
    "boosting": encode(HistGradientBoostingClassifier(max_iter=5)),
    "categories": make_pipeline(
        TYPED, HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype")
    ),
    "lightgbm": make_pipeline(TYPED, LGBMClassifier(n_estimators=5, verbose=-1)),
    "xgboost": encode(XGBClassifier(n_estimators=5)),
    "margins": CalibratedClassifierCV(encode(make_pipeline(SimpleImputer(), LinearSVC())), cv=2),
    "texts": make_pipeline(
        make_column_transformer((TfidfVectorizer(), "note")), LogisticRegression()
    ),
    "fair": "fair_gbm",
    "frozen": FrozenEstimator(LOGISTIC.fit(X, Y)),
}


def fit(member, frame=X, y=Y, groups=GROUPS):
    # All methods with bounds need a criterion; rules are those of `choose`.
    options = {"criteria": ("parity",) if member == "fair_gbm" else (), "bounds": (0.05,)}
    frontier = ff.Frontier([member], pos_label="repaid" if y is Y else 1, cv=0.4, **options)
    return frontier.fit(frame, y, sensitive_features=groups)


def choose(frontier, attribute="sex", frame=X, groups=GROUPS):
    """Return the model of a frontier with thresholds by an attribute."""
    model = frontier.select("max accuracy")
    rule = ff.GroupThresholds(
        attributes=[attribute], objective="balanced_accuracy", bound=0.1, randomized=False
    )
    rule.fit(model.predict_proba(frame)[:, 1], CODES, sensitive_features=groups)
    return replace(model, candidate=replace(model.candidate, rule=rule))


def decide(bundle, table):
    return bundle.decide(table)["decision"].to_numpy(dtype=np.float64)


@pytest.mark.parametrize("name", MEMBERS)
def test_what_is_loaded_decides_as_before_on_frames_and_on_their_csv(name, tmp_path):
    frame = X.drop(columns="day") if name == "fair" else X
    model = choose(fit(MEMBERS[name], frame, CODES if name == "xgboost" else Y), frame=frame)
    expected = model.predict(frame, sensitive_features=GROUPS) == model.classes_[1]
    assert 0 < expected.mean() < 1
    bundle = ff.load_bundle(model.save(tmp_path / "bundle"))
    assert np.array_equal(decide(bundle, TABLE), expected)
    assert bundle.predict_proba(TABLE)[:, 1] == pytest.approx(model.predict_proba(frame)[:, 1])
    TABLE.to_csv(tmp_path / "people.csv", index=False)
    score(tmp_path / "bundle", tmp_path / "people.csv", tmp_path / "decisions.parquet")
    assert np.array_equal(pd.read_parquet(tmp_path / "decisions.parquet")["decision"], expected)


def test_a_rule_is_of_the_groups_of_any_kind(tmp_path):
    groups = GROUPS.assign(age=np.where(GROUPS["old"], 1.0, 0.0), income=pd.cut(X["income"], 3))
    groups["income"] = groups["income"].cat.rename_categories(["low", "mid", "high"])
    frontier = fit(LOGISTIC, groups=groups)
    for name in groups:
        model = choose(frontier, name, groups=groups)
        expected = model.predict(X, sensitive_features=groups) == "repaid"
        bundle = ff.load_bundle(model.save(tmp_path / name))
        assert bundle.needed_groups == (name,)
        # Bands of a column that is a feature are another column.
        table = X.assign(**groups.rename(columns={"income": "income (group)"}))
        assert np.array_equal(decide(bundle, table), expected)
        none = bundle.decide(table.assign(**{bundle.encoder.find_columns([name])[0]: None}))
        assert (none["refused"] != "").all()


@pytest.mark.parametrize("kind", ["polars", "arrow", "array", "objects", "lists"])
def test_rows_of_any_kind_are_given_back_to_the_estimator(kind, tmp_path):
    columns = ["income", "years", "children", "owns", "note"]
    plain = X[columns].assign(note=X["note"].astype(object))
    make = {
        "polars": lambda rows: pl.from_pandas(rows, schema_overrides={"note": pl.Categorical}),
        "arrow": lambda rows: pa.Table.from_pandas(rows[columns[:3]], preserve_index=False),
        "array": lambda rows: rows[columns[:3]].to_numpy(np.float32),
        "objects": lambda rows: rows.to_numpy(),
        "lists": lambda rows: rows[columns[:3]].to_numpy().tolist(),
    }[kind]
    member = HistGradientBoostingClassifier(max_iter=5)
    if kind in ("polars", "objects"):
        note = [4] if kind == "objects" else ["note"]
        encoder = make_column_transformer((OrdinalEncoder(), note), remainder="passthrough")
        member = make_pipeline(encoder, member)
    rows = make(plain)
    model = choose(fit(member, rows), frame=rows)
    bundle = ff.load_bundle(model.save(tmp_path / "bundle"))
    names = dict(zip(columns, [f"x{k}" for k in range(5)], strict=True))
    table = plain if kind in ("polars", "arrow") else plain.rename(columns=names)
    expected = model.predict(rows, sensitive_features=GROUPS) == "repaid"
    assert np.array_equal(decide(bundle, table.assign(**GROUPS)), expected)
    restored = bundle.model.estimator_.layout.restore(bundle.encode(table.assign(**GROUPS)).X)
    assert type(restored) is (np.ndarray if kind == "lists" else type(rows))


def test_levels_that_are_new_are_passed_on_or_refused_as_the_estimator_does(tmp_path):
    strange = TABLE[:4].assign(
        job=["cook", "pilot", "cook", None], income=[0.0, 0.0, np.nan, 0.0], band=1
    )
    takes = choose(fit(MEMBERS["boosting"]))
    bundle = ff.load_bundle(takes.save(tmp_path / "takes"))
    expected = takes.predict(strange[X.columns], sensitive_features=strange[["sex", "old"]])
    assert np.array_equal(decide(bundle, strange), expected == "repaid")
    other = bundle.decide(strange.assign(band=3))["refused"]
    assert (other == "band has a level that training had not").all()
    forest = encode(RandomForestClassifier(3, random_state=0), "error")
    refuses = choose(fit(forest, X.assign(years=0)), frame=X.assign(years=0))
    reasons = ff.load_bundle(refuses.save(tmp_path / "refuses")).decide(strange.assign(years=0))
    assert reasons["refused"].tolist() == ["", "job has a level that training had not", "", ""]
    assert reasons["decision"].notna().tolist() == [True, False, True, True]


def shorten(rows):
    return rows[["income"]].fillna(0).clip(0, 1)


OWN = f"{shorten.__module__}.{shorten.__qualname__}"


def test_types_of_others_are_named_or_the_model_is_shipped_apart(tmp_path):
    model = choose(fit(make_pipeline(FunctionTransformer(shorten), LogisticRegression())))
    expected = model.predict(X, sensitive_features=GROUPS) == "repaid"
    known = model.save(tmp_path / "known", trusted=[OWN])
    with pytest.raises(StoreError, match=OWN):
        ff.load_bundle(known)
    assert np.array_equal(decide(ff.load_bundle(known, trusted=[OWN]), TABLE), expected)
    with pytest.warns(ShippedApartWarning, match=OWN):
        model.save(tmp_path / "rule")
    scored = GROUPS.assign(score=model.predict_proba(X)[:, 1])
    bundle = ff.load_bundle(tmp_path / "rule")
    assert np.array_equal(decide(bundle, scored), expected)
    assert bundle.manifest["measures"]
    assert np.array_equal(model.rule.predict(scored["score"], sensitive_features=GROUPS), expected)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"job": np.where(X["income"] > 0, "cook ", "cook")},
        {"job": np.where(X["income"] > 0, "", "cook")},
        {"children": X["children"] + 2**60},
        {"job": pd.Series([None, np.nan] * (N // 2), dtype=object).where(X["owns"], "cook")},
    ],
)
def test_tables_that_would_not_give_the_rows_back_are_said(spoilt, tmp_path):
    encoder = make_column_transformer((OneHotEncoder(), ["job"]), ("passthrough", ["children"]))
    frontier = fit(make_pipeline(encoder, DecisionTreeClassifier()), X.assign(**spoilt))
    with pytest.warns(ShippedApartWarning, match=f"{next(iter(spoilt))!r}"):
        frontier.select("max accuracy").save(tmp_path / "bundle")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, method in METHODS.all().items()
        if "binary" in method.task
        and not issubclass(method, PostProcessor)
        and not {"metric", "counterfactuals"} & method.fit_needs
    ],
)
def test_registered_methods_that_can_be_saved_can_be_loaded(name):
    rows = X[["income", "children"]]
    method = METHODS.find(name)
    given = {"sensitive_features": GROUPS} if "sensitive_features" in method.fit_takes else {}
    model = make_pipeline(StandardScaler(), ff.create(name, **method.example))
    model.fit(rows, Y, **{f"{model.steps[-1][0]}__{key}": value for key, value in given.items()})
    kept = FrameEstimator(model, Layout.learn(rows))
    cells = rows.to_numpy(object)
    assert np.array_equal(kept.restored().predict_proba(cells), kept.predict_proba(cells))


def test_audits_explanations_and_monitoring_read_such_a_bundle_as_any_other(tmp_path):
    few = make_column_transformer((OrdinalEncoder(), ["job"]), ("passthrough", ["income"]))
    model = choose(fit(make_pipeline(few, HistGradientBoostingClassifier(max_iter=5))))
    folder, table = model.save(tmp_path / "bundle"), tmp_path / "people.csv"
    TABLE.to_csv(table, index=False)
    decided = model.predict(X, sensitive_features=GROUPS)
    found = ff.audit(table, model=folder).measures.set_index(["measure", "group"])["value"]
    for sex, rows in TABLE.groupby("sex"):
        assert found["selection_rate", f"sex={sex}"] == np.mean(decided[rows.index] == "repaid")
    values = ff.explain(folder, TABLE[:30]).values
    # Columns that the pipeline drops are not asked for.
    assert list(values) == ["income", "job"]
    period = run_monitor(bundle=folder, table=table, period="1", out=tmp_path / "history")
    assert not period["alarms"]
