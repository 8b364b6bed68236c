"""What is shown on Prefect's server: text of a study is text there."""

from __future__ import annotations

import json

import pandas as pd

from flows import artifact
from flows.artifact import publish_table, write_card


def test_text_of_a_study_is_no_markup(tmp_path):
    sentence = "[Sign in](https://evil.example) <img src=x>\n# **Holds**"
    summary = {"claims": [{"sentence": sentence, "held": False}]}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    card = write_card("my_loans", tmp_path).split("\n")
    assert card[0] == r"# my\_loans"
    (claim,) = (line for line in card if "Sign in" in line)
    assert claim == (
        r"- \[Sign in\](https://evil.example) &lt;img src=x&gt; \# \*\*Holds\*\*"
        " — **does not hold**"
    )


def test_text_of_a_table_is_no_markup(monkeypatch):
    made = []
    monkeypatch.setattr(artifact, "create_table_artifact", lambda rows, **_: made.extend(rows))
    evil = "![x](https://evil.example/seen.png) <b>"
    publish_table("loans", "groups", pd.DataFrame({"group": [evil], "rate": [0.5]}), "Rates")
    assert made == [{"group": r"!\[x\](https://evil.example/seen.png) &lt;b&gt;", "rate": 0.5}]
