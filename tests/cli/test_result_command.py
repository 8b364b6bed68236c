from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer import Exit

from fairfrontier import create, load, post_process
from fairfrontier.auditing.audit import check_options, write
from fairfrontier.auditing.debias import fit_debiasing
from fairfrontier.auditing.debiased import check_options as check_debias
from fairfrontier.auditing.debiased import write_debiasing
from fairfrontier.auditing.noisy_groups import run_noisy_audit
from fairfrontier.auditing.option import AuditConfig, DebiasConfig
from fairfrontier.cli import command
from fairfrontier.cli.command import show_choice, show_debiasing
from fairfrontier.cli.option import build_command, read_options
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from tests.auditing.hiring import make_applicants
from tests.auditing.noisy_rows import (
    COUNTS,
    deal,
    find_rate,
    make_table,
    make_twelve,
    write_confusion,
)
from tests.auditing.scored import make_scores
from tests.project import DATASET, call, call_here, make_project


def read(given):
    """Return what a command line asks for."""
    return read_options(AuditConfig, given, "audit")


COLUMNS = {"decisions": "decision", "labels": "y", "group": "group"}


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "loans.v3.csv.gz"
    make_table().to_csv(path, index=False)
    return path


def test_the_command_line_agrees_with_brute_force_over_all_assignments(fresh):
    frame = make_twelve(2)
    frame.to_csv(fresh / "twelve.csv", index=False)
    write_confusion(fresh / "confusion.csv")
    options = ["--decisions", "decision", "--labels", "label", "--positive", "yes"]
    options += ["--group", "group", "--confusion", "confusion.csv", "--out", "out"]
    options += ["--minimum", "1"]
    result = call_here(fresh, "audit", "twelve.csv", *options)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    found = pd.read_csv(fresh / "out" / "bounds.csv", keep_default_na=False)
    found = found[found["bound"] == "assignment"]
    assert len(found) == 8
    decision, y = frame["decision"].to_numpy(), (frame["label"] == "yes").to_numpy().astype(int)
    codes = (frame["group"] == "b").to_numpy().astype(int)
    for row in found.to_dict("records"):
        j = "ab".index(row["group"])
        rates = [find_rate(row["measure"], decision, y, true == j) for true in deal(codes, COUNTS)]
        assert float(row["low"]) == pytest.approx(np.nanmin(rates))
        assert float(row["high"]) == pytest.approx(np.nanmax(rates))
    shown = result.stdout.replace("\n", "")
    assert "stays open, against all rows" in shown
    assert f"Report: {fresh / 'out' / 'report.html'}" in shown


def test_levels_cannot_steer_the_terminal(fresh):
    frame = make_table(200)
    evil = {"blue": "\x1b]0;title\x07", "green": "[bold]x[/]", "red": "\u202egreen"}
    frame.replace({"group": evil}).to_csv(fresh / "rows.csv", index=False)
    options = ["--decisions", "decision", "--labels", "y", "--group", "group", "--level", "0.05"]
    result = call(fresh, "audit", "rows.csv", *options, COLUMNS="200")
    assert result.returncode == 0, result.stderr
    # Matplotlib warns of letters that it cannot draw.
    assert "Glyph 27" in result.stderr
    for shown in (result.stdout, result.stderr):
        assert shown.replace("\n", "").isprintable()
    for text in (r"\x1b]0;title\x07", "[bold]x[/]", r"\u202egreen"):
        assert text in result.stdout


