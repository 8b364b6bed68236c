"""Metrics under fairlearn's names give what fairlearn gives, and refuse what it refuses."""

from __future__ import annotations

import functools
import inspect
import itertools
import subprocess
import sys
import time
import warnings

import fairlearn.metrics as theirs
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as skm

import fairfrontier.metrics as ours
from fairfrontier.metrics import frame

METHODS = ("between_groups", "to_overall")
ERRORS = ("raise", "coerce")
NAMED = (
    "count",
    "mean_prediction",
    "selection_rate",
    "true_positive_rate",
    "true_negative_rate",
    "false_positive_rate",
    "false_negative_rate",
)


def predict_wrong(y_true, y_pred):
    """A metric that is no scalar."""
    return np.array([np.sum(y_true != y_pred), len(y_true)])


def name_first(y_true, y_pred):
    return str(y_pred[0])


def say_nothing(y_true, y_pred, sample_weight=None):
    return None if len(y_true) < 3 else 0.25


def need_three(y_true, y_pred, sample_weight=None):
    if len(y_true) < 3:
        raise RuntimeError("fewer than three")
    return float(len(y_true))


def weigh(y_true, y_pred, sample_weight=None, other=None):
    return len(y_true) + (0 if other is None else float(np.sum(other)))


OTHERS = (
    skm.accuracy_score,
    skm.zero_one_loss,
    skm.balanced_accuracy_score,
    skm.precision_score,
    skm.recall_score,
    skm.f1_score,
    skm.mean_absolute_error,
    skm.roc_auc_score,
    functools.partial(skm.accuracy_score),
    functools.partial(skm.fbeta_score, beta=0.5),
    predict_wrong,
    name_first,
    say_nothing,
    need_three,
    weigh,
    None,
    "accuracy",
)
LABELS = {
    "numbers": st.sampled_from([0, 1]),
    "truth": st.booleans(),
    "floats": st.sampled_from([0.0, 1.0]),
    "signs": st.sampled_from([-1, 1]),
    "texts": st.sampled_from(["no", "yes"]),
    "classes": st.sampled_from([0, 1, 2]),
    "values": st.sampled_from([0.25, 0.5, 1.5]),
}
LEVELS = {
    "texts": st.sampled_from(["a", "b", "cc"]),
    "numbers": st.sampled_from([3, -1, 10]),
    "truth": st.booleans(),
    "floats": st.sampled_from([0.5, 2.0]),
    "mixed": st.sampled_from(["a", 1]),
    "missing": st.sampled_from(["a", "b", None]),
    "nan": st.sampled_from([1.0, float("nan")]),
    "days": st.sampled_from([pd.Timestamp("2026-01-01"), pd.Timestamp("2025-01-01")]),
}
COMMON = st.sampled_from(["texts", "texts", "texts", "numbers", "truth", *LEVELS])


@st.composite
def columns(draw, n):
    """Return labels or predictions in a container of any kind."""
    kind = draw(st.sampled_from(["numbers", "numbers", "truth", *LABELS]))
    values = draw(st.lists(LABELS[kind], min_size=n, max_size=n))
    wrap = draw(st.sampled_from([list, np.array, pd.Series, pd.DataFrame, tuple, np.int8, "row"]))
    if wrap is np.int8:
        return np.array(values, dtype=np.int8) if kind in ("numbers", "signs") else values
    return np.array(values)[:, None] if wrap == "row" else wrap(values)


