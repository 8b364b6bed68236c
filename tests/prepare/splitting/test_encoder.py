from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.splitting.encoder import fit_column, make_encoder, quantile_edges
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.conftest import HOUSING, make_people

FEATURES = {
    "numeric": ["income"],
    "quantile": {"columns": ["points"], "bins": 4},
    "categorical": ["city", "origin"],
    "binary": {"owner": True},
    "passthrough": ["age"],
}
MISSING = {"numeric": "median", "categorical": "category"}


def config_of(features=FEATURES, missing=MISSING):
    return parse(DatasetConfig, {**HOUSING, "features": features, "missing": missing}, "f")


def table():
    frame = make_people()
    frame["city"] = frame["city"].fillna("missing").astype("str")
    frame["owner"] = frame["owner"].astype("str")
    frame["points"] = frame["points"].astype(float)
    return frame


def fit(frame, config=None):
    config = config or config_of()
    fitted = {name: fit_column(frame[name], config, "f") for name in frame}
    return make_encoder(config, fitted, {}, "f")


@settings(max_examples=15)
@given(st.integers(0, 2**31))
def test_the_order_of_rows_does_not_matter(seed):
    frame = table()
    order = np.random.default_rng(seed).permutation(len(frame))
    encoder, other = fit(frame), fit(frame.iloc[order])
    assert np.array_equal(encoder.encode(frame.iloc[order]), encoder.encode(frame)[order])
    assert encoder.feature_names == other.feature_names
    assert np.allclose(encoder.encode(frame), other.encode(frame), atol=1e-12)


def test_encoding_is_what_scikit_learn_transforms():
    train, test = table().iloc[:300], table().iloc[300:]
    encoder = fit(train)
    X = encoder.encode(test)
    income = train["income"].fillna(train["income"].median())
    scaler = StandardScaler().fit(income.to_numpy()[:, None])
    filled = test["income"].fillna(train["income"].median()).to_numpy()
    assert np.allclose(X[:, 0], scaler.transform(filled[:, None])[:, 0], atol=1e-12)
    onehot = OneHotEncoder(sparse_output=False).fit(train[["city", "origin"]].astype(object))
    spans = encoder.spans(["city", "origin"])
    columns = np.r_[spans["city"][0], spans["origin"][0]]
    assert np.array_equal(X[:, columns], onehot.transform(test[["city", "origin"]].astype(object)))
    assert encoder.feature_names[-1] == "age"
    age = test["age"].fillna(train["age"].median())
    assert np.array_equal(X[:, -1], age.to_numpy())
    assert np.array_equal(X[:, -2], (test["owner"] == "True").to_numpy().astype(float))


def test_quantile_bins_hold_equal_shares_of_train():
    frame = table()
    frame["points"] = np.random.default_rng(0).permutation(400).astype(float)
    encoder = fit(frame)
    X = encoder.encode(frame)[:, encoder.spans(["points"])["points"][0]]
    assert encoder.feature_names[1:5] == ("points_q1", "points_q2", "points_q3", "points_q4")
    assert X.sum(axis=0).tolist() == [100] * 4
    assert (X.sum(axis=1) == 1).all()
    order = np.argsort(frame["points"].to_numpy())
    assert (np.diff(X.argmax(axis=1)[order]) >= 0).all()


def test_quantiles_that_tie_make_fewer_bins():
    assert quantile_edges(np.array([0.0] * 9 + [5.0]), 4) == ()
    assert quantile_edges(np.array([0.0] * 6 + [1.0, 2.0, 3.0, 4.0]), 4) == (1.75,)
    assert quantile_edges(np.arange(5.0), 2) == (2.0,)


def test_cut_columns_are_those_of_pandas():
    frame = table()
    frame["points"] = np.random.default_rng(0).integers(-3, 60, 400).astype(float)
    edges = (1.0, 20.0, 41.5)
    config = config_of({"cut": {"points": list(edges)}}, {})
    encoder = fit(frame, config)
    X = encoder.encode(frame)
    assert encoder.feature_names == ("points_bin1", "points_bin2", "points_bin3", "points_bin4")
    wanted = pd.cut(frame["points"], [-np.inf, *edges, np.inf], labels=False)
    assert np.array_equal(X.argmax(axis=1), wanted)
    assert (X.sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"cut": {"points": [3, 3]}}, r"edges of cut\.points do not rise"),
        ({"cut": {"points": []}}, r"cut\.points"),
        (
            {"cut": {"points": [1]}, "quantile": {"columns": ["points"], "bins": 2}},
            "points is listed under quantile and under cut",
        ),
    ],
)
def test_cuts_that_cannot_be_are_refused(features, message):
    with pytest.raises(ConfigError, match=message):
        config_of(features, {})


def test_means_fill_with_the_training_mean():
    frame = table()
    config = config_of({"numeric": ["income"]}, {"numeric": "mean"})
    (block,) = fit_column(frame["income"], config, "f").values()
    assert np.isclose(block.fill, frame["income"].mean())
    frame["income"] = np.nan
    with pytest.raises(DataError, match="'income' has no value in train"):
        fit_column(frame["income"], config, "f")


def test_a_constant_column_becomes_zero():
    frame = table()
    frame["income"] = 7.0
    X = fit(frame).encode(frame)
    assert (X[:, 0] == 0).all()


def test_unseen_levels_are_zeros_and_declared_ones_stay():
    frame = table()
    features = {"categorical": ["city"], "levels": {"city": ["Bonn", "Köln", "Trier", "Ulm"]}}
    encoder = fit(frame, config_of(features))
    assert encoder.feature_names == ("city_Bonn", "city_Köln", "city_Trier", "city_Ulm")
    frame.loc[::2, "city"] = "Essen"
    X = encoder.encode(frame)
    assert np.array_equal(X.sum(axis=1), ~frame["city"].isin(["Essen", "missing"]).to_numpy())


@pytest.mark.parametrize("levels", [["Bonn", "Ulm"], ["bonn", "Koln", "Ulm"]])
def test_levels_that_are_declared_are_all_that_training_rows_have(levels):
    features = {"categorical": ["city"], "levels": {"city": levels}}
    with pytest.raises(ConfigError, match=r"f: features.levels: column 'city' holds the level '"):
        fit(table(), config_of(features))


def test_a_level_named_missing_is_declared_where_it_is_no_missing_cell():
    features = {"categorical": ["city"], "levels": {"city": ["Bonn", "Köln", "Ulm"]}}
    assert "missing" in set(table()["city"])
    fit(table(), config_of(features, {"categorical": "category"}))
    with pytest.raises(ConfigError, match="holds the level 'missing'"):
        fit(table(), config_of(features, {"categorical": "drop"}))


def test_cells_encode_as_rows_do():
    frame = table()
    encoder = fit(frame)
    edited = frame.assign(city="Ulm", income=12.5, points=3.0)
    cells = encoder.encode_cells({"city": "Ulm", "income": "12.5", "points": "3"})
    expected = encoder.encode(edited)
    assert all(np.array_equal(expected[:, index], np.full(400, value)) for index, value in
               cells.items())  # fmt: skip
    rest = [index for index in range(expected.shape[1]) if index not in cells]
    assert np.array_equal(encoder.encode(frame)[:, rest], expected[:, rest])
