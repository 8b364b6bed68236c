"""A study whose table, YAML and surroundings are all hostile, run from start to end."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
import yaml
from typer.testing import CliRunner

from fairfrontier.auditing.option import AuditConfig, DebiasConfig
from fairfrontier.cli.command import app
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.report.files import read_script
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import StudyConfig
from tests.project import DATASET, STUDY, make_project

SCRIPT = "<script>alert(1)</script>"
# Sets the terminal's title and its clipboard.
CONTROL = "\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x07"
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "hunter2-of-the-cloud",
    "HTTPS_PROXY": "http://user:hunter2-of-the-proxy@proxy.example:3128",
    "PREFECT_API_AUTH_STRING": "admin:hunter2-of-the-server",
}
NOTES = f"""
notes: |
  {SCRIPT} <img src=x onerror=alert(1)> [link](javascript:alert(1)) ![seen](https://evil.example/x)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return the project of a hostile study that was run, and what was printed."""
    home = make_project(tmp_path_factory.mktemp("hostile"))
    rows = f'  "{SCRIPT} $\\\\frac$": {{method: linear}}\n'
    study = STUDY.replace("  linear: {}\n", rows).replace("seeds: 2", "seeds: 1") + NOTES
    study = study.replace("[2, 3]", "2").replace(
        "  reweigh: {attribute: origin, n_estimators: 10}\n", ""
    )
    (home / "conf" / "studies" / "loans.yaml").write_text(study)
    table = home / "data" / "raw" / "loans.csv"
    text = table.read_text().replace("island", f"{SCRIPT} $\\frac$").replace("north", CONTROL)
    table.write_text(text.replace("smith", "=HYPERLINK(1)"))
    command = ["run", "loans", "--cluster", "inline", "--conf", str(home)]
    done = CliRunner().invoke(app, command, env=SECRETS)
    assert done.exit_code == 0, done.output
    return home, done.output


class Page(HTMLParser):
    """Collects the elements of a page and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def test_no_secret_of_the_environment_is_written_or_shown(ran):
    home, output = ran
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.name == "report.html" for path in files)
    texts = [*(path.read_bytes() for path in files), output.encode()]
    assert not any(b"hunter2" in text for text in texts)


def test_a_report_runs_its_own_script_alone_and_fetches_nothing(ran):
    home, _ = ran
    text = (home / "data" / "results" / "loans" / "report.html").read_text()
    assert "alert(1)" in text
    elements = Page(text).elements
    scripts = [attributes for tag, attributes in elements if tag == "script"]
    assert scripts == [{"type": "text/plain", "id": "data"}, {}]
    for _, attributes in elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("src", "data:").startswith("data:")
        assert urlsplit(attributes.get("href") or "").scheme in ("", "http", "https")
    policies = [each["content"] for _, each in elements if "http-equiv" in each]
    assert [each.partition(";")[0] for each in policies] == ["default-src 'none'"]
    assert [each for each in policies[0].split("; ") if each.startswith("script-src")] == [
        f"script-src {read_script()[1]}"
    ]


def test_no_text_of_a_table_steers_the_terminal(ran):
    _, output = ran
    assert "\x1b" not in output
    assert "\x07" not in output


def test_files_have_the_names_that_the_project_gives_them(ran):
    home, _ = ran
    names = {path.name for path in (home / "data").rglob("*")}
    assert not [name for name in names if set(name) & set("<>$=\x1b\x07 ")]


NAMES = (
    "..",
    "../loans",
    "/etc/loans",
    "a/b",
    "a\\b",
    ".hidden",
    "a\x00b",
    "a\nb",
    "",
    "-rf",
    "~root",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["study", "profile"])
def test_results_are_named_after_no_path(name, key):
    data = yaml.safe_load(STUDY)
    assert parse(StudyConfig, data, "loans.yaml").slug == "loans"
    with pytest.raises(ConfigError, match=key):
        parse(StudyConfig, {**data, key: name}, "loans.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_a_dataset_is_named_after_no_path(name):
    data = yaml.safe_load(DATASET)
    assert parse(DatasetConfig, data, "loans.yaml").dataset == "loans"
    with pytest.raises(ConfigError, match="dataset"):
        parse(DatasetConfig, {**data, "dataset": name}, "loans.yaml")


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        (DebiasConfig, {"scores": "s", "groups": "g"}),
        (AuditConfig, {"decisions": "d", "labels": "y", "group": "g", "level": 0.1}),
    ],
)
def test_results_on_a_table_are_named_after_the_folder_that_dots_stand_for(
    command, fields, tmp_path
):
    (tmp_path / "conf").mkdir()
    (tmp_path / "scores" / "x").mkdir(parents=True)
    table = tmp_path / "scores" / "x" / ".."
    folder = command(table=table, conf=tmp_path, **fields).folder
    assert folder == tmp_path / "data" / "results" / command.command / "scores"
