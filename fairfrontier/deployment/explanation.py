"""Shapley values of a model's score: what every column of a table adds to it, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost

from fairfrontier.deployment.bundle import (
    Bundle,
    ClassifierBundle,
    Mixture,
    OneClass,
    RegressorBundle,
    load_bundle,
    view_binary,
)
from fairfrontier.deployment.config import ROWS, ExplainConfig
from fairfrontier.deployment.scoring import Progress, read_frames, read_headers
from fairfrontier.figure.frontier import (
    COLOURS,
    GREY,
    HEADING,
    INK,
    MARKERS,
    add_grid,
    add_panels,
    encode_png,
    open_figure,
    shorten,
)
from fairfrontier.models.base import Regressor
from fairfrontier.models.baseline.gbdt import GBDTRegression, Project
from fairfrontier.models.baseline.linear import Linear
from fairfrontier.models.individual.budro.estimator import BuDRO
from fairfrontier.models.thresholds.base import GroupRule
from fairfrontier.models.tree.boosting import BoostedTrees
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.splitting.encoder import GROUP_PREFIX
from fairfrontier.prepare.table.frame import to_pandas
from fairfrontier.prepare.table.reader import check_stamps, stamp_table
from fairfrontier.report.finding import name_pool
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.option import RESULTS, check_again
from fairfrontier.runtime.seeds import derive_integer, uniforms
from fairfrontier.runtime.text_file import to_csv
from fairfrontier.runtime.writer import filling
from fairfrontier.study.drawing import Picture

# Orders of the columns that are drawn where there is no formula; each is walked both ways.
ORDERS, SEED = 32, 0
# Those of a card, and the trees' predictions that it may ask for: less than 2 s of one core. Counts
# bound it, not a clock, so that a card is the same on any machine.
CARD_ORDERS, CARD_WORK = 16, 12_000_000
# Rows of so many numbers are predicted at a time.
BATCH = 1 << 22
TREES = (BoostedTrees, BuDRO, GBDTRegression)
# A tree's prediction of a row takes as long as so many numbers of training rows to a neighbour's.
NUMBERS_A_TREE, LEAST_TREES = 1_000, 20.0
# Of a regression's scores.
UNITS = "units of the label"


@dataclass(frozen=True, eq=False)
class Attribution:
    """What columns add to the score of rows.

        score(x_i) = base + Σ_j values_ij

    ``values`` is float64 (n_samples, n_columns), and ``unit`` that of the score: ``log-odds`` of
    P(Y=1|x), ``probability``, P(Y=1|x) itself, or ``units of the label``, a regression's.
    """

    values: np.ndarray
    base: float
    unit: str


def attribute_score(
    model: Any, X: np.ndarray, spans: Sequence[Sequence[slice]], orders: int | None = None
) -> Attribution:
    """Attribute the score of every row to columns of the table, by Shapley values.

        φ_j(x) = mean over the orders of the columns of v(those before j, and j) − v(those before j)

    where v(S) is the expected score when the columns S are those of x. Trees of XGBoost average
    over the training rows of each node, by their second derivatives (TreeSHAP). Elsewhere the
    columns outside S are those of a row of X, in logistic regression of its mean:
    φ_j = w_j (x_j − mean x_j). Both are exact on log-odds, and a column has the sum over the
    features that it is encoded as. All other models are asked for probabilities, which may be 0 or
    1, and of a regression for predictions, along drawn orders of the columns.

    Parameters
    ----------
    model : estimator or Mixture
        Of two classes, or a regression. Of a post-processed model the score is attributed, not the
        rule.
    X : ndarray of float64, shape (n_samples, n_features)
        Encoded rows, at least one.
    spans : sequence of sequences of slice
        The features that each column is encoded as; together all of them.
    orders : int, optional
        How many are drawn where there is no formula, ``ORDERS`` by default.

    Notes
    -----
    TreeSHAP costs O(n T L D²) for T trees of L leaves and depth D, logistic regression O(n d), all
    others at most 2 · orders · n_columns predictions of n rows, many at a time. Drawn values add up
    exactly; their own error falls with the root of ``orders``.

    References
    ----------
    S. Lundberg, G. Erion, S.-I. Lee. Consistent individualized feature attribution for tree
    ensembles. arXiv 1802.03888, Algorithm 2. E. Štrumbelj, I. Kononenko. Explaining prediction
    models and individual predictions with feature contributions. KAIS 41, 2014, equation 10 and
    Algorithm 1; R. Mitchell et al. Sampling permutations for Shapley value estimation. JMLR 23,
    2022 (an order and its reverse).
    """
    if isinstance(model, GroupRule):
        model = model.estimator_
    number = isinstance(model, Regressor)
    if has_formula(model) and not isinstance(model, Linear):
        rows = xgboost.DMatrix(X, nthread=model.n_jobs)
        found = model.booster_.predict(rows, pred_contribs=True).astype(np.float64)
        unit = UNITS if number else "log-odds"
        return Attribution(_add_up(found[:, :-1], spans), float(found[0, -1]), unit)
    if number:
        return _draw(model.predict, X, spans, orders, UNITS)
    if isinstance(model, Linear):
        coefficient = model.coefficient_[1] - model.coefficient_[0]
        mean = X.mean(axis=0)
        base = coefficient @ mean + model.intercept_[1] - model.intercept_[0]
        return Attribution(_add_up(coefficient * (X - mean), spans), float(base), "log-odds")
    return _draw(lambda rows: _predict(model, rows), X, spans, orders)


def has_formula(model: Any) -> bool:
    """Return whether values of a model, without a rule behind it, are exact and cost little."""
    # Trees on x Σ do not split by columns, and a margin of the logistic loss is no prediction. What
    # methods of other packages keep as their booster may be anybody's, and of other inputs.
    split = not isinstance(model, Project) and getattr(model, "loss", "square") == "square"
    return isinstance(model, Linear) or (isinstance(model, TREES) and split)


def count_rows(bundle: Bundle) -> int:
    """Return how many rows a card explains: ``ROWS``, or what ``CARD_WORK`` allows."""
    ruled = isinstance(bundle.model, GroupRule)
    model = bundle.model.estimator_ if ruled else bundle.model
    if has_formula(model):
        return ROWS
    walks = 2 * CARD_ORDERS * len(find_spans(bundle.encoder))
    return max(1, min(ROWS, int(CARD_WORK / (walks * _weigh(model)))))


def _weigh(model: Any) -> float:
    """Return about how many trees' predictions of a row take as long as one of the model."""
    if isinstance(model, Mixture):
        return _weigh(model.first) + _weigh(model.second)
    if isinstance(model, GroupRule):
        return _weigh(model.estimator_)
    if isinstance(model, OneClass):
        return _weigh(model.model)
    if parts := getattr(model, "classifiers_", ()):
        return sum(map(_weigh, parts))
    # Neighbours are looked for among all training rows.
    near = getattr(model, "rows_", np.empty(0)).size / NUMBERS_A_TREE
    return max(near, float(getattr(model, "n_estimators", None) or 1), LEAST_TREES)


