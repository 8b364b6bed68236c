"""A table means the same to every command, however it is written: header, levels, numbers, gaps."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import fairfrontier as ff
from fairfrontier.deployment.bundle import make_bundle
from fairfrontier.deployment.explanation import explain
from fairfrontier.deployment.scoring import find_columns, read_frames, score
from fairfrontier.prepare.config.section import Source
from fairfrontier.prepare.draft.draft import read_raw
from fairfrontier.prepare.loader import fit_table, load, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.table.column import as_levels, clean_typed, parse_numbers
from fairfrontier.prepare.table.frame import to_arrow, write_parquet
from fairfrontier.prepare.table.reader import cut_table, read_names, read_rows
from fairfrontier.prepare.table.role import DecisionColumns, ScoreColumns, ScoreTable, read_audited
from fairfrontier.runtime.errors import DataError

N = 60
NAMES = ["score", "race", "grade", "hired"]
SCORE = [round((7 * row % 100) / 100 + 0.0012, 4) for row in range(N)]
RACE = [["White", "Black", None, "Zoë", "Asian, other"][row % 5] for row in range(N)]
GRADE = [["1", "2", "10"][row % 3] for row in range(N)]
HIRED = ["True" if row * row % 7 > 2 else "False" for row in range(N)]


def write(
    names=NAMES,
    separator=",",
    missing="",
    races=RACE,
    truth=("False", "True"),
    decimal=".",
    above="",
    header_end="",
    end="",
    line="\n",
    pad="",
    quoted=False,
):
    """Return the text of the table, in one of the notations that programs have."""

    def quote(cell):
        cell = str(cell)
        return f'"{cell}"' if quoted or separator in cell or "\n" in cell else cell

    rows = [
        [
            str(score).replace(".", decimal),
            missing if race is None else race + pad,
            grade,
            truth[hired == "True"],
        ]
        for score, race, grade, hired in zip(SCORE, races, GRADE, HIRED, strict=True)
    ]
    lines = [separator.join(map(quote, names)) + header_end]
    glue = separator + (" " if quoted == "spaced" else "")
    lines += [glue.join(map(quote, row)) + end for row in rows]
    return above + line.join(lines) + line


def sheet(frame, **options):
    pytest.importorskip("openpyxl")
    stream = io.BytesIO()
    frame.to_excel(stream, index=False, **options)
    return stream.getvalue()


def pack(text):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("table.csv", text)
    return stream.getvalue()


FRAME = pd.DataFrame(
    {
        "score": SCORE,
        "race": RACE,
        "grade": list(map(int, GRADE)),
        "hired": [each == "True" for each in HIRED],
    }
)
WRAPPED = ["score", "Race/\nEthnicity", "grade", "hired"]
# Name of the file -> its content, and its names where they are others.
FORMS = {
    "plain.csv": write(),
    "na.csv": write(missing="NA"),
    "null.csv": write(missing="NULL"),
    "question.csv": write(missing="?"),
    "sheet-error.csv": write(missing="#N/A"),
    "slash.csv": write(missing="n/a"),
    "padded-cells.csv": write(missing="NA  ", pad="  "),
    "padded-front.csv": write(missing=" NA").replace(",White", ",  White"),
    "wrapped.csv": (write(names=WRAPPED), WRAPPED),
    "wrapped-crlf.csv": (write(names=WRAPPED, line="\r\n"), WRAPPED),
    "wrapped-bom.csv": (codecs.BOM_UTF8 + write(names=WRAPPED).encode(), WRAPPED),
    "padded-names.csv": write(names=[f"  {name} " for name in NAMES]),
    "upper.csv": write(truth=("FALSE", "TRUE")),
    "lower.csv": write(truth=("false", "true")),
    "mixed.csv": write(truth=("FALSE", "true")),
    "semicolon.csv": write(separator=";"),
    "german.csv": write(separator=";", decimal=","),
    "tab.csv": write(separator="\t"),
    "tab.tsv": write(separator="\t"),
    "bar.txt": write(separator="|"),
    "title.csv": write(above="People of 2020\n\n"),
    "title-of-sheet.csv": write(above="People of 2020,,,,,\n,,,,,\n", header_end=",,", end=",,"),
    "title-quoted.csv": write(above='"People\nof 2020"\n'),
    "windows.csv": write().encode("cp1252"),
    "bom.csv": codecs.BOM_UTF8 + write(quoted=True).encode(),
    "quoted.csv": write(quoted=True),
    "spaced.csv": write(quoted="spaced"),
    "mac.csv": write(line="\r"),
    "crlf.csv": write(line="\r\n"),
    "trailing.csv": write(end=","),
    "trailing.tsv": write(separator="\t", end="\t"),
    "trailing-header.csv": write(header_end=","),
    "trailing-both.csv": write(header_end=",", end=","),
    "empty-cells.csv": write(header_end="," * 7, end="," * 7),
    "empty-blanks.csv": write(header_end=", ,  ,", end=", , ,"),
    "packed.csv.gz": gzip.compress(write(separator=";").encode(), mtime=0),
    "packed.zip": pack(write(end=",")),
    "sheet.xlsx": sheet(FRAME),
    "sheet-title.xlsx": sheet(
        FRAME.fillna({"race": "NA"}).rename(columns=" {} ".format).assign(**{"": None, " ": None}),
        startrow=2,
    ),
}  # fmt: skip


def make_frames(columns):
    """Return a table as a frame of each library."""
    return {
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "arrow": pa.table(columns),
    }


def keep_file(table, folder, name="kept.parquet"):
    """Return a path for what takes files alone."""
    if not isinstance(table, Path):
        write_parquet(to_arrow(table), folder / name, "The frame")
    return table if isinstance(table, Path) else folder / name


@pytest.fixture(params=FORMS)
def table(request, tmp_path):
    """Return the path of a table, and its names."""
    form = FORMS[request.param]
    content, names = form if isinstance(form, tuple) else (form, NAMES)
    path = tmp_path / request.param
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path, names


def list_levels(column):
    levels = as_levels(column.reset_index(drop=True)).astype(object)
    return levels.where(levels.notna(), None).tolist()


def stream(path, names, source=None):
    return list(read_rows(path, dict.fromkeys(names, "column"), 7, source))


# Two readers begin with what init finds.
find_raw = lru_cache(maxsize=1)(read_raw)


def read_as_init(path, names):
    frame = find_raw(path).frame
    return {name: (list_levels(frame[name]), parse_numbers(frame[name])) for name in frame}


def find_source(path):
    """Return the source that `init` drafts."""
    raw = find_raw(path)
    return Source(path={"path": str(path), "skip_rows": raw.skip_rows}, **raw.keys), raw


def read_as_dask(path, names):
    source, raw = find_source(path)
    if raw.parquet:
        path = path.with_suffix(".parquet")
        path.write_bytes(raw.parquet)
        source = source.model_copy(update={"path": Source(path=str(path)).path})
    found = cut_table(source, path.parent, path.parent)
    frame = pd.concat([piece.read() for piece in found.pieces])
    return {name: (list_levels(frame[name]), parse_numbers(frame[name])) for name in frame}


def read_as_audit(path, names):
    found = {}
    batches = stream(path, names)
    for name in read_names(path):
        cells = []
        for batch in batches:
            codes, levels = batch.column(name).levels()
            cells += [None if levels[code] == "missing" else levels[code] for code in codes]
        numbers = None
        if name == names[0]:
            numbers = np.concatenate([batch.column(name).numbers() for batch in batches])
        found[name] = (cells, numbers)
    return found


def read_as_bundle(path, names):
    source, _ = find_source(path)
    frame = pd.concat([batch.frame for batch in stream(path, names, source)])
    read = {name: clean_typed(frame[name], source) for name in names}
    return {name: (list_levels(cells), parse_numbers(cells)) for name, cells in read.items()}


READERS = [read_as_init, read_as_dask, read_as_audit, read_as_bundle]


def check_readers(path, names, races):
    for read in READERS:
        found = read(path, names)
        assert list(found) == names, read
        assert [found[name][0] for name in names[1:]] == [races, GRADE, HIRED], read
        np.testing.assert_allclose(np.asarray(found[names[0]][1]), SCORE)


def test_every_command_reads_the_same(table):
    path, names = table
    check_readers(path, names, RACE)


# What a cell of levels means.
LEVELS = {"": None, "White": "White", "Zoë": "Zoë", "Asian, other": "Asian, other", "1.0": "1",
          "1": "1", "01": "01", "1E3": "1E3", "x×y": "x×y", "true": "True",
          "=1+1": "=1+1"}  # fmt: skip
HEADERS = [NAMES, ["Score", "Race/\nEthnicity", "1", "größe"], ["n", "a b", "a.b", "na"]]
NOTATIONS = st.fixed_dictionaries(
    {
        "separator": st.sampled_from([";", ",", "\t", "|"]),
        "missing": st.sampled_from(["", "NA", "NULL", "n/a", "#N/A", "?"]),
        "truth": st.sampled_from([("False", "True"), ("FALSE", "TRUE"), ("false", "true")]),
        "line": st.sampled_from(["\n", "\r\n"]),
        "pad": st.sampled_from(["", "  "]),
        "quoted": st.booleans(),
        "names": st.sampled_from(HEADERS),
        "above": st.sampled_from(["", "People of 2020\n\n"]),
    }
)


@settings(max_examples=8)
@drawn(notation=NOTATIONS, decimal=st.sampled_from(".,"), bom=st.booleans(), data=st.data())
def test_drawn_tables_mean_the_same_in_files_and_frames(
    tmp_path_factory, notation, decimal, bom, data
):
    races = data.draw(st.lists(st.sampled_from([*LEVELS]), min_size=N, max_size=N))
    right = [LEVELS[race] for race in races]
    decimal = "." if notation["separator"] == "," else decimal
    names, marks = notation["names"], notation["missing"]
    text = write(**notation, decimal=decimal, races=[race or None for race in races])
    folder = tmp_path_factory.mktemp("drawn")
    path = folder / "t.csv"
    path.write_bytes(codecs.BOM_UTF8 * bom + text.encode())
    cells = [list(map(str, SCORE)), [race or marks for race in races], GRADE, HIRED]
    columns = dict(zip(names, cells, strict=True))
    tables = [path]
    for library, frame in make_frames(columns).items():
        tables.append(keep_file(frame, folder, f"{library}.parquet"))
        assert list_levels(read_raw(frame).frame[names[1]]) == right
    for table in tables:
        check_readers(table, names, right)


@pytest.mark.parametrize("missing", [None, ("NULL",), ("9", "NA")])
@pytest.mark.parametrize("form", ["csv", "pandas", "polars", "arrow"])
def test_what_marks_a_missing_cell_can_be_said(tmp_path, missing, form):
    path = tmp_path / "t.csv"
    path.write_text("s,g,y\n.1,NA,0\n.2,NULL,1\n.3,9.0,1\n.4,Namibia,0\n")
    if form != "csv":
        columns = {
            "s": [0.1, 0.2, 0.3, 0.4],
            "g": ["NA", "NULL", "9.0", "Namibia"],
            "y": [0, 1, 1, 0],
        }
        path = keep_file(make_frames(columns)[form], tmp_path)
    columns = ScoreColumns("s", ("g",), "y", missing=missing)
    (batch,) = ScoreTable(path, columns).batches()
    found = [batch.levels[code][0] for code in batch.cell]
    right = {
        None: ["missing", "missing", "9", "Namibia"],
        ("NULL",): ["NA", "missing", "9", "Namibia"],
        ("9", "NA"): ["missing", "NULL", "missing", "Namibia"],
    }
    assert found == right[missing]
    audited = read_audited(path, DecisionColumns(("g",), decisions="y", missing=missing), ())
    assert len(audited.attributes["g"]) == len(set(found))


TEXT = {"score": list(map(str, SCORE)), "race": RACE, "grade": GRADE, "hired": HIRED}
MARKED = TEXT | {"race": ["NA " if race is None else f" {race}" for race in RACE]}
TYPED = FRAME.astype(object).where(FRAME.notna(), None).to_dict("list")
# Frames as libraries make them: with types, of text alone, with marks, of categories.
FRAMES = {
    f"{kind}-{library}": frame
    for kind, columns in {"typed": TYPED, "text": TEXT, "marked": MARKED}.items()
    for library, frame in make_frames(columns).items()
}
FRAMES |= {
    "categories-pandas": FRAME.astype(dict.fromkeys(NAMES[1:], "category")),
    "nullable-pandas": FRAME.convert_dtypes(),
    "categories-polars": FRAMES["text-polars"].cast(
        {"race": pl.Categorical, "hired": pl.Enum(["False", "True"])}
    ),
    "categories-arrow": pa.table(
        {
            name: pa.array(cells).dictionary_encode() if name != "score" else cells
            for name, cells in TYPED.items()
        }
    ),
}
# Forms that every verb reads, frames among them.
VERBS = ["plain.csv", "null.csv", "padded-cells.csv", "upper.csv", "german.csv", "tab.tsv",
         "title-of-sheet.csv", "windows.csv", "trailing-both.csv", "packed.csv.gz", "packed.zip",
         "sheet.xlsx", "parquet", *FRAMES]  # fmt: skip
DATASET = """\
dataset: people
source: SOURCE
label: {column: hired, positive: "True"}
features: {numeric: [score], categorical: [race, grade]}
groups: {race: {column: race}}
missing: {categorical: category}
split: {kind: random, train: 0.5, test: 0.5}
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle that was fitted on the plain file."""
    folder = tmp_path_factory.mktemp("people")
    (folder / "plain.csv").write_text(FORMS["plain.csv"])
    path = folder / "people.yaml"
    path.write_text(DATASET.replace("SOURCE", "{path: plain.csv}"))
    fitted = fit_table(make_request(path, home=folder))
    split = fitted.encode()
    model = ff.create("linear").fit(split.train.X, split.train.y)
    return make_bundle(model, RowEncoder.of(fitted), {"row_id": None, "study": "people"})


@pytest.fixture(params=VERBS)
def given(request, tmp_path):
    """Return a table as users have it: the path of a file, or a frame."""
    form = request.param
    if form in FRAMES:
        return FRAMES[form]
    path = tmp_path / form
    if form == "parquet":
        FRAME.to_parquet(path)
    else:
        content = FORMS[form]
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


HIRED_BY_RACE = pd.Series([float(each == "True") for each in HIRED]).groupby(
    ["unknown" if each is None else each for each in RACE]
)


def test_audit_and_debias_compare_the_same_rows(given, tmp_path):
    found = ff.audit(given, decisions="hired", groups=["race"], minimum=1).impact
    rates = dict(zip(found["level"], found["rate"], strict=True))
    assert rates == pytest.approx(HIRED_BY_RACE.mean().to_dict())
    columns = ScoreColumns("score", ("race",), labels="hired")
    batches = list(ScoreTable(keep_file(given, tmp_path), columns).batches())
    levels = [batch.levels[code][0] for batch in batches for code in batch.cell]
    assert levels == ["missing" if each is None else each for each in RACE]
    assert np.concatenate([batch.score for batch in batches]).tolist() == SCORE
    assert [str(bool(y)) for batch in batches for y in batch.label] == HIRED


def test_init_drafts_what_run_reads(given, tmp_path):
    raw = read_raw(given)
    path = given if raw.parquet is None else tmp_path / "kept.parquet"
    if raw.parquet:
        path.write_bytes(raw.parquet)
    keys = {"path": {"path": str(path), "skip_rows": raw.skip_rows}, **raw.keys}
    if raw.keys.get("format") == "parquet":
        keys["path"] = str(path)
    (tmp_path / "people.yaml").write_text(DATASET.replace("SOURCE", json.dumps(keys)))
    split = load(tmp_path / "people.yaml", home=tmp_path)
    assert split.feature_names == (
        "score", "race_Asian, other", "race_Black", "race_White", "race_Zoë", "race_missing",
        "grade_1", "grade_2", "grade_10",
    )  # fmt: skip
    for _, part in split.parts():
        races = [part.attributes["race"][code] for code in part.group("race")]
        assert races == ["missing" if RACE[row] is None else RACE[row] for row in part.ids]
        scores = np.array(SCORE)
        train = scores[split.train.ids]
        assert np.allclose(part.X[:, 0], (scores[part.ids] - train.mean()) / train.std())
        assert part.y.tolist() == [int(HIRED[row] == "True") for row in part.ids]


def test_bundles_decide_and_explain_the_same_rows(bundle, given, tmp_path):
    right = bundle.decide(FRAME)
    assert (right["refused"] == "").all()
    scored = score(bundle, keep_file(given, tmp_path), tmp_path / "out.parquet")
    decided = pd.read_parquet(scored.path)
    pd.testing.assert_frame_equal(decided, right, check_index_type=False, check_dtype=False)
    columns = find_columns(bundle, keep_file(given, tmp_path), None, ["race"])
    frames = read_frames(bundle, keep_file(given, tmp_path), columns, lambda _: None)
    values = explain(bundle, pd.concat(frames)).values
    pd.testing.assert_frame_equal(values, explain(bundle, FRAME).values, check_index_type=False)
    if not isinstance(given, Path):
        pd.testing.assert_frame_equal(bundle.decide(given), right)


RUNS = pa.compute.run_end_encode(pa.array(GRADE))


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.assign(race=[{1}] * N),
        FRAME.assign(race=[object()] * N),
        FRAMES["typed-polars"].with_columns(race=pl.lit([1])),
        FRAMES["typed-polars"].with_columns(race=pl.lit(1, pl.Int128)),
        FRAMES["typed-arrow"].set_column(1, "race", [[{"a": 1}] * N]),
        FRAMES["typed-arrow"].set_column(1, "race", RUNS),
    ],
)
def test_a_column_of_a_frame_that_holds_no_levels_is_named(frame):
    with pytest.raises(DataError, match="The frame: column 'race' "):
        ff.audit(frame, decisions="hired", groups=["race"], minimum=1)
