"""The audit of a table of decisions, or of a fitted model, whose groups are noisy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.auditing.bound import ROUNDING, audit_decisions, judge, tabulate_noise
from fairfrontier.auditing.figure import draw_bounds
from fairfrontier.auditing.option import AuditConfig
from fairfrontier.auditing.subject import Findings, Progress, read_subject
from fairfrontier.figure.frontier import name_measure
from fairfrontier.models.noisy.noise import NoiseModel
from fairfrontier.models.noisy.rate import count_cells, find_rate, sum_cells
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

    page = Path(__file__).with_name("noisy.html.j2")

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
