"""The explorer: its data is that of the points, and it works in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import zlib
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairfrontier.choose.select import Study, select
from fairfrontier.metrics.statistic.interval import wilson
from fairfrontier.metrics.statistic.rate import BINS, SUMS, count_scores
from fairfrontier.report import files as report_files
from fairfrontier.report.files import (
    LEVELS,
    average_counts,
    build_summary,
    list_commands,
    render_report,
    tabulate_explorer,
    tabulate_scores,
)
from fairfrontier.runtime.store import canonical_json
from fairfrontier.runtime.text_file import to_csv
from fairfrontier.study.frontier import StudyResults, build_results, list_fits, summarise
from fairfrontier.study.query import read_query
from fairfrontier.study.resolve import Planned, needs_groups
from papers.reproduction import hold_to_paper
from tests.metrics.made import make_part
from tests.study.synthetic import make_plan, make_points, make_study

ROOT = Path(__file__).resolve().parents[2]
EVIL = (
    "</script><script>document.title = 'x'</script><img src=x onerror=\"document.title='x'\">{{y}}"
)


def make_results(female: str = "Female", **changes: object) -> StudyResults:
    study = make_study(**changes)
    plan = make_plan(study)
    return build_results(study, plan, make_points(plan, female), {})


def tabulate(results: StudyResults, models: pd.DataFrame | None = None) -> dict:
    table = summarise(results.points, list_fits(results.plan, "frontier"), "test")
    commands = list_commands(results, models, ("conf/toy.yaml", "--out", "mine"))
    return tabulate_explorer(results, table, commands)


def make_counts(results: StudyResults, groups: list[str]) -> pd.DataFrame:
    """Return scores of every setting in all bins, as `average_counts` does."""
    settings = list_fits(results.plan, "frontier")[["method", "setting"]].drop_duplicates()
    bins = pd.DataFrame({"score_low": np.arange(BINS) / BINS})
    counts = settings.merge(pd.DataFrame({"group": groups}), how="cross").merge(bins, how="cross")
    negative, positive = np.random.default_rng(1).poisson((90, 60), (len(counts), 2)).T
    n = negative + positive
    score = n * (counts["score_low"] + 0.5 / BINS)
    return counts.assign(
        score_high=counts["score_low"] + 1 / BINS,
        **dict(zip(SUMS, (n, negative, positive, score, n), strict=True)),
    )


def render(results: StudyResults, groups: list[str] | None = None) -> str:
    compared = hold_to_paper(results, None, ROOT)
    summary = build_summary(results, compared.claims, 5.0)
    counts = None if groups is None else make_counts(results, groups)
    return render_report(results, summary, compared, counts=counts)


@pytest.fixture(scope="module")
def html() -> str:
    """A report of a study with a paper, in which a dataset and a group have a hostile name."""
    results = make_results(female=EVIL, dataset=EVIL)
    return render(results, ["", f"sex={EVIL}", "sex=Male"])


class Scripts(HTMLParser):
    """The scripts of a page by their type, and its policy."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str | None, str]] = []
        self.policy = ""
        self.inside = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.inside = tag == "script"
        if self.inside:
            self.found.append((named.get("type"), ""))
        elif "http-equiv" in named:
            self.policy = named["content"]

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            kind, text = self.found[-1]
            self.found[-1] = kind, text + data


def read_data(html: str) -> dict:
    (text,) = (text for kind, text in Scripts(html).found if kind == "text/plain")
    return json.loads(zlib.decompress(base64.b64decode(text, validate=True)))


@pytest.mark.parametrize("seeds", [1, 3])
def test_it_has_every_measure_of_every_setting(seeds):
    results = make_results(seeds=seeds)
    data = tabulate(results)
    wanted = summarise(results.points, list_fits(results.plan, "frontier"), "test")
    if seeds == 1:
        # One split's means are the rows of points.parquet themselves.
        test = results.points.loc[results.points["part"] == "test"]
        fits = list_fits(results.plan, "frontier")
        assert len(test.merge(fits, on=["method", "setting", "seed"])) == len(wanted)
    keys = wanted[["method", "setting"]].drop_duplicates().itertuples(index=False, name=None)
    at = {key: position for position, key in enumerate(sorted(keys))}
    assert [each["method"] for each in data["settings"]] == [method for method, _ in at]
    measures = {each["name"]: each for each in data["measures"]}
    assert set(measures) == set(wanted["name"])
    for row in wanted.itertuples():
        shown, place = measures[row.name], at[row.method, row.setting]
        for side, digits in (("value", 4), ("low", 3), ("high", 3)):
            exact = getattr(row, side)
            assert abs(shown[side][place] - exact) <= 0.5000001 * 10.0**-digits
        assert shown["n"] == row.n
        assert {each["splits"] for each in data["settings"]} == {seeds}


