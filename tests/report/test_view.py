"""What a report opens with: its chart, list and rates agree, and everybody can read them."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fairfrontier.figure.frontier import trace_chart
from fairfrontier.report.files import build_summary, render_report
from fairfrontier.report.view import compare_rates, draw_chart, list_views
from fairfrontier.study.frontier import build_results, list_fits, summarise
from fairfrontier.study.price import price
from fairfrontier.study.reproduction import Reproduction
from tests.study.synthetic import make_plan, make_points, make_study

ROOT = Path(__file__).resolve().parents[2]
EVIL = "</script><script>document.title = 'x'</script>{{y}} " + "a name without end " * 4
OBJECTIVE = "balanced_accuracy"


@pytest.fixture(scope="module")
def made():
    """A study of two attributes, one of a hostile name, with its price list."""
    study = make_study(published=None, claims=[])
    plan = make_plan(study)
    results = build_results(study, plan, make_points(plan, EVIL), {})
    fits = list_fits(plan, "frontier")
    models = fits.assign(model="m", post_processor="", needs_groups=fits["method"] == "project")
    summary = build_summary(results, (), 5.0)
    summary["prices"] = price(results, models, ROOT)
    return results, summary, summarise(results.points, fits, "test")


@pytest.fixture(scope="module")
def report(made, tmp_path_factory) -> Path:
    results, summary, _ = made
    path = tmp_path_factory.mktemp("view") / "report.html"
    path.write_text(render_report(results, summary, Reproduction()), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, report):
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
        bypass_csp=True,
    )
    opened = context.new_page()
    opened.goto(report.as_uri())
    yield opened
    context.close()


def test_each_number_of_a_view_is_that_of_its_points(made):
    _, summary, table = made
    rows = summary["prices"]["rows"]
    views = list_views(table, rows, OBJECTIVE, {("project", "{}")}, ["toy"], 10)
    assert [view["attribute"] for view in views] == ["sex", "race"]
    values = table.set_index(["method", "setting", "name"])["value"]
    for view in views:
        own = [row for row in rows if row["measure"] == view["measure"]]
        assert len(view["rows"]) == len(own) > 1
        marks = {(each["method"], each["setting"]): each for each in view["chart"]["marks"]}
        for row, shown in zip(own, view["rows"], strict=True):
            key = (row["method"], row["setting"])
            assert shown["shown"]["gap"][0] == f"{100 * values[(*key, view['measure'])]:.1f}"
            assert shown["shown"]["objective"][0] == f"{100 * values[(*key, OBJECTIVE)]:.1f}"
            assert marks[key]["letter"] == shown["letter"]
            assert marks[key]["free"] == (row["bound"] is None)
            assert f"{shown['shown']['gap'][0]} points" in marks[key]["lines"][0]
        assert sum(bool(each["letter"] or each["free"]) for each in marks.values()) == len(
            {(row["method"], row["setting"]) for row in own}
        )
        rates = view["rates"]
        assert rates["name"] == "selection_rate"
        chosen = (own[0], next((row for row in own if row["suggested"]), own[-1]))
        for level in rates["levels"]:
            name = f"selection_rate:{view['attribute']}={level['level']}"
            exact = [100 * values[row["method"], row["setting"], name] for row in chosen]
            assert level["shown"] == [f"{value:.1f}" for value in exact]


def make_table(gap, objective, name="selection_rate_difference:sex", of="accuracy"):
    """Return a summary of settings m0, m1, … with these gaps and objectives."""
    return pd.DataFrame(
        [
            {"method": f"m{place}", "setting": "{}", "name": which, "value": value,
             "low": value - 0.01, "high": value + 0.01, "n": 100.0}
            for place, values in enumerate(zip(gap, objective, strict=True))
            for which, value in zip((name, of), values, strict=True)
        ]
    )  # fmt: skip


def test_axes_fit_what_is_named_and_all_that_is_better():
    rows = [
        {"measure": "selection_rate_difference:sex", "bound": bound, "method": method,
         "setting": "{}", "suggested": bound == 0.05}
        for bound, method in ((None, "m0"), (0.05, "m1"))
    ]  # fmt: skip
    table = make_table([0.2, 0.04, 0.9, 0.1, 0.1], [0.8, 0.79, 0.5, 0.85, 0.4])
    chart = trace_chart(table, "accuracy", rows[0]["measure"], rows, {("m1", "{}")})
    assert chart.across[0] == 0.0
    assert 21 < chart.across[1] < 30
    assert chart.bound == 5.0
    # One is far to the right, another far below; the one that looks better is within.
    assert set(chart.inside["method"]) == {"m0", "m1", "m3"}
    assert chart.points.set_index("method")["letter"].to_dict() == {
        "m0": "", "m1": "A", "m2": "", "m3": "", "m4": "",
    }  # fmt: skip
    drawn = draw_chart(chart)
    at = {each["method"]: each["at"] for each in drawn["marks"]}
    assert at["m3"][1] < at["m0"][1] < at["m1"][1]
    assert at["m1"][0] < drawn["band"] < at["m3"][0] < at["m0"][0]
    assert drawn["beyond"] == 2
    # What is better lower stands higher, too.
    worse = make_table([0.2, 0.1], [12.0, 14.0], of="rmse")
    marks = draw_chart(trace_chart(worse, "rmse", rows[0]["measure"]))["marks"]
    assert marks[0]["at"][1] < marks[1]["at"][1]
    assert marks[0]["lines"][1].startswith("RMSE: 12.000 (")


def test_rates_are_those_of_the_measure_of_enough_rows(made):
    *_, table = made
    measured = "tpr_difference:sex"
    rows = [{"method": name, "setting": setting} for name, setting in
            table[["method", "setting"]].drop_duplicates().head(2).to_numpy()]  # fmt: skip
    rows[1]["letter"] = "A"
    assert compare_rates(table, measured, *rows, 10)["name"] == "tpr"
    assert compare_rates(table, measured, *rows, 10**6) is None
    assert compare_rates(table, "tpr_difference:height", *rows, 10) is None


def test_without_an_estimable_gap_a_sentence_says_why(made, browser, tmp_path):
    results, summary, _ = made
    rows = [{**row, "gap": None} for row in summary["prices"]["rows"]]
    for prices in ({**summary["prices"], "rows": []}, {**summary["prices"], "rows": rows}):
        path = tmp_path / "report.html"
        html = render_report(results, {**summary, "prices": prices}, Reproduction())
        path.write_text(html, encoding="utf-8")
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        opened.goto(path.as_uri())
        assert "be estimated" in opened.locator("h1").inner_text()
        assert "minimum" in opened.locator("header p").inner_text()
        opened.locator("#chart [data-id]").first.wait_for()
        assert opened.locator("#x").input_value() != opened.locator("#y").input_value()
        opened.close()


def test_it_opens_on_an_attribute_that_is_estimable(made):
    results, summary, _ = made
    rows = [
        {**row, "gap": None} if row["measure"].endswith("sex") else row
        for row in summary["prices"]["rows"]
    ]
    prices = {**summary["prices"], "rows": rows}
    html = render_report(results, {**summary, "prices": prices}, Reproduction())
    assert re.search(r"<h1>toy: [^<]*race gap", html)
    assert "Not shown: RMS gap, sex." in html
    assert html.count('class="view"') == 1


def test_what_is_open_is_short_near_and_large_enough(page):
    assert page.evaluate("document.documentElement.scrollHeight") <= 2600
    tabs = 0
    while not page.evaluate("document.activeElement.matches('.chart [data-id]')"):
        page.keyboard.press("Tab")
        tabs += 1
        assert tabs <= 5
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("button, summary, .switch label, .hit")]
          .map((each) => each.getBoundingClientRect()).filter((box) => box.width)
          .map((box) => Math.min(box.width, box.height))"""
    )
    assert len(sizes) > 10
    assert min(sizes) >= 24
    # The finding is what is read first.
    first = page.locator("main").locator("h1, h2, p, table, button").first
    assert first.evaluate("each => each.tagName") == "H1"