@st.composite
def features(draw, n):
    """Return sensitive or control features of any kind, some of them refused."""
    width = draw(st.integers(1, 2))
    rows = n if draw(st.integers(0, 20)) else n + 1
    lists = [
        draw(st.lists(LEVELS[draw(COMMON)], min_size=rows, max_size=rows)) for _ in range(width)
    ]
    names = draw(st.sampled_from([["sex", "race"], ["race", "age"], ["sex", "sex"], ["sex", 5]]))
    kind = draw(
        st.sampled_from(
            ["list", "array", "object", "series", "named", "category", "frame", "dict", "2d", "bad"]
        )
    )
    first = lists[0]
    table = pd.concat([pd.Series(each) for each in lists], axis=1)
    table.columns = names[:width]
    wide = np.empty((rows, width), dtype=object)
    for i, each in enumerate(lists):
        wide[:, i] = each
    return {
        "list": lambda: first,
        "array": lambda: np.array(first),
        "object": lambda: np.array(first, dtype=object),
        "series": lambda: pd.Series(first),
        "named": lambda: pd.Series(first, name=names[-1], index=range(5, 5 + rows)),
        "category": lambda: pd.Series(first, name="c").astype("category"),
        "frame": lambda: table,
        "dict": lambda: dict(zip(names, lists, strict=False)),
        "2d": lambda: wide,
        "bad": lambda: [[each] for each in first],
    }[kind]()


@st.composite
def cases(draw):
    n = draw(st.integers(1, 14))
    chosen = draw(st.lists(st.sampled_from([*NAMED, *OTHERS[:-2]]), min_size=0, max_size=3))
    single = draw(st.booleans())
    if single:
        chosen = [draw(st.sampled_from([*NAMED, *OTHERS]))]
    names = [f"m{i}" for i in range(len(chosen))]

    def parameters():
        weights = st.sampled_from([0, 1, 2, 0.1, 0.7])
        if not draw(st.integers(0, 3)):
            weights = st.just(3)
        size = n if draw(st.integers(0, 15)) else n + 2
        value = draw(st.none() | st.lists(weights, min_size=size, max_size=size))
        return {draw(st.sampled_from(["sample_weight"] * 5 + ["other"])): value}

    samples = None
    # Of no metric, fairlearn has no intervals.
    some = bool(chosen)
    if draw(st.booleans()):
        samples = parameters() if single else {name: parameters() for name in names}
        if not draw(st.integers(0, 10)):
            samples = draw(st.sampled_from([[1], {"sample_weight": 5}, {"m7": {}}]))
    keywords = {"sample_params": samples, "control_features": None}
    if some:
        keywords["control_features"] = draw(st.none() | features(n))
    if some and not draw(st.integers(0, 4)):
        keywords |= {
            "n_boot": draw(st.sampled_from([3, 0, None, 2.5])),
            "ci_quantiles": draw(st.sampled_from([[0.1, 0.5], [0.5], [1], [], None])),
            "random_state": draw(st.sampled_from([0, 7, "seed"])),
        }
    return {
        "chosen": chosen,
        "names": None if single else names,
        "y_true": draw(columns(n)),
        "y_pred": draw(columns(n)),
        "sensitive_features": draw(features(n)),
        **keywords,
    }


