"""Tables of texts: cleaned, masked, kept, and with columns for what the texts mention."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import (
    GAP,
    MASK,
    PREFIX,
    TERMS,
    WORDS,
    DatasetConfig,
    Mask,
    Terms,
    Text,
    name_word,
)
from fairfrontier.prepare.source.progress import COUNT, Progress, show_progress
from fairfrontier.prepare.table.column import as_levels
from fairfrontier.prepare.table.reader import check_digest, list_sources
from fairfrontier.prepare.table.rows import Table, read_table
from fairfrontier.prepare.text.version import find_words
from fairfrontier.runtime.errors import DataError, StoreError, refuse_unknown
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store, hash_file
from fairfrontier.runtime.version import version


def locate_token(text: str, tokens: Sequence[str], index: int) -> tuple[int, int]:
    """Return the position of a token in its text, as (start, end) in characters.

    ``tokens`` are the pieces of the text without the blanks between them. A DataError is raised
    when they are not those of the text, or too few.
    """
    if not 0 <= index < len(tokens):
        raise DataError(
            f"There is no token {index} among {len(tokens)}.", "Correct the column of positions."
        )
    end = 0
    for token in tokens[: index + 1]:
        start = end
        while start < len(text) and text[start].isspace():
            start += 1
        end = start + len(token)
        if text[start:end] != token:
            raise DataError(
                f"The token {token!r} is not in its text at character {start}.",
                "Give the tokens of the same text.",
            )
    return start, end


def mask_word(text: str, word: str, mask: str = MASK) -> str:
    """Mask every occurrence of a word, in any case, and its regular plural.

    "nurse" is masked in "nurses", "Nurse's" and "nurse-midwife", not in "nursery"; "secretary" in
    "secretaries", "boss" in "bosses". Blanks or one hyphen may separate the words of a term, which
    may also be given with underscores: "vice_president" is masked in "Vice-president". For an empty
    word nothing is masked.
    """
    return _compile(word).sub(lambda _: mask, text)


@lru_cache(maxsize=4096)
def _compile(word: str) -> re.Pattern[str]:
    pieces = [re.escape(piece) for piece in re.split(r"[\s_-]+", word) if piece]
    if not pieces:
        # Without a word its plural ending would match.
        return re.compile(r"(?!)")
    stem = GAP.join(pieces)
    plural = rf"{stem}(?:s|es)?"
    if re.search(r"[^aeiou]y$", pieces[-1], re.IGNORECASE):
        plural = rf"(?:{plural}|{stem[:-1]}ies)"
    return re.compile(rf"(?<!\w){plural}(?!\w)", re.IGNORECASE)


FOLDER = Path("data", "cache", "tables")
KIND, FILE = "table", "table.parquet"
# Below, reading and preparing take less than a second.
WORTH_BYTES = 8 * 2**20


def cached_table(
    make: Callable[[], pd.DataFrame], description: Mapping[str, Any], home: Path
) -> pd.DataFrame:
    """Return a table that was made before, or make it and keep it in the project's cache.

    ``description`` is all that the table depends on, except for the source of this module. The
    table is numbered from 0, with columns of numbers and level text. When its file is damaged or
    cannot be written, the table is made again.
    """
    libraries = {name: version(name) for name in ("pandas", "pyarrow")}
    whole = {**description, "source": source_digest([__name__]), "libraries": libraries}
    store = Store(home / FOLDER)
    key = store.key(KIND, whole)
    entry = store.read(KIND, key)
    if entry is not None:
        return pd.read_parquet(entry / FILE)
    frame = make()
    with suppress(OSError, StoreError), store.writing(KIND, key, whole) as work:
        frame.to_parquet(work / FILE)
    return frame


# Texts that are cleaned and searched between two signs of progress, and its name.
BLOCK_TEXTS, CLEANING = 1 << 11, "cleaning texts"


def read_corpus(
    config: DatasetConfig, home: Path, file: Path, progress: Progress | None = None
) -> Table:
    """Read the table of a dataset, with the columns that its section ``text`` adds.

    ``progress`` is called with (name, texts done, texts in total) while texts are cleaned.
    """
    text, source, folder = config.text, config.source, file.parent
    if text is None:
        return read_table(source, home, folder)
    paths = [
        (path, part.sha256 or source.sha256)
        for part in source.files
        for path in list_sources(part, source, home, folder)
    ]
    digests = tuple(hash_file(path) for path, _ in paths)
    for (path, expected), digest in zip(paths, digests, strict=True):
        check_digest(path, digest, expected)

    def make(show: Progress = lambda *_: None) -> pd.DataFrame:
        return prepare_texts(read_table(source, home, folder).frame, text, file, show)

    if sum(path.stat().st_size for path, _ in paths) < WORTH_BYTES:
        return Table(make(), digests)
    shape = dict(config.shape())
    description = {"files": digests, "source": shape["source"], "text": shape["text"]}
    with show_progress(progress, COUNT) as show:
        return Table(cached_table(lambda: make(show), description, home), digests)


def prepare_texts(
    frame: pd.DataFrame, text: Text, file: Path | str, show: Progress = lambda *_: None
) -> pd.DataFrame:
    """Clean the texts of a table, mask words, and add columns for what the texts mention.

    The rows stay the same; the text's column and those of ``lower`` are rewritten, ``text.makes``
    are added behind the others. A missing cell is an empty text; ``source: {missing: []}`` keeps
    texts such as "NA". O(characters).
    """
    refuse_unknown(text.reads, frame.columns, f"{file}: text: the table has no column")
    for name in text.mask.columns if text.mask else ():
        absent = (as_levels(frame[name]).fillna("").str.strip() == "").to_numpy(dtype=bool)
        if absent.any():
            raise DataError(
                f"{file}: text: column {name!r} has {int(absent.sum())} missing cells, first in "
                f"row {frame.index[int(absent.argmax())]}.",
                "Leave these rows out of the file: there is nothing to mask.",
            )
    # A column of whole numbers has levels too.
    frame = frame.assign(**{name: as_levels(frame[name]).str.lower() for name in text.lower})
    texts = frame[text.column].fillna("").astype(str).tolist()
    if text.enclosed is not None:
        texts = [unwrap(cell, text.enclosed) for cell in texts]
    if text.mask is not None and text.mask.tokens is not None:
        # Tokens are those of the raw text.
        texts = _mask_tokens(texts, frame, text.mask, file)
    masked = as_levels(frame[text.mask.column]) if text.mask and text.mask.column else None
    cleaned: list[str] = []
    mentioned = []
    for start in range(0, max(len(texts), 1), BLOCK_TEXTS):
        show(CLEANING, start, len(texts))
        block = slice(start, start + BLOCK_TEXTS)
        some = clean_texts(texts[block], dict(text.replace))
        if text.mask is not None and masked is not None:
            words = zip(some, masked.iloc[block], strict=True)
            some = [mask_word(cell, word, text.mask.by) for cell, word in words]
        if (first := text.first) is not None:
            some = [" ".join(cell.split(" ", first)[:first]) for cell in some]
        cleaned += some
        if text.mentions:
            mentioned.append(pd.DataFrame(count_mentions(some, text.mentions)))
    frame[text.column] = pd.array(cleaned, dtype="str")
    frame[WORDS] = np.array([len(cell.split()) for cell in cleaned], dtype=np.float64)
    counted = pd.concat(mentioned).set_axis(frame.index) if mentioned else frame[[]]
    return frame.assign(**counted)


def unwrap(text: str, mark: str) -> str:
    """Return a text without the marks that enclose it, and with doubled ones inside halved."""
    if len(text) < 2 or text[0] != mark or text[-1] != mark:
        return text
    return text[1:-1].replace(mark * 2, mark)


def clean_texts(texts: list[str], replace: dict[str, str]) -> list[str]:
    """Replace characters in texts, compose letters (NFC), and reduce runs of blanks to one.

    The longest key of ``replace`` at a position is replaced; replacements are not replaced again.
    """
    blank = re.compile(r"\s+")
    # A combining mark behind a letter would end the word.
    texts = [unicodedata.normalize("NFC", text) for text in texts]
    if replace:
        longest = sorted(replace, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest)))
        texts = [pattern.sub(lambda match: replace[match[0]], text) for text in texts]
    return [blank.sub(" ", text).strip() for text in texts]


def count_mentions(texts: list[str], vocabulary: Terms) -> dict[str, np.ndarray]:
    """Return the number of terms in each text, and which families it mentions.

    Columns of shape (n_texts,): ``text:terms``, float64, and ``mention:FAMILY``, "yes" or "no".
    """
    counts = find_words(texts, vocabulary.terms).counts
    columns: dict[str, np.ndarray] = {TERMS: counts.astype(np.float64)}
    families = vocabulary.families
    words = {name_word(word): word for members in families.values() for word in members}
    occurrences = find_words(texts, words.values())
    codes = {name: code for code, name in enumerate(words)}
    for family, members in families.items():
        of_family = np.isin(occurrences.codes, [codes[name_word(word)] for word in members])
        mentioned = np.isin(np.arange(len(texts)), occurrences.rows[of_family])
        columns[PREFIX + family] = np.where(mentioned, "yes", "no")
    return columns


def _mask_tokens(texts: list[str], frame: pd.DataFrame, mask: Mask, file: Path | str) -> list[str]:
    masked = []
    cells = zip(frame.index, texts, frame[mask.tokens], frame[mask.index], strict=True)
    for row, text, tokens, index in cells:
        try:
            place = float(str(index))
            listed = ast.literal_eval(str(tokens))
            start, end = locate_token(text, listed, int(place))
            if place != int(place):
                raise ValueError(index)
        except (ValueError, SyntaxError, TypeError, OverflowError):
            raise DataError(
                f"{file}: text.mask: row {row} holds {index!r}, which is no position in a list of "
                "tokens.",
                "Name columns of whole numbers and of lists as Python writes them.",
            ) from None
        except DataError as error:
            raise DataError(f"{file}: text.mask: row {row}: {error.fault}", error.mend) from None
        masked.append(text[:start] + mask.by + text[end:])
    return masked
