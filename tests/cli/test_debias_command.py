from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from fairfrontier import load, post_process
from fairfrontier.cli.debias_command import show_debiasing
from fairfrontier.cli.option import build_command, read_options
from fairfrontier.debias.config import DebiasConfig
from fairfrontier.debias.debiasing import fit_debiasing
from fairfrontier.debias.files import check_options, write_debiasing
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.postprocess.rulebook import export_rulebook
from tests.debias.scored import make_scores
from tests.project import DATASET, call_here, make_project


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "loans.v2.csv.gz"
    make_scores(1500).to_csv(path, index=False)
    return path


def test_an_earlier_rule_is_applied_from_the_command_line(scored, fresh, tmp_path_factory):
    earlier = tmp_path_factory.mktemp("earlier")
    asked = {"scores": "s", "groups": ("sex", "race"), "labels": "y", "ids": "id"}
    fitted = fit_debiasing(DebiasConfig(table=scored, **asked))
    write_debiasing(fitted, earlier, 0.0)
    rule = str(earlier / "thresholds.json")
    out = fresh / "out"
    result = call_here(fresh, "debias", str(scored), "--apply", rule, "--out", str(out))
    assert result.returncode == 0, result.stderr
    assert "sex×race" in result.stdout
    assert f"Report: {out / 'report.html'}" in result.stdout.replace("\n", "")
    assert result.stderr == ""
    first = pd.read_parquet(earlier / "decisions.parquet")
    pd.testing.assert_frame_equal(first, pd.read_parquet(out / "decisions.parquet"))
    assert not (fresh / "data" / "results").exists()


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("randomized_threshold", {"width": 0.6, "rate": 0.4}),
        ("hardt", {"criterion": "equalized_odds"}),
        ("reject_option", {}),
    ],
)
def test_thresholds_from_python_decide_alike_on_a_table(method, parameters, tmp_path):
    dataset = DATASET.replace(
        "  origin: {column: origin}\n",
        "  origin: {column: origin}\n  age: {column: age, below: 40, names: [young, older]}\n",
    ).replace("train: 0.6, test: 0.4", "train: 0.4, calibration: 0.3, test: 0.3")
    home = make_project(tmp_path, dataset=dataset)
    split = load("loans", home=home)
    model = LogisticRegression(max_iter=1000).fit(split.train.X, split.train.y)
    asked = {"attributes": ["age", "origin"], "random_state": 11, **parameters}
    fair = post_process(model, split, method, **asked)
    export_rulebook(fair, split).write(home / "thresholds.json")
    part = split.test
    table = pd.DataFrame({"id": part.ids, "score": model.predict_proba(part.X)[:, 1]})
    for name, levels in part.attributes.items():
        table[name] = pd.Categorical.from_codes(part.group(name), levels)
    table.to_parquet(home / "applicants.parquet")
    asked = {"table": str(home / "applicants.parquet"), "apply": str(home / "thresholds.json")}
    config = read_options(DebiasConfig, {**asked, "conf": home}, "debias")
    write_debiasing(fit_debiasing(config), config.folder, 0.0)
    found = pd.read_parquet(config.folder / "decisions.parquet")
    assert found["id"].tolist() == part.ids.tolist()
    decided = fair.predict(part.X, groups=part.groups, ids=part.ids)
    assert found["decision"].tolist() == decided.tolist()
    h = fair.predict_proba(part.X, groups=part.groups)[:, 1]
    assert found["probability"].tolist() == h.tolist()
    # Draws decide on a good part of the rows.
    assert (((h > 0) & (h < 1)).mean() > 0.3) == fair.randomized


