"""What is audited: a table of decisions, a model on a dataset, or a bundle on raw rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.audit.certified import certify_bundle
from fairfrontier.audit.config import TABLE, AuditConfig
from fairfrontier.audit.rewritten import RewrittenRows
from fairfrontier.audit.rows import ROWS, Sample, make_part, refuse_answers
from fairfrontier.choose.bundle import MANIFEST, Bundle, RegressorBundle, load_bundle
from fairfrontier.choose.judgement import find_chance, judge, predict_numbers
from fairfrontier.choose.scoring import check_decided, find_columns, read_frames
from fairfrontier.choose.view import view_binary
from fairfrontier.evaluate.measure.registry import MEASURES, Measure, Need
from fairfrontier.evaluate.verb import COLUMNS, tabulate
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.loader import load
from fairfrontier.prepare.split import PART_NAMES, Part, Split
from fairfrontier.prepare.splitting.counterfactual import Edit, Edits
from fairfrontier.prepare.table.audit_table import UNKNOWN, AuditRows, check_unknown, read_audited
from fairfrontier.prepare.table.column import sort_levels
from fairfrontier.prepare.table.stream import check_stamps, check_table, digest_table, stamp_table
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.train.base import Estimator
from fairfrontier.train.prediction import Prediction, predict_part, task_of
from fairfrontier.train.registry import load_model

# What measures of counterfactual versions need.
OF_VERSIONS: frozenset[Need] = frozenset({"counterfactuals", "counterfactual_score"})
Share = Callable[[float], None]
Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Findings:
    """What an audit found: the options, and what was audited as plain facts."""

    config: AuditConfig
    subject: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Subject:
    """What is audited.

    ``facts`` say what it is, as plain values. ``individual`` has the measures of the rows'
    counterfactual versions, with the columns of `fairfrontier.evaluate`; no row without versions.
    ``similar`` has those under the metric of a bundle. Of a regression ``prediction`` is of the
    same rows, and ``targets`` are their labels, as the study scales them.
    """

    facts: dict[str, Any]
    rows: AuditRows
    individual: pd.DataFrame
    prediction: Prediction | None = None
    targets: np.ndarray | None = None
    similar: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COLUMNS))


@dataclass(frozen=True)
class Outline:
    """What is known of a subject before a row is read: groups, versions, and what there is.

    A bundle may hold a fair ``metric``. Scores are ``numeric`` where they are predictions of
    numbers, and labels then numbers, too.
    """

    groups: tuple[str, ...]
    sets: tuple[str, ...]
    decided: bool
    scored: bool
    labelled: bool
    numeric: bool = False
    metric: bool = False

    @property
    def attributes(self) -> list[str]:
        """The names of the attributes, and of their cross where there are several."""
        return [*self.groups, *(["×".join(self.groups)] if len(self.groups) > 1 else [])]


def outline(config: AuditConfig) -> Outline:
    """Return what is known before a row is read; a FairfrontierError says what does not exist."""
    if config.model is None:
        check_table(Path(str(config.table)), config.columns().used())
        labelled, scored = config.labels is not None, config.scores is not None
        return Outline(config.groups, (), config.decided, scored, labelled)
    if config.table is None:
        name, home = str(config.dataset), config.home
        dataset = read_dataset(find_yaml("dataset", name, home), home)
        crossed = {name: bool(group.cross) for name, group in dataset.groups.items()}
        groups = _list_groups(config, crossed, dataset.dataset)
        return Outline(groups, dataset.set_names, True, True, True)
    bundle = _load(config)
    encoder, numeric = bundle.encoder, isinstance(bundle, RegressorBundle)
    crossed = {attribute.name: bool(attribute.cross) for attribute in encoder.attributes}
    groups = _list_groups(config, crossed, encoder.config.dataset)
    columns = find_columns(bundle, config.table, None, groups)
    labelled = encoder.config.label.column in columns
    # Measures of versions are of decisions.
    sets = () if numeric else encoder.set_names
    metric = bundle.metric is not None
    if config.certify and not metric:
        raise ConfigError(
            "The bundle holds no fair metric, by which --certify finds similar rows.",
            "Leave it out, or choose from a study of classes with metric: {name: subspace}.",
        )
    return Outline(groups, sets, not numeric, True, labelled, numeric, metric)


def _load(config: AuditConfig) -> Bundle:
    """Return the bundle that is audited: of several classes one, as one of two."""
    bundle = load_bundle(Path(str(config.model)))
    # What is audited of a regression are its numbers.
    accepted = next(iter(config.accepted), None)
    audited = isinstance(bundle, RegressorBundle) and accepted is None
    return bundle if audited else view_binary(bundle, accepted)


def read_subject(config: AuditConfig, groups: Sequence[str], report: Share) -> Subject:
    """Read what is audited, by the attributes ``groups``; ``report`` is told the share read.

    A table in another order gives the same bits.
    """
    if config.model is None:
        return _read_table(config, report)
    if config.table is None:
        return _predict(config, groups)
    return _decide(_load(config), config, groups, report)


def load_audited(config: AuditConfig) -> tuple[Estimator, Split, Part]:
    """Return a saved model, the split that it is to decide on, and the part of it."""
    folder = Path(str(config.model))
    if (folder / MANIFEST).is_file():
        raise ConfigError(
            f"{folder} is a bundle, which decides on raw rows.",
            "Give a table, and leave out --dataset.",
        )
    model = load_model(folder)
    split = load(str(config.dataset), config.seed, home=config.home, noise=config.noise)
    part: Part | None = getattr(split, config.part)
    if part is None:
        known = [name for name in PART_NAMES if getattr(split, name) is not None]
        raise ConfigError(
            f"{split.dataset} has no part {config.part!r}.", nearest(config.part, known)
        )
    if task_of(part) != "binary":
        raise DataError(
            f"{part.dataset} has no binary label, and rates are of decisions 0 and 1.",
            "Audit a dataset with two classes.",
        )
    if "binary" not in model.task:
        raise ConfigError(
            f"The model in {config.model} is of the method {model.name!r}, which learns no "
            "decisions.",
            "Audit a classifier.",
        )
    return model, split, part


def describe_model(config: AuditConfig, model: Estimator, split: Split) -> dict[str, Any]:
    """Return which model decides on which rows, as plain facts."""
    return {
        "model": config.name,
        "method": model.name,
        "dataset": split.dataset,
        "part": config.part,
        "seed": split.seed,
        "digest": split.digest,
    }


def find_attribute(name: str, known: Sequence[str], dataset: str) -> str:
    """Return the name of an attribute; ConfigError where a dataset has none of that name."""
    if name not in known:
        raise ConfigError(f"{dataset} has no group attribute {name!r}.", nearest(name, known))
    return name


def _read_table(config: AuditConfig, report: Share) -> Subject:
    """Read a table of decisions or scores."""
    path = Path(str(config.table))
    stamps = stamp_table(path)
    rows = read_audited(path, config.columns(), config.unknown, report).sorted()
    facts = {"table": path.name, "sha256": digest_table(path), **config.list_changed(TABLE)}
    facts |= rows.facts
    check_stamps(path, stamps)
    return Subject({**facts, "groups": list(config.groups)}, rows, pd.DataFrame(columns=COLUMNS))


def _predict(config: AuditConfig, groups: Sequence[str]) -> Subject:
    """Let a saved model decide on a part of a dataset."""
    model, split, part = load_audited(config)
    prediction = predict_part(model, part)
    rows = AuditRows(
        prediction.decision,
        prediction.score,
        part.y.astype(np.int64),
        *_name_groups(part.groups, part.attributes, groups, config.unknown),
        part.weight / part.weight.max(),
        favourable=int(split.favourable != 0),
    )
    facts = {**describe_model(config, model, split), "groups": list(groups)}
    facts["selected"] = part.classes[rows.favourable]
    return Subject(facts, rows.sorted(), _measure_versions(prediction, part))


def _decide(bundle: Bundle, config: AuditConfig, groups: Sequence[str], report: Share) -> Subject:
    """Let a bundle answer raw rows, and the counterfactual versions of each."""
    path, encoder = Path(str(config.table)), bundle.encoder
    stamps = stamp_table(path)
    columns = find_columns(bundle, path, None, groups)
    label, edits = encoder.config.label.column, encoder.encode_versions()
    refused, unseen, n_samples = Counter[str](), Counter[str](), 0
    read: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    certificate = bundle.manifest.get("certificate") or {}
    sample = None if bundle.metric is None else Sample(certificate.get("rows") or ROWS)
    numeric, text = isinstance(bundle, RegressorBundle), encoder.config.text
    rewritten = None if text is None or numeric else RewrittenRows(bundle)
    versions = sum(map(len, edits.values()))
    for frame in read_frames(bundle, path, columns, report, answers=2 + 2 * versions):
        rows = bundle.encode(frame)
        accepted = rows.refusals.accepted
        judged = _judge(bundle, rows.X[accepted], rows.groups[accepted], edits)
        judged = judged[rows.refusals.add_infinite(judged)]
        accepted = rows.refusals.accepted
        refused.update(rows.refusals.reasons[~accepted])
        unseen.update(rows.count_unseen())
        n_samples += int(accepted.sum())
        refuse_answers(n_samples, versions, path)
        X, codes, y = rows.X[accepted], rows.groups[accepted], np.zeros(accepted.sum())
        if label in columns:
            y = encoder.read_labels(frame[accepted], path)
        read.append((y, codes, judged))
        if sample is not None:
            sample.add(np.column_stack([y, judged[:, :2], X]))
        if rewritten is not None and text is not None:
            rewritten.add(rows.columns.loc[accepted, text.column], X, codes)
    check_stamps(path, stamps)
    y, codes, judged = (np.concatenate(each) for each in zip(*read, strict=True))
    check_decided(y.size, refused, path)
    if np.isnan(y).any():
        raise DataError(
            f"{int(np.isnan(y).sum())} rows of {path} have no label in the column {label!r}.",
            "Give every row its label, or leave the column out of the table.",
        )
    order = np.lexsort([*codes.T, *judged.T, y])
    y, codes, judged = y[order], codes[order], judged[order]
    attributes = {attribute.name: attribute.names for attribute in encoder.attributes}
    named = _name_groups(codes, attributes, groups, config.unknown)
    facts = {
        "table": path.name,
        "sha256": digest_table(path),
        "bundle": bundle.manifest["study"],
        "groups": list(groups),
        "refused": dict(refused.most_common()),
        "unseen": dict(sorted(unseen.items())),
    }
    if isinstance(bundle, RegressorBundle):
        targets = y if label in columns else None
        chance = find_chance(bundle.model)
        mean = judged @ chance
        prediction = Prediction(mean, mean, components=judged, probability=chance)
        audited = AuditRows(None, mean, None, *named, np.ones(y.size))
        facts["scale"] = list(encoder.config.label.range or (0.0, 1.0))
        return Subject(facts, audited, pd.DataFrame(columns=COLUMNS), prediction, targets)
    favourable = int(getattr(bundle, "favourable", 1) != 0)
    facts["selected"] = bundle.class_names[favourable]
    y = y.astype(np.int64)
    prediction, part = _take_versions(judged, edits, y)
    labels = y if label in columns else None
    audited = AuditRows(
        prediction.decision, prediction.score, labels, *named, part.weight, favourable=favourable
    )
    individual = [_measure_versions(prediction, part)]
    if rewritten is not None:
        individual += rewritten.measure(list(list_individual(encoder.set_names).values()))
    kept = [table for table in individual if not table.empty] or individual[:1]
    found = Subject(facts, audited.sorted(), pd.concat(kept, ignore_index=True))
    if sample is None:
        return found
    budgets = config.certify or certificate.get("budgets", ())
    return replace(found, similar=_certify(bundle, sample, budgets, labelled=labels is not None))


def _certify(
    bundle: Bundle, sample: Sample, budgets: Sequence[float], *, labelled: bool
) -> pd.DataFrame:
    """Return the measures of sampled rows, as `_decide` adds them, under the bundle's metric."""
    rows, counts = sample.rows, sample.counts
    part = make_part(rows[:, 0].astype(np.int64), counts.astype(np.float64))
    prediction = Prediction(rows[:, 1], rows[:, 2])
    part = replace(part, X=rows[:, 3:])
    return certify_bundle(bundle, part, prediction, budgets, labelled=labelled)