def observe(compute):
    """Return what is computed, or the error, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = compute()
        except Exception as error:
            found = error
    return found, {str(each.message) for each in caught}


def same(one, other):
    if isinstance(other, Exception):
        assert type(one) is type(other), (one, other)
        if type(other) is ValueError and "feature" in str(other).lower():
            assert str(one) == str(other)
    elif isinstance(other, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    elif isinstance(other, pd.Series):
        pd.testing.assert_series_equal(one, other, check_exact=True)
    elif isinstance(other, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            same(*pair)
    else:
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)


def build(library, chosen, names, **keywords):
    functions = [getattr(library, each) if each in NAMED else each for each in chosen]
    metrics = functions[0] if names is None else dict(zip(names, functions, strict=True))
    return library.MetricFrame(metrics=metrics, **keywords)


def look(built):
    """Yield all that a frame can be asked for, by what it is called."""
    names = ("overall", "by_group", "control_levels", "sensitive_levels", "n_boot", "ci_quantiles")
    for name in (*names, "overall_ci", "by_group_ci"):
        yield name, lambda name=name: getattr(built, name)
    for name in ("group_min", "group_max"):
        yield f"{name}_ci", getattr(built, f"{name}_ci")
        for errors in (*ERRORS, "ignore"):
            yield f"{name} {errors}", functools.partial(getattr(built, name), errors)
    for name, method in itertools.product(("difference", "ratio"), (*METHODS, "nearest")):
        yield f"{name}_ci {method}", functools.partial(getattr(built, f"{name}_ci"), method)
        for errors in (*ERRORS, "ignore"):
            find = functools.partial(getattr(built, name), method=method, errors=errors)
            yield f"{name} {method} {errors}", find


@settings(max_examples=300)
@given(case=cases())
def test_a_metric_frame_is_fairlearns(case):
    (own, warned), (other, also) = (
        observe(lambda library=library: build(library, **case)) for library in (ours, theirs)
    )
    if isinstance(other, Exception):
        same(own, other)
        return
    assert not isinstance(own, Exception), own
    # Ours warns of intervals when they are asked for.
    assert warned == also or "n_boot" in case
    for (name, find), (_, wanted) in zip(look(own), look(other), strict=True):
        pair = observe(find)[0], observe(wanted)[0]
        # Of values that are no numbers it depends on their order which one raises.
        if name.startswith("ratio to_overall") and all(isinstance(e, Exception) for e in pair):
            continue
        try:
            same(*pair)
        except AssertionError as error:
            error.add_note(name)
            raise


def test_no_metric_has_no_values():
    built = (
        library.MetricFrame(metrics={}, y_true=[0, 1], y_pred=[0, 1], sensitive_features=["a", "b"])
        for library in (ours, theirs)
    )
    own, other = ([each.overall, each.by_group, each.difference()] for each in built)
    same(own, other)


# Functions of the whole.


def call(library, name, y_true, y_pred, keywords):
    return observe(lambda: getattr(library, name)(y_true, y_pred, **keywords))


@settings(max_examples=150)
@given(data=st.data(), n=st.integers(1, 10))
def test_metrics_of_labels_are_fairlearns(data, n):
    name = data.draw(st.sampled_from(NAMED))
    keywords = {}
    if data.draw(st.booleans()) and name != "mean_prediction":
        keywords["pos_label"] = data.draw(st.sampled_from([0, 1, "yes", 7, None]))
    if data.draw(st.booleans()):
        keywords["sample_weight"] = data.draw(
            st.lists(st.sampled_from([0, 1, 2.5]), min_size=n, max_size=n)
        )
    y_true, y_pred = data.draw(columns(n)), data.draw(columns(n))
    (own, warned), (other, also) = (
        call(library, name, y_true, y_pred, keywords) for library in (ours, theirs)
    )
    assert warned == also
    same(own, other)


PARITY, ODDS = ("demographic_parity", "equal_opportunity"), "equalized_odds"
DISPARITIES = [f"{name}_{kind}" for name in (*PARITY, ODDS) for kind in ("difference", "ratio")]
GENERATED = sorted({*theirs.__all__} - {*DISPARITIES, *NAMED})
GENERATED = [name for name in GENERATED if name not in ("MetricFrame", "make_derived_metric")]
GENERATED = [name for name in GENERATED if not name.startswith("plot")]


@settings(max_examples=200)
@given(data=st.data(), n=st.integers(2, 14))
def test_disparities_and_derived_metrics_are_fairlearns(data, n):
    name = data.draw(st.sampled_from(DISPARITIES + GENERATED))
    keywords = {"sensitive_features": data.draw(features(n))}
    if data.draw(st.booleans()):
        keywords["method"] = data.draw(st.sampled_from([*METHODS, "nearest"]))
    if data.draw(st.booleans()):
        keywords["sample_weight"] = data.draw(
            st.lists(st.sampled_from([1, 2, 0.3]), min_size=n, max_size=n)
        )
    if name.startswith(ODDS) and data.draw(st.booleans()):
        keywords["agg"] = data.draw(st.sampled_from(["worst_case", "mean", "best"]))
    if name in GENERATED and not data.draw(st.integers(0, 3)):
        keywords["pos_label"] = 0
    y_true, y_pred = data.draw(columns(n)), data.draw(columns(n))
    (own, warned), (other, also) = (
        call(library, name, y_true, y_pred, keywords) for library in (ours, theirs)
    )
    assert warned == also
    same(own, other)


def test_every_public_name_has_fairlearns_signature():
    assert {*theirs.__all__} <= {*ours.__all__} == {*dir(ours)} & {*ours.__all__}
    for name in theirs.__all__:
        own, other = getattr(ours, name), getattr(theirs, name)
        assert own.__name__ == other.__name__ == name
        pairs = [(own, other)]
        if inspect.isclass(own):
            public = [each for each in vars(other) if not each.startswith("_")]
            assert {*public} <= {*dir(own), "overall", "by_group", "ci_quantiles", "n_boot"}
            pairs += [(getattr(own, each, None), getattr(other, each)) for each in public]
        for one, two in pairs:
            if callable(two) and name not in GENERATED:
                given = [(each.name, each.default, each.kind) for each in parameters(one)]
                wanted = [(each.name, each.default, each.kind) for each in parameters(two)]
                assert given == wanted, name
    with pytest.raises(AttributeError, match="'recall'"):
        ours.recall  # noqa: B018


def parameters(function):
    return inspect.signature(function).parameters.values()


def takes_method(y_true, y_pred, method=None):
    return 0.0


@pytest.mark.parametrize(
    "keywords",
    [
        {"metric": "accuracy", "transform": "ratio"},
        {"metric": takes_method, "transform": "ratio"},
        {"metric": skm.recall_score, "transform": "sum"},
        {"metric": skm.recall_score},
        {"metric": skm.recall_score, "transform": "ratio", "names": ["sample_weight"]},
    ],
)
def test_what_makes_no_derived_metric_is_refused_alike(keywords):
    own, other = (
        observe(lambda library=library: library.make_derived_metric(**keywords))[0]
        for library in (ours, theirs)
    )
    assert type(own) is type(other)
    if isinstance(other, ValueError):
        assert str(own) == str(other)


@pytest.mark.parametrize("names", [None, [], ["other"], ["sample_weight", "other"]])
@pytest.mark.parametrize("transform", ["difference", "group_max"])
def test_sample_parameters_of_derived_metrics_are_divided_alike(names, transform):
    keywords = {"metric": weigh, "transform": transform, "sample_param_names": names}
    own, other = (
        observe(
            lambda library=library: library.make_derived_metric(**keywords)(
                [0, 1, 1], [1, 1, 0], sensitive_features=["a", "a", "b"], other=[1, 2, 4]
            )
        )[0]
        for library in (ours, theirs)
    )
    same(own, other)


def test_generated_samples_and_states_are_alike():
    rng = np.random.default_rng(0)
    y, predicted = rng.integers(0, 2, (2, 60))
    groups, weight = rng.choice(["a", "b"], 60), rng.random(60)
    for state in (np.random.RandomState, lambda seed: seed):
        own, other = (
            library.MetricFrame(
                metrics=library.selection_rate,
                y_true=y,
                y_pred=predicted,
                sensitive_features=groups,
                sample_params={"sample_weight": weight},
                n_boot=8,
                ci_quantiles=[0.1, 0.9],
                random_state=state(3),
            )
            for library in (ours, theirs)
        )
        for (_, find), (_, wanted) in zip(look(own), look(other), strict=True):
            same(observe(find)[0], observe(wanted)[0])


# What counting is for.


def test_many_rows_are_counted_and_weights_of_any_kind_added_up():
    rng = np.random.default_rng(0)
    n = frame.MANY_ROWS
    y, predicted = rng.integers(0, 2, (2, n))
    groups, weight = rng.choice(["a", "b", "c"], n), rng.random(n)
    known = {each.__name__: each for each in OTHERS[:6]} | {
        name: getattr(ours, name) for name in NAMED if name != "count"
    }
    found = ours.MetricFrame(
        metrics=known,
        y_true=y,
        y_pred=predicted,
        sensitive_features=groups,
        sample_params={name: {"sample_weight": weight} for name in known},
    )
    for name, metric in known.items():
        for group in "abc":
            own = groups == group
            wanted = metric(y[own], predicted[own], sample_weight=weight[own])
            # Sums of n terms, in another order.
            assert found.by_group.loc[group, name] == pytest.approx(wanted, rel=n * 2.3e-16)


@pytest.mark.slow
def test_a_million_rows_take_seconds():
    rng = np.random.default_rng(0)
    y, predicted = rng.integers(0, 2, (2, 1_000_000))
    groups = rng.choice(["a", "b", "c"], y.size)
    known = {"accuracy": skm.accuracy_score, "rate": ours.selection_rate}
    begin = time.process_time()
    ours.MetricFrame(metrics=known, y_true=y, y_pred=predicted, sensitive_features=groups)
    assert time.process_time() - begin < 5


def test_the_package_is_imported_without_libraries():
    code = (
        "import sys; before = set(sys.modules); import fairfrontier as ff; ff.metrics.__all__\n"
        "print(*{name.partition('.')[0] for name in sys.modules.keys() - before})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= {"fairfrontier", *sys.stdlib_module_names}


# Pictures.


def draw(library, name, *arguments, **keywords):
    axes = getattr(library, name)(*arguments, **keywords)
    points = [each.get_offsets().tolist() for each in axes.collections]
    lines = [(each.get_label(), each.get_xydata().tolist()) for each in axes.lines]
    texts = [(each.get_text(), each.get_position()) for each in axes.texts]
    found = (axes.get_xlabel(), axes.get_ylabel(), axes.get_title(), points, lines, texts)
    axes.figure.clear()
    return found


Y, PREDICTED = [0, 1, 0, 1, 1, 0], [[0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 0]]
GROUPS = {
    "one": list("aabbab"),
    "two": pd.DataFrame({"sex": list("aabbab"), "age": list("x,xx,x")}),
}


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"y_preds": {"tree": PREDICTED[0], "net": PREDICTED[1]}, "point_labels": True},
        {"point_labels": ["p", "q"], "point_labels_position": (0.1, 2)},
        {"y_preds": PREDICTED[0], "axis_labels": ["x", "y"], "legend": True, "label": "models"},
        {"x_axis_metric": "derived", "point_labels": True},
        {"y_preds": [[0, 1]]},
        {"y_true": None},
        {"sensitive_features": None},
        {"axis_labels": 3},
        {"show_plot": 1},
        {"point_labels": "p"},
        {"point_labels_position": ("a", "b")},
    ],
)
def test_models_are_compared_in_fairlearns_picture(groups, keywords, caplog):
    def compare(library):
        given = {
            "y_preds": PREDICTED,
            "y_true": Y,
            "sensitive_features": GROUPS[groups],
            "x_axis_metric": skm.accuracy_score,
            "y_axis_metric": library.demographic_parity_difference,
            **keywords,
        }
        if given["x_axis_metric"] == "derived":
            given["x_axis_metric"] = library.make_derived_metric(
                metric=skm.recall_score, transform="group_min"
            )
        return draw(library, "plot_model_comparison", **given)

    own, other = (
        observe(lambda library=library: compare(library))[0] for library in (ours, theirs)
    )
    assert type(own) is type(other), (own, other)
    assert repr(own) == repr(other) or isinstance(other, Exception)


@pytest.mark.parametrize("groups", [*GROUPS.values(), ["a", None, "a", "b", "b", "a"], ["a"]])
@pytest.mark.parametrize("shown", [{}, {"plot_overall": False, "title": "scores"}])
def test_roc_curves_are_fairlearns_picture(groups, shown):
    own, other = (
        observe(
            lambda library=library: draw(
                library,
                "plot_roc_curve_by_group",
                Y,
                [0.1, 0.4, 0.3, 0.9, 0.6, 0.2],
                sensitive_features=groups,
                **shown,
            )
        )[0]
        for library in (ours, theirs)
    )
    assert type(own) is type(other), (own, other)
    assert repr(own) == repr(other) or isinstance(other, Exception)
