"""Guessing the label and the protected attributes of an undescribed table."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from fairfrontier.prepare.config.section import OTHERS
from fairfrontier.prepare.draft.column import (
    LARGE,
    LEXICON,
    NESTED,
    PROTECTED,
    YES,
    Column,
    find_attribute,
    fold,
    name_words,
    recognise_levels,
    shorten,
)
from fairfrontier.prepare.draft.config import DraftOptions
from fairfrontier.prepare.level import level_text
from fairfrontier.prepare.splitting.encoder import name_bands
from fairfrontier.prepare.table.column import MISSING_LEVEL, as_levels, sort_levels
from fairfrontier.runtime.errors import ConfigError, DataError, nearest

# A label with more classes than this is no label of classes; more numbers make a regression.
MOST_CLASSES = 10
# Rows of each class from which on a column can be said to give the label away, and how surely it
# tells the classes apart: as the area under the ROC curve, or a rank correlation.
FEWEST, GIVEAWAY, CORRELATED = 20, 0.95, 0.99
SAMPLE = 50_000
# Of the forest that looks at columns together: rows, trees, and columns that are named.
FOREST, TREES, MOST_CARRIERS = 4000, 50, 4


@dataclass(frozen=True)
class LabelDraft:
    """A label: its column, the other keys of the YAML's section, and why it was chosen.

    ``doubt`` says what speaks for it where others could be meant.
    """

    column: str
    task: Literal["binary", "multiclass", "regression"]
    keys: dict[str, Any]
    comment: str
    doubt: str = ""


def choose_label(columns: Mapping[str, Column], options: DraftOptions) -> LabelDraft:
    """Return the label that the options name, or the only column that looks like one.

    ConfigError lists the candidates where there is none or more than one, and refuses a column
    that cannot be learnt.
    """
    if options.label is not None:
        if options.label not in columns:
            raise ConfigError(
                f"--label: the table has no column {options.label!r}.",
                nearest(options.label, columns),
            )
        return _describe(columns[options.label], options, "")
    found = _rank(columns)
    best = max((each.score for each in found), default=0)
    likely = [each for each in found if each.score == best > 2]
    if len(likely) != 1:
        wrong = "No column looks" if not likely else "More than one column looks"
        sure = " for sure" if found and not likely else ""
        listed = ", ".join(map(str, (likely or found)[:8]))
        raise ConfigError(
            f"{wrong} like a label{sure}.",
            "Name it with --label"
            + (f"; candidates are {listed}." if listed else ": a column of two or more levels."),
        )
    (chosen,) = likely
    by = "name" if chosen.named else "place"
    draft = _describe(columns[chosen.name], options, f"guessed by its {by} and levels")
    others = [str(each) for each in found if each.named and each is not chosen][:4]
    rivals = f"; it could be {' or '.join(others)} too, by --label" if others else ""
    doubt = f"by its {by}{rivals}" if rivals or not chosen.named else ""
    return replace(draft, doubt=doubt)


@dataclass(frozen=True)
class Candidate:
    """A column that may be the label, how much speaks for it, and whether its name does."""

    column: Column
    score: int
    named: bool

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name

    def __str__(self) -> str:
        """Return the name, and how a decision is made of a number."""
        if self.column.numbers is None or len(self.column.counts) <= MOST_CLASSES:
            return self.name
        return f"{self.name} (cut by --above {self.column.numbers.median():g})"


def _rank(columns: Mapping[str, Column]) -> list[Candidate]:
    """Return what could be the label; what a name or the last place speaks for comes first."""
    found = []
    last = list(columns)[-1]
    for name, column in columns.items():
        if column.fault or find_attribute(name):
            continue
        if column.numbers is None and recognise_levels(column.levels[:20]):
            continue
        words = {word.rstrip("0123456789") for word in name_words(name)}
        levels = len(column.counts)
        plain = name == last or (levels == 2 and bool(words & LEXICON["labels"]))
        sure = words if plain else words - LEXICON["vague"]
        strong = 4 * bool(sure & LEXICON["labels"]) or 3 * bool(sure & LEXICON["outcomes"])
        few = levels <= MOST_CLASSES
        strong = strong if few or sure & LEXICON["labels"] else 0
        result = bool(words & LEXICON["results"]) and (few or column.numbers is not None)
        vague = few and bool(words & (LEXICON["labels"] | LEXICON["outcomes"]))
        named = bool(strong) or result or vague
        # Two levels at the end of a table are a label; two levels elsewhere may be anything.
        if named or levels == 2 or (name == last and column.numbers is not None):
            score = strong + 2 * (levels == 2) + (name == last and bool(strong or levels == 2))
            found.append(Candidate(column, score, named))
    return sorted(found, key=lambda each: (not each.named and each.name != last, -each.score))


def _describe(column: Column, options: DraftOptions, why: str) -> LabelDraft:
    fault = column.fault
    levels = len(column.counts) if fault not in (NESTED, LARGE) else 0
    where = f"The label {column.name!r}"
    if levels < 2:
        raise DataError(f"{where} is {fault}.", "Name another column with --label.")
    if options.above is not None:
        return _cut(column, options.above)
    if options.positive is not None:
        wanted = [str(level_text(level)) for level in options.positive]
        for level in wanted:
            if level not in column.counts.index:
                raise ConfigError(
                    f"--positive: {column.name!r} never is {level!r}.",
                    nearest(level, column.levels[:100]),
                )
        if len(wanted) == levels:
            raise DataError(f"{where} is positive in every row.", "Name fewer levels.")
        return _two_classes(column, wanted, why)
    if levels == 2:
        positive, guess = _choose_positive(column.levels)
        return _two_classes(column, [positive], "; ".join(filter(None, (why, guess))))
    if column.numbers is not None and levels > MOST_CLASSES:
        low, high = column.numbers.min(), column.numbers.max()
        if not np.isfinite([low, high]).all():
            raise DataError(f"{where} is infinite in some rows.", "Correct or remove them.")
        middle = f"{column.numbers.median():g}"
        return LabelDraft(
            column.name,
            "regression",
            {"task": "regression", "range": [float(low), float(high)], "clip": True},
            f"a number; a decision is made of it by {{column: …, above: {middle}}}, or --above",
        )
    if levels > MOST_CLASSES:
        raise DataError(
            f"{where} has {levels:,} different texts.",
            "Name another column with --label, or the levels that mean yes with --positive.",
        )
    return LabelDraft(
        column.name,
        "multiclass",
        {"task": "multiclass"},
        f"{levels} classes; --positive LEVEL makes two of them, "
        "favourable: LEVEL says which is good",
    )


def _cut(column: Column, above: float) -> LabelDraft:
    if column.numbers is None:
        raise ConfigError(
            f"--above: the label {column.name!r} holds text.", "Name levels with --positive."
        )
    share = float((column.numbers.dropna() > above).mean())
    if share in (0, 1):
        which = "above" if share else "at most"
        raise DataError(
            f"--above: the label {column.name!r} is {which} {above:g} in every row.",
            f"Choose a number between {column.numbers.min():g} and {column.numbers.max():g}.",
        )
    return LabelDraft(column.name, "binary", {"above": above}, f"1 in {share:.0%} of the rows")


def _two_classes(column: Column, positive: list[str], why: str) -> LabelDraft:
    share = column.counts[positive].sum() / column.counts.sum()
    keys: dict[str, Any] = {"positive": positive[0] if len(positive) == 1 else positive}
    others = [level for level in column.levels if level not in positive]
    comments = [f"1 in {share:.0%} of the rows", *([why] if why else [])]
    if _is_harm(column.name, positive) and len(others) == 1:
        keys["favourable"] = others[0]
        comments.append("favourable is the class that people want")
    return LabelDraft(column.name, "binary", keys, "; ".join(comments))


def _is_harm(name: str, positive: list[str]) -> bool:
    """Return whether 1 is what nobody wants, by the words of the label's name and levels."""
    if any(LEXICON["harms"] & set(name_words(level)) for level in positive):
        return True
    good = {fold(level) for level in positive} & (YES - LEXICON["plain"])
    return bool(LEXICON["harms"] & set(name_words(name))) and not good


