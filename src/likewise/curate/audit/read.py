"""Reader of an audit folder; raises if a file is damaged.

`audit.json` has what was audited and the number of rows; `audit.csv` has one line per sample, with a low `score` if its label is
suspect; the other files may be missing. All files identify samples by their row in the data. `read_findings` returns their
content, but for the files that few audits have: `read_workers` (annotators.csv), `read_consensus` (consensus.csv), `read_votes`
(annotator_votes.csv), `read_forecast` (forecast.json), `read_order` (queue.csv) and `read_proof` (proof.json).
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import NamedTuple, get_type_hints

import numpy as np

from likewise.core.errors import LikewiseError
from likewise.core.files import load_arrays, open_csv, read_json
from likewise.curate.audit.csv_columns import Kind, as_cells, read_columns
from likewise.curate.audit.samples import (
    BOX_CORNERS,
    CARRIED_COLUMNS,
    Members,
    Near,
    Sample,
    SampleList,
    Samples,
    SingleScores,
    Texts,
)
from likewise.curate.audit.states import REVIEWED_STATES, STATE_DESCRIPTIONS

UNSPLIT_NAME = "all"
"""Name of the only split of data without splits; the `split` column of its samples is empty."""

ROW_COLUMNS = ("row", "query", "other", "wrong", "mate")
"""Columns of all files that identify a sample by its row; "mate" may be -1."""
GENERIC_FOLDERS = ("image", "images", "img", "train", "data", "jpegimages")
"""Names of folders, in lower case, that no data set is known by."""

FORECAST_FILE, QUEUE_FILE, PROOF_FILE = "forecast.json", "queue.csv", "proof.json"
"""Files of a forecast of the review, and of its result; `audit.forecast` and `audit.proof` write them."""

FEATURES_FILE = "features.npz"
"""File of an audit folder: the features of its data by a pretrained network, computed once."""

BROKEN_FILE = "broken.csv"
"""List of the images that were skipped because they cannot be decoded; row and path as in the data."""

OWN_FILE = "own_columns.csv"
"""File of an audit of a table: all its columns, one line per row of the data; the corrected table has them too."""


class Pair(NamedTuple):
    """A retrieval error, with the query's nearest sample of another class (`wrong`) and of its own (`mate`, -1: none)."""

    query: int
    other: int
    type: str
    distance: float
    wrong: int
    mate: int


class Cause(NamedTuple):
    """A training sample that influences an error.

    `relative` is its influence divided by the root mean square over all samples.
    """

    error: str
    kind: str
    direction: str
    place: int
    row: int
    relative: float


class ClassLine(NamedTuple):
    """One line of classes.csv: where the samples of a class would go by the suggested labels, and a class like it."""

    split: str
    label: str
    size: int
    moved: int
    share: float
    target: str
    entropy: float
    kind: str
    partner: str
    overlap: float | None  # None: unknown
    state: str


class Duplicate(NamedTuple):
    """One line of duplicates.csv: a pair of near duplicates."""

    row: int
    other: int
    similarity: float
    bits: int | None
    kind: str
    parts: str
    same_label: bool
    probability: float | None = None  # that both show the same image

    @property
    def across(self) -> bool:
        """Whether the two samples are in different splits."""
        return spans_two_splits(self.parts)


class Group(NamedTuple):
    """A test class with many errors: the number of its `size` queries that fail, and the classes that it is confused with."""

    label: str
    split: str
    errors: int
    size: int
    confused: list[tuple[str, int]]


class LabelQuestion(NamedTuple):
    """One line of labels.csv: a label that a sample may lack ("missing") or have wrongly ("superfluous")."""

    row: int
    label: str
    kind: str
    chance: float | None  # None: unknown
    state: str
    reason: str = ""
    nearest_with: str = ""  # rows of the nearest samples with the label
    nearest_without: str = ""

    @property
    def item(self) -> str:
        """Return the name of the question: decisions are kept for each row and label."""
        return f"{self.row}:{self.label}"

    @property
    def advice(self) -> str:
        """Return what the audit suggests to do."""
        if self.state != "flagged":
            return "keep"
        return "add" if self.kind == "missing" else "remove"