def test_bad_options_are_one_line_and_exit_code_two(scored, fresh):
    result = call_here(fresh, "debias", str(scored), "--scores", "s", "--groups", "sex,rase")
    assert result.returncode == 2
    assert "no column 'rase' (--groups). Did you mean 'race'?" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (fresh / "data" / "results").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"scale": "prob"},
            r"^--scale is 'prob': input should be 'probability', 'margin', 'signed' or",
        ),
        ({"rate": 2.0}, r"^--rate is 2.0: input should be less than or equal to 1"),
        ({"apply": "thresholds.json"}, r"^Groups is given beside apply.* Leave out groups"),
        (
            {"rule": "group_thresholds", "criterion": "equalized_odds"},
            r"^The criterion 'equalized_odds' is of rows with a known outcome, .*--labels\.$",
        ),
    ],
)
def test_an_option_that_cannot_be_is_named(options, told):
    with pytest.raises(ConfigError, match=told):
        read_options(
            DebiasConfig, {"table": "a.csv", "scores": "s", "groups": ["sex"], **options}, "debias"
        )


def test_the_command_line_passes_on_what_was_given(scored):
    asked = []
    options = ["--scores", "s", "--groups", "sex, race", "--budget", "0.05", "--width", "0"]
    built = build_command(DebiasConfig, asked.append, "table")
    built.main([str(scored), *options, "--seed", "0"], standalone_mode=False)
    assert asked[0].groups == ("sex", "race")
    assert (asked[0].budget, asked[0].width, asked[0].seed) == (0.05, 0.0, 0)
    given = {"table", "scores", "groups", "budget", "width", "seed"}
    assert asked[0].model_fields_set == given


def test_help_says_than_what_no_harm_is_no_worse(capsys):
    with pytest.raises(SystemExit):
        build_command(DebiasConfig, print, "table").main(["--help"])
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "gets worse than under the best thresholds without a bound." in told


def tell(capsys, fit, bias):
    """Return the lines that end what is shown of a debiasing."""
    ends = {"value": 0.1, "low": 0.0, "high": 0.2}
    summary = {
        "name": "loans",
        "bias": [
            {"part": "all", "attribute": name, "rule": rule, **ends}
            for name in bias
            for rule in ("unmodified", "debiased")
        ],
        "reported_on": "all",
        "expected": {"bias": [{"attribute": name, **each} for name, each in bias.items()]},
        "counts": {"rows": 60, "all": 60},
        "seconds": 1.0,
        "fit": fit,
    }
    show_debiasing(Path("out"), summary)
    return [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("Not recommended", "The rule"))
    ]


def test_only_a_rule_that_adds_bias_is_not_recommended_in_one_line(capsys):
    better, same = {"before": 0.2, "after": 0.1}, {"before": 0.0, "after": 0.0}
    assert tell(capsys, {}, {"sex": same, "race": better}) == []
    (line,) = tell(capsys, {}, {"sex": {"before": 0.0, "after": 0.03}, "race": better, "age": {
        "before": 0.01, "after": 0.05}})  # fmt: skip
    assert line.startswith("Not recommended: on fresh rows")
    assert line.endswith("of sex from 0.000 to 0.030, age from 0.010 to 0.050.")


@pytest.mark.parametrize(
    ("fit", "told"), [({"converged": False}, 1), ({"converged": True}, 0), ({"settings": 65}, 0)]
)
def test_what_is_not_proven_best_is_said(capsys, fit, told):
    lines = tell(capsys, fit, {"sex": {"before": 0.2, "after": 0.1}})
    assert len(lines) == told
    assert all("may not be the best of its kind" in line for line in lines)


@pytest.mark.parametrize("name", ["groups.csv", "decisions.parquet", "curve.csv"])
def test_results_never_replace_what_is_read(tmp_path, name):
    table = tmp_path / name
    table.write_text("s,sex\n0.5,f\n")
    asked = DebiasConfig(table=str(table), scores="s", groups=("sex",), out=str(tmp_path))
    with pytest.raises(ConfigError, match=f"would replace what is read: .*{name}"):
        check_options(asked)


def test_results_do_not_join_the_parts_of_the_table(tmp_path):
    pd.DataFrame({"s": [0.5], "sex": ["f"]}).to_parquet(tmp_path / "part.parquet")
    asked = DebiasConfig(table=str(tmp_path), scores="s", groups=("sex",), out=str(tmp_path))
    with pytest.raises(ConfigError, match="would join a table: "):
        check_options(asked)