def _judge(
    bundle: Bundle, X: np.ndarray, groups: np.ndarray, edits: Mapping[str, tuple[Edit, ...]]
) -> np.ndarray:
    """Return the score and the probability of deciding 1 of rows, and of each of their versions.

    Shape (n_samples, 2 + 2 n_versions); of a regression what it may predict, (n_samples, K).
    """
    if isinstance(bundle, RegressorBundle):
        return predict_numbers(bundle.model, X, groups, np.arange(len(X)))[0]
    # A rule that asks for groups refuses rows without one; probabilities depend on no id.
    known, ids = np.maximum(groups, 0), np.arange(len(X))
    judged = [judge(bundle.model, X, groups, ids)]
    for made in edits.values():
        edited = Edits(X, known, bundle.encoder.attributes, made)
        judged += [judge(bundle.model, each.X, each.groups, ids) for each in edited]
    columns = [column for each in judged for column in (each.score, each.probability)]
    return np.stack(columns, axis=1)


def _take_versions(
    judged: np.ndarray, edits: Mapping[str, tuple[Edit, ...]], y: np.ndarray
) -> tuple[Prediction, Part]:
    """Return what `_judge` returned as a prediction, and the rows with their versions."""
    (score, decision), *versions = judged.T.reshape(-1, 2, len(judged))
    remaining = iter(versions)
    part, decided, scored, sets = make_part(y, np.ones(y.size)), {}, {}, {}
    for name, made in edits.items():
        own = [next(remaining) for _ in made]
        decided[name] = tuple((edit.name, each[1]) for edit, each in zip(made, own, strict=True))
        # Rounded as those of a study, so that they are measured alike.
        scored[name] = tuple(each[0].astype(np.float32).astype(np.float64) for each in own)
        sets[name] = Edits(part.X, part.groups, (), made)
    prediction = Prediction(score, decision, decided, counterfactual_scores=scored)
    return prediction, replace(part, counterfactuals=sets)