def _choose_positive(levels: list[str]) -> tuple[str, str]:
    """Return which of two levels means 1, and a doubt about it."""
    for words, opposite, is_first in ((YES, LEXICON["bad"], True), (LEXICON["bad"], YES, False)):
        named = [level for level in levels if {fold(level), *name_words(level)} & words]
        if len(named) == 1:
            other = next(level for level in levels if level != named[0])
            # 1 and 2 are codes; 1 and 0 are not.
            coded = named[0].isdigit() and fold(other) not in opposite
            doubt = f"{named[0]} is taken for yes: see that it is" if coded else ""
            return (named[0] if is_first else other), doubt
    return sort_levels(levels)[-1], "the later of two levels is taken for 1: see that it is"


def find_giveaways(
    columns: Iterable[Column], label: LabelDraft, target: pd.Series
) -> dict[str, float]:
    """Return the columns that tell the label nearly alone, with how surely.

    That is the area under the ROC curve of the column's numbers, or of the label's mean by level,
    averaged over classes with one against the others; for a regression it is Spearman's rank
    correlation. ``target`` holds the label's level or number in every row. At most ``SAMPLE`` rows
    are looked at. O(n log n) for a column.
    """
    target = _draw(target, SAMPLE)
    rows = target.index
    found: dict[str, float] = {}
    if label.task == "regression":
        for column in columns:
            if column.numbers is not None:
                values = column.numbers.loc[rows]
                surely = abs(float(values.corr(target, method="spearman")))
                if surely >= CORRELATED:
                    found[column.name] = surely
        return found
    classes = target.value_counts()
    if classes.min() < FEWEST:
        return found
    members = [(target == level).to_numpy() for level in classes.index]
    # Of two classes one says all.
    members = members[:1] if len(members) == 2 else members
    for column in columns:
        areas = [
            max(_area(score, member) for score in _scores(column, rows, member))
            for member in members
        ]
        surely = float(np.average(areas, weights=[member.sum() for member in members]))
        if surely >= GIVEAWAY:
            found[column.name] = surely
    return found


