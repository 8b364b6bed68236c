"""The audit of a table of decisions, or of a fitted model, whose groups are noisy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.audit.bound import ROUNDING, audit_decisions, judge, tabulate_noise
from fairfrontier.audit.config import TABLE, AuditConfig
from fairfrontier.audit.subject import (
    Findings,
    Progress,
    describe_model,
    find_attribute,
    load_audited,
)
from fairfrontier.prepare.split import Part, Split
from fairfrontier.prepare.table.audit_table import (
    DecisionRows,
    read_confusion,
    read_decisions,
    read_pairs,
)
from fairfrontier.prepare.table.stream import check_stamps, check_table, digest_table, stamp_table
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.train.noisy.noise import NoiseModel
from fairfrontier.train.noisy.rate import count_cells, find_rate, sum_cells
from fairfrontier.train.prediction import predict_part

READING, BOUNDING = PASSES = ("reading decisions", "bounding rates")
# Results grow with the square of the number of groups: a hundred give 20,000 conclusions.
GROUPS_AT_MOST = 100
Source = Literal["level", "confusion", "auxiliary", "injected"]


@dataclass(frozen=True, eq=False)
class NoisyFindings(Findings):
    """What an audit of noisy groups found.

    Attributes
    ----------
    rows : DecisionRows
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

    rows: DecisionRows
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


def check_config(config: AuditConfig) -> None:
    """Raise a FairfrontierError when a file or a column does not exist; no row is read."""
    if config.table is not None:
        check_table(config.table, config.columns().used())
        if config.auxiliary is not None:
            used = {str(config.true_group): "true-group", config.groups[0]: "groups"}
            check_table(config.auxiliary, used)
    if config.confusion is not None:
        check_table(config.confusion, {})


def run_audit(config: AuditConfig, progress: Progress | None = None) -> NoisyFindings:
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
    tables = [path for path in (config.table, config.confusion, config.auxiliary) if path]
    stamps = {path: stamp_table(path) for path in tables}
    split: Split | None = None
    if config.table is not None:
        path = config.table
        rows = read_decisions(path, config.columns(), lambda share: report(READING, share))
        (noisy,) = config.groups
        subject: dict[str, Any] = {"table": path.name, "sha256": digest_table(path)}
        subject |= config.list_changed(TABLE)
        subject["group"] = subject.pop("groups")[0]
        subject |= rows.facts
    else:
        split, rows, subject = _predict(config)
        noisy = str(subject["attribute"])
    report(READING, 1.0)
    _check_count(len(rows.levels), "noisy")
    noise, source = _find_noise(config, rows, noisy, split)
    for path, before in stamps.items():
        check_stamps(path, before)
    _check_count(len(noise.names), "true")
    rows = _recode(rows, noise)
    # Selected are those with the favourable decision.
    turned = split is not None and split.favourable == 0
    favoured = replace(rows, decision=1.0 - rows.decision) if turned else rows
    selected = tuple(rate for rate in config.rates if rate == "selection_rate")
    others = tuple(rate for rate in config.rates if rate not in selected)
    audits = []
    for rates, own in ((selected, favoured), (others, rows)) if turned else ((config.rates, rows),):
        if rates:
            found = audit_decisions(
                own.decision,
                own.y,
                own.codes,
                noise,
                weight=own.weight,
                rates=rates,
                budget=config.budget,
                confidence=config.confidence,
            )
            audits.append(found)
    bounds, conclusions = (pd.concat(each, ignore_index=True) for each in zip(*audits, strict=True))
    report(BOUNDING, 1.0)
    if rows.truth is not None:
        truth = [
            _tabulate_truth(favoured if name in selected else rows, rows.truth, noise, name)
            for name in config.rates
        ]
        bounds = pd.concat([bounds, *truth], ignore_index=True)
    _hide_small(bounds, conclusions, config.minimum)
    conclusions = _add_seen(conclusions, bounds, config.budget)
    description = tabulate_noise(noise, config.confidence)
    return NoisyFindings(config, subject, rows, noise, source, bounds, conclusions, description)


def _check_count(count: int, kind: str) -> None:
    if count > GROUPS_AT_MOST:
        raise DataError(
            f"There are {count} {kind} groups, and the audit compares all pairs of them.",
            f"Give at most {GROUPS_AT_MOST}: merge small groups, or put numbers into ranges first.",
        )


def _predict(config: AuditConfig) -> tuple[Split, DecisionRows, dict[str, Any]]:
    """Return the split, the model's decisions on a part of it, and what is audited."""
    model, split, part = load_audited(config)
    attribute = _choose_attribute(config.attribute, part)
    prediction = predict_part(model, replace(part, counterfactuals={}))
    column = list(part.attributes).index(attribute)
    rows = DecisionRows(
        prediction.decision,
        part.y.astype(np.int64),
        part.group(attribute),
        tuple(part.attributes[attribute]),
        part.weight,
        None if part.true_groups is None else part.true_groups[:, column],
    ).sorted()
    return split, rows, {**describe_model(config, model, split), "attribute": attribute}


