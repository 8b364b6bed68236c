"""What README.md, CONTRIBUTING.md and the manual show is run, as it stands there."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairfrontier import init
from fairfrontier.runtime.config import read_yaml
from tests.project import call_here

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(\w+)\n# (\S+)\n(.*?)^```$", re.M | re.S)

# What a study trains and measures, without the server that `fairfrontier run` starts.
STUDY = """
import sys
from pathlib import Path

import pandas as pd

from fairfrontier.study.points import tabulate_group
from fairfrontier.study.check import load_study
from fairfrontier.study.resolve import expand
from fairfrontier.runtime.store import Store

home = Path.cwd()
store = Store(home / "data" / "cache")
groups = [planned.group for planned in expand(load_study("new", home=home))]
pd.concat(tabulate_group(each, store, home) for each in groups).to_csv(sys.stdout, index=False)
"""


def read_blocks(document: str) -> dict[str, str]:
    """Return the fenced blocks that begin with a comment naming their file."""
    return {
        name: text for _, name, text in FENCE.findall((ROOT / document).read_text(encoding="utf-8"))
    }


def run(*arguments: str, folder: Path, home: Path) -> str:
    """Run a module of a tree in a folder, and return what it printed."""
    paths = os.pathsep.join([str(home), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "FAIRFRONTIER_HOME": str(home)}
    result = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def make_loans(n_samples: int = 400) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    sex = generator.choice(["woman", "man"], n_samples)
    income = generator.lognormal(3.4, 0.4, n_samples) * np.where(sex == "man", 1.15, 1.0)
    chance = 1 / (1 + np.exp(-(income - 32) / 8))
    return pd.DataFrame(
        {
            "income": income.round(2),
            "age": generator.integers(18, 80, n_samples),
            "job": generator.choice(["clerk", "smith", "nurse"], n_samples),
            "region": generator.choice(["north", "south"], n_samples),
            "sex": sex,
            "repaid": np.where(generator.random(n_samples) < chance, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    """Return a project with the dataset and the study of the manual, which was run."""
    blocks = read_blocks("docs/study.md")
    assert list(blocks) == ["loans.yaml", "loans-study.yaml"]
    lines = sum(block.count("\n") for block in blocks.values())
    assert lines <= 15
    assert blocks["loans-study.yaml"].count("trials: 40") == 1
    home = _make_home(tmp_path_factory.mktemp("manual") / "home")
    for name, text in blocks.items():
        (home / name).write_text(text.replace("trials: 40", "trials: 12"))
    # With fewer rows chance alone passes the bound of `select`.
    make_loans(1000).to_csv(home / "loans.csv", index=False)
    done = call_here(home, "run", "loans-study.yaml", "--cluster", "inline")
    assert done.returncode == 0, done.stderr
    return home


def test_first_frontier_of_the_readme(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    drafting, running = code.split("study = ")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRFRONTIER_HOME", raising=False)
    (tmp_path / "conf").mkdir()
    make_loans(2000).to_csv("loans.csv", index=False)
    names: dict[str, object] = {}
    exec(drafting, names)  # noqa: S102 - the README's own lines
    # The same with fewer methods and trials.
    study = tmp_path / "conf" / "studies" / "loans.yaml"
    drafted = read_yaml(study)
    drafted["methods"] = {name: drafted["methods"][name] for name in ("linear", "parity sex")}
    drafted["search"]["trials"] = 5
    study.write_text(json.dumps(drafted))
    exec(f"study = {running}", names)  # noqa: S102
    assert (tmp_path / "my-bundle" / "bundle.json").is_file()
    # The same in the shell.
    (shell,) = re.findall(r"```\n(fairfrontier init .*?)```", text, re.S)
    assert drafting.count('label="repaid"') == shell.count("--label repaid") == 1


def test_scoreboard_of_the_readme_is_that_of_the_kept_runs():
    text = (ROOT / "README.md").read_text()
    shown = {
        line.split("|")[1].strip(): [each.strip() for each in line.split("|")[2:-1]]
        for line in text.splitlines()
        if line.startswith("| ")
    }
    runs = ROOT / "data" / "reference" / "runs"
    kept = json.loads((runs / "scoreboard.json").read_text())
    cells = pd.DataFrame(kept["cells"], columns=kept["columns"])
    cells = cells[cells["track"] == "thresholds"]
    peers = ["error-parity", "fairlearn", "oxonfair"]
    verdicts = cells.groupby("contender")["verdict"]
    counts = [verdicts.value_counts()[name] for name in peers]
    assert shown["ours wins / ties / loses against it, of 144"][:3] == [
        " / ".join(str(count.get(verdict, 0)) for verdict in ("win", "tie", "loss"))
        for count in counts
    ]
    assert {count.sum() for count in counts} == {144}
    higher = cells.groupby("contender")["difference"].apply(lambda each: (each > 0).mean())
    assert shown["ours is higher in the mean"][:3] == [f"{higher[name]:.0%}" for name in peers]
    everybody = [*peers, "smoothed_thresholds"]
    means = cells.groupby("contender")[["value", "volume"]].mean().loc[everybody]
    for line, column in {
        "mean objective": "value",
        "area that the frontier dominates": "volume",
    }.items():
        assert shown[line] == [f"{value:.3f}"[1:] for value in means[column]]
    crossed = cells[cells["table"] == "adult-sex-race"].groupby("contender")["seconds"].mean()
    seconds = [float(value) for value in shown["seconds for eight budgets, four groups of Adult"]]
    assert seconds == [round(crossed[name], 2 if crossed[name] < 1 else 1) for name in everybody]


def test_table_of_the_readme_is_published_and_that_of_the_kept_run():
    lines = (ROOT / "README.md").read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("| BuDRO, published"))
    cells = [[each.strip() for each in line.split("|")[2:-1]] for line in lines[begin : begin + 4]]
    reference = ROOT / "data" / "reference"
    table = read_yaml(reference / "budro.yaml")["tables"]["table2"]
    measures = ["balanced_accuracy", "consistency:spouse", "consistency:gender_race", "gap_rms:sex"]
    run = json.loads((reference / "runs" / "adult@paper.json").read_text())
    ours = {
        (row["method"], row["measure"]): (row["mean"], row["sd"])
        for row in run["rows"]
        if row["n_splits"] == 10 and row["setting"].get("select_on") == "train"
    }
    for method, (published, found) in zip(("budro", "gbdt"), (cells[:2], cells[2:]), strict=True):
        row = table["rows"][method]
        given = dict(
            zip(table["measures"], zip(row["mean"], row["spread"], strict=True), strict=True)
        )
        assert published == [show(*given[name]) for name in measures]
        assert found == [show(*ours[method, name]) for name in measures]


def show(mean: float, spread: float) -> str:
    return f"{mean:.3f} ± {spread:.3f}".replace("0.", ".")


@pytest.mark.once
def test_own_table_of_the_manual(loans, tmp_path):
    drafted = init(loans / "loans.csv", out=tmp_path)
    assert drafted.command.startswith("fairfrontier run loans")
    folder = loans / "data" / "results" / "loans-study"
    named = ("report.html", "frontier.csv", "frontier.png", "points.parquet", "summary.json")
    assert {each for each in named if (folder / each).is_file()} == set(named)
    assert set(pd.read_csv(folder / "frontier.csv").method) >= {"gbdt", "budro"}
    assert pd.read_csv(folder / "frontier.csv").method.str.startswith("parity (").any()


@pytest.mark.slow
def test_the_way_from_a_frontier_to_a_decision_in_use(loans):
    pages = [ROOT / "docs" / "guide" / f"{name}.md" for name in ("decision", "audit", "monitor")]
    text = "".join(page.read_text() for page in pages)
    named = re.findall(r"^fairfrontier (?:select|score|audit|monitor) .*[^\\]$", text, re.M)
    inline = re.findall(r"`(audit applicants.csv --model) BUNDLE`", text)
    assert len(inline) == 1
    bundle = "data/results/loans-study/choice/bundle"
    applicants = make_loans(700).assign(race=["a", "b"] * 350)
    hired = (applicants["income"] > applicants["income"].median()).astype(int)
    applicants.assign(hired=hired).to_csv(loans / "applicants.csv", index=False)
    make_loans(600).iloc[400:].to_csv(loans / "2026-W47.csv", index=False)
    for line in (*named, f"fairfrontier {inline[0]} {bundle}"):
        words = shlex.split(line)[1:]
        done = call_here(loans, *words)
        # 4 where a limit is passed.
        assert done.returncode in (0, 4), (line, done.stderr)
    assert {words.split()[1] for words in named} == {"select", "score", "audit", "monitor"}
    assert (loans / bundle / "bundle.json").is_file()
    assert len(pd.read_parquet(loans / "decisions.parquet")) == 700
    results = loans / "data" / "results"
    assert (results / "audit" / "applicants" / "report.html").is_file()
    assert (results / "monitor" / "loans-study" / "history.parquet").is_file()


@pytest.mark.once
def test_verbs_of_the_manual(tmp_path):
    text = (ROOT / "docs" / "python.md").read_text()
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.S))
    # The same lines on fewer rows.
    small = code.replace("seed=0)", "seed=0, rows=500)")
    small = small.replace("budget=0.4", "budget=0.4, n_estimators=5")
    assert small.count("rows=500") == 2
    assert small.count("n_estimators=5") == 1
    shown = f"{small}\nprint(*rows.columns)\n"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", shown],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FAIRFRONTIER_HOME": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["measure", "group", "value", "n", "low", "high", "left_out"]
    assert len(json.loads((tmp_path / "thresholds.json").read_text())["thresholds"]) == 10


@pytest.mark.once
def test_method_in_two_files(tmp_path):
    blocks = read_blocks("CONTRIBUTING.md")
    source, described = blocks
    assert source.startswith("fairfrontier/models/")
    assert described == f"conf/methods/{Path(source).name.replace('.py', '.yaml')}"
    home = _make_home(
        tmp_path / "copy", "fairfrontier", "papers", "tasks", "flows", "tests", "pyproject.toml"
    )
    for name, text in blocks.items():
        (home / name).write_text(text)
    name = Path(source).stem
    for command in (["check"], ["format", "--check"]):
        run("ruff", *command, "--no-cache", source, folder=home, home=home)
    contracts = ["pytest", "-p", "no:cacheprovider", "tests/contracts/test_methods.py"]
    told = run(*contracts, "-k", name, folder=home, home=home)
    assert int(re.search(r"(\d+) passed", told).group(1)) > 10
    (home / "conf" / "studies" / "new.yaml").write_text(
        "dataset: german\n"
        f"methods: {{gbdt: {{n_estimators: 5}}, {name}: {{grid: smoothing}}}}\n"
        "frontier: {fairness: [consistency:status, gap_rms:age]}\n"
    )
    (home / "study.py").write_text(STUDY)
    points = pd.read_csv(io.StringIO(run("study", folder=home, home=home)))
    settings = points.setting[points.method == name].unique()
    assert [json.loads(each)["smoothing"] for each in settings] == [0.01, 0.1, 1.0]
    assert points.value.notna().any()


def _make_home(folder: Path, *rooms: str) -> Path:
    """Copy the configuration, one table and some rooms of this tree to a folder."""
    # Compiled code too, but not what others compile meanwhile.
    ignore = shutil.ignore_patterns("*.pyc.*", ".*")
    for room in ("conf", *rooms):
        if (ROOT / room).is_dir():
            shutil.copytree(ROOT / room, folder / room, ignore=ignore)
        else:
            shutil.copy(ROOT / room, folder / room)
    (folder / "data" / "raw").mkdir(parents=True)
    shutil.copy(ROOT / "data" / "raw" / "german.data.gz", folder / "data" / "raw")
    return folder
