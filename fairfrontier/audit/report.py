"""The report of an audit of noisy groups: one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairfrontier.audit.auditing import Findings
from fairfrontier.report.template import embed, open_template
from fairfrontier.study.drawing import Picture

TEMPLATE = Path(__file__).with_name("audit.html.j2")
# What stands in the table of bounds, in this order.
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


def render_audit(findings: Findings, summary: Mapping[str, Any], picture: Picture) -> str:
    """Render the report.

    Parameters
    ----------
    findings : Findings
    summary : mapping
        What stands in audit.json.
    picture : Picture
        From `draw_bounds`.

    Returns
    -------
    str
        HTML. Every text that comes from data or configuration is escaped.
    """
    verdicts = list(summary["conclusions"])
    return open_template(TEMPLATE).render(
        summary=summary,
        config=findings.config,
        picture=embed(picture),
        held=[each for each in verdicts if each["verdict"] != "open"],
        open=[each for each in verdicts if each["verdict"] == "open"],
        misread=[
            each
            for each in verdicts
            if each["verdict"] == "open" and each["seen_verdict"] in ("below", "above")
        ],
        kinds=KINDS,
        rates=_tabulate_rates(findings),
        truth=(findings.bounds["bound"] == "truth").any(),
        noise=findings.description.to_dict("records"),
        posterior=_tabulate_posterior(findings),
        source=SOURCES[findings.source],
    )


def _tabulate_rates(findings: Findings) -> list[dict[str, Any]]:
    """Return, for each rate, a row per true group with its bounds under the noise that counts."""
    rates = []
    for measure, table in findings.bounds.groupby("measure", sort=False):
        groups: dict[str, dict[str, Any]] = {}
        overall = None
        for row in table.to_dict("records"):
            if row["bound"] == "overall":
                overall = row["value"]
                continue
            found = groups.setdefault(row["group"], {"group": row["group"]})
            if row["bound"] == "truth":
                found["truth"] = row["value"]
            elif row["noise"] == findings.rests_on:
                found[row["bound"]] = (row["low"], row["high"])
                found |= {"seen": row["value"], "n": row["n"]}
        rates.append({"measure": measure, "overall": overall, "groups": list(groups.values())})
    return rates


def _tabulate_posterior(findings: Findings) -> list[dict[str, Any]]:
    """Return P(G=j | Ĝ=k), a row for each noisy group, with limits where it was estimated."""
    noise = findings.noise
    limits = None
    if noise.counts is not None:
        limits = noise.interval(findings.config.confidence).posterior
    return [
        {
            "noisy": name,
            "shares": [
                {
                    "value": float(noise.posterior[k, j]),
                    "low": None if limits is None else float(limits[0][k, j]),
                    "high": None if limits is None else float(limits[1][k, j]),
                }
                for j in range(len(noise.names))
            ],
        }
        for k, name in enumerate(noise.noisy_names)
    ]