def _add_up(values: np.ndarray, spans: Sequence[Sequence[slice]]) -> np.ndarray:
    """Return the sums of features' values by column."""
    sums = [sum(values[:, span].sum(axis=1) for span in each) for each in spans]
    return np.column_stack(sums)


def _predict(model: Any, X: np.ndarray) -> np.ndarray:
    """Return P(Y=1|x), of a mixture the mean over its models, without the rules behind them."""
    if isinstance(model, Mixture):
        first, second = _predict(model.first, X), _predict(model.second, X)
        return (1.0 - model.share) * first + model.share * second
    if isinstance(model, GroupRule):
        model = model.estimator_
    return np.asarray(model.predict_proba(X), dtype=np.float64)[:, 1]


def _draw(
    predict: Callable[[np.ndarray], np.ndarray],
    X: np.ndarray,
    spans: Sequence[Sequence[slice]],
    orders: int | None,
    unit: str = "probability",
) -> Attribution:
    """Attribute along drawn orders, each from a row of X; all rows share them, and so the base."""
    orders, generator = orders or ORDERS, np.random.default_rng(SEED)
    references = X[np.resize(generator.permutation(len(X)), orders)]
    starts, values = predict(references), np.zeros((len(X), len(spans)))
    drawn = [generator.permutation(len(spans)) for _ in references]
    size = max(1, BATCH // (2 * len(spans) * X.shape[1]))
    for first in range(0, len(X), size):
        block, added = X[first : first + size], values[first : first + size]
        for reference, start, order in zip(references, starts, drawn, strict=True):
            paths = np.stack([order, order[::-1]])
            states = np.tile(reference, (*paths.shape, len(block), 1))
            changed = np.zeros((*paths.shape, len(block)), dtype=bool)
            for side, step in np.ndindex(paths.shape):
                for span in spans[int(paths[side, step])]:
                    states[side, step:, :, span] = block[:, span]
                    differs = (block[:, span] != reference[span]).any(axis=1)
                    changed[side, step] |= differs
            score = np.full(changed.shape, start)
            # A column that is the same in both rows adds nothing.
            if changed.any():
                score[changed] = predict(states[changed])
            for side in (0, 1):
                before = np.full(len(block), start)
                for step, column in enumerate(paths[side]):
                    after = np.where(changed[side, step], score[side, step], before)
                    added[:, column] += (after - before) / (2 * orders)
                    before = after
    return Attribution(values, float(starts.mean()), unit)


COLUMNS_AT_MOST, LEVELS_AT_MOST, ATTRIBUTES_AT_MOST = 15, 6, 3
NAME_LENGTH = 28


def draw_explanation(table: pd.DataFrame, unit: str) -> Picture:
    """Draw the mean of |value| of the first columns, and beside it their mean value by group.

    ``table`` is as of `Explanation.tabulate`. A panel for each attribute; of more than
    ``ATTRIBUTES_AT_MOST`` attributes, or ``LEVELS_AT_MOST`` groups, the last or smallest are
    omitted.
    """
    overall = table[table["attribute"] == ""]
    columns = overall["column"].head(COLUMNS_AT_MOST).tolist()
    place = {column: -position for position, column in enumerate(columns)}
    shown = table[table["column"].isin(columns) & table["mean"].notna()]
    attributes = list(dict.fromkeys(shown["attribute"]))[1:]
    panels = attributes[:ATTRIBUTES_AT_MOST]
    words = []
    with open_figure(3.2 + 3.2 * (1 + len(panels)), 1.5 + 0.32 * len(columns), w_pad=0.1) as figure:
        first, *others = add_panels(figure, 1 + len(panels), 1 + len(panels), sharey=True)
        rows = shown[shown["attribute"] == ""]
        first.barh(rows["column"].map(place), rows["mean_abs"], 0.62, color=COLOURS[0])
        first.set_title("all rows", **HEADING)
        first.set_xlabel(f"mean |SHAP value|, {unit}")
        names = [shorten(column, NAME_LENGTH) for column in columns]
        first.set_yticks(list(place.values()), names)
        first.set_ylim(0.6 - len(columns), 0.6)
        words += [f"{row.column} {row.mean_abs:.3f}" for row in rows.itertuples()]
        for axes, attribute in zip(others, panels, strict=True):
            of_attribute = shown[shown["attribute"] == attribute]
            sizes = of_attribute.groupby("level", sort=False)["n"].first()
            kept = sizes.nlargest(LEVELS_AT_MOST).index
            axes.axvline(0.0, color=GREY, lw=1.0, zorder=1)
            for number, level in enumerate(level for level in sizes.index if level in kept):
                values = of_attribute[of_attribute["level"] == level]
                label = f"{shorten(level, NAME_LENGTH)} (n = {sizes[level]:,})"
                axes.plot(
                    values["mean"],
                    values["column"].map(place),
                    color=COLOURS[number],
                    marker=MARKERS[number],
                    ls="none",
                    ms=6,
                    label=label,
                )
            omitted = len(sizes) - len(kept)
            axes.set_title(f"{attribute} ({omitted} more)" if omitted else attribute, **HEADING)
            axes.set_xlabel(f"mean SHAP value, {unit}")
            axes.legend(
                fontsize=7.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16)
            )
        for axes in (first, *others):
            axes.tick_params(axis="y", length=0)
            add_grid(axes, "x")
        if len(overall) > len(columns):
            more = len(overall) - len(columns)
            told = f"{more} columns of smaller values are in explain.csv"
            figure.suptitle(told, fontsize=9, color=INK)
        png = encode_png(figure)
    told = ", ".join(words) or "too few rows"
    return Picture(png, f"Mean absolute SHAP value by column: {told}.")