def test_a_saved_model_is_audited_on_a_dataset_with_noise(tmp_path):
    dataset = f"{DATASET}perturb: {{noisy_groups: {{origin: {{share: 0.1}}}}}}\n"
    home = make_project(tmp_path, dataset=dataset)
    split = load("loans", home=home)
    create("linear").fit(split.train.X, split.train.y).save(home / "model")
    asked = {"model": str(home / "model"), "dataset": "loans", "conf": home, "attribute": "origin"}
    config = read(asked)
    done = write(run_noisy_audit(config), config.folder, 0.0)
    assert done["subject"]["groups"] == ["origin"]
    assert done["noise"]["from"] == "injected"
    bounds = pd.read_csv(config.folder / "bounds.csv", keep_default_na=False)
    truth = bounds[bounds["bound"] == "truth"].set_index(["measure", "group"])["value"]
    limits = bounds[(bounds["bound"] == "assignment") & (bounds["noise"] == "limit")]
    assert len(limits) == len(truth) == 4 * 3
    for row in limits.to_dict("records"):
        value = float(truth[row["measure"], row["group"]])
        assert float(row["low"]) <= value <= float(row["high"])
    more = run_noisy_audit(read({**asked, "noise": 0.3, "part": "train"}))
    assert more.rows.weight.size == split.train.y.size
    assert more.noise.confusion[0][0] < done["noise"]["confusion"][0][0]
    assert run_noisy_audit(read({**asked, "level": 0.1})).rests_on == "model"
    none = run_noisy_audit(read({**asked, "noise": 0.0}))
    assert (none.noise.level == 0).all()
    for change, told in (
        ({"part": "calibration"}, "no part 'calibration'"),
        ({"attribute": "orgin"}, "Did you mean 'origin'"),
        ({"dataset": "laons"}, "Did you mean 'loans'"),
        ({"model": str(home / "conf")}, "holds no complete model"),
    ):
        with pytest.raises((ConfigError, StoreError), match=told):
            run_noisy_audit(read({**asked, **change}))


def test_groups_that_nothing_moved_are_not_taken_for_true_ones(tmp_path):
    groups = "groups:\n  region: {column: region}\n"
    noise = "perturb: {noisy_groups: {origin: {share: 0.1}}}\n"
    home = make_project(tmp_path, dataset=DATASET.replace("groups:\n", groups, 1) + noise)
    split = load("loans", home=home)
    create("linear").fit(split.train.X, split.train.y).save(home / "model")
    asked = {"model": str(home / "model"), "dataset": "loans", "conf": home}
    with pytest.raises(ConfigError, match="No noise was injected into 'region' of loans"):
        run_noisy_audit(read({**asked, "attribute": "region"}))
    pairs = home / "pairs.csv"
    pairs.write_text("true\na\n")
    known = {"attribute": "region", "auxiliary": str(pairs), "true_group": "true"}
    with pytest.raises(ConfigError, match=r"no column 'region' \(--attribute\)"):
        run_noisy_audit(read({**asked, **known}))


def test_a_model_of_other_rows_is_refused(fresh):
    split = load("loans", home=fresh)
    create("linear").fit(split.train.X[:, :3], split.train.y).save(fresh / "model")
    asked = {"model": str(fresh / "model"), "dataset": "loans", "conf": fresh}
    with pytest.raises(DataError, match="takes 3 features, and loans has"):
        run_noisy_audit(read({**asked, "attribute": "origin", "level": 0.1}))
    names = list(split.feature_names)
    for columns, told in (([*names[:-1], "wealth"], "that are not"), (names[::-1], "in another")):
        named = create("linear").fit(pd.DataFrame(split.train.X, columns=columns), split.train.y)
        named.save(fresh / columns[0])
        with pytest.raises(DataError, match=f"features {told}.*those of loans"):
            run_noisy_audit(read({**asked, "model": str(fresh / columns[0]), "level": 0.1}))
    y = split.train.y.astype(float)
    create("linear_regression").fit(split.train.X, y).save(fresh / "line")
    with pytest.raises(ConfigError, match="'linear_regression', which learns no decisions"):
        run_noisy_audit(read({**asked, "model": str(fresh / "line"), "level": 0.1}))
    create("linear").fit(split.train.X, split.train.y).save(fresh / "whole")
    with pytest.raises(ConfigError, match="No noise was injected into 'origin' of loans"):
        run_noisy_audit(read({**asked, "model": str(fresh / "whole"), "attribute": "origin"}))