def find_joint(
    columns: Iterable[Column], label: LabelDraft, target: pd.Series
) -> tuple[float, list[str]] | None:
    """Return how surely columns tell a label of classes together, and those that do most of it.

    That is the area under the ROC curve, as of `find_giveaways`, of a small forest in rows that a
    tree has not seen; None below ``GIVEAWAY``. O(trees · n log n · √columns) of ``FOREST`` rows.
    """
    used = list(columns)
    classes = target.value_counts()
    if label.task == "regression" or len(used) < 2 or classes.min() < FEWEST:
        return None
    # Its import takes a second.
    from sklearn.ensemble import ExtraTreesClassifier

    target = _draw(target, FOREST)
    rows = target.index
    if target.value_counts().reindex(classes.index, fill_value=0).min() < FEWEST:
        return None
    X = np.column_stack([_codes(column, rows) for column in used])
    forest = ExtraTreesClassifier(
        TREES, min_samples_leaf=3, bootstrap=True, oob_score=True, random_state=0
    ).fit(X, target.astype("str"))
    # A row that every tree has seen has no score.
    score = np.nan_to_num(forest.oob_decision_function_)
    members = [(target.astype("str") == level).to_numpy() for level in forest.classes_]
    areas = [_area(column, member) for column, member in zip(score.T, members, strict=True)]
    surely = float(np.average(areas, weights=[member.sum() for member in members]))
    if surely < GIVEAWAY:
        return None
    weight = forest.feature_importances_
    order = np.argsort(-weight, kind="stable")
    most = order[weight[order] > 1.5 / len(used)][:MOST_CARRIERS]
    return surely, [used[place].name for place in most]


def _draw(target: pd.Series, most: int) -> pd.Series:
    """Return at most so many rows, drawn, in their order."""
    if len(target) <= most:
        return target
    return target.iloc[np.sort(np.random.default_rng(0).choice(len(target), most, replace=False))]