def _measure_versions(prediction: Prediction, part: Part) -> pd.DataFrame:
    """Return the measures of counterfactual versions; no row where there are none."""
    return tabulate(prediction, part, list(list_individual(part.counterfactuals)))


def list_individual(sets: Collection[str]) -> dict[str, Measure]:
    """Return the measures of counterfactual versions by name, where there are such sets."""
    return {
        each.name: each
        for each in MEASURES.all().values()
        if sets and "binary" in each.task and each.needs & OF_VERSIONS
    }


def _list_groups(config: AuditConfig, crossed: Mapping[str, bool], dataset: str) -> tuple[str, ...]:
    """Return the attributes that are asked for; by default all that are no cross of others."""
    named = [find_attribute(name, list(crossed), dataset) for name in config.groups]
    found = tuple(named or [name for name, is_cross in crossed.items() if not is_cross])
    if not found:
        raise ConfigError(
            f"{dataset} has no groups, which an audit compares.", "Add them to its YAML."
        )
    return found


def _name_groups(
    codes: np.ndarray,
    attributes: Mapping[str, Sequence[str]],
    groups: Sequence[str],
    unknown: Sequence[str],
) -> tuple[np.ndarray, dict[str, tuple[str, ...]]]:
    """Return codes and levels as `AuditRows` has them: levels that occur, and one for unknown."""
    columns, found = [], {}
    known = {level for name in groups for level in attributes[name]}
    check_unknown(unknown, known, known, "The groups of the model")
    for name in groups:
        levels = [UNKNOWN if level in unknown else level for level in attributes[name]]
        # The code of rows of no group is −1.
        cells = np.array([*levels, UNKNOWN], dtype=object)[codes[:, list(attributes).index(name)]]
        found[name] = sort_levels(set(cells))
        columns.append(pd.Index(found[name]).get_indexer(cells))
    return np.stack(columns, axis=1), found