def test_levels_with_few_rows_are_left_out():
    results = make_results(female="Rare", minimum=3016)
    # A measure of a level that counts all rows makes it no larger.
    floor = results.points.loc[results.points["group"] == "sex=Rare"]
    floor = floor.loc[floor["measure"] == "tpr"].assign(measure="subgroup_bias_floor", n=9045)
    results = replace(results, points=pd.concat([results.points, floor]))
    names = {each["name"] for each in tabulate(results)["measures"]}
    assert "gap_rms:sex" in names
    assert not [name for name in names if "=" in name]


def test_what_cannot_be_estimated_is_null():
    results = make_results(seeds=1)
    spoiled = results.points.assign(
        value=results.points["value"].where(results.points["measure"] != "tpr"), low=np.inf
    )
    data = tabulate(replace(results, points=spoiled))
    assert {value for each in data["measures"] for value in each["low"]} == {None}
    (tpr,) = [each for each in data["measures"] if each["name"] == "tpr:sex=Male"]
    assert set(tpr["value"]) == {None}


def test_only_its_own_scripts_may_run(html):
    page = Scripts(html)
    (script,) = [text for kind, text in page.found if kind is None]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page.policy
    assert "unsafe-eval" not in page.policy
    assert "default-src 'none'" in page.policy
    assert not re.search("<!--|</?script", script, re.IGNORECASE)
    # No way from text to elements.
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)
    assert EVIL in {each["level"] for each in read_data(html)["measures"]}


def test_a_rule_needs_the_group_and_a_metric_makes_individuals_alike():
    results = make_results(methods={"budro": {}, "gbdt": {}}, claims=[], published=None)
    data = tabulate(results)
    named = {each["method"]: each for each in data["settings"]}
    assert named["budro"]["individual"]
    assert not named["gbdt"]["individual"]
    group = results.plan[0].group
    assert not needs_groups(group)
    assert needs_groups(replace(group, then={"method": "group_thresholds"}))


def test_the_command_of_a_chosen_setting_selects_it(tmp_path):
    results = make_results(seeds=1, published=None, claims=[])
    fits = list_fits(results.plan, "frontier")
    models = fits.assign(model="store/" + fits["method"], post_processor="")
    models.loc[models["method"] == "gbdt", "post_processor"] = "store/rule"
    (tmp_path / "frontier.csv").write_bytes(to_csv(results.frontier))
    (tmp_path / "models.csv").write_bytes(to_csv(models))
    (tmp_path / "summary.json").write_text(
        json.dumps({"accuracy": "balanced_accuracy", "fairness": []})
    )
    results.points.to_parquet(tmp_path / "points.parquet")
    for name in {*models["model"], "store/rule"}:
        (tmp_path / name).mkdir(parents=True)
    study = Study(tmp_path, tmp_path, {})
    data = tabulate(results, models)
    settings = list(dict.fromkeys(zip(fits["method"], fits["setting"], strict=True)))
    selected = 0
    for key, shown in zip(sorted(settings), data["settings"], strict=True):
        if shown["command"].startswith("fairfrontier select "):
            _, _, asked, query, *options = shlex.split(shown["command"])
            assert (asked, *options) == ("conf/toy.yaml", "--out", "mine")
            choice = select(study, subject_to=read_query(query).bounds)
            assert (choice.method, canonical_json(choice.setting)) == key
            selected += 1
        else:
            assert not shown["frontiers"]
            assert f"ff.load_model('store/{key[0]}')" in shown["command"]
    assert 0 < selected < len(settings)


@pytest.mark.slow
def test_five_hundred_settings_are_three_megabytes_at_most():
    budgets = np.linspace(0.05, 0.8, 500).tolist()
    methods = {"budro": {"solver": "exact", "budget": budgets}}
    study = make_study(methods=methods, seeds=1, published=None, claims=[])
    plan = [
        Planned(each.blocks, replace(each.group, members=(replace(member, parameters={}),)))
        for each in make_plan(study)
        for member in each.group.members
    ]
    points = make_points(plan)
    # As many measures as a study of two crossed attributes has, and numbers of full length.
    spare = points.loc[(points["part"] == "test") & points["group"].str.contains("=")]
    points = pd.concat(
        [points, *(spare.assign(group=spare["group"] + f" {copy}") for copy in range(13))]
    )
    points[["value", "low", "high"]] += np.random.default_rng(0).normal(0, 0.01, (len(points), 3))
    levels = ["", "sex=a", "sex=b", *(f"race={number}" for number in range(5))]
    html = render(build_results(study, plan, points, {}), levels)
    data = read_data(html)
    assert len(data["settings"]) == 500
    assert len(data["measures"]) > 230
    assert len(data["scores"]) == len(levels)
    # The picture, which is not drawn here, has about 0.3 MB.
    assert len(html.encode()) < 2.7e6