def _codes(column: Column, rows: pd.Index) -> np.ndarray:
    """Return a column as ranks of its numbers, or as the places of its levels by frequency."""
    if column.numbers is not None:
        return column.numbers.loc[rows].rank().fillna(0.0).to_numpy()
    places = {level: place for place, level in enumerate(column.counts.index)}
    return as_levels(column.cells.loc[rows]).map(places).fillna(-1).to_numpy(dtype=np.float64)


def _scores(column: Column, rows: pd.Index, member: np.ndarray) -> list[np.ndarray]:
    """Return by what a column could rank the rows: its numbers or levels, and what is missing."""
    cells = column.cells.loc[rows]
    if column.numbers is not None:
        numbers = column.numbers.loc[rows]
        scores = [numbers.fillna(numbers.min() - 1).to_numpy()]
    else:
        levels = as_levels(cells).fillna("")
        scores = [pd.Series(member, rows).groupby(levels).transform("mean").to_numpy()]
    absent = cells.isna().to_numpy()
    return [*scores, absent.astype(np.float64)] if absent.any() else scores


def _area(score: np.ndarray, member: np.ndarray) -> float:
    """Return the area under the ROC curve of a score, or of its opposite."""
    ones = int(member.sum())
    zeros = member.size - ones
    area = (rankdata(score)[member].sum() - ones * (ones + 1) / 2) / (ones * zeros)
    return float(max(area, 1 - area))


# Rows below which rates of a group say little, and below which a split may leave it out of train.
SMALL, FEWEST = 50, 20
# Groups of one attribute; levels beyond are pooled.
MOST_GROUPS = 8
# Beginnings of age bands: adults, the age from which US law protects workers, and retirement.
AGES, OLDEST = (25.0, 40.0, 60.0), 120

# Share of the rows in which dummies of one attribute may be several, or none.
RARELY = 0.02
DUMMY = ({"0", "1"}, {"False", "True"})


@dataclass(frozen=True)
class AttributeDraft:
    """A protected attribute.

    ``group`` has the keys of the YAML's section, ``sizes`` the rows of each group, ``variants`` the
    levels that a person is given in turn, empty for bands. Rows are left out unless the column has
    one of the levels ``keep``, or, with ``present``, a value at all.
    """

    name: str
    column: str
    group: dict[str, Any]
    sizes: dict[str, int]
    comment: str = ""
    variants: list[str] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)
    present: bool = False

    @property
    def numeric(self) -> bool:
        """Whether the groups are bands of a number."""
        return "below" in self.group

    def warn(self, share: float, minimum: int) -> list[str]:
        """Return what is to be known of the groups before they are compared.

        ``share`` is that of the rows in the smallest part of the split, and a rate takes
        ``minimum`` rows of a part.
        """
        warnings = [f"{self.column}: {self.comment}"] if self.comment else []
        part = f"rows in the smallest part, {share:.0%} of all, of"
        about = {
            level: f"{level} (about {int(rows * share)} of {rows:,})"
            for level, rows in self.sizes.items()
            if rows * share < SMALL
        }
        few = [text for level, text in about.items() if self.sizes[level] * share < minimum]
        thin = [text for text in about.values() if text not in few]
        if thin:
            warnings.append(
                f"{self.column}: fewer than {SMALL} {part} {', '.join(thin)}: what is chosen on "
                "one part may differ on another"
            )
        if few:
            warnings.append(
                f"{self.column}: fewer than {minimum} {part} {', '.join(few)}: "
                "too few for rates of their own, so that gaps leave them out (minimum in the study)"
            )
        return warnings


