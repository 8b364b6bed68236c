"""The audit of decisions on noisy groups: what can be said of the rates of the true ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from fairfrontier.auditing.figure import draw_bounds
from fairfrontier.auditing.option import AuditConfig
from fairfrontier.auditing.subject import Findings, Progress, read_subject
from fairfrontier.figure.frontier import name_measure
from fairfrontier.models.noisy.assignment import bound_rates
from fairfrontier.models.noisy.noise import NoiseModel, bound_rate_over_ball
from fairfrontier.models.noisy.rate import RATE_CELLS, RateCells, count_cells, find_rate, sum_cells
from fairfrontier.prepare.split import Split
from fairfrontier.prepare.table.reader import check_stamps, check_table, digest_table, stamp_table
from fairfrontier.prepare.table.role import AuditRows, Confusion, read_confusion, read_pairs
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.text_file import list_rows
from fairfrontier.study.drawing import Picture

READING, BOUNDING = PASSES = ("reading decisions", "bounding rates")
# Results grow with the square of the number of groups: a hundred give 20,000 conclusions.
GROUPS_AT_MOST = 100
Source = Literal["level", "confusion", "auxiliary", "injected"]
# The columns of the report's table of bounds.
KINDS = {
    "assignment": "Every assignment",
    "ball": "Ball",
    "theorem_1": "Theorem 1",
    "theorem_3": "Theorem 3",
}
SOURCES = {
    "level": "uniform flips of a given level",
    "confusion": "a given confusion matrix",
    "auxiliary": "an auxiliary table",
    "injected": "the training part, whose true groups are known",
}
Verdict = Literal["below", "above", "within", "open"]
RATES = tuple(RATE_CELLS)
# A difference this small is rounding.
ROUNDING = 1e-12
BOUND_COLUMNS = ["measure", "group", "bound", "noise", "level"]
BOUND_COLUMNS += ["value", "n", "low", "high", "guaranteed"]
CONCLUSION_COLUMNS = ["measure", "group", "other", "noise", "low", "high", "verdict"]
Limits = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class NoisyFindings(Findings):
    """What an audit of noisy groups found.

    Attributes
    ----------
    rows : AuditRows
        The audited rows, with the codes of the noise model's groups.
    noise : NoiseModel
        How noisy and true groups relate.
    source : {"level", "confusion", "auxiliary", "injected"}
        Where the noise model is from.
    bounds : DataFrame
        As in `NoisyAudit`, and rows of the bound ``truth`` where the true groups are known; n is 0
        where there are fewer rows than the minimum.
    conclusions : DataFrame
        As in `NoisyAudit`, with the columns seen and seen_verdict: the difference, and its verdict,
        if the noisy groups were the true ones.
    description : DataFrame
        `tabulate_noise`.
    """

    page = Path(__file__).with_name("noisy_groups.html.j2")

    rows: AuditRows
    noise: NoiseModel
    source: Source
    bounds: pd.DataFrame
    conclusions: pd.DataFrame
    description: pd.DataFrame

    @property
    def rests_on(self) -> Literal["model", "limit"]:
        """The noise that verdicts are based on: confidence limits where it was estimated."""
        return "model" if self.noise.counts is None else "limit"

    def verdicts(self) -> pd.DataFrame:
        """Return the conclusions that are reported."""
        table = self.conclusions
        return table.loc[table["noise"] == self.rests_on].reset_index(drop=True)

    def tabulate(self) -> dict[str, pd.DataFrame]:
        """Return the tables by name."""
        tables = {"bounds": self.bounds, "conclusions": self.conclusions}
        return {**tables, "noise": self.description}

    def draw(self) -> dict[str, Picture]:
        """Return the picture of the bounds."""
        return {"bounds": draw_bounds(self.bounds, self.config.budget, self.rests_on)}

    def summarise(self) -> dict[str, Any]:
        """Return what was audited and the results, as plain values; None for what is unknown."""
        config, noise = self.config, self.noise
        verdicts = [
            row | {"sentence": say(row, config.budget)} for row in list_rows(self.verdicts())
        ]
        held = sum(verdict["verdict"] != "open" for verdict in verdicts)
        source: dict[str, Any] = {"from": self.source, **config.list_changed(("level",))}
        for path in (config.confusion, config.auxiliary):
            if path is not None:
                source |= {"file": path.name, "sha256": digest_table(path)}
        source |= config.list_changed(("true_group",))
        if noise.counts is not None:
            source["rows"] = int(noise.counts.sum())
        source |= config.list_changed(("prior",))
        overall = list_rows(self.bounds.loc[self.bounds["bound"] == "overall"])
        return {
            "subject": self.subject,
            "noise": {
                **source,
                "groups": list(noise.names),
                "noisy_groups": list(noise.noisy_names),
                "confusion": noise.confusion.tolist(),
                "posterior": noise.posterior.tolist(),
            },
            "budget": config.budget,
            "confidence": config.confidence if self.rests_on == "limit" else None,
            "rates": list(config.rates),
            "rests_on": self.rests_on,
            "counts": {
                "rows": self.rows.weight.size,
                "noisy_groups": len(noise.noisy_names),
                "true_groups": len(noise.names),
                "conclusions": len(verdicts),
                "held": held,
                "open": len(verdicts) - held,
            },
            "overall": {row["measure"]: row["value"] for row in overall},
            "conclusions": verdicts,
        }

    def context(self) -> dict[str, Any]:
        """Return the bounds by rate and true group, and P(G=j | Ĝ=k) by noisy and true group."""
        bounds, noise = self.bounds, self.noise
        ends = [noise.posterior]
        if noise.counts is not None:
            ends += noise.interval(self.config.confidence).posterior
        used = bounds[bounds["noise"].isin(["", self.rests_on])]
        return {
            "kinds": KINDS,
            "bounds": {
                key: rows.set_index("bound").to_dict("index")
                for key, rows in used.groupby(["measure", "group"], sort=False)
            },
            "truth": (bounds["bound"] == "truth").any(),
            "levels": self.description.to_dict("records"),
            "posterior": list(zip(noise.noisy_names, np.stack(ends, axis=-1), strict=True)),
            "source": SOURCES[self.source],
        }


def say(row: Mapping[Any, Any], budget: float) -> str:
    """Return a conclusion as a sentence."""
    verdict, low, high = row["verdict"], row["low"], row["high"]
    subject = f"{name_measure(str(row['measure']))} of {row['group']}"
    other = f"that of {row['other']}" if row["other"] else "that of all rows"
    margin = f" by more than {budget:g}" if not row["other"] and budget > 0 else ""
    if verdict == "below":
        return f"{subject} is lower than {other}{margin}: by {-high:.3f} to {-low:.3f}."
    if verdict == "above":
        return f"{subject} is higher than {other}{margin}: by {low:.3f} to {high:.3f}."
    if verdict == "within":
        if row["other"] or budget == 0:
            return f"{subject} equals {other}."
        return f"{subject} is within {budget:g} of {other}: {low:+.3f} to {high:+.3f}."
    if low is None or high is None:
        return f"{subject} against {other} stays open: a group may have too few such rows."
    return f"{subject} against {other} stays open: {low:+.3f} to {high:+.3f}."


def check_noisy(config: AuditConfig) -> None:
    """Raise a FairfrontierError when a file or a column does not exist; no row is read."""
    if config.table is not None:
        check_table(config.table, config.columns().used())
        if config.auxiliary is not None:
            used = {str(config.true_group): "true-group", config.groups[0]: "groups"}
            check_table(config.auxiliary, used)
    if config.confusion is not None:
        check_table(config.confusion, {})


def run_noisy_audit(config: AuditConfig, progress: Progress | None = None) -> NoisyFindings:
    """Audit decisions on rows whose groups are noisy; see `audit_decisions` for the mathematics.

    Parameters
    ----------
    config : AuditConfig
        Which table or model, and what is known of the noise.
    progress : callable, optional
        Called with the name of a pass and the share of it that is done, from 0 to 1.

    Returns
    -------
    NoisyFindings
        Independent of the order of the table's rows.

    Raises
    ------
    ConfigError
        When a file, column, dataset or attribute does not exist, or the noise is impossible.
    DataError
        For a cell that cannot be used, and for noisy groups that the noise model does not know.
    StoreError
        When the model cannot be loaded.

    Notes
    -----
    O(n log n), memory 32 bytes a row of a table.
    """
    report = progress or (lambda *_: None)
    stamps = {path: stamp_table(path) for path in (config.confusion, config.auxiliary) if path}
    subject = read_subject(config, config.groups, lambda share: report(READING, share))
    rows, (noisy, *_) = subject.rows, subject.facts["groups"]
    report(READING, 1.0)
    _check_count(len(rows.attributes[noisy]), "noisy")
    noise, source = _find_noise(config, rows, noisy, subject.split)
    for path, before in stamps.items():
        check_stamps(path, before)
    _check_count(len(noise.names), "true")
    rows, truth = _recode(rows, noise.noisy_names, noise.names)
    # Selected are those with the favourable decision.
    of_rate = {name: rows.favour() if name == "selection_rate" else rows for name in config.rates}
    audits = [
        audit_decisions(
            np.asarray(own.decision),
            np.asarray(own.y),
            own.codes[:, 0],
            noise,
            weight=own.weight,
            rates=(name,),
            budget=config.budget,
            confidence=config.confidence,
        )
        for name, own in of_rate.items()
    ]
    bounds, conclusions = (pd.concat(each, ignore_index=True) for each in zip(*audits, strict=True))
    report(BOUNDING, 1.0)
    if truth is not None:
        known = [_tabulate_truth(own, truth, noise, name) for name, own in of_rate.items()]
        bounds = pd.concat([bounds, *known], ignore_index=True)
    _hide_small(bounds, conclusions, config.minimum)
    conclusions = _add_seen(conclusions, bounds, config.budget)
    description = tabulate_noise(noise, config.confidence)
    return NoisyFindings(
        config, subject.facts, rows, noise, source, bounds, conclusions, description
    )


def _check_count(count: int, kind: str) -> None:
    if count > GROUPS_AT_MOST:
        raise DataError(
            f"There are {count} {kind} groups, and the audit compares all pairs of them.",
            f"Give at most {GROUPS_AT_MOST}: merge small groups, or put numbers into ranges first.",
        )


def _find_noise(
    config: AuditConfig, rows: AuditRows, noisy: str, split: Split | None
) -> tuple[NoiseModel, Source]:
    """Return the noise model, and where it is from."""
    levels = rows.attributes[noisy]
    if config.level is not None:
        m = len(levels)
        if m < 2:
            raise DataError(
                f"All rows are of the group {levels[0]!r}, so there is no other to flip to.",
                "Name a column of groups that differ between rows.",
            )
        chance = np.full((m, m), config.level / (m - 1))
        np.fill_diagonal(chance, 1 - config.level)
        return _invert(config, rows, Confusion(chance, levels, levels)), "level"
    if config.confusion is not None:
        return _invert(config, rows, read_confusion(config.confusion)), "confusion"
    if config.auxiliary is not None:
        option = "groups" if config.model is None else "attribute"
        (true, names), (seen, noisy_names) = read_pairs(
            config.auxiliary, str(config.true_group), noisy, option=option
        )
        model = NoiseModel.from_table(true, seen, names=names, noisy_names=noisy_names)
        return model, "auxiliary"
    part = None if split is None else split.train
    if part is not None and part.true_groups is not None:
        column = list(part.attributes).index(noisy)
        true, seen = part.true_groups[:, column], part.groups[:, column]
        # Unless no noise was asked for, groups that nothing changed are not known to be true.
        if config.noise == 0 or (true != seen).any():
            names = tuple(part.attributes[noisy])
            return NoiseModel.from_table(true, seen, names=names), "injected"
    raise ConfigError(
        f"No noise was injected into {noisy!r} of {config.dataset}, and nothing else says how "
        "wrong its groups are.",
        "Give --level, --confusion, --auxiliary with --true-group, or another --dataset.",
    )


def _invert(config: AuditConfig, rows: AuditRows, confusion: Confusion) -> NoiseModel:
    """Return the model of a confusion matrix, with the requested prior or that of the shares."""
    names, noisy_names = confusion.names, confusion.noisy_names
    if config.prior is not None:
        unknown = [name for name in config.prior if name not in names]
        if unknown:
            raise ConfigError(
                f"--prior names the true group {unknown[0]!r}, which the noise does not know.",
                nearest(unknown[0], names),
            )
        prior = [config.prior.get(name, 0.0) for name in names]
        return NoiseModel.from_confusion(
            confusion.chance, prior=prior, names=names, noisy_names=noisy_names
        )
    rows, _ = _recode(rows, noisy_names)
    mass = np.bincount(rows.codes[:, 0], rows.weight, len(noisy_names))
    try:
        return NoiseModel.from_confusion(
            confusion.chance, noisy_prior=mass / mass.sum(), names=names, noisy_names=noisy_names
        )
    except ConfigError as error:
        raise ConfigError(
            error.fault,
            "Correct the noise, merge small groups in the table, or give the shares of the true "
            "groups with --prior.",
        ) from None


def _recode(
    rows: AuditRows, noisy_names: Sequence[str], names: Sequence[str] = ()
) -> tuple[AuditRows, np.ndarray | None]:
    """Return the rows with the codes of the noise model's groups, and those of the true groups."""
    (noisy, levels), *others = rows.attributes.items()
    for level in levels:
        if level not in noisy_names:
            raise DataError(
                f"The noise model does not know the noisy group {level!r} of the audited rows.",
                f"{nearest(level, noisy_names)} Describe the noise of every group that occurs.",
            )
    truth = None
    if others:
        truth = pd.Index(names).get_indexer(pd.Index(others[0][1]))[rows.codes[:, 1]]
        # Another description of the noise may know other true groups.
        truth = truth if (truth >= 0).all() else None
    codes = pd.Index(noisy_names).get_indexer(pd.Index(levels))[rows.codes[:, :1]]
    return replace(rows, codes=codes, attributes={noisy: tuple(noisy_names)}), truth