FILES = RESULTS["explain"]
PASSES = ("reading", "explaining")


@dataclass(frozen=True, eq=False)
class Explanation:
    """What columns add to the scores of rows: score = ``base`` + the sum of a row's ``values``.

    Attributes
    ----------
    values : DataFrame of float64
        A row for every row that is not refused, by its index, and a column for every raw column
        that the model decides by.
    base : float
        The score that all rows start from.
    unit : str
        Of scores and values: log-odds, probability (of several classes that of one, by name), or
        units of the label; see `fairfrontier.deployment.explanation.attribute_score`.
    groups : DataFrame of categories
        The level of every attribute, missing where a row is of no known group.
    unseen : dict of str to int
        Column -> how many rows have a level of it that training had not: it adds as if it were
        none.
    """

    values: pd.DataFrame
    base: float
    unit: str
    groups: pd.DataFrame
    unseen: Mapping[str, int]

    def tabulate(self, minimum: int = 10) -> pd.DataFrame:
        """Return the means over all rows and over every group.

        Columns attribute and level (empty for all rows), n, column (those of the largest values
        first), ``mean_abs``, that of absolute values, and ``mean``. In a group the means add up to
        its mean score less the base. Levels of fewer than ``minimum`` rows are one; rows that are
        still fewer have no means.
        """
        order = self.values.abs().mean().sort_values(ascending=False, kind="stable").index
        tables = []
        for attribute, level, mask in self._list_groups(minimum):
            values = self.values.loc[mask, order]
            of_group = {"attribute": attribute, "level": level, "n": len(values), "column": order}
            means = {"mean_abs": values.abs().mean().array, "mean": values.mean().array}
            table = pd.DataFrame({**of_group, **means})
            if len(values) < minimum:
                table[["mean_abs", "mean"]] = np.nan
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    def _list_groups(self, minimum: int) -> Iterator[tuple[str, str, np.ndarray]]:
        """Yield attribute, level and mask: all rows, then the levels, the small ones as one."""
        yield "", "", np.ones(len(self.values), dtype=bool)
        for attribute, levels in self.groups.items():
            sizes = levels.value_counts(sort=False)
            for level in sizes.index[sizes >= minimum]:
                yield str(attribute), str(level), (levels == level).to_numpy()
            small = sizes.index[(sizes > 0) & (sizes < minimum)]
            if len(small):
                yield str(attribute), name_pool(len(small)), levels.isin(small).to_numpy()