def choose_protected(
    columns: Mapping[str, Column], label: str, named: Collection[str]
) -> list[AttributeDraft]:
    """Return the attributes that are named, or those that columns' names or levels suggest.

    ConfigError refuses a named column that does not exist, DataError one that makes no groups.
    """
    for name in named:
        if name not in columns or name == label:
            others = [column for column in columns if column != label]
            raise ConfigError(
                f"--protected: the table has no column {name!r}."
                if name != label
                else f"--protected: {name!r} is the label.",
                nearest(name, others),
            )
        if (reason := find_fault(columns[name])) is not None:
            raise DataError(
                f"--protected: column {name!r} makes no groups: it is {reason}.",
                "Name another column, or make one of it in the table.",
            )
    chosen = list(dict.fromkeys(named)) or _suggest(columns, label)
    taken: set[str] = set()
    drafts = []
    for name in chosen:
        slug = re.sub(r"[^\w.-]+", "_", name).strip("_.-")[:60] or "group"
        while slug in taken:
            slug += "_"
        taken.add(slug)
        draft = draft_attribute(slug, columns[name])
        if draft is None and named:
            raise DataError(
                f"--protected: column {name!r} has no two groups of {FEWEST} rows or more.",
                "Name another column, or merge levels in the table.",
            )
        drafts += [draft] if draft else []
    return drafts


def find_fault(column: Column) -> str | None:
    """Return why a column makes no groups; text may have many levels, which are pooled."""
    reason = column.fault
    return None if reason and reason.startswith("text with") else reason


def _suggest(columns: Mapping[str, Column], label: str) -> list[str]:
    """Return the columns that look protected, one for every attribute, in the law's order."""
    found: dict[str, list[str]] = {}
    for name, column in columns.items():
        if name == label or column.fault is not None:
            continue
        kind = _name_kind(column)
        if kind is not None:
            found.setdefault(kind, []).append(name)

    def rank(name: str) -> tuple[bool, int]:
        """Return what is least for the column that stands for its kind: years, by a short name."""
        banded = find_attribute(name) == "age" and not columns[name].is_continuous
        return banded, len(name_words(name))

    return [min(found[kind], key=rank) for kind in PROTECTED if kind in found]


def find_dummies(columns: Mapping[str, Column]) -> dict[str, dict[str, str]]:
    """Return what ``source.dummies`` says of columns of 0 and 1 that are one attribute's levels.

    They seem to be of the same kind, at most one is 1 in nearly every row, and either their names
    begin alike or one is 1 nearly everywhere.
    """
    kinds: dict[str, list[str]] = {}
    for name, column in columns.items():
        kind = find_attribute(name)
        if kind and not column.fault and {*column.levels} in DUMMY:
            kinds.setdefault(kind, []).append(name)
    found = {}
    for kind, names in kinds.items():
        ones = sum(as_levels(columns[name].cells).isin(("1", "True")) for name in names)
        starts = [names[0][: mark.end()] for mark in re.finditer(r"[\W_]", names[0])]
        prefix = next((each for each in starts[::-1] if all(n.startswith(each) for n in names)), "")
        whole = bool(prefix) or np.mean(ones == 0) <= RARELY
        made = kind.replace(" ", "_")
        if len(names) > 1 and whole and np.mean(ones > 1) <= RARELY and made not in columns:
            found[made] = {name: name.removeprefix(prefix) for name in names}
    return found


def find_unused(
    columns: Mapping[str, Column], label: str, drafted: Iterable[AttributeDraft]
) -> Iterator[str]:
    """Yield the columns that look protected and are compared by nothing, with the reason."""
    stands = {_name_kind(columns[each.column]): each.column for each in drafted}
    for name, column in columns.items():
        kind = _name_kind(column)
        if kind is None or name in (label, *stands.values()):
            continue
        reason = find_fault(column)
        if reason is None and kind in stands:
            reason = f"{stands[kind]} stands for it"
        reason = reason or column.fault or f"it has no two groups of {FEWEST} rows"
        yield f"{name} looks protected ({kind}), and is not compared: {reason}"


def _name_kind(column: Column) -> str | None:
    """Return the protected attribute that a column seems to hold, by its name or its levels."""
    if kind := find_attribute(column.name):
        return kind
    if column.numbers is not None or column.fault in (NESTED, LARGE):
        return None
    return recognise_levels(column.levels)