class WorkerLine(NamedTuple):
    """One line of annotators.csv: a worker, the least accurate first."""

    name: str
    votes: int
    accuracy: float
    low: float
    high: float
    disagreement: float | None  # None: no other votes about the same samples
    confused: str  # true class of the most frequent wrong votes; empty: none
    confused_with: str
    confused_votes: float

    @property
    def confusion(self) -> str:
        """The most frequent confusion in words; empty if there is none."""
        times = "once" if round(self.confused_votes) == 1 else f"{self.confused_votes:.0f} times"
        return f"{self.confused} as {self.confused_with}, {times}" if self.confused else ""


class ConsensusLine(NamedTuple):
    """One line of consensus.csv: a sample with votes, disagreements first."""

    row: int
    path: str
    label: str
    consensus: str
    wrong: float  # estimated chance that the consensus is wrong; too low in tests
    state: str  # "undecided", "other label", "votes differ" or "agreed"
    label_score: float  # probability that the given label is right
    votes: int
    for_consensus: int
    voted: str


class VoteLine(NamedTuple):
    """One line of annotator_votes.csv: the label that a worker gave to a sample."""

    row: int
    worker: str  # empty: not known
    label: str


@dataclass(frozen=True, eq=False)
class Findings:
    """The content of an audit folder.

    Keys of pairs are their rows, such as "12-40", so decisions about them stay valid after a new audit.
    """

    about: dict
    sample: Samples
    single: SingleScores  # of flagged samples: the scores that the score combines
    suspects: SampleList  # exact copies with several labels first, then the most suspect first
    off_topic: SampleList  # samples that probably fit no class, the most likely first
    members: Members  # (split, class) -> rows, the least suspect first
    pair: dict[str, Pair]
    causes: dict[tuple[str, str], dict[str, list[Cause]]]
    """(kind, error) -> "harmful" or "helpful" -> causes, the strongest first."""
    classes: list[ClassLine]
    duplicates: list[Duplicate]
    near: Near | dict[int, list[int]]  # row -> nearest rows of the same split; empty: not known
    questions: dict[str, LabelQuestion] | None = None  # item -> question, the worst first; None: one label per sample
    own: Path | None = None  # the user's table as CSV, one line per row; None: the data is no table

    @property
    def across(self) -> dict[str, int]:
        """Return the number of near duplicates between two splits, such as {"train-test": 3}."""
        return {parts: count for parts, count in self.about["duplicates"].items() if spans_two_splits(parts)}

    @cached_property
    def same_images(self) -> dict[int, list[int]]:
        """Return lowest row -> all rows of every image that has exact copies."""
        return self.sample.same_images()

    def copies_of(self, row: int) -> list[int]:
        """Return the other rows that show exactly the same image."""
        first = self.sample[row].same_as
        return [] if first is None else [other for other in self.same_images[first] if other != row]

    def question_of(self, item: str) -> str:
        """Return the item of the question that decides an item: the first row of copies with different labels, else the item."""
        one = self.sample[int(item)] if item.isdecimal() else None
        return item if one is None or one.state != "conflict" or one.same_as is None else str(one.same_as)

    def to_review(self) -> tuple[int, str]:
        """Return the number of questions that a review asks, and their kinds, such as "79 flagged labels, 1 image of no class".

        All copies of an image are one question, as on the review page.
        """
        if self.questions is not None:
            count = sum(one.state == "flagged" for one in self.questions.values())
            return count, counted_words(count, "missing or superfluous label", "missing or superfluous labels")
        copies = len({one.same_as for one in self.suspects.in_state("conflict")})
        kinds = (
            (len(self.suspects.in_state("flagged")), "flagged label", "flagged labels"),
            (copies, "image with different labels", "images with different labels"),
            (len(self.off_topic), "image of no class", "images of no class"),
        )
        return sum(count for count, *_ in kinds), ", ".join(counted_words(*kind) for kind in kinds if kind[0])

    def exemplars(self, split: str, label: str, most: int, but: Collection[int] = ()) -> list[int]:
        """Return the least suspect rows of a class, without the rows `but`: of this split, or of another if it has none."""
        for name in (split, *(name for name in self.about["parts"] if name != split)):
            if found := [row for row in self.members.get((name, label), ()) if row not in but]:
                return found[:most]
        return []

    def merges(self) -> list[ClassLine]:
        """Return classes that are one class under two names, the likeliest first; of two partners, the first name."""
        found = [one for one in self.classes if one.kind == "merge"]
        mutual = {(one.split, one.label, one.partner) for one in found}
        once = [o for o in found if o.label < o.partner or (o.split, o.partner, o.label) not in mutual]
        return sorted(once, key=lambda c: (-(c.overlap or 0), c.label))

    def groups(self) -> list[Group]:
        """Return the test classes for which causes were computed, the worst first."""
        errors = defaultdict(list)
        for pair in self.pair.values():
            if pair.type == "confusion":
                errors[self.sample[pair.query].label].append(pair)
        found = []
        for label in (error for kind, error in self.causes if kind == "group" and errors[error]):
            wrong = Counter(self.sample[pair.wrong].label for pair in errors[label])
            split = self.sample[errors[label][0].query].split
            size = len(self.members[split, label])
            found.append(Group(label, split, len(errors[label]), size, wrong.most_common()))
        return found


