from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fairfrontier.report.files import build_summary, render_notes, render_report
from fairfrontier.report.finding import show_number
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.frontier import Searched, build_results
from papers.reproduction import hold_to_paper
from tests.study.synthetic import make_plan, make_points, make_study

ROOT = Path(__file__).resolve().parents[2]
EVIL = "<script>alert('x')</script>\"onload='y"
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Reader(HTMLParser):
    """Checks that tags nest, and keeps them and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def render(
    female: str = "Female", searched: Searched | None = None, **changes: object
) -> tuple[str, Reader]:
    study = make_study(**changes)
    plan = make_plan(study)
    points = make_points(plan, female)
    results = build_results(study, plan, points, {"slow": EVIL}, searched=searched)
    compared = hold_to_paper(results, None, ROOT)
    summary = build_summary(results, compared.claims, 5.0)
    html = render_report(results, summary, compared)
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return html, reader


def test_it_needs_no_network():
    html, reader = render()
    for tag, attributes in reader.tags:
        assert tag not in ("link", "iframe")
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"@import|url\(", html)


def test_it_tells_of_failed_trials():
    failed = (("gbdt", "no room"), ("gbdt", EVIL), ("gbdt", "no room"))
    _, reader = render(searched=Searched(40, 40, 40, failed, {}))
    text = " ".join(reader.text.split())
    assert "3 of the 40 trials of the search failed" in text
    assert "gbdt, 2 trials: no room" in text
    assert f"gbdt, 1 trial: {EVIL}" in text
    for searched in (None, Searched(40, 40, 40, (), {})):
        assert "trials of the search failed" not in render(searched=searched)[1].text


def test_it_shows_what_a_reader_looks_for():
    _, reader = render()
    text = " ".join(reader.text.split())
    for expected in (
        "budget 0.05",
        "Balanced accuracy",
        "0.815 ± 0.005",
        "Adversarial debiasing",
        "Not reached by what the text describes",
        "Reweighing is the most accurate.",
        "not held",
        "below four fifths",
        "Selection rate",
        "non-White",
        "How to read this",
        "Project ignores gender & race.",
        "2 of 3 claims held",
    ):
        assert expected in text


def test_text_from_data_and_configuration_is_escaped():
    study = {"notes": f"A note with {EVIL}", "dataset": EVIL}
    claim = {
        "id": "evil",
        "sentence": EVIL,
        "compare": {"left": "gbdt", "value": 0, "measure": "balanced_accuracy", "relation": ">"},
    }
    html, reader = render(female=EVIL, claims=[claim], **study)
    # The explorer's data and scripts; tests/report/test_explorer.py reads them.
    assert [tag for tag, _ in reader.tags].count("script") == html.count("<script") == 2
    assert "alert('x')</script>" not in html
    # Group name, claim, note, data set and reason are all there as text.
    assert reader.text.count("<script>alert('x')</script>") >= 5


def test_levels_with_few_rows_are_one():
    _, reader = render(minimum=3000)
    text = " ".join(reader.text.split())
    assert "Female" in text
    _, reader = render(female="Rare", minimum=3016)
    text = " ".join(reader.text.split())
    assert "Rare" not in text
    assert "non-White" not in text
    assert "other (2 levels)" in text
    assert "not estimable" in text


def test_a_trend_is_shown_with_its_means():
    trend = {
        "row": "budro",
        "along": "budget",
        "direction": "rising",
        "measure": "consistency:spouse",
        "block": "frontier",
    }
    _, reader = render(claims=[{"id": "one", "sentence": "It rises.", "trend": trend}])
    text = " ".join(reader.text.split())
    assert re.search(
        r"held It rises\. ?Consistency, spouse: budro, budget 0\.05, 0\.1, 0\.2, 0\.4, 0\.8: "
        r"(0\.\d{3}, ){4}0\.\d{3} \(rising\) · frontier block",
        text,
    )


def test_without_a_publication_claims_or_notes():
    html, _ = render(published=None, claims=[], notes="")
    for section in ("published", "claims", "notes"):
        assert f'id="{section}"' not in html


def test_notes():
    text = "One *two* **three** `a * b * c` 2 * 3 * 4.\nStill one.\n\n- a < b\n- `c`\n\n<b>raw</b>"
    html = render_notes(text)
    assert str(html) == (
        "<p>One <em>two</em> <strong>three</strong> <code>a * b * c</code> 2 * 3 * 4.\n"
        "Still one.</p>\n"
        "<ul>\n<li>a &lt; b</li>\n<li><code>c</code></li>\n</ul>\n"
        "<p>&lt;b&gt;raw&lt;/b&gt;</p>\n"
    )
    assert str(render_notes("")) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.12345, "0.123"), (-0.5, "−0.500"), (-0.0001, "0.000"), (float("nan"), "–"), (None, "–")],
)
def test_numbers(value, shown):
    assert show_number(value) == shown


def test_a_row_that_is_worse_than_the_plain_one_says_so_and_budgets_have_both_units():
    study = make_study()
    plan = make_plan(study)
    points = make_points(plan)
    row = ("budro", canonical_json({"budget": 0.8, "rows": 8000, "select_on": "validation"}))
    results = build_results(study, plan, points, {}, {row: {"budget": 0.8, "budget_share": 0.0123}})
    compared = hold_to_paper(results, None, ROOT)
    summary = build_summary(results, compared.claims, 5.0)
    assert all(each["setting"] for each in summary["worse_than_plain"])
    setting = json.loads(row[1])
    summary["worse_than_plain"] = [
        {"method": "budro", "setting": setting, "plain": "gbdt", "reason": EVIL}
    ]
    html = render_report(results, summary, compared)
    assert "worse than gbdt" in html
    assert "budget share 0.0123" in html
    assert html.count("<script") == 2