def draft_attribute(name: str, column: Column) -> AttributeDraft | None:
    """Return an attribute with groups large enough to be compared, None where there are no two.

    A number becomes bands: of an age at 25, 40 and 60, of anything else at terciles, as far as
    every band has rows. Levels of fewer than ``SMALL`` rows, and those beyond the most frequent
    ones, are pooled. A pool too small for every part of a split to have some of it is joined with
    the smallest level, or left out of the table where there are two levels.
    """
    if column.is_continuous:
        return _draft_bands(name, column)
    counts = {str(level): int(rows) for level, rows in column.counts.items()}
    if column.missing:
        counts[MISSING_LEVEL] = counts.get(MISSING_LEVEL, 0) + column.missing
    order = sorted(counts, key=lambda level: -counts[level])
    kept = [level for level in order if counts[level] >= SMALL][:MOST_GROUPS]
    # Two groups are compared even where both are small.
    kept = kept if len(kept) > 1 else [level for level in order if counts[level] >= FEWEST][:2]
    pooled = [level for level in order if level not in kept]
    if len(kept) == MOST_GROUPS and pooled:
        pooled.insert(0, kept.pop())
    size = sum(counts[level] for level in pooled)
    comment, keep = "", []
    if pooled and size < FEWEST and (MISSING_LEVEL in kept or len(kept) > 2):
        joined = MISSING_LEVEL if MISSING_LEVEL in kept else kept[-1]
        kept.remove(joined)
        pooled.insert(0, joined)
        size += counts[joined]
    if len(kept) + (size >= FEWEST) < 2:
        return None
    if len(pooled) == 1 and size >= FEWEST:
        kept, pooled = kept + pooled, []
    listed = list(sort_levels(kept))
    sizes = {level: counts[level] for level in listed}
    group: dict[str, Any] = {"column": column.name}
    if pooled and size < FEWEST:
        keep = listed
        group["levels"] = listed
        comment = f"{size} rows of {shorten(pooled)} are left out: too few to compare"
    elif pooled:
        pool = next(word for word in ("other", "all other", "pooled") if word not in listed)
        # What the table does not hold yet is pooled too, unless a level has that word's name.
        rest: str | list[str] = pooled if OTHERS in counts else OTHERS
        group["levels"] = {**{level: [level] for level in listed}, pool: rest}
        sizes[pool] = size
        comment = f"{pool} pools {shorten(pooled)}"
    variants = [level for level in listed if level != MISSING_LEVEL]
    return AttributeDraft(
        name, column.name, group, sizes, comment, variants if len(variants) > 1 else [], keep
    )


def _draft_bands(name: str, column: Column) -> AttributeDraft | None:
    numbers = column.numbers.dropna() if column.numbers is not None else pd.Series(dtype=float)
    years = find_attribute(column.name) == "age" and numbers.between(0, OLDEST).all()
    # Digits of what varies: years of birth differ in their last two. The range may be infinite.
    digits = 2 - math.floor(math.log10(numbers.max() / 2 - numbers.min() / 2 or 1.0))
    terciles = [round(float(numbers.quantile(share)), digits) for share in (1 / 3, 2 / 3)]
    edges: list[float] = []
    for edge in AGES if years else terciles:
        low = edges[-1] if edges else -float("inf")
        if numbers.between(low, edge, inclusive="left").sum() >= SMALL <= (numbers >= edge).sum():
            edges.append(edge)
    if not edges:
        middle = round(float(numbers.median()), digits)
        if min((numbers < middle).sum(), (numbers >= middle).sum()) < FEWEST:
            return None
        edges = [middle]
    starts = pd.IntervalIndex.from_breaks([-float("inf"), *edges, float("inf")], closed="left")
    rows = [int(numbers.between(i.left, i.right, inclusive="left").sum()) for i in starts]
    sizes = dict(zip(name_bands(tuple(edges)), rows, strict=True))
    below: Any = edges[0] if len(edges) == 1 else edges
    comment = f"{column.missing:,} rows without it are left out" if column.missing else ""
    return AttributeDraft(
        name,
        column.name,
        {"column": column.name, "below": below},
        sizes,
        comment,
        present=bool(column.missing),
    )
