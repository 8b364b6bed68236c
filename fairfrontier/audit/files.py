"""The files of an audit of noisy groups: bounds, conclusions, the noise, and a report in HTML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.audit.auditing import NoisyFindings
from fairfrontier.audit.figure import draw_bounds
from fairfrontier.figure.frontier import name_measure
from fairfrontier.prepare.table.stream import digest_table
from fairfrontier.report.template import embed, open_template
from fairfrontier.runtime.text_file import list_rows
from fairfrontier.study.drawing import Picture

TEMPLATE = Path(__file__).with_name("audit.html.j2")
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


def tabulate(findings: NoisyFindings) -> dict[str, pd.DataFrame]:
    """Return the tables that are written, by name."""
    return {
        "bounds": findings.bounds,
        "conclusions": findings.conclusions,
        "noise": findings.description,
    }


def draw(findings: NoisyFindings) -> dict[str, Picture]:
    """Return the pictures, by name."""
    return {"bounds": draw_bounds(findings.bounds, findings.config.budget, findings.rests_on)}


def summarise(findings: NoisyFindings) -> dict[str, Any]:
    """Return what was audited and the results, as plain values; None for what is unknown."""
    config, noise = findings.config, findings.noise
    verdicts = [
        row | {"sentence": say(row, config.budget)} for row in list_rows(findings.verdicts())
    ]
    held = sum(verdict["verdict"] != "open" for verdict in verdicts)
    source: dict[str, Any] = {"from": findings.source}
    if config.level is not None:
        source["level"] = config.level
    for path in (config.confusion, config.auxiliary):
        if path is not None:
            source |= {"file": path.name, "sha256": digest_table(path)}
    if config.true_group is not None:
        source["true_group"] = config.true_group
    if noise.counts is not None:
        source["rows"] = int(noise.counts.sum())
    if config.prior is not None:
        source["prior"] = dict(config.prior)
    overall = list_rows(findings.bounds.loc[findings.bounds["bound"] == "overall"])
    return {
        "noise": {
            **source,
            "groups": list(noise.names),
            "noisy_groups": list(noise.noisy_names),
            "confusion": noise.confusion.tolist(),
            "posterior": noise.posterior.tolist(),
        },
        "budget": config.budget,
        "confidence": config.confidence if findings.rests_on == "limit" else None,
        "rates": list(config.rates),
        "rests_on": findings.rests_on,
        "counts": {
            "rows": findings.rows.n_samples,
            "noisy_groups": len(noise.noisy_names),
            "true_groups": len(noise.names),
            "conclusions": len(verdicts),
            "held": held,
            "open": len(verdicts) - held,
        },
        "overall": {row["measure"]: row["value"] for row in overall},
        "conclusions": verdicts,
    }


def say(row: Mapping[Any, Any], budget: float) -> str:
    """Return a conclusion as a sentence."""
    rate, verdict, low, high = (
        name_measure(str(row["measure"])),
        row["verdict"],
        row["low"],
        row["high"],
    )
    subject = f"{rate} of {row['group']}"
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


def render(
    findings: NoisyFindings, summary: Mapping[str, Any], pictures: Mapping[str, Picture]
) -> str:
    """Return the report as HTML, in which all text from data or configuration is escaped."""
    verdicts = list(summary["conclusions"])
    unsettled = [verdict for verdict in verdicts if verdict["verdict"] == "open"]
    return open_template(TEMPLATE).render(
        summary=summary,
        config=findings.config,
        picture=embed(pictures["bounds"]),
        held=[verdict for verdict in verdicts if verdict["verdict"] != "open"],
        open=unsettled,
        misread=[row for row in unsettled if row["seen_verdict"] in ("below", "above")],
        kinds=KINDS,
        rates=_tabulate_rates(findings),
        truth=(findings.bounds["bound"] == "truth").any(),
        noise=findings.description.to_dict("records"),
        posterior=_tabulate_posterior(findings),
        source=SOURCES[findings.source],
    )


def _tabulate_rates(findings: NoisyFindings) -> list[dict[str, Any]]:
    """Return, for each rate, a row per true group with its bounds under the noise that counts."""
    rates = []
    for measure, table in findings.bounds.groupby("measure", sort=False):
        groups: dict[str, dict[str, Any]] = {}
        overall = None
        for row in table.to_dict("records"):
            if row["bound"] == "overall":
                overall = row["value"]
                continue
            entry = groups.setdefault(row["group"], {"group": row["group"]})
            if row["bound"] == "truth":
                entry["truth"] = row["value"]
            elif row["noise"] == findings.rests_on:
                entry[row["bound"]] = (row["low"], row["high"])
                entry |= {"seen": row["value"], "n": row["n"]}
        rates.append({"measure": measure, "overall": overall, "groups": list(groups.values())})
    return rates


def _tabulate_posterior(findings: NoisyFindings) -> list[dict[str, Any]]:
    """Return P(G=j | Ĝ=k), a row for each noisy group, with limits where it was estimated."""
    noise = findings.noise
    tables: dict[str, Any] = {"value": noise.posterior}
    if noise.counts is not None:
        limits = noise.interval(findings.config.confidence).posterior
        tables |= dict(zip(("low", "high"), limits, strict=True))
    return [
        {
            "noisy": name,
            "shares": [
                {"low": None, **{end: float(table[k, j]) for end, table in tables.items()}}
                for j in range(len(noise.names))
            ],
        }
        for k, name in enumerate(noise.noisy_names)
    ]