def _choose_attribute(attribute: str | None, part: Part) -> str:
    """Return the attribute; by default the only one, or the only noisy one."""
    known = list(part.attributes)
    if attribute is not None:
        return find_attribute(attribute, known, part.dataset)
    candidates = known
    if len(known) > 1 and part.true_groups is not None:
        noisy = (part.groups != part.true_groups).any(axis=0)
        candidates = [name for name, is_noisy in zip(known, noisy, strict=True) if is_noisy]
    if len(candidates) != 1:
        raise ConfigError(
            f"{part.dataset} has several attributes: {', '.join(known)}.",
            "Name the noisy one with --attribute.",
        )
    return candidates[0]


def _find_noise(
    config: AuditConfig, rows: DecisionRows, noisy: str, split: Split | None
) -> tuple[NoiseModel, Source]:
    """Return the noise model, and where it is from."""
    if config.level is not None:
        m = len(rows.levels)
        if m < 2:
            raise DataError(
                f"All rows are of the group {rows.levels[0]!r}, so there is no other to flip to.",
                "Name a column of groups that differ between rows.",
            )
        chance = np.full((m, m), config.level / (m - 1))
        np.fill_diagonal(chance, 1 - config.level)
        return _invert(config, rows, chance, rows.levels, rows.levels), "level"
    if config.confusion is not None:
        confusion = read_confusion(config.confusion)
        names, noisy_names = confusion.names, confusion.noisy_names
        return _invert(config, rows, confusion.chance, names, noisy_names), "confusion"
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
            levels = tuple(part.attributes[noisy])
            return NoiseModel.from_table(true, seen, names=levels), "injected"
    raise ConfigError(
        f"No noise was injected into {noisy!r} of {config.dataset}, and nothing else says how "
        "wrong its groups are.",
        "Give --level, --confusion, --auxiliary with --true-group, or another --dataset.",
    )


def _invert(
    config: AuditConfig,
    rows: DecisionRows,
    chance: np.ndarray,
    names: tuple[str, ...],
    noisy_names: tuple[str, ...],
) -> NoiseModel:
    """Return the model of a confusion matrix, with the requested prior or that of the shares."""
    if config.prior is not None:
        unknown = [name for name in config.prior if name not in names]
        if unknown:
            raise ConfigError(
                f"--prior names the true group {unknown[0]!r}, which the noise does not know.",
                nearest(unknown[0], names),
            )
        prior = [config.prior.get(name, 0.0) for name in names]
        return NoiseModel.from_confusion(chance, prior=prior, names=names, noisy_names=noisy_names)
    _check_known(rows.levels, noisy_names)
    shares = dict(zip(rows.levels, rows.shares().tolist(), strict=True))
    noisy_prior = [shares.get(name, 0.0) for name in noisy_names]
    try:
        return NoiseModel.from_confusion(
            chance, noisy_prior=noisy_prior, names=names, noisy_names=noisy_names
        )
    except ConfigError as error:
        raise ConfigError(
            error.fault,
            "Correct the noise, merge small groups in the table, or give the shares of the true "
            "groups with --prior.",
        ) from None


def _check_known(levels: tuple[str, ...], known: tuple[str, ...]) -> None:
    for level in levels:
        if level not in known:
            raise DataError(
                f"The noise model does not know the noisy group {level!r} of the audited rows.",
                f"{nearest(level, known)} Describe the noise of every group that occurs.",
            )


def _recode(rows: DecisionRows, noise: NoiseModel) -> DecisionRows:
    """Return the rows with the codes of the noise model's groups."""
    _check_known(tuple(rows.levels[code] for code in np.unique(rows.codes)), noise.noisy_names)
    levels, truth = pd.Index(rows.levels), rows.truth
    if truth is not None:
        truth = pd.Index(noise.names).get_indexer(levels)[truth]
        # Another description of the noise may know other true groups.
        truth = truth if (truth >= 0).all() else None
    codes = pd.Index(noise.noisy_names).get_indexer(levels)[rows.codes]
    return replace(rows, codes=codes, levels=noise.noisy_names, truth=truth)


def _tabulate_truth(
    rows: DecisionRows, truth: np.ndarray, noise: NoiseModel, name: str
) -> pd.DataFrame:
    """Return a rate of the true groups in the columns of the bounds."""
    cells = count_cells(rows.decision, rows.y, truth, len(noise.names), rows.weight)
    rate = find_rate(name)
    good, among = sum_cells(cells, rate.good), sum_cells(cells, rate.among)
    value = np.where(among > 0, good / np.where(among > 0, among, 1.0), np.nan)
    counted = np.isin(rows.y, sorted({cell % 2 for cell in rate.among}))
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
