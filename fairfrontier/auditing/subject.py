"""What is audited: a table of decisions, a model on a dataset, or a bundle on raw rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.auditing.option import TABLE, AuditConfig
from fairfrontier.deployment.bundle import (
    MANIFEST,
    Bundle,
    Judgement,
    RegressorBundle,
    find_chance,
    judge,
    list_components,
    load_bundle,
    predict_numbers,
    view_binary,
)
from fairfrontier.deployment.scoring import check_decided, find_columns, read_frames
from fairfrontier.metrics.certificate.certificate import Loss, certify_gaps, certify_part
from fairfrontier.metrics.measure.registry import MEASURES, Measure, Need
from fairfrontier.metrics.verb import COLUMNS, tabulate
from fairfrontier.models.base import Estimator
from fairfrontier.models.individual.budget import measure_spread
from fairfrontier.models.prediction import Prediction, predict_part, task_of
from fairfrontier.models.registry import load_model
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.prepare.config.dataset import VersionRule, read_dataset
from fairfrontier.prepare.loader import load
from fairfrontier.prepare.row import refuse_versions
from fairfrontier.prepare.split import PART_NAMES, Part, Split
from fairfrontier.prepare.splitting.plan import Edit, Edits, split_seed
from fairfrontier.prepare.table.column import sort_levels
from fairfrontier.prepare.table.reader import check_stamps, check_table, digest_table, stamp_table
from fairfrontier.prepare.table.role import UNKNOWN, AuditRows, check_unknown, read_audited
from fairfrontier.prepare.text.version import make_versions
from fairfrontier.report.finding import Finding
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.finder import find_yaml

# Different rows that are measured again, where the study does not say how many.
ROWS = 2000
# Scores and probabilities of rows and their versions, 8 bytes each, of which there are some copies.
MOST_ANSWERS = 1 << 27


def refuse_answers(n_samples: int, versions: int, what: object) -> None:
    """Raise DataError for rows with more versions than this process takes answers to."""
    if versions and n_samples > (most := MOST_ANSWERS // (2 + 2 * versions)):
        raise DataError(
            f"{what} has more than {most:,} rows, each with {versions:,} counterfactual versions.",
            "Audit fewer rows at once, or choose from a study with fewer counterfactual versions.",
        )


def make_part(
    y: np.ndarray,
    weight: np.ndarray,
    attribute: str = "",
    codes: np.ndarray | None = None,
    levels: tuple[str, ...] = (),
    classes: tuple[str, ...] = ("0", "1"),
    units: tuple[float, float] = (0.0, 1.0),
) -> Part:
    """Return rows without features, for measures, which read none."""
    n = y.size
    groups = np.zeros((n, 0), dtype=np.int64) if codes is None else codes[:, None]
    nothing = np.zeros((n, 0))
    attributes = {attribute: levels} if codes is not None else {}
    rows = np.arange(n)
    return Part(
        *("table", "all", rows, nothing, y, groups, nothing, weight, attributes, classes),
        units=units,
    )


class Sample:
    """Different rows of a stream, with how often each occurs: at most so many, drawn by content.

    Neither the order of the rows nor its batches matter. Memory is that of the kept rows.
    """

    def __init__(self, most: int = ROWS) -> None:
        self._most = most
        self._words = np.empty(0, dtype=np.uint64)
        self.counts = np.empty(0, dtype=np.int64)
        # In an order that is that of their content.
        self.rows, self.texts = np.zeros((0, 0)), list[str]()

    def add(self, rows: np.ndarray, texts: Sequence[str] | None = None) -> None:
        """Add rows, float64 of shape (n, n_columns), and a text of each where there are texts."""
        written = [""] * len(rows) if texts is None else list(texts)
        content = (
            row.tobytes() + text.encode() for row, text in zip(rows + 0.0, written, strict=True)
        )
        digests = b"".join(blake2b(each, digest_size=8).digest() for each in content)
        words = np.concatenate([self._words, np.frombuffer(digests, dtype="<u8")])
        rows = np.vstack([self.rows, rows]) if self.counts.size else rows
        counts = np.append(self.counts, np.ones(len(written), dtype=np.int64))
        words, first, place = np.unique(words, return_index=True, return_inverse=True)
        # A row among the lowest words of all was among the lowest since it came.
        kept, first = slice(self._most), first[: self._most]
        self._words, self.rows = words[kept], rows[first]
        self.counts = np.bincount(place, counts, words.size).astype(np.int64)[kept]
        written = self.texts + written
        self.texts = [written[position] for position in first.tolist()]

    @property
    def words(self) -> np.ndarray:
        """A number of each of them, by its content, int64."""
        return self._words.view(np.int64)


# ε as a share of the mean distance of two rows where the study names no budget; BuDRO's default.
SHARE = 0.003
# What measures of counterfactual versions need.
OF_VERSIONS: frozenset[Need] = frozenset({"counterfactuals", "counterfactual_score"})


def list_needing(needs: Collection[Need]) -> dict[str, Measure]:
    """Return the measures of two classes that have one of these needs, by name."""
    return {
        each.name: each
        for each in MEASURES.all().values()
        if "binary" in each.task and not each.needs.isdisjoint(needs)
    }


def list_certified(*, labelled: bool) -> dict[str, Measure]:
    """Return the measures under a metric by name; without labels those that need none."""
    needs: list[Need] = ["certificate", "gap"] if labelled else ["certificate"]
    return list_needing(needs)


def list_individual(sets: Collection[str]) -> dict[str, Measure]:
    """Return the measures of counterfactual versions by name, where there are such sets."""
    return list_needing(OF_VERSIONS if sets else ())


def certify(
    bundle: Bundle, sample: Sample, budgets: Sequence[float], *, labelled: bool
) -> pd.DataFrame:
    """Return the measures of sampled rows under a bundle's metric, with the columns of `evaluate`.

    The columns of the rows are label, score, probability of deciding 1, and features. As in a
    study, of a rule behind a model the decisions are certified. The default of no ``budgets`` is a
    share of the mean distance of two of the rows.
    """
    metric, rows = bundle.metric, sample.rows
    assert metric is not None  # noqa: S101
    part = make_part(rows[:, 0].astype(np.int64), sample.counts.astype(np.float64))
    part, prediction = replace(part, X=rows[:, 3:]), Prediction(rows[:, 1], rows[:, 2])
    if not budgets:
        z = np.asarray(metric.embed(part.X))
        # Four digits are enough of what is a choice.
        budgets = [float(f"{SHARE * measure_spread(z, part.weight / part.weight.sum()):.4g}")]
    ruled = any(isinstance(each, PostProcessor) for each in list_components(bundle.model))
    outputs = replace(prediction, score=prediction.decision) if ruled else prediction
    losses: tuple[Loss, ...] = ("error",) if ruled else ("log", "error")
    gaps = certify_gaps(prediction, part, metric, budgets, rows=None, losses=losses)
    return tabulate(
        prediction,
        part,
        list(list_certified(labelled=labelled)),
        certificates=certify_part(outputs, part, metric, budgets, rows=None),
        gaps=gaps if labelled else (),
    )


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
                sample.add(rows[known], [written[row] for row in known])

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
            judged = [judge(bundle.model, X, groups, ids)]
            for version in versions.versions:
                edited = X.copy()
                edited[:, span] = block.encode(pd.Series(version.write().texts))
                judged.append(judge(bundle.model, edited, groups, ids))
            part = make_part(np.zeros(ids.size, dtype=np.int64), sample.counts.astype(np.float64))
            made = {name: [version.name for version in versions.versions]}
            prediction, part = _take_versions(_stack(judged), made, part)
            yield tabulate(prediction, part, [each.name for each in measures])

    def _take_all(self, name: str) -> VersionRule:
        """Return the rule of a set without its limit of rows, which the sample keeps."""
        return self._rules[name].model_copy(update={"rows": {}})


# The attribute of true groups beside noisy ones; no column of a table.
TRUTH = "G"
Share = Callable[[float], None]
Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Findings(Finding):
    """What an audit found: the options, and what was audited as plain facts."""

    file = "audit.json"

    config: AuditConfig
    subject: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Subject:
    """What is audited.

    ``facts`` say what it is, as plain values. ``individual`` has the measures of the rows'
    counterfactual versions, with the columns of `fairfrontier.metrics`; no row without versions.
    ``similar`` has those under the metric of a bundle. Of a regression ``prediction`` is of the
    same rows, and ``targets`` are their labels, as the study scales them; ``units`` are those of
    `Part`. A saved model decides on
    a part of ``split``; where groups are noisy, the true ones are a further attribute of ``rows``.
    """

    facts: dict[str, Any]
    rows: AuditRows
    individual: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COLUMNS))
    similar: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COLUMNS))
    prediction: Prediction | None = None
    targets: np.ndarray | None = None
    units: tuple[float, float] = (0.0, 1.0)
    split: Split | None = None


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
        """The names of the attributes, and of the cross of every two."""
        return [*self.groups, *map("×".join, combinations(self.groups, 2))]


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


def find_attribute(name: str, known: Sequence[str], dataset: str) -> str:
    """Return the name of an attribute; ConfigError where a dataset has none of that name."""
    if name not in known:
        raise ConfigError(f"{dataset} has no group attribute {name!r}.", nearest(name, known))
    return name


def _read_table(config: AuditConfig, report: Share) -> Subject:
    """Read a table of decisions or scores."""
    path = Path(str(config.table))
    stamps = stamp_table(path)
    # Of an unknown group nothing says how it came to be.
    unknown = None if config.noisy else config.unknown
    rows = read_audited(path, config.columns(), unknown, report).sorted()
    facts = {"table": path.name, "sha256": digest_table(path), **config.list_changed(TABLE)}
    facts |= rows.facts
    check_stamps(path, stamps)
    return Subject({**facts, "groups": list(config.groups)}, rows)


def _predict(config: AuditConfig, groups: Sequence[str]) -> Subject:
    """Let a saved model decide on a part of a dataset."""
    model, split, part = load_audited(config)
    if config.noisy:
        part, groups = replace(part, counterfactuals={}), (_choose_attribute(config, part),)
    prediction = predict_part(model, part)
    codes, levels = _name_groups(part.groups, part.attributes, groups, config.unknown)
    if config.noisy and part.true_groups is not None:
        true, names = _name_groups(part.true_groups, part.attributes, groups, config.unknown)
        codes, levels = np.hstack([codes, true]), {**levels, TRUTH: names[groups[0]]}
    rows = AuditRows(
        prediction.decision,
        prediction.score,
        part.y.astype(np.int64),
        codes,
        levels,
        part.weight / part.weight.max(),
        favourable=int(split.favourable != 0),
    )
    facts = {
        "model": config.name,
        "method": model.name,
        "dataset": split.dataset,
        "part": config.part,
        "seed": split.seed,
        "digest": split.digest,
        "groups": list(groups),
        "selected": part.classes[rows.favourable],
    }
    return Subject(facts, rows.sorted(), _measure_versions(prediction, part), split=split)


def _choose_attribute(config: AuditConfig, part: Part) -> str:
    """Return the noisy attribute; by default the only one, or the only one with wrong groups."""
    known = list(part.attributes)
    if config.attribute is not None:
        return find_attribute(config.attribute, known, part.dataset)
    candidates = known
    if len(known) > 1 and part.true_groups is not None:
        noisy = (part.groups != part.true_groups).any(axis=0)
        candidates = [name for name, is_noisy in zip(known, noisy, strict=True) if is_noisy]
    if len(candidates) != 1:
        raise ConfigError(
            f"{part.dataset} has several attributes: {', '.join(known)}.",
            "Name the noisy one with --attribute.",
        )
    return candidates[0]


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
        facts["scaled"] = encoder.config.label.scaled
        units = encoder.config.label.units
        return Subject(facts, audited, prediction=prediction, targets=targets, units=units)
    favourable = int(getattr(bundle, "favourable", 1) != 0)
    facts["selected"] = bundle.class_names[favourable]
    y = y.astype(np.int64)
    made = {name: [edit.name for edit in each] for name, each in edits.items()}
    prediction, part = _take_versions(judged, made, make_part(y, np.ones(y.size)))
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
    return replace(found, similar=certify(bundle, sample, budgets, labelled=labels is not None))


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
    return _stack(judged)


def _stack(judged: Sequence[Judgement]) -> np.ndarray:
    columns = [column for each in judged for column in (each.score, each.probability)]
    return np.stack(columns, axis=1)


def _take_versions(
    judged: np.ndarray, names: Mapping[str, Sequence[str]], part: Part
) -> tuple[Prediction, Part]:
    """Return what `_judge` returned as a prediction, and the rows with their versions.

    ``names`` are those of the versions of each set.
    """
    (score, decision), *versions = judged.T.reshape(-1, 2, len(judged))
    remaining, decided, scored = iter(versions), {}, {}
    for name, made in names.items():
        own = [next(remaining) for _ in made]
        decided[name] = tuple((edit, each[1]) for edit, each in zip(made, own, strict=True))
        # Rounded as those of a study, so that they are measured alike.
        scored[name] = tuple(each[0].astype(np.float32).astype(np.float64) for each in own)
    sets = {name: Edits(part.X, part.groups, (), ()) for name in names}
    prediction = Prediction(score, decision, decided, counterfactual_scores=scored)
    return prediction, replace(part, counterfactuals=sets)


def _measure_versions(prediction: Prediction, part: Part) -> pd.DataFrame:
    """Return the measures of counterfactual versions; no row where there are none."""
    return tabulate(prediction, part, list(list_individual(part.counterfactuals)))


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