# In a browser.


@pytest.fixture(scope="module")
def report(html, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.fixture
def page(browser, report) -> Iterator:
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    faults, asked = [], []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda line: faults.append(line.text))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(report.as_uri())
    # Without a price list it is open.
    opened.locator(POINTS).first.wait_for()
    yield opened
    # Nothing was refused by the policy, no script failed, and nothing was fetched.
    assert faults == []
    assert asked == [report.as_uri()]
    opened.close()


POINTS = "#chart [data-id]"


def test_hover_shows_a_setting(page):
    tip = page.locator("#tip")
    assert tip.is_hidden()
    page.locator(POINTS).last.hover()
    assert re.search(r"Balanced accuracy: 0\.\d{3}", tip.inner_text())
    page.mouse.move(5, 5)
    assert tip.is_hidden()


def test_filters_and_axes(page):
    count = page.locator("#count")
    assert count.inner_text() == "9 of 9 settings shown"
    page.get_by_label("budro", exact=True).uncheck()
    assert page.locator(POINTS).count() == 4
    assert count.inner_text() == "4 of 9 settings shown"
    page.locator("#asks").select_option("yes")
    page.get_by_text("No setting has both measures").wait_for()
    page.locator("#asks").select_option("")
    assert page.locator("#x option").count() == 8
    page.locator("#search").fill("tpr, sex=m")
    assert page.locator("#found").inner_text().startswith("1 of ")
    page.locator("#x").select_option(label="TPR, sex=Male")
    page.get_by_text("TPR, sex=Male (higher is better)").wait_for()
    bars = page.locator("#chart .bar")
    assert bars.count() == 0
    page.get_by_label("95% intervals").check()
    assert bars.count() == 8


def test_a_click_on_a_point_opens_a_card_with_scores_and_calibration(page):
    card = page.locator("#card")
    assert card.is_hidden()
    point = page.locator(POINTS).last
    method = point.get_attribute("aria-label").split(";")[0].split(",")[0]
    point.click()
    assert card.locator("h3").inner_text().startswith(method)
    card.locator("details").evaluate_all("all => all.forEach((each) => (each.open = true))")
    text = card.inner_text()
    # The name of a group is text, whatever it says, and has its rates beside the other one's.
    assert EVIL in text
    assert "n = 3015" in text
    assert card.locator("script, img").count() == 0
    assert page.title().startswith("toy")
    # All rows and sex have scores, race has none.
    charts = card.locator(".pair .chart")
    assert charts.count() == 4
    assert f"{EVIL} (n = " in card.locator(".pair .keys").last.inner_text()
    # A curve for each sex; the diagonal, and each tenth of each sex.
    assert charts.nth(2).locator("polyline").count() == 2
    assert charts.nth(3).locator("g").count() == 20
    charts.nth(3).locator("g").last.hover()
    assert re.search(r"Positives: \d+% \(\d+% – \d+%\)", page.locator("#tip").inner_text())
    page.emulate_media(media="print")
    assert card.is_visible()
    page.emulate_media(media="screen")
    card.get_by_role("button", name="Close").click()
    assert card.is_hidden()


def test_keyboard(page):
    page.locator("#methods input").last.focus()
    page.keyboard.press("Tab")
    active = "document.activeElement.dataset.id"
    assert page.evaluate(active) is not None
    assert page.locator("#tip").is_visible()
    page.keyboard.press("Home")
    leftmost = page.evaluate(active)
    page.keyboard.press("ArrowRight")
    second = page.evaluate(active)
    left, right = (
        page.locator(f"{POINTS}[data-id='{each}'] .hit").bounding_box()["x"]
        for each in (leftmost, second)
    )
    assert left <= right
    assert leftmost != second
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "card"
    name = page.locator("#card").get_attribute("aria-label")
    page.keyboard.press("Escape")
    assert page.locator("#card").is_hidden()
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert name == f"Measures of {label.partition(';')[0]}"


KEY = ("m", "{}")


def average(monkeypatch, parts, scores, minimum: int = 10) -> pd.DataFrame:
    """Return the mean of the counts of some splits, one row of a study each."""
    tables = iter(
        count_scores(score, part).assign(method="m", setting="{}", seed=seed)
        for seed, (part, score) in enumerate(zip(parts, scores, strict=True))
    )
    monkeypatch.setattr(report_files, "read_counts", lambda *_: next(tables, None))
    plan = make_plan(make_study(seeds=len(parts), published=None, claims=[]))
    return average_counts(plan, None, None, minimum)


