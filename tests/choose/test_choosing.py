"""What `select` leaves behind, and how it ends."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from markdown_it import MarkdownIt

import fairfrontier as ff
from fairfrontier.choose import choosing
from fairfrontier.choose.choosing import PAPERS, choose, describe_card, write_choice
from fairfrontier.choose.config import SelectConfig
from fairfrontier.cli.command import app, show_choice
from fairfrontier.cli.terminal import run_app
from fairfrontier.report.finding import escape_markdown, quote_code
from fairfrontier.runtime.errors import ConfigError, StoreError, UnattainableError
from fairfrontier.runtime.text_file import read_csv

DIFFERENCE = "selection_rate_difference:origin"


@pytest.fixture
def ask(loans):
    """Return a function that makes the options of the study."""

    def make(query: str = "", **options: object) -> SelectConfig:
        return SelectConfig(study="loans", query=query, conf=loans.home, **options)

    return make


def test_a_choice_leaves_its_bundle_card_tables_and_decisions(loans, ask, raw, capsys):
    config = ask(f"max accuracy subject to {DIFFERENCE} <= 0.15")
    summary = write_choice(choose(config), config)
    folder = loans.folder / "choice"
    assert {path.name for path in folder.iterdir()} == {
        "bundle",
        "card.html",
        "card.md",
        "choice.json",
        "datasheet.csv",
        "datasheet.md",
        "decisions.parquet",
        "explain.csv",
        "explain.png",
        "measures.csv",
        "technical-file.md",
    }
    decisions = pd.read_parquet(folder / "decisions.parquet")
    assert list(decisions.columns) == ["id", "decision"]
    again = ff.load_bundle(folder / "bundle").decide(raw.loc[decisions["id"]])
    assert (again["decision"].to_numpy() == decisions["decision"].to_numpy()).all()
    # Measures are those of the study, which has one seed.
    points = loans.points
    own = points[(points["part"] == "test") & (points["method"] == "drawn")]
    table = read_csv(folder / "measures.csv").set_index("name")["value"]
    for measure in ("accuracy", "auc", "log_loss"):
        value = own.loc[(own["measure"] == measure) & (own["group"] == ""), "value"].iloc[0]
        assert table[measure] == pytest.approx(value, abs=1e-9), measure
    show_choice(summary)
    told = capsys.readouterr().out
    assert "looks at origin of every row" in told
    for name in ("score", "explain", "audit", "monitor"):
        assert summary["commands"][name] in told
    # The table is found from the current folder.
    assert Path(shlex.split(summary["commands"]["score"])[3]).is_file()
    written = shlex.split(json.loads((folder / "choice.json").read_text())["commands"]["select"])
    assert written == ["fairfrontier", "select", "loans", config.query]


def test_a_bound_that_test_rows_pass_is_told_on_the_terminal_and_in_the_card(loans, ask, capsys):
    folder = loans.folder / "choice"
    points = loans.points[(loans.points["measure"] == "accuracy") & (loans.points["group"] == "")]
    table = points.pivot_table(index="method", columns="part", values="value")
    # Between what the best model has on validation and, less, on test.
    method = table["validation"].idxmax()
    bound = float(table.loc[method, ["validation", "test"]].mean())
    for least, passed in ((bound, True), (0.1, False)):
        config = ask(f"max accuracy subject to accuracy >= {least}")
        summary = write_choice(choose(config), config)
        show_choice(summary)
        told = capsys.readouterr().err
        value = f"{table.loc[method, 'test']:.3f}"
        assert (value in told) == passed
        assert len(json.loads((folder / "choice.json").read_text())["passed"]) == passed
        for name in ("card.md", "card.html"):
            card = (folder / name).read_text()
            assert ("does not hold on test" in card) == passed
            assert ("was asked for, and holds on test" in card) == (not passed)


def test_the_card_says_what_is_known_and_marks_what_is_not(loans, ask):
    config = ask(f"max accuracy subject to {DIFFERENCE} <= 0.15")
    write_choice(choose(config), config)
    text = (loans.folder / "choice" / "card.md").read_text()
    _, header, body = text.split("---\n", 2)
    described = yaml.safe_load(header)
    (result,) = described["model-index"][0]["results"]
    accuracy = next(each["value"] for each in result["metrics"] if each["name"] == "accuracy")
    assert described["library_name"] == "fairfrontier"
    assert f"| accuracy | {accuracy:.3f} (" in body
    assert body.count("**To be filled in:**") == 3
    assert "2000e-2(l)" in body
    explained = read_csv(loans.folder / "choice" / "explain.csv").iloc[0]
    row = f"| {explained['column']} | {explained['mean_abs']:.3f} | "
    assert row in body.partition("## What the scores are made of")[2]
    for level in ("island", "north", "south"):
        assert f"| {level} | " in body
    page = (loans.folder / "choice" / "card.html").read_text()
    assert page.count("To be filled in") == 3
    assert "<script" not in page
    assert "data:image/png" in page
    assert str(loans.home) not in text + page


def test_measures_of_levels_with_few_rows_are_in_no_file(loans, ask):
    config = ask("max accuracy")
    choice = choose(config)
    # More than the test rows of island, fewer than those of the others.
    choice.study.facts["minimum"] = 60
    write_choice(choice, config)
    folder = loans.folder / "choice"
    names = read_csv(folder / "measures.csv")["name"]
    assert names.str.contains("origin=north").any()
    assert names[names.str.contains("island")].tolist() == []
    for name in ("card.md", "card.html"):
        text = (folder / name).read_text()
        assert "north" in text
        assert "island" not in text


def test_each_table_of_the_card_names_the_command_and_the_file_of_its_numbers(
    loans, ask, monkeypatch
):
    config = ask(f"max accuracy subject to {DIFFERENCE} <= 0.15")
    write_choice(choose(config), config)
    folder = loans.folder / "choice"
    text = (folder / "card.md").read_text()
    # Every table of numbers ends with a line that says where they are.
    tables = re.findall(r"((?:^\|.*\n)+)\n(.*)", text, re.MULTILINE)
    numbers = [(table, line) for table, line in tables if re.search(r"\d\.\d{3}", table)]
    assert len(numbers) == 1 + 1 + 2 + 1 + 2
    commands = set()
    for table, line in numbers:
        assert re.search("`(measures|explain).csv`", line), table
        commands |= {*re.findall("`(fairfrontier [^`]+)`", line)}
    run, select = sorted(commands)
    before = {path.name: path.read_bytes() for path in folder.glob("*.csv")}
    shutil.rmtree(folder)
    monkeypatch.chdir(loans.home)
    for command in (run, select):
        app(shlex.split(command)[1:], standalone_mode=False)
    assert {path.name: path.read_bytes() for path in folder.glob("*.csv")} == before
    # The cells are those of the files.
    measures = read_csv(folder / "measures.csv").set_index("name")
    selected = json.loads((folder / "choice.json").read_text())["selected"]
    points = loans.points[loans.points["part"] == "validation"]
    for name, value in selected.items():
        measure, _, group = name.partition(":")
        own = points[(points["measure"] == measure) & (points["group"] == group)]
        setting = own[own["method"] == "drawn"]["value"]
        assert setting.mean() == value
        row = measures.loc[name]
        shown = f"| {value:.3f} | – | {row['value']:.3f} ({row['low']:.3f} to"
        assert any(shown in table for table, _ in numbers)
    island = measures.loc["tpr:origin=island"]
    shown = f"{island['value']:.3f} ({island['low']:.3f} to {island['high']:.3f}), n = "
    rows = measures.loc["selection_rate:origin=island", "n"]
    (line,) = [line for line in text.splitlines() if line.startswith(f"| island | {rows:.0f} |")]
    assert shown + f"{island['n']:.0f}" in line
    base = read_csv(folder / "explain.csv")["base"].iloc[0]
    assert f"the base {base:.3f}".replace("-", "−") in text


@pytest.mark.parametrize("text", ["a", "``", "a `b`", "```x"])
def test_code_in_a_line_of_markdown(text):
    tokens = MarkdownIt().parseInline(quote_code(text))[0].children
    assert [(token.type, token.content) for token in tokens] == [("code_inline", text)]


def test_papers_count_the_data_and_follow_the_annex(loans, ask, raw):
    config = ask()
    write_choice(choose(config), config)
    sheet = (loans.folder / "choice" / "datasheet.md").read_text()
    used = raw[raw["age"] >= 20]
    assert f"{len(used)} rows are used; {len(raw) - len(used)} of the table are left out" in sheet
    assert f"| income | number | {used['income'].isna().sum()} |" in sheet
    north = used[used["origin"] == "north"]
    rate = (north["outcome"] == "repaid").mean()
    assert f"| north | {len(north)} | {len(north) / len(used):.3f} | {rate:.3f} |" in sheet
    # Every table ends with a line that says where its numbers are, and they are there.
    tables = re.findall(r"((?:^\|.*\n)+)\n(.*)", sheet, re.MULTILINE)
    assert len(tables) == 3
    assert all(re.search(r"`datasheet.csv`.*`fairfrontier select loans`", say) for _, say in tables)
    kept = read_csv(loans.folder / "choice" / "datasheet.csv").fillna({"level": ""})
    kept = kept.set_index(["number", "name", "level"])["value"].astype(float)
    assert kept["rows", "used", ""] == len(used)
    parts = [kept["rows", part, ""] for part in ("train", "validation", "test")]
    assert sum(parts) == len(used)
    assert kept["missing", "income", ""] == used["income"].isna().sum()
    assert kept["label", "origin", "north"] == pytest.approx(rate)
    assert kept["share", "origin", "north"] == pytest.approx(len(north) / len(used))
    draft = (loans.folder / "choice" / "technical-file.md").read_text()
    numbers = [line[3] for line in draft.splitlines() if line.startswith("## ")]
    assert numbers == list("123456789")
    assert "fairfrontier monitor " in draft
    for paper in (sheet, draft):
        assert "To be filled in" in paper
        assert str(loans.home) not in paper


def test_a_measure_that_test_rows_do_not_tell_is_not_said_to_fail(loans, ask, capsys, monkeypatch):
    unknown = {"name": "accuracy", "bound": "accuracy >= 0.1", "value": np.nan}
    unknown |= {"low": np.nan, "high": np.nan}
    # The header of the card has a name that ends as it does.
    changed = {"passed": [unknown], "dataset": "sex---"}
    monkeypatch.setattr(choosing, "describe_card", lambda *given: describe_card(*given) | changed)
    config = ask()
    show_choice(write_choice(choose(config), config))
    folder = loans.folder / "choice"
    card, page = ((folder / name).read_text() for name in ("card.md", "card.html"))
    for told in (capsys.readouterr().err, card, page):
        assert "cannot be checked on test" in " ".join(told.split())
        assert "does not hold" not in told
    assert "model-index" not in page


def test_papers_steer_no_terminal(loans, ask, monkeypatch):
    evil = {"label": "\x1b]0;title\x07 \u202e"}
    monkeypatch.setattr(choosing, "describe_card", lambda *given: describe_card(*given) | evil)
    config = ask()
    write_choice(choose(config), config)
    for name in PAPERS:
        text = (loans.folder / "choice" / name).read_text()
        assert not set(text) & {"\x1b", "\x07", "\u202e"}, name
    assert r"x1b]0;title" in (loans.folder / "choice" / "datasheet.md").read_text().replace(
        "\\", ""
    )


def test_without_groups_at_decision_no_rule_competes(ask):
    config = ask(f"subject to {DIFFERENCE} <= 0.15", no_groups_at_decision=True)
    with pytest.raises(UnattainableError):
        choose(config)
    assert choose(ask(no_groups_at_decision=True)).method in ("gbdt", "linear")
    rules = ask(f"subject to {DIFFERENCE} <= 0.15")
    assert choose(rules).method == "drawn"


def test_policies_choose_on_the_frontier_within_the_bounds(ask):
    best = choose(ask())
    nearest = choose(ask(policy="least-disparity-within=0"))
    assert nearest.selected["accuracy"] == best.selected["accuracy"]
    assert choose(ask(policy="least-disparity-within=1")).method == "drawn"
    kept = choose(ask("subject to accuracy >= 0.8", policy="least-disparity-within=1"))
    assert kept.method != "drawn"
    with pytest.raises(ConfigError):
        choose(ask(policy="knee", mixture=True))


def test_a_choice_replaces_the_one_before_and_nothing_else(loans, ask):
    config = ask()
    write_choice(choose(config), config)
    write_choice(choose(config), config)
    folder = loans.folder / "choice"
    (folder / "watch").mkdir()
    (folder / "watch" / "history.parquet").touch()
    with pytest.raises(StoreError, match=r"choice holds something else: watch\."):
        write_choice(choose(config), config)
    assert (folder / "watch" / "history.parquet").is_file()
    shutil.rmtree(folder / "watch")
    (folder / "bundle" / "notes.txt").touch()
    with pytest.raises(StoreError, match=r"choice holds something else: bundle/notes\.txt\."):
        write_choice(choose(config), config)
    (folder / "bundle" / "notes.txt").unlink()
    (folder / "bundle" / "bundle.json").unlink()
    with pytest.raises(StoreError):
        write_choice(choose(config), config)
    assert (folder / "card.md").is_file()
    (folder / "bundle").rename(loans.home / "moved")
    for path in folder.iterdir():
        path.unlink()
    write_choice(choose(config), config)


def test_a_choice_replaces_one_with_other_files_that_came_meanwhile(loans, ask, monkeypatch):
    plain, drawn = ask(), ask(f"max accuracy subject to {DIFFERENCE} <= 0.15")
    write_choice(choose(plain), plain)
    other, tabulate = choose(drawn), choosing.tabulate_data

    def let_in(card):
        monkeypatch.setattr(choosing, "tabulate_data", tabulate)
        write_choice(other, drawn)
        return tabulate(card)

    monkeypatch.setattr(choosing, "tabulate_data", let_in)
    write_choice(choose(plain), plain)
    bundle = loans.folder / "choice" / "bundle"
    assert not (bundle / "rule").exists()
    ff.load_bundle(bundle)


@pytest.mark.parametrize("summary", ["kept", "[]", "{"])
def test_a_paper_that_somebody_completed_is_not_replaced(loans, ask, summary):
    config = ask()
    write_choice(choose(config), config)
    folder = loans.folder / "choice"
    paper = folder / "technical-file.md"
    paper.write_text(paper.read_text() + "\nFilled in.\n")
    if summary != "kept":
        (folder / "choice.json").write_text(summary)
    with pytest.raises(StoreError, match=r"\.md is not as the last choice left it\.") as caught:
        write_choice(choose(config), config)
    assert "Move it away" in caught.value.mend
    assert "Filled in." in paper.read_text()
    for path in folder.glob("*.md"):
        path.unlink()
    write_choice(choose(config), config)
    assert "Filled in." not in paper.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("subject to accuracy >= 0.99",), 3, "comes nearest, with accuracy"),
        (("max acuracy",), 2, "⟦acuracy⟧"),
        (("--policy", "elbow"), 2, "There is no policy 'elbow'"),
        (("--profile", "none"), 2, "none"),
    ],
)
def test_where_none_qualifies_the_exit_code_is_3(loans, monkeypatch, capsys, arguments, code, told):
    words = ["fairfrontier", "select", "loans", *arguments, "--conf", str(loans.home)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        run_app(app)
    assert ended.value.code == code
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_study_that_was_not_run_is_said(ask, tmp_path):
    with pytest.raises(ConfigError) as caught:
        choose(ask(out=tmp_path))
    assert caught.value.mend == "Run it first: fairfrontier run loans"


def test_text_of_tables_is_no_markup():
    assert escape_markdown("<b>a|b</b>\n# x_y") == r"&lt;b&gt;a\|b&lt;/b&gt; \# x\_y"