def explain(
    bundle: Bundle | str | Path,
    frame: Any,
    accepted: str | None = None,
    *,
    orders: int | None = None,
) -> Explanation:
    """Explain the scores of a bundle on raw rows by SHAP values of the raw columns.

    Parameters
    ----------
    bundle : Bundle, str or Path
        What decides, or its folder.
    frame : DataFrame or object with ``__arrow_c_stream__``
        Raw columns, as `Bundle.decide` takes them. The rows are also what values are relative to.
    accepted : str, optional
        Of several classes the one whose probability is explained; that of the bundle by default.
    orders : int, optional
        Orders of the columns that are drawn where there is no formula, 32 by default.

    Returns
    -------
    Explanation

    Raises
    ------
    ConfigError
        When a column is missing, or there is no such class.
    DataError
        When every row is refused.
    StoreError
        When the bundle was altered.

    Notes
    -----
    See `attribute_score` for the definition, the cost and the sources.
    Values say what the model computes, not what causes the outcome. A rule behind the model, such
    as a cut for each group, is no part of the score.
    """
    bundle, frame = _load(bundle, accepted), to_pandas(frame)
    rows = bundle.encode(frame)
    kept = rows.refusals.accepted
    if not kept.any():
        reason = rows.refusals.reasons[0] if len(frame) else "there is none"
        raise DataError(f"No row can be explained: {reason}.", "Give rows that the bundle decides.")
    index = frame.index[kept]
    spans = find_spans(bundle.encoder)
    found = attribute_score(bundle.model, rows.X[kept], list(spans.values()), orders)
    values, base, unit = found.values, found.base, found.unit
    if isinstance(bundle.model, OneClass):
        unit = f"{unit} of {bundle.class_names[1]}"
    if isinstance(bundle, RegressorBundle):
        # Differences have no offset.
        values = bundle.encoder.unscale(values) - bundle.encoder.unscale(np.zeros(1))
        base = float(bundle.encoder.unscale(np.array(base)))
    groups = {
        attribute.name: pd.Categorical.from_codes(codes, pd.Index(attribute.names))
        for attribute, codes in zip(bundle.encoder.attributes, rows.groups[kept].T, strict=True)
    }
    return Explanation(
        values=pd.DataFrame(values, index, list(spans)),
        base=base,
        unit=unit,
        groups=pd.DataFrame(groups, index),
        unseen=rows.count_unseen(),
    )