def test_bad_options_are_one_line_and_exit_code_two(decided, fresh):
    result = call_here(fresh, "audit", str(decided), "--decisions", "decision", "--labels", "why")
    assert result.returncode == 2
    assert "needs decisions or scores, and groups" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (fresh / "data" / "results").exists()


def test_the_exit_code_says_whether_a_limit_is_exceeded(fresh):
    frame = make_applicants(1500)
    frame.to_csv(fresh / "applicants.csv", index=False)
    options = ["applicants.csv", "--decisions", "hired", "--groups", "sex", "--groups", "race"]
    result = call_here(
        fresh, "audit", *options, "--limit", "selection_rate_ratio=0.8", COLUMNS="80"
    )
    assert result.returncode == 4
    assert result.stderr == ""
    # Lines with paths are for the terminal to wrap.
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if str(fresh) not in line)
    for words in ("selection_rate by sex×race", "< 4/5", "(unknown)", "exceeded", "not estimable"):
        assert words in result.stdout


def test_limits_end_the_command(tmp_path, capsys):
    path = tmp_path / "applicants.csv"
    make_applicants(300).to_csv(path, index=False)

    def judge(**options):
        config = AuditConfig(table=path, decisions="hired", group="sex", out=tmp_path, **options)
        command.audit(config)

    judge(limit="selection_rate_ratio=0.1")
    assert "within" in capsys.readouterr().out
    with pytest.raises(Exit) as ended:
        judge(limit="selection_rate_ratio=0.99")
    assert ended.value.exit_code == 4
    with pytest.raises(DataError, match="can be judged of no group: too few rows"):
        judge(limit="selection_rate_ratio=0.8", minimum=300)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"level": 1.0}, r"^--level is 1.0: input should be less than 1\. `fairfrontier audit"),
        ({"budget": -1.0}, r"^--budget is -1.0: input should be greater"),
        ({"levl": 0.1}, r"^There is no key 'levl' here\. Did you mean 'level'"),
        ({"prior": "a=0.5,a=0.5"}, "'a=0.5' is no share of a further group"),
        ({"prior": "a"}, "'a' is no share"),
    ],
)
def test_an_option_that_cannot_be_is_named(options, told):
    with pytest.raises(ConfigError, match=told):
        read({"table": "a.csv", **COLUMNS, "level": 0.1, **options})


def test_a_prior_is_read_by_name():
    asked = {"table": "a.csv", **COLUMNS, "level": 0.1}
    assert read({**asked, "prior": "a=b=0.25, c=0.75"}).prior == {"a=b": 0.25, "c": 0.75}


def test_the_command_line_passes_on_what_was_given(decided):
    asked = []
    options = ["--scores", "score", "--threshold", "0", "--labels", "y", "--group", "group"]
    options += ["--level", "0", "--criterion", "tpr, fpr"]
    built = build_command(AuditConfig, asked.append, "table")
    built.main([str(decided), *options], standalone_mode=False)
    assert (asked[0].threshold, asked[0].level) == (0.0, 0.0)
    assert asked[0].rates == ("tpr", "fpr")
    assert not asked[0].randomised


@pytest.mark.parametrize("name", ["bounds.csv", "noise.csv", "conclusions.csv"])
def test_results_never_replace_what_is_read(tmp_path, name):
    place = tmp_path / name
    make_table(20).to_csv(place, index=False)
    other = tmp_path / "rows.csv"
    make_table(20).to_csv(other, index=False)
    for options in (
        {"table": str(place), "level": 0.1},
        {"table": str(other), "auxiliary": str(place), "true_group": "true"},
        {"table": str(other), "confusion": str(place)},
    ):
        asked = AuditConfig(**COLUMNS, **options, out=str(tmp_path))
        with pytest.raises(ConfigError, match=f"would replace what is read: .*{name}"):
            check_options(asked)


