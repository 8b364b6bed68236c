"""Versions of audited texts are measured as those of a study's test rows, in any order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml

import fairfrontier as ff
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.rewritten import RewrittenRows
from fairfrontier.audit.verb import check_options
from fairfrontier.choose.bundle import load_bundle
from fairfrontier.runtime.errors import ConfigError
from tests.prepare.embedding.test_variant import COMMENTS, project
from tests.prepare.text.conftest import make_comments

__all__ = ["project"]

STUDY = {
    "study": "comments",
    "dataset": "comments",
    "methods": {"linear": {}},
    "seeds": 1,
    "objective": "accuracy",
    "select_on": "train",
    "frontier": {"fairness": ["consistency:identity"]},
}


def test_versions_of_texts_are_measured_as_in_the_study(project, tmp_path):
    versions = {"identity": {"terms": "identity", "draw": {"train": 2}}}
    project(text={**COMMENTS["text"], "versions": versions})
    (tmp_path / "conf/studies").mkdir()
    (tmp_path / "conf/studies/comments.yaml").write_text(yaml.safe_dump(STUDY))
    study = ff.run_study("comments", home=tmp_path)
    folder = study.select().export(tmp_path / "bundle")
    test = ff.load("comments", home=tmp_path).test
    rows = make_comments().loc[test.ids]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    config = AuditConfig(
        table=tmp_path / "rows.csv", model=folder, limit="consistency:identity=1.0"
    )
    check_options(config)
    found = ff.audit(config)
    points = study.points[study.points["part"] == "test"].set_index(["measure", "group"])["value"]
    own = found.individual.set_index(["measure", "group"])["value"]
    for measure in ("consistency", "counterfactual_fairness"):
        assert own[measure, "identity"] == pytest.approx(points[measure, "identity"], abs=1e-6)
    assert own["counterfactual_fairness", "identity"] > 0
    shuffled = ff.audit(rows.sample(frac=1.0, random_state=1), model=folder)
    pd.testing.assert_frame_equal(shuffled.individual, found.individual, check_exact=True)
    # Without a term there is no version.
    plain = ff.audit(rows.assign(comment=[f"word {i % 7}" for i in range(len(rows))]), model=folder)
    assert plain.individual.empty
    assert np.isnan(own).sum() == 0
    # No bundle makes as many as it says.
    bundle = load_bundle(folder)
    config = bundle.encoder.config
    rule = config.text.versions["identity"].model_copy(update={"draw": {"test": 10**9}})
    text = config.text.model_copy(update={"versions": {"identity": rule}})
    bundle.encoder = replace(bundle.encoder, config=config.model_copy(update={"text": text}))
    with pytest.raises(ConfigError, match="make 1,000,000,000 versions of a row"):
        RewrittenRows(bundle)
