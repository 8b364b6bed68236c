"""Versions of audited texts: what a bundle answers to the same rows in other words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from fairfrontier.audit.rows import ROWS, Sample, make_part, refuse_answers
from fairfrontier.choose.bundle import Bundle
from fairfrontier.choose.judgement import judge
from fairfrontier.evaluate.measure.registry import Measure
from fairfrontier.evaluate.verb import tabulate
from fairfrontier.prepare.config.text import VersionRule
from fairfrontier.prepare.row import refuse_versions
from fairfrontier.prepare.splitting.counterfactual import Edits
from fairfrontier.prepare.splitting.partition import split_seed
from fairfrontier.prepare.text.version import make_versions
from fairfrontier.train.prediction import Prediction


class RewrittenRows:
    """Rows of a stream whose texts have versions, by the counterfactual sets of a bundle's dataset.

    Of each set as many different rows are kept as the dataset has of test rows, ``ROWS`` by
    default.
    """

    def __init__(self, bundle: Bundle) -> None:
        config = bundle.encoder.config
        self._bundle, self._rules = bundle, dict[str, VersionRule]()
        if config.text is not None and bundle.encoder.text_block is not None:
            self._rules = dict(config.text.versions)
        counts = (
            rule.draw.get("test", len(rule.terms.terms) if rule.terms else 1)
            for rule in self._rules.values()
        )
        refuse_versions(sum(counts), config)
        self._samples = {
            name: Sample(rule.rows.get("test", ROWS)) for name, rule in self._rules.items()
        }
        self._seed = split_seed(config.split, int(bundle.manifest.get("seed", 0)))

    def add(self, texts: pd.Series, X: np.ndarray, groups: np.ndarray) -> None:
        """Add rows: their texts as they were encoded, features and groups."""
        rows = np.hstack([np.maximum(groups, 0).astype(np.float64), X])
        ids = np.arange(len(rows))
        for name, sample in self._samples.items():
            written = texts.tolist()
            known = make_versions(name, self._take_all(name), written, ids, "test", self._seed).rows
            if known.size:
                sample.add(rows[known], np.array(written, dtype=object)[known])

    def measure(self, measures: list[Measure]) -> Iterator[pd.DataFrame]:
        """Yield measures of every set, with the columns of `evaluate`."""
        bundle = self._bundle
        block = bundle.encoder.text_block
        attributes = len(bundle.encoder.attributes)
        for name, sample in self._samples.items():
            if not sample.counts.size or block is None:
                continue
            groups = sample.rows[:, :attributes].astype(np.int64)
            X, ids = sample.rows[:, attributes:], sample.words
            (span,) = bundle.encoder.encoder.spans([block.column])[block.column]
            rule = self._take_all(name)
            versions = make_versions(name, rule, sample.texts, ids, "test", self._seed)
            refuse_answers(ids.size, len(versions.versions), f"The sample of {name}")
            found = judge(bundle.model, X, groups, ids)
            decided, scored = [], []
            for version in versions.versions:
                edited = X.copy()
                edited[:, span] = block.encode(pd.Series(version.write().texts))
                judged = judge(bundle.model, edited, groups, ids)
                decided.append((version.name, judged.probability))
                # Rounded as those of a study, so that they are measured alike.
                scored.append(judged.score.astype(np.float32).astype(np.float64))
            part = make_part(np.zeros(ids.size, dtype=np.int64), sample.counts.astype(np.float64))
            prediction = Prediction(
                found.score,
                found.probability,
                {name: tuple(decided)},
                counterfactual_scores={name: tuple(scored)},
            )
            part = replace(part, counterfactuals={name: Edits(X, groups, (), ())})
            yield tabulate(prediction, part, [each.name for each in measures])

    def _take_all(self, name: str) -> VersionRule:
        """Return the rule of a set without its limit of rows, which the sample keeps."""
        return self._rules[name].model_copy(update={"rows": {}})