def test_the_chart_names_the_models_of_the_list(page):
    for number in (0, 1):
        page.locator(f"#view-{number}").check()
        view = page.locator(f"#prices-{number}")
        assert [each for each in (0, 1) if page.locator(f"#prices-{each}").is_visible()] == [number]
        letters = view.locator("[data-id] .letter").all_text_contents()
        assert sorted(letters) == sorted(set(view.locator(".prices .letter").all_text_contents()))
        for row in view.locator(".prices tbody tr").all():
            model, gap = row.locator("td").nth(0).inner_text(), row.locator("td .value").nth(1)
            letter = model.split()[0] if row.locator(".letter").count() else ""
            label = view.locator("[data-id].named" if letter else "[data-id].free").filter(
                has_text=letter
            )
            assert f"{gap.inner_text()} points" in label.first.get_attribute("aria-label")
    # Intervals are those of the named ones, and of whatever has the focus.
    shown = "all => all.filter((each) => getComputedStyle(each).opacity === '1').length"
    bars = page.locator("#prices-1 .chart .other .bar")
    assert bars.evaluate_all(shown) == 0
    page.locator("#prices-1 .chart .other").first.focus()
    assert bars.evaluate_all(shown) == 2


def test_points_answer_keys_and_open_their_measures(page):
    page.locator("#prices-0 [data-id][tabindex='0']").focus()
    page.keyboard.press("Home")
    first = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") != first
    page.keyboard.press("ArrowLeft")
    assert page.locator("#tip").inner_text().replace("\n", "; ") == first
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'card'")
    method = first.partition(";")[0].partition(",")[0].split()[-1]
    assert method in page.locator("#card h3").inner_text()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == first