def _tabulate_truth(
    rows: AuditRows, truth: np.ndarray, noise: NoiseModel, name: str
) -> pd.DataFrame:
    """Return a rate of the true groups in the columns of the bounds."""
    decision, y = np.asarray(rows.decision), np.asarray(rows.y)
    cells, rate = count_cells(decision, y, truth, len(noise.names), rows.weight), find_rate(name)
    good, among = sum_cells(cells, rate.good), sum_cells(cells, rate.among)
    value = np.where(among > 0, good / np.where(among > 0, among, 1.0), np.nan)
    counted = np.isin(y, sorted({cell % 2 for cell in rate.among}))
    table = {"measure": name, "group": noise.names, "bound": "truth", "noise": "", "level": np.nan}
    n = np.bincount(truth[counted], minlength=len(noise.names))
    return pd.DataFrame(
        {**table, "value": value, "n": n, "low": value, "high": value, "guaranteed": True}
    )


def _hide_small(bounds: pd.DataFrame, conclusions: pd.DataFrame, minimum: int) -> None:
    """Take out what rests on groups with fewer rows than the minimum; verdicts on them are open."""
    small = (bounds["group"] != "") & (bounds["n"] < minimum)
    bounds.loc[small, ["value", "low", "high"]] = np.nan
    # How many rows count for each rate would tell the labels of a group of few.
    bounds.loc[small, "n"] = 0
    hidden = pd.MultiIndex.from_frame(bounds.loc[small, ["measure", "group"]])
    for side in ("group", "other"):
        rests = pd.MultiIndex.from_frame(conclusions[["measure", side]]).isin(hidden)
        conclusions.loc[rests, ["low", "high"]] = np.nan
        conclusions.loc[rests, "verdict"] = "open"