def counted_words(count: int, one: str, many: str) -> str:
    """Return a number and what it counts."""
    return f"{count:,} {one if count == 1 else many}"


def spans_two_splits(parts: str) -> bool:
    """Return whether a pair of splits, such as "train-test", has two different splits."""
    return len(set(parts.split("-"))) > 1


def read_findings(folder: str | os.PathLike) -> Findings:
    """Read and check all files of an audit folder."""
    folder = Path(folder)
    about = read_about(folder / "audit.json")
    sample = read_samples(folder / "audit.csv", about)
    pairs: list[Pair] = read_records(folder / "pairs.csv", Pair, sample)
    listed: list[Cause] = read_records(folder / "causes.csv", Cause, sample)
    classes: list[ClassLine] = read_records(folder / "classes.csv", ClassLine, sample)
    asked = read_records(folder / "labels.csv", LabelQuestion, sample, needed=True) if "labels" in about else []
    causes = defaultdict(lambda: defaultdict(list))
    for cause in sorted(listed, key=lambda c: c.place):  # stable: errors keep the order of the file, the worst first
        causes[cause.kind, cause.error][cause.direction].append(cause)
    return Findings(
        about,
        sample,
        sample.single_scores(),
        suspects=sample.suspects(),
        off_topic=sample.outside(),
        members=sample.members(),
        pair={f"{one.query}-{one.other}": one for one in pairs},
        causes={key: dict(causes[key]) for key in dict.fromkeys((c.kind, c.error) for c in listed)},
        classes=[one if one.split else one._replace(split=UNSPLIT_NAME) for one in classes],
        duplicates=read_records(folder / "duplicates.csv", Duplicate, sample),
        near=read_near(folder / "neighbours.npz", sample),
        questions={one.item: one for one in asked} if "labels" in about else None,
        own=own if (own := folder / OWN_FILE).is_file() else None,
    )