def test_results_do_not_join_the_parts_of_the_table(tmp_path):
    make_table(20).to_parquet(tmp_path / "part.parquet")
    asked = AuditConfig(**COLUMNS, table=str(tmp_path), level=0.1, out=str(tmp_path))
    with pytest.raises(ConfigError, match="would join a table: "):
        check_options(asked)


def test_names_of_groups_are_no_markup_of_the_terminal(capsys):
    conclusion = {"measure": "tpr", "group": "[red]x", "other": "", "low": 0.1, "high": None}
    counts = {"rows": 12, "held": 1, "conclusions": 27, "open": 26}
    command.show_audit(
        Path("/somewhere"),
        {
            "name": "[b]t",
            "budget": 0.05,
            "subject": {},
            "counts": counts,
            "conclusions": [
                {**conclusion, "high": 0.2, "verdict": "above"},
                *[{**conclusion, "verdict": "open"}] * 26,
            ],
        },
    )
    shown = capsys.readouterr().out
    assert "[red]x" in shown
    assert "[b]t: holds" in shown
    assert "and 2 more" in shown
    assert "unknown" in shown


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
    fair.to_rulebook(split).write(home / "thresholds.json")
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
    decided = fair.predict(part.X, sensitive_features=part.groups, ids=part.ids)
    assert found["decision"].tolist() == decided.tolist()
    h = fair.predict_proba(part.X, sensitive_features=part.groups)[:, 1]
    assert found["probability"].tolist() == h.tolist()
    # Draws decide on a good part of the rows.
    assert (((h > 0) & (h < 1)).mean() > 0.3) == fair.randomized


def test_bad_options_are_one_line_and_exit_code_two_of_debias(scored, fresh):
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
def test_an_option_that_cannot_be_is_named_of_debias(options, told):
    with pytest.raises(ConfigError, match=told):
        read_options(
            DebiasConfig, {"table": "a.csv", "scores": "s", "groups": ["sex"], **options}, "debias"
        )


def test_the_command_line_passes_on_what_was_given_of_debias(scored):
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
def test_results_never_replace_what_is_read_of_debias(tmp_path, name):
    table = tmp_path / name
    table.write_text("s,sex\n0.5,f\n")
    asked = DebiasConfig(table=str(table), scores="s", groups=("sex",), out=str(tmp_path))
    with pytest.raises(ConfigError, match=f"would replace what is read: .*{name}"):
        check_debias(asked)


def test_results_do_not_join_the_parts_of_the_table_of_debias(tmp_path):
    pd.DataFrame({"s": [0.5], "sex": ["f"]}).to_parquet(tmp_path / "part.parquet")
    asked = DebiasConfig(table=str(tmp_path), scores="s", groups=("sex",), out=str(tmp_path))
    with pytest.raises(ConfigError, match="would join a table: "):
        check_debias(asked)


MODELS = [
    {"method": "constant", "setting": {}, "probability": 0.375},
    {"method": "gbdt", "setting": {"max_depth": 3, "eta": 0.1}, "probability": 0.625},
]


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (MODELS, "chosen: gbdt max_depth=3 with probability 0.625, else constant"),
        (MODELS[1:], "chosen: gbdt max_depth=3"),
    ],
)
def test_what_a_bound_is_asked_of_stays_on_a_narrow_terminal(models, said, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = "selection_rate_difference:marital_status"
    measures = pd.DataFrame({"name": [name], "value": [0.031], "low": [0.002], "high": [0.061]})
    measures["left_out"] = 0
    show_choice(
        {
            "measures": measures,
            "selected": {"balanced_accuracy": 0.741, name: 0.028},
            "part": "validation",
            "certified": {name: 0.049},
            "passed": [],
            "models": models,
            "swept": {"gbdt": ["max_depth"], "constant": []},
            "folder": "results/loans/choice",
            "needed_groups": [],
            "commands": {},
        }
    )
    shown = capsys.readouterr().out
    assert said in " ".join(shown.split())
    assert "certified" in shown
    assert "0.049" in shown
    assert "Omitted for lack of space: certified" not in shown