def _add_seen(table: pd.DataFrame, bounds: pd.DataFrame, budget: float) -> pd.DataFrame:
    """Add the differences of the noisy groups, and the verdicts if these were the true ones."""
    observed = bounds.loc[bounds["bound"].isin(["overall", "assignment"])]
    rates = observed.drop_duplicates(["measure", "group"]).set_index(["measure", "group"])["value"]
    own, other = (
        rates.reindex(pd.MultiIndex.from_frame(table[["measure", name]])).to_numpy()
        for name in ("group", "other")
    )
    seen = np.where(np.abs(own - other) <= ROUNDING, 0.0, own - other)
    margins = np.where(table["other"] == "", budget, 0.0)
    verdict = [judge(gap, gap, margin) for gap, margin in zip(seen, margins, strict=True)]
    return table.assign(seen=seen, seen_verdict=verdict)


class NoisyAudit(NamedTuple):
    """What is known of the rates of true groups.

    Attributes
    ----------
    bounds : DataFrame
        Where the rate ``measure`` of a true ``group`` ("" for all rows) lies: ``low`` and ``high``,
        NaN where the group may have no row of the denominator. ``bound`` is what bounds it, see
        `audit_decisions`. ``noise`` is "model" for the model's probabilities, "paper" for lemma 1's
        level P(Ĝ≠j | G=j) where it is not the model's, "limit" for the confidence limits of an
        estimated model. ``level`` is γ_j, NaN but for balls; ``value`` the rate of the noisy group
        that represents it, and ``n`` its rows in the denominator. ``guaranteed`` says whether the
        true rate lies within the bounds under the noise model, for limits with the stated
        confidence: lemma 1's level does not bound the total variation where its premise fails.
    conclusions : DataFrame
        ``low`` and ``high`` of the difference between the rates ``measure`` of a true ``group`` and
        of the ``other`` one ("" for all rows) over all assignments that ``noise`` ("model" or
        "limit") allows; every value between is attained by one. ``verdict`` is what holds for all
        of them: below or above by more than the margin, within it, or open. The margin is the
        budget α against all rows, and 0 between groups.
    """

    bounds: pd.DataFrame
    conclusions: pd.DataFrame


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows that are audited, and their cells: shape (n_noisy_groups, 4)."""

    decision: np.ndarray
    y: np.ndarray
    codes: np.ndarray
    weight: np.ndarray
    cells: np.ndarray

    def outcome(self, rate: RateCells) -> tuple[np.ndarray, np.ndarray]:
        """Return how much each row counts in the numerator, and whether in the denominator."""
        good = np.array([[float(2 * d + y in rate.good) for d in (0, 1)] for y in (0, 1)])
        among = np.array([y in {cell % 2 for cell in rate.among} for y in (0, 1)])
        value = good[self.y, 0] * (1 - self.decision) + good[self.y, 1] * self.decision
        return value, among[self.y]


def audit_decisions(
    decision: np.ndarray,
    y: np.ndarray,
    codes: np.ndarray,
    noise: NoiseModel,
    *,
    weight: np.ndarray | None = None,
    rates: Sequence[str] = RATES,
    budget: float = 0.0,
    confidence: float = 0.95,
) -> NoisyAudit:
    """Bound the rates of true groups from decisions, labels and noisy groups.

    There are five kinds of bounds of each rate r and true group j, with Ĝ=k the noisy group that
    represents j, γ_j a bound of TV(p_j, p̂_k), and D the rows of the rate's denominator:

    - ``overall``: the rate of all rows.
    - ``assignment``: min and max of r_j over W(θ), the soft assignments w(j | ŷ, y, k) that agree
      with P(G=j | Ĝ=k) (Kallus et al.). They use all of the noise model and are tight: with
      deterministic decisions and integers n_k P(G=j | Ĝ=k), assignments of each row to one group
      attain them.
    - ``ball``: min and max of r_j over all p̃ with TV(p̃, p̂_k) ≤ γ_j on these rows.
    - ``theorem_1``: r̂_k ± γ_j / P(D | Ĝ=k), cut to [0, 1]: theorem 1, which bounds means by γ_j, in
      units of the rate. It contains the ball's bounds, and equals them for deterministic decisions
      as long as some row can take the mass.
    - ``theorem_3``: r̂_k ± s γ_j / P(D | Ĝ=k), cut to what decisions in D allow, with s the largest
      minus the smallest decision in D: theorem 3 with the metric c = s 1{(x, y) ≠ (x', y')}, in
      units of the rate. With both deterministic decisions s = 1, and it is theorem 1.

    Parameters
    ----------
    decision : ndarray of float64, shape (n,)
        Probability that the decision is 1; 0 and 1 for deterministic rules.
    y : ndarray of int, shape (n,)
        Labels 0 and 1.
    codes : ndarray of int, shape (n,)
        Noisy groups, codes of ``noise.noisy_names``.
    noise : NoiseModel
        Its always valid level is used. Lemma 1's level gets separate rows where it differs, and an
        estimated model further rows for the confidence limits of its probabilities.
    weight : ndarray of float64, shape (n,), optional
        Case weights ≥ 0.
    rates : sequence of str
        Of tpr, fpr, selection_rate and accuracy.
    budget : float
        α ≥ 0: margin of the comparisons with all rows.
    confidence : float
        Of each statement about a group or a pair of groups, where the model was estimated. The
        audited rows are taken as the population: their sampling error is not included.

    Raises
    ------
    ConfigError
        When a rate is unknown.

    Notes
    -----
    O(n) for the cells, then O(1) for the assignments; a few passes over the rows for each ball.
    Randomised decisions count in cells by expectation; the coin may then depend on the true group
    in W(θ), so that the bounds are wide but valid. In a ball a row keeps its probability.

    Theorem 3 replaces the total variation by a Wasserstein distance W_c for an h that is Lipschitz
    in a metric c on (x, y). Of h = 1{D} (a − ρ), with a the decision and ρ a candidate for the
    bound, only the range is known, and the least metric in which it is Lipschitz whatever x
    is the discrete one times s, for which W_c = s TV ≤ s γ_j. Other metrics would need a table with
    G and x, and an h that is smooth in x, which decisions are not.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust optimization for
    fairness with noisy protected groups. NeurIPS 2020, theorems 1 and 3, lemma 1, equation 5 and
    appendix A.2. N. Kallus, X. Mao, A. Zhou. Assessing algorithmic fairness with unobserved
    protected class using data combination. Management Science 68, 2022.
    """
    chosen = [find_rate(name) for name in rates]
    mass = np.ones(y.shape) if weight is None else weight
    cells = count_cells(decision, y, codes, len(noise.noisy_names), mass)
    rows = _Rows(decision, y, codes, mass, np.asarray(cells))
    levels = {"model": noise.valid_level}
    posteriors: dict[str, Limits | None] = {"model": None}
    if noise.counts is not None:
        levels["limit"] = noise.interval(confidence).valid_level_limit
        # A statement about two groups depends on a share of each in every noisy group.
        posteriors["limit"] = noise.interval(confidence, 2 * len(noise.noisy_names)).posterior
    bounds: list[tuple[Any, ...]] = []
    conclusions: list[tuple[Any, ...]] = []
    total = rows.cells.sum(axis=0)
    for rate in chosen:
        among = float(sum_cells(total, rate.among))
        overall = float(sum_cells(total, rate.good)) / among if among > 0 else np.nan
        n = int(rows.outcome(rate)[1].sum())
        bounds.append((rate.name, "", "overall", "", np.nan, overall, n, overall, overall, True))
        ranges = {
            kind: bound_rates(rows.cells, noise.posterior, rate, limits)
            for kind, limits in posteriors.items()
        }
        bounds.extend(_bound(rate, rows, noise, levels, ranges))
        for kind, (low, high) in ranges.items():
            conclusions.extend(_compare(rate.name, kind, low, high, overall, noise.names, budget))
    return NoisyAudit(
        pd.DataFrame(bounds, columns=BOUND_COLUMNS),
        pd.DataFrame(conclusions, columns=CONCLUSION_COLUMNS),
    )


def tabulate_noise(noise: NoiseModel, confidence: float = 0.95) -> pd.DataFrame:
    """Return a noise model as a table, a row for each true group, with limits if it was estimated.

    Columns group, centre (the noisy group that represents it), share P(G=j), noisy_share, level γ_j
    of lemma 1 with low and high, premise (whether P(G=j) = P(Ĝ=j)), level_holds (whether γ_j bounds
    the total variation), valid_level and its one-sided upper limit. NaN without an auxiliary table.
    """
    nan = np.full(len(noise.names), np.nan)
    centre = list(noise.centre)
    interval = noise.interval(confidence) if noise.counts is not None else None
    return pd.DataFrame(
        {
            "group": noise.names,
            "centre": [noise.noisy_names[k] for k in centre],
            "share": noise.prior,
            "noisy_share": noise.noisy_prior[centre],
            "level": noise.level,
            "low": nan if interval is None else interval.level[0],
            "high": nan if interval is None else interval.level[1],
            "premise": noise.premise,
            "level_holds": noise.level_holds,
            "valid_level": noise.valid_level,
            "valid_level_limit": nan if interval is None else interval.valid_level_limit,
        }
    )


def _bound(
    rate: RateCells,
    rows: _Rows,
    noise: NoiseModel,
    levels: Mapping[str, np.ndarray],
    ranges: Mapping[str, Limits],
) -> Iterator[tuple[Any, ...]]:
    """Yield the bounds of one rate for every true group."""
    outcome, among = rows.outcome(rate)
    offered = outcome[among & (rows.weight > 0)]
    for j, (name, k) in enumerate(zip(noise.names, noise.centre, strict=True)):
        own = rows.codes == k
        mass, part = float(rows.weight[own].sum()), float(rows.weight[own & among].sum())
        value = float(rows.weight[own & among] @ outcome[own & among]) / part if part else np.nan
        n = int((own & among).sum())
        for kind, (low, high) in ranges.items():
            ends = (float(low[j]), float(high[j]))
            yield (rate.name, name, "assignment", kind, np.nan, value, n, *ends, True)
        used = {kind: (float(level[j]), True) for kind, level in levels.items()}
        if abs(noise.level[j] - noise.valid_level[j]) > ROUNDING:
            used["paper"] = (float(noise.level[j]), bool(noise.level_holds[j]))
        for kind, (level, holds) in used.items():
            limits = dict.fromkeys(("ball", "theorem_1", "theorem_3"), (np.nan, np.nan))
            if mass > 0:
                least, most = bound_rate_over_ball(
                    outcome, among, rows.codes, np.array([level]), weight=rows.weight, centre=(k,)
                )
                limits["ball"] = (float(least[0]), float(most[0]))
            if part > 0:
                reach = level * mass / part
                limits["theorem_1"] = (max(0.0, value - reach), min(1.0, value + reach))
                least, most = float(offered.min()), float(offered.max())
                reach *= most - least
                limits["theorem_3"] = (max(least, value - reach), min(most, value + reach))
            for bound, ends in limits.items():
                yield (rate.name, name, bound, kind, level, value, n, *ends, holds)


def _compare(
    measure: str,
    kind: str,
    low: np.ndarray,
    high: np.ndarray,
    overall: float,
    names: tuple[str, ...],
    budget: float,
) -> Iterator[tuple[Any, ...]]:
    """Yield the comparisons of every group with all rows, and of every pair of groups."""
    for j, name in enumerate(names):
        below, above = float(low[j] - overall), float(high[j] - overall)
        yield (measure, name, "", kind, below, above, judge(below, above, budget))
    for i, j in combinations(range(len(names)), 2):
        # One assignment attains opposite extremes of two groups, see `bound_rates`.
        below, above = float(low[i] - high[j]), float(high[i] - low[j])
        yield (measure, names[i], names[j], kind, below, above, judge(below, above, 0.0))


def judge(low: float, high: float, margin: float) -> Verdict:
    """Return what holds for every difference between low and high; "open" if they are NaN."""
    if high < -margin - ROUNDING:
        return "below"
    if low > margin + ROUNDING:
        return "above"
    if low >= -margin - ROUNDING and high <= margin + ROUNDING:
        return "within"
    return "open"