def test_the_command_of_a_row_is_copied(page, made):
    rows = made[1]["prices"]["rows"]
    button = page.locator("#prices-0 [data-copy]").nth(1)
    button.click()
    page.wait_for_function("document.getElementById('copied').textContent !== ''")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert f"subject to {rows[1]['measure']} <= {rows[1]['bound']:g}" in copied
    assert copied in page.locator("#copied").inner_text()


def test_without_scripts_all_but_copies_and_exploring_remains(browser, report):
    opened = browser.new_page(java_script_enabled=False)
    opened.goto(report.as_uri())
    opened.locator(".switch label").last.click()
    assert opened.locator("#prices-1 .chart").is_visible()
    assert opened.locator("#prices-0").is_hidden()
    assert opened.locator("[data-copy]").first.is_hidden()
    opened.close()


def test_paper_has_what_is_open_on_three_pages(page):
    pdf = page.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 3
    page.emulate_media(media="print")
    for each in page.locator(".view:visible table").all():
        box = each.evaluate("each => [each.scrollWidth, each.parentElement.clientWidth]")
        assert box[0] <= box[1]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_wcag(page, scheme, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Graphics are no text of which axe knows the contrast.
    contrast = page.evaluate(
        """() => {
          const light = (colour) => {
            const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
              .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
          };
          const style = (each) => getComputedStyle(each);
          const ground = light(style(document.querySelector(".view")).backgroundColor);
          return [...document.querySelectorAll(".view .mark, .view circle:not(.hit), .view .bar")]
            .map((each) => style(each)[each.matches(".free *, .free, .bar") ? "stroke" : "fill"])
            .map(light).map((ink) => Math.max(ink, ground) / Math.min(ink, ground));
        }"""
    )
    assert min(contrast) >= 3
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.locator("details").evaluate_all("all => all.forEach((each) => (each.open = true))")
    page.locator("#chart [data-id]").first.wait_for()
    page.locator("#chart [data-id]").first.dispatch_event("click")
    page.locator("#card h3").wait_for()
    found = axe.Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