def _load(bundle: Bundle | str | Path, accepted: str | None) -> Bundle:
    """Return what is explained: of several classes one, as one of two."""
    bundle = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    # Scores of a regression are numbers as they are.
    several = isinstance(bundle, ClassifierBundle) and bundle.several
    if accepted is not None and not several:
        raise ConfigError(
            "--accepted names one of several classes, and the bundle has none.", "Leave it out."
        )
    return view_binary(bundle, accepted) if several else bundle


def find_spans(encoder: RowEncoder) -> dict[str, tuple[slice, ...]]:
    """Return raw column -> its features; the columns of a crossing are one, as "sex × race"."""
    blocks = dict.fromkeys(block.column for block in encoder.encoder.blocks)
    spans: dict[str, tuple[slice, ...]] = {}
    for source, found in encoder.encoder.spans(blocks).items():
        name = source
        if source.startswith(GROUP_PREFIX):
            name = " × ".join(encoder.find_columns([source.removeprefix(GROUP_PREFIX)]))
        spans[name] = (*spans.get(name, ()), *found)
    return spans


def check_options(config: ExplainConfig) -> None:
    """Raise a FairfrontierError for whatever is known to be wrong before a row is read."""
    find_used(_load(config.bundle, config.accepted), config.table)
    config.check_results([config.table], FILES)


def find_used(bundle: Bundle, table: Path) -> dict[str, str]:
    """Return the columns of a table that are read: those of features, and of groups if there."""
    # What only some files have is left out.
    present = set.intersection(*({*names} for _, names in read_headers(bundle, table, {})))
    return dict.fromkeys(bundle.encoder.list_read(present, bundle.encoder.names), "bundle")


def explain_table(config: ExplainConfig, progress: Progress | None = None) -> Explanation:
    """Explain rows of a table that may be larger than memory; they are drawn by their numbers."""
    report = progress or (lambda *_: None)
    bundle = _load(config.bundle, config.accepted)
    stamps, used = stamp_table(config.table), find_used(bundle, config.table)
    drawn = pd.DataFrame()
    for frame in read_frames(bundle, config.table, used, lambda share: report(PASSES[0], share)):
        drawn = draw_rows(pd.concat([drawn, frame]), config.rows)
    check_stamps(config.table, stamps)
    explanation = explain(bundle, drawn)
    report(PASSES[1], 1.0)
    return explanation


def draw_rows(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Return at most so many rows, drawn by their index of whole numbers, in their order."""
    chance = uniforms(derive_integer("explain"), frame.index.to_numpy())
    return frame.iloc[np.sort(np.argsort(chance, kind="stable")[:rows])]


def write_explanation(explanation: Explanation, config: ExplainConfig) -> pd.DataFrame:
    """Write the ``FILES`` into the folder of the options, and return the table of explain.csv."""
    table = explanation.tabulate(config.minimum)
    check = check_again(config.folder, FILES, config.command)
    with filling(config.folder, FILES, check=check) as work:
        fill(work, explanation, table, draw_explanation(table, explanation.unit))
    return table


def fill(folder: Path, explanation: Explanation, table: pd.DataFrame, picture: Picture) -> None:
    """Write the table and the figure of an explanation into a folder."""
    written = table.assign(base=explanation.base, unit=explanation.unit)
    (folder / "explain.csv").write_bytes(to_csv(written))
    (folder / "explain.png").write_bytes(picture.png)
