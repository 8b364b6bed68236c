"""Tables of texts: cleaned, masked, and with columns for what the texts mention."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.text import PREFIX, TERMS, WORDS, Mask, Text
from fairfrontier.prepare.config.vocabulary import Terms, name_word
from fairfrontier.prepare.table.column import as_levels
from fairfrontier.prepare.table.table import Table, check_digest, list_files, read_table
from fairfrontier.prepare.text.mask import locate_token, mask_span, mask_words, split_tokens
from fairfrontier.prepare.text.occurrence import find_words
from fairfrontier.prepare.text.table_cache import WORTH_BYTES, recall_table
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.store import hash_file

if TYPE_CHECKING:
    from fairfrontier.prepare.config.dataset import DatasetConfig


def read_corpus(config: DatasetConfig, home: Path, file: Path) -> Table:
    """Read the table of a dataset, with the columns that its section ``text`` makes.

    Parameters
    ----------
    config : DatasetConfig
        Its source is on this disk.
    home : Path
    file : Path
        The YAML; relative paths are also looked up beside it.

    Returns
    -------
    Table
        As ``table.read_table`` gives it where the dataset has no section ``text``.
    """
    text, source, folder = config.text, config.source, file.parent
    if text is None:
        return read_table(source, home, folder)
    places = [
        (each, place) for each in source.files for place in list_files(each, source, home, folder)
    ]
    if sum(place.stat().st_size for _, place in places) < WORTH_BYTES:
        table = read_table(source, home, folder)
        return Table(prepare_texts(table.frame, text, file), table.digests)
    digests = tuple(hash_file(place) for _, place in places)
    for (each, place), digest in zip(places, digests, strict=True):
        check_digest(place, digest, each.sha256 or source.sha256)
    shape = dict(config.shape())
    description = {"files": digests, "source": shape["source"], "text": shape["text"]}
    frame = recall_table(
        lambda: prepare_texts(read_table(source, home, folder).frame, text, file),
        description,
        home,
        __name__,
    )
    return Table(frame, digests)


def prepare_texts(frame: pd.DataFrame, text: Text, file: Path | str) -> pd.DataFrame:
    """Clean the texts of a table, mask words, and note what the texts mention.

    Parameters
    ----------
    frame : DataFrame
    text : Text
    file : Path or str
        Named in errors.

    Returns
    -------
    DataFrame
        The same rows; the text's column and those of ``lower`` are rewritten, ``text.makes`` are
        added behind the others.

    Raises
    ------
    ConfigError
        When the table lacks a column, or has one of those that are made.
    DataError
        When a row lacks what is to be masked.

    Notes
    -----
    Row by row: O(characters). A missing cell is an empty text; ``source: {missing: []}`` keeps
    texts such as "NA".
    """
    for name in text.reads:
        if name not in frame:
            raise ConfigError(
                f"{file}: text: the table has no column {name!r}.", nearest(name, frame.columns)
            )
    for name in text.makes:
        if name in frame:
            raise ConfigError(
                f"{file}: text makes a column {name!r}, and the table has one.",
                "Rename the column of the table.",
            )
    for name in text.mask.columns if text.mask else ():
        absent = (as_levels(frame[name]).fillna("").str.strip() == "").to_numpy(dtype=bool)
        if absent.any():
            raise DataError(
                f"{file}: text: column {name!r} has {int(absent.sum())} missing cells, first in "
                f"row {frame.index[int(absent.argmax())]}.",
                "Leave these rows out of the file: there is nothing to mask.",
            )
    # A column of whole numbers has levels too.
    made = frame.assign(**{name: as_levels(frame[name]).str.lower() for name in text.lower})
    texts = made[text.column].fillna("").astype(str).tolist()
    if text.enclosed is not None:
        texts = [unwrap(each, text.enclosed) for each in texts]
    if text.mask is not None and text.mask.tokens is not None:
        # Tokens are those of the raw text.
        texts = _mask_tokens(texts, made, text.mask, file)
    texts = clean_texts(texts, dict(text.replace))
    if text.mask is not None and text.mask.column is not None:
        texts = mask_words(texts, as_levels(made[text.mask.column]), text.mask.by)
    if text.first is not None:
        texts = [keep_words(each, text.first) for each in texts]
    made[text.column] = pd.array(texts, dtype="str")
    made[WORDS] = np.array([len(each.split()) for each in texts], dtype=np.float64)
    mentions = count_mentions(texts, text.mentions) if text.mentions else {}
    return made.assign(**mentions)


def unwrap(text: str, mark: str) -> str:
    """Return a text without the marks that enclose it; inside, two of them stand for one."""
    if len(text) < 2 or text[0] != mark or text[-1] != mark:
        return text
    return text[1:-1].replace(mark * 2, mark)


def clean_texts(texts: list[str], replace: dict[str, str]) -> list[str]:
    """Replace characters in texts, compose letters (NFC), and make one blank of runs of blanks.

    Parameters
    ----------
    texts : list of str
    replace : dict of str to str
        The longest that stands at a place is replaced; what is put in is not replaced again.
    """
    blank = re.compile(r"\s+")
    # A mark behind a letter would end the word.
    texts = [unicodedata.normalize("NFC", text) for text in texts]
    if not replace:
        return [blank.sub(" ", text).strip() for text in texts]
    longest = sorted(replace, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest)))
    return [
        blank.sub(" ", pattern.sub(lambda match: replace[match[0]], text)).strip() for text in texts
    ]


def keep_words(text: str, count: int) -> str:
    """Return the first words of a text that holds single blanks."""
    pieces = text.split(" ", count)
    return text if len(pieces) <= count else " ".join(pieces[:count])


def count_mentions(texts: list[str], vocabulary: Terms) -> dict[str, np.ndarray]:
    """Return how many terms stand in each text, and which families it mentions.

    Returns
    -------
    dict of str to ndarray of shape (n_texts,)
        ``text:terms``: float64, occurrences of terms; ``mention:FAMILY``: "yes" or "no".
    """
    made: dict[str, np.ndarray] = {
        TERMS: find_words(texts, vocabulary.terms).counts.astype(np.float64)
    }
    words = {name_word(word): word for each in vocabulary.families.values() for word in each}
    found = find_words(texts, words.values())
    codes = {name: code for code, name in enumerate(words)}
    for family, members in vocabulary.families.items():
        member = np.zeros(len(words), dtype=bool)
        member[[codes[name_word(word)] for word in members]] = True
        mentioned = np.zeros(len(texts), dtype=bool)
        mentioned[found.rows[member[found.codes]]] = True
        made[PREFIX + family] = np.where(mentioned, "yes", "no")
    return made


def _mask_tokens(texts: list[str], frame: pd.DataFrame, mask: Mask, file: Path | str) -> list[str]:
    masked = []
    cells = zip(frame.index, texts, frame[mask.tokens], frame[mask.index], strict=True)
    for row, text, tokens, index in cells:
        try:
            start, end = locate_token(text, split_tokens(str(tokens)), _read_position(index))
        except (ValueError, OverflowError):
            raise DataError(
                f"{file}: text.mask.index: row {row} holds {index!r}, which is no position.",
                "Name the column of whole numbers.",
            ) from None
        except DataError as error:
            raise DataError(f"{file}: text.mask: row {row}: {error.fault}", error.mend) from None
        masked.append(mask_span(text, start, end, mask.by))
    return masked


def _read_position(cell: object) -> int:
    number = float(str(cell))
    if number != int(number):
        raise ValueError
    return int(number)