def draw(seed: int, sizes: list[int]):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    score = rng.beta(2, 3, groups.size)
    y = (rng.random(groups.size) < score).astype(int)
    weight = rng.uniform(0.5, 2, groups.size)
    names = {"region": tuple(f"r{number}" for number in range(len(sizes)))}
    return make_part(y, groups[:, None], names, weight=weight), score


def test_seeds_are_averaged_and_drawn_with_intervals(monkeypatch):
    drawn = [draw(seed, [400, 300]) for seed in (0, 1)]
    counts = average(monkeypatch, *zip(*drawn, strict=True))
    assert set(counts["group"]) == {"", "region=r0", "region=r1"}
    assert counts.loc[counts["group"] == "region=r1", "n"].sum() == 300
    (shown,) = [
        each for each in tabulate_scores(counts, [KEY, ("x", "{}")], 10) if each["level"] == "r0"
    ]
    assert shown["attribute"] == "region"
    # A setting without scores, as of a method that was skipped.
    assert [shown[name][1] for name in ("n", "share", "calibration")] == [None] * 3
    assert shown["n"][0] == 400
    score, y, weight = (
        np.concatenate([value[part.group("region") == 0] for part, value in pairs])
        for pairs in (
            [(part, score) for part, score in drawn],
            [(part, part.y) for part, _ in drawn],
            [(part, part.weight) for part, _ in drawn],
        )
    )
    share = np.histogram(score, np.linspace(0, 1, BINS + 1), weights=weight)[0] / weight.sum()
    np.testing.assert_allclose(shown["share"][0], 1000 * share, atol=0.501)
    within = (score >= 0.3) & (score < 0.4)
    w = weight[within]
    rate = np.average(y[within], weights=w)
    # Rows of two splits of one table are no two samples.
    low, high = wilson(rate, w.sum() ** 2 / (w**2).sum() / 2)
    row = shown["calibration"][0][3]
    expected = [np.average(score[within], weights=w), rate, low, high]
    np.testing.assert_allclose(row, 100 * np.array(expected), atol=0.501)


def test_small_and_many_levels_are_pooled(monkeypatch):
    counts = average(monkeypatch, *zip(draw(0, [50, 30, 9, 4]), strict=True))
    sizes = counts.groupby("group")["n"].sum()
    assert sizes.to_dict() == {
        "": 93, "region=other (2 levels)": 13, "region=r0": 50, "region=r1": 30,
    }  # fmt: skip
    # A pool that is too small is not shown either.
    counts = average(monkeypatch, *zip(draw(0, [50, 5, 4]), strict=True))
    assert set(counts["group"]) == {"", "region=r0"}
    counts = average(monkeypatch, *zip(draw(0, [20 + k for k in range(11)]), strict=True))
    levels = set(counts["group"]) - {""}
    assert len(levels) == LEVELS
    assert {"region=other (4 levels)", "region=r10"} <= levels
    counts = average(monkeypatch, *zip(draw(0, [20] * LEVELS), strict=True))
    assert not counts["group"].str.contains("other").any()


def test_tenths_of_few_rows_have_no_calibration(monkeypatch):
    part = make_part([0, 1] * 8 + [1], [0] * 17, {"sex": ("a", "b")})
    counts = average(monkeypatch, [part], [np.array([0.31] * 16 + [0.9])])
    (everyone, _) = tabulate_scores(counts, [KEY], 10)
    ((score, positive, low, high),) = everyone["calibration"][0]
    assert (score, positive) == (31, 50)
    assert (low, high) == tuple(round(100 * float(end)) for end in wilson(0.5, 16))


@pytest.mark.filterwarnings("error")
def test_rows_of_no_weight_and_none_at_all(monkeypatch):
    part = make_part([0, 1] * 6, [0] * 12, {"sex": ("a",)}, weight=[0.0] * 12)
    counts = average(monkeypatch, [part], [np.full(12, 0.3)])
    shown = tabulate_scores(counts, [KEY], 10)[0]
    assert (sum(shown["share"][0]), shown["calibration"][0]) == (0, [])
    monkeypatch.setattr(report_files, "read_counts", lambda *_: None)
    empty = average_counts(make_plan(make_study()), None, None, 10)
    assert empty.empty
    assert list(empty.columns)[-len(SUMS) :] == list(SUMS)
    assert tabulate_scores(empty, [KEY], 10) == []
