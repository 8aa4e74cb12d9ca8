"""Types of settings that are text, with the placeholder that help shows for them; and settings that several commands share."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

import tyro
from annotated_types import Interval

Positional = tyro.conf.Positional

SPEC_MARK, DURATION_MARK = "spec", "duration"
Spec = Annotated[str, SPEC_MARK]
"""The spec of a component: "Triplet(margin=0.1)"."""
Duration = Annotated[str, DURATION_MARK]
"""A length or a period: steps ("5000"), epochs ("20e"), or, for checkpoints, seconds ("30s")."""
Folder = Annotated[str, "folder"]
"""The path of a folder."""
File = Annotated[str, "file"]
"""The path of a file."""
Location = Annotated[str, "path"]
"""The path of a file or a folder."""
Data = Annotated[str, "data"]
"""A DATA argument: a path, or the name of a data set."""
Name = Annotated[str, "name"]
"""A name from a list that the help of the setting mentions."""
Device = Annotated[str, "device"]
"""A device of torch: cpu, cuda, cuda:1, mps."""
Memory = Annotated[str, "memory"]
"""A size in bytes with its unit: "512MB", "20GB"."""
Seed = Annotated[int, Interval(ge=0, le=2**31 - 1)]
Workers = Annotated[int, Interval(ge=-1, le=1024)]
"""A number of processes that read images; -1 chooses."""
Processes = Annotated[int, Interval(ge=1, le=1024)]
Port = Annotated[int, Interval(ge=0, le=65535)]
StoredType = Literal["float32", "float16", "int8"]
"""Number type of stored embeddings."""


def flag_name(field: str) -> str:
    """Return the flag of a setting: `--batch-size` for batch_size, `--from` for from_ (a word of Python has an underscore)."""
    return f"--{field.rstrip('_').replace('_', '-')}"


def called(name: str):
    """Return the annotation that gives a positional argument its name in help."""
    return tyro.conf.arg(metavar=name)


def spec_fields(config: type) -> tuple[str, ...]:
    """Return the settings of a command that hold one spec or several specs, in the order of its fields."""
    return _marked(config, SPEC_MARK)


def duration_fields(config: type) -> tuple[str, ...]:
    """Return the settings of a command that are durations, in the order of its fields."""
    return _marked(config, DURATION_MARK)


def texts_of(config, names: typing.Iterable[str]) -> list[str]:
    """Return the texts in the named settings of a config as one list. Settings that are None or empty add nothing."""
    values = (getattr(config, name) for name in names)
    return [text for value in values for text in (value if isinstance(value, tuple) else (value,)) if text]


@cache
def _marked(config: type, mark: str) -> tuple[str, ...]:
    hints = typing.get_type_hints(config, include_extras=True)
    return tuple(field.name for field in dataclasses.fields(config) if mark in marks(hints[field.name]))


def marks(hint: object) -> list[str]:
    """Return the marks of an annotation and of the annotations inside it, such as "spec" for `tuple[Spec, ...] | None`."""
    own = getattr(hint, "__metadata__", ()) if typing.get_origin(hint) is Annotated else ()
    inner = [arg for arg in typing.get_args(hint) if not isinstance(arg, str)]
    return [mark for mark in own if isinstance(mark, str)] + [mark for arg in inner for mark in marks(arg)]


@dataclass(frozen=True, kw_only=True)
class Computation:
    """Settings of a command that computes with a network."""

    device: Device | None = None
    """Device that computes: cpu, cuda, cuda:1 or mps. By default the GPU if there is one."""
    workers: Workers = -1
    """Number of processes that read images; -1 chooses."""
    allow_imports: bool = False
    """Allow components, data and metrics by dotted name (my_lab.losses.Mine()) in the command and its runs, which runs their
    code."""
    quiet: bool = False
    """Print no progress bar and no table."""


@dataclass(frozen=True, kw_only=True)
class MovedData(Computation):
    """Settings of a command that opens runs, whose data may have been moved since training."""

    data: Location | None = None
    """Current path of the run's data, if it was moved. By default the path in the run's settings."""
    root: Folder | None = None
    """Current folder of the images of a table, of a named data set or of embeddings, if they were moved. By default the folder in
    the run's settings."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint(MovedData):
    """Settings of a command that opens one network of a run."""

    checkpoint: Literal["best", "last", "untrained"] = "best"
    """Checkpoint of the run: best on validation (last if there was no validation), last, or untrained (as at the start)."""