def read_about(file: Path) -> dict:
    """Read and check audit.json; keys that may be missing get empty values."""
    defaults = {"parts": {}, "scores": {}, "errors": {}, "duplicates": {}, "notes": []}
    try:
        about = json.loads(file.read_text("utf-8"))
        for name, kind in (("title", str), ("root", str), ("rows", int), ("pictures", bool)):
            if not isinstance(about[name], kind):
                raise ValueError(f"{name} is {about[name]!r}")
        about = defaults | {name: value for name, value in about.items() if value is not None}
        for name, kind in defaults.items():
            if not isinstance(about[name], type(kind)):
                raise ValueError(f"{name} is {about[name]!r}")
        return about
    except (FileNotFoundError, NotADirectoryError):
        raise LikewiseError(
            f"audit: the folder must have {file.name}, but {file.parent} has none; run `likewise audit` first"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LikewiseError(f"audit: {file} is damaged ({error!r}); audit again") from None


def read_samples(file: Path, about: dict) -> Samples:
    """Return all samples, with the single scores of those to review. Audits before `state` had flagged labels alone."""
    kinds: dict[str, Kind] = {name: kind for name, kind in get_type_hints(Sample).items() if name != "carried"}
    scores = [name for name in about["scores"] if name not in (*kinds, *CARRIED_COLUMNS)]
    others: dict[str, Kind] = {**dict.fromkeys(CARRIED_COLUMNS, str), **dict.fromkeys(scores, float | None)}
    found = read_columns(file, kinds | others, plain="path")
    samples = None if found is None else samples_of_columns(found, about["rows"])
    return samples if samples is not None else read_samples_by_line(file, about)


def samples_of_columns(found: dict, rows: int) -> Samples | None:
    """Return the samples with these columns; None: a column is missing, or a value is not possible."""
    if any(name not in found for name in Sample._fields if name not in (*Sample._field_defaults, "carried")):
        return None
    row = found["row"]
    if not len(row) or row.min() < 0 or row.max() >= rows or (np.diff(np.sort(row, kind="stable")) == 0).any():
        return None
    empty, unknown = Texts([""], np.zeros(len(row), np.int32)), np.full(len(row), np.nan)
    state = found.get("state", empty)
    if "" in state.names:
        suspect = np.where(~found["suggested"].find(""), "flagged", "ok")
        state = Texts.of(np.where(state.find(""), suspect, np.array(state.names)[state.code]).tolist())
    if not set(state.names) <= STATE_DESCRIPTIONS.keys():
        return None
    free = np.isin(state.code, [n for n, name in enumerate(state.names) if name in ("unknown", "off-topic")])
    boxes = [cell for name in BOX_CORNERS if name in found for cell in found[name].names]
    if (np.isnan(found["score"]) & ~free).any() or not all(map(is_coordinate, boxes)):
        return None
    carried = {name: found[name] for name in CARRIED_COLUMNS if name in found}
    split = found["split"]._replace(names=[name or UNSPLIT_NAME for name in found["split"].names])
    texts = {"label": found["label"], "suggested": found["suggested"], "reason": found["reason"], "split": split}
    numbers = {name: found[name] for name in ("score", "confidence", "margin")}
    single = {name: found[name] for name in found if name not in (*Sample._fields, *CARRIED_COLUMNS)}
    same_as = found.get("same_as", np.full(len(row), -1))
    return Samples(
        row, found["path"], numbers | {"off_topic": found.get("off_topic", unknown)}, texts | {"state": state},
        same_as, carried, single,
    )  # fmt: skip


def is_coordinate(text: str) -> bool:
    """Return whether a cell of a box is empty or a number."""
    try:
        return not text or math.isfinite(float(text))
    except ValueError:
        return False


def read_samples_by_line(file: Path, about: dict) -> Samples:
    """Return all samples, read line by line; raise if a line is wrong."""
    sample, single = {}, {}
    for line, values, cells in read_lines(file, Sample):
        one = Sample(**values, carried={name: cells[name] for name in CARRIED_COLUMNS if name in cells})
        if not 0 <= one.row < about["rows"] or one.row in sample:
            raise LikewiseError(
                f"audit: line {line} of audit.csv must have a new row below {about['rows']}, got {one.row}; audit again"
            )
        for name in BOX_CORNERS:
            parse_cell(cells.get(name, ""), float | None, name, line, file)
        state = one.state or ("flagged" if one.suggested else "ok")
        if state not in STATE_DESCRIPTIONS:
            raise LikewiseError(
                f"audit: state must be one of {', '.join(STATE_DESCRIPTIONS)}, got {state!r} in line {line} of {file.name}; "
                "audit again"
            )
        if one.score is None and state not in ("unknown", "off-topic"):
            raise LikewiseError(f"audit: score must be a number, got '' in line {line} of {file.name}; audit again")
        sample[one.row] = one._replace(split=one.split or UNSPLIT_NAME, state=state)
        if state in REVIEWED_STATES:
            names = (name for name in about["scores"] if name in cells and name not in Sample._fields)
            single[one.row] = {name: parse_cell(cells[name], float | None, name, line, file) for name in names}
    if not sample:
        raise LikewiseError("audit: audit.csv must have a sample or more, got none; audit again")
    return Samples.of(sample.values(), single)


def read_records(file: Path, record: type, sample: Samples, needed: bool = False) -> list:
    """Return the lines of a file as records; none if there is no file, unless it is needed."""
    if not needed and not file.exists():
        return []
    kinds: dict[str, Kind] = get_type_hints(record)
    optional: dict = record._field_defaults  # pyright: ignore[reportAttributeAccessIssue] - a NamedTuple
    found = read_columns(file, kinds)
    if found is not None and all(name in found or name in optional for name in kinds):
        rows = [
            column[column != -1] if name == "mate" else column for name, column in found.items() if name in ROW_COLUMNS
        ]
        if sample.first_unknown(np.concatenate([np.zeros(0, np.int64), *rows])) is None:
            names, columns = list(found), [as_cells(column, kinds[name]) for name, column in found.items()]
            if names == list(kinds):
                return [record(*cells) for cells in zip(*columns, strict=True)]
            return [record(**dict(zip(names, cells, strict=True))) for cells in zip(*columns, strict=True)]
    return [record(**values) for _, values, _ in read_lines(file, record, sample)]


def read_lines(file: Path, record: type, sample: Samples | None = None) -> Iterator[tuple[int, dict, dict[str, str]]]:
    """Yield for each line its number, the values of the record's columns, and all cells as text.

    Columns of fields with a default may be missing. Raises if a column that identifies a sample has an unknown row.
    """
    kinds = {name: kind for name, kind in get_type_hints(record).items() if name != "carried"}
    optional: dict = record._field_defaults  # pyright: ignore[reportAttributeAccessIssue] - a NamedTuple
    named = [name for name in kinds if name in ROW_COLUMNS and sample]
    try:
        with open_csv(file) as text:
            reader = csv.DictReader(text, restval="")
            present = [name for name in kinds if name in (reader.fieldnames or ())]
            missing = [name for name in kinds if name not in present and name not in optional]
            if missing:
                raise LikewiseError(f"audit: {file.name} must have the column {missing[0]!r}, got none; audit again")
            for cells in reader:
                line = reader.line_num
                values = {name: parse_cell(cells[name], kinds[name], name, line, file) for name in present}
                rows = [values[name] for name in named if not (values[name] == -1 and name == "mate")]
                check_rows(rows, sample, f"{file.name} line {line}")
                yield line, values, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LikewiseError(f"audit: {file} cannot be read ({error}); audit again") from None


def parse_cell(text: str, kind: type | UnionType, name: str, line: int, file: Path) -> str | float | int | bool | None:
    """Return a cell as a value of its type; raise if it is not one."""
    if kind is str:
        return text
    if kind is bool:
        return text.lower() in ("1", "true")
    if not text and kind in (int | None, float | None):
        return None
    try:
        value = int(text) if kind in (int, int | None) else float(text)
        if math.isfinite(value):
            return value
    except ValueError:
        pass
    raise LikewiseError(f"audit: {name} must be a number, got {text!r} in line {line} of {file.name}; audit again")


def check_rows(rows: Iterable, sample: Samples | None, where: str) -> None:
    """Raise unless all rows are in audit.csv."""
    unknown = next((row for row in rows if sample is None or row not in sample), None)
    if unknown is not None:
        raise LikewiseError(f"audit: {where} must have rows of audit.csv, got {unknown}; audit again")


def read_near(file: Path, sample: Samples) -> Near | dict[int, list[int]]:
    """Return the nearest neighbours of every row, from neighbours.npz; empty if there is no such file."""
    if not file.exists():
        return {}
    row, near = load_arrays(file, "audit", "audit again", {"row": ("iu", 1), "near": ("iu", 2)}).values()
    if len(row) != len(near):
        raise LikewiseError(
            f"audit: {file.name} must have one row of 'near' for each of 'row', got {len(near)} and {len(row)}; audit again"
        )
    unknown = sample.first_unknown(np.append(row, near[near >= 0]))
    check_rows([] if unknown is None else [unknown], sample, file.name)
    return Near(row, near)


def data_name(found: Findings) -> str:
    """Return the name of the folder with all images; without images, the title of the audit."""
    root, title = found.about["root"], found.about["title"]
    folders = {os.path.join(root, folder) for folder in found.sample.path.folders()}
    if not found.about["pictures"] or not folders or not all(map(os.path.isabs, folders)):
        return title
    top = Path(root if len(folders) == 1 and root else os.path.commonpath(folders))
    top = top.parent if top.name.lower() in GENERIC_FOLDERS else top
    return top.name or title


def find_audit(place: str, owner: str) -> Path:
    """Return the audit folder: the given folder, or `audit` in the given run folder."""
    given = Path(place).expanduser()
    folder = next((one for one in (given, given / "audit") if (one / "audit.json").is_file()), None)
    if folder is None:
        raise LikewiseError(
            f"{owner}: the folder must be an audit (with audit.json) or a run with an audit in `audit`, got '{place}'; "
            "run `likewise audit` first"
        )
    return folder


def read_workers(folder: str | os.PathLike) -> list[WorkerLine]:
    """Return the workers of an audit; empty without votes."""
    return read_vote_lines(Path(folder) / "annotators.csv", WorkerLine)


def read_consensus(folder: str | os.PathLike) -> list[ConsensusLine]:
    """Return the consensus of an audit; empty without votes."""
    return read_vote_lines(Path(folder) / "consensus.csv", ConsensusLine)


def read_votes(folder: str | os.PathLike) -> list[VoteLine]:
    """Return the single votes of an audit; empty without votes, and for audits that did not keep them."""
    return read_vote_lines(Path(folder) / "annotator_votes.csv", VoteLine)


def read_vote_lines(file: Path, record: type) -> list:
    """Return the lines of a table as records, whose fields are its columns; empty if there is no file."""
    if not file.exists():
        return []
    kinds = get_type_hints(record)
    with open_csv(file) as text:
        reader = csv.reader(text)
        lines = [(reader.line_num, cells) for cells in reader]
    if not lines or any(len(cells) != len(kinds) for _, cells in lines):
        raise LikewiseError(f"audit: {file} must have {len(kinds)} columns in every line; run the audit again")
    return [
        record(*(parse_cell(cell, kind, name, line, file) for cell, (name, kind) in zip(cells, kinds.items())))
        for line, cells in lines[1:]
    ]


def read_forecast(folder: Path) -> dict | None:
    """Return the forecast of an audit folder; None: it has none."""
    file = Path(folder) / FORECAST_FILE
    return read_json(file, "audit") if file.exists() else None


def read_order(folder: Path) -> list[int]:
    """Return the suspects of an audit, rows of the data, in the order that was forecast; empty without a forecast."""
    file = Path(folder) / QUEUE_FILE
    if not file.exists():
        return []
    with open_csv(file) as lines:
        return [int(line["row"]) for line in csv.DictReader(lines)]


def read_proof(folder: Path) -> dict | None:
    """Return forecast and result of an audit folder; None: it has none, or one of an earlier version."""
    file = Path(folder) / PROOF_FILE
    proof = read_json(file, "audit") if file.exists() else {}
    return proof if "parts" in proof else None
