"""The search of tune: base settings, ranges, folds, and the name by which processes share it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from likewise.core.files import read_json
from likewise.core.settings import SETTINGS_OUTSIDE_IDENTITY, Train, Tune, to_dict
from likewise.core.types import LikewiseError
from likewise.papers.experiments.grid import as_train, read_grid
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import Planner
from likewise.papers.experiments.search_space import Range, apply_values, read_entries, read_ranges
from likewise.runs.folder import Run

DEFAULT_PROTOCOL = "ClassFolds()"
FIXED_SETTINGS = (
    "data",
    "root",
    "recipe",
    "protocol",
    "noise",
    "seed",
    "select",
    "metrics",
    "device",
    "workers",
    "strict",
)
"""Settings that must be equal in all trials: they define the score, or do not change what is learned."""


@dataclass(frozen=True)
class Search:
    """Base settings and ranges of a search, and the protocols of the folds over which scores are averaged."""

    base: Train
    ranges: list[Range]
    protocols: list[str]
    name: str

    def settings(self, values: dict[str, object]) -> Train:
        """Return the settings of a trial with these values."""
        return apply_values(self.base, self.ranges, values)


def prepare(config: Tune, planner: Planner, say: Callable[[str], None]) -> Search:
    """Return the search: settings from a file or a run, ranges from the file and the command line, folds from the protocol."""
    from likewise.learn.training.defaults import fold_specs, resolve
    from likewise.runs.open import read_config

    path, ours = Path(config.config).expanduser(), {"evaluate": False, "allow_imports": config.allow_imports}
    ours |= {"device": config.device} if config.device else {}
    if path.is_dir():
        base, grid = replace(read_config(Run(path)), recipe=None, test_every=None, **ours), Grid("", {}, {}, {})
        if not has_val(base, planner):
            say(f"the protocol of {path} has no validation split; the search uses {DEFAULT_PROTOCOL} instead")
            usual = resolve(replace(base, sampler=None), planner.items(base)[0]).sampler == base.sampler
            base = replace(
                base, protocol=DEFAULT_PROTOCOL, sampler=None if usual else base.sampler
            )  # for fewer classes
    else:
        grid = read_grid(path)
        if grid.axes:
            raise LikewiseError(f"tune: '{path}' must have no axes, which are for bench; write [ranges] instead")
        base = as_train(grid.settings, **ours)
    base = replace(base, protocol=base.protocol or DEFAULT_PROTOCOL)
    entries = read_entries(config.ranges, base.loss, grid.ranges)
    ranges = read_ranges(entries, base)
    protocol = base.protocol or DEFAULT_PROTOCOL
    protocols = fold_specs(protocol) or [protocol]
    for r in ranges:
        if (name := r.name.split(".")[0]) in FIXED_SETTINGS:
            raise LikewiseError(
                f"tune: '{name}' must be the same for all trials, or they could not be compared; set it in the config"
            )
    if base.test_every or any(r.name == "test_every" for r in ranges):
        raise LikewiseError("tune: a search must not use the test split, but test_every does; drop test_every")
    if not has_val(replace(base, protocol=protocols[0]), planner):
        raise LikewiseError(
            f"tune: {base.protocol} has no validation split to search on; use {DEFAULT_PROTOCOL} or UnseenClasses(val=0.2)"
        )
    same = {k: v for k, v in to_dict(base).items() if k not in SETTINGS_OUTSIDE_IDENTITY}
    text = json.dumps([same, entries, planner.items(base)[1]], sort_keys=True)
    return Search(base, ranges, protocols, f"likewise-{hashlib.sha256(text.encode()).hexdigest()[:12]}")


def has_val(base: Train, planner: Planner) -> bool:
    """Return whether the protocol of these settings has a validation split."""
    from likewise.data.dataset import make_protocol
    from likewise.learn.training.defaults import resolve

    items, _ = planner.items(base)
    return len(make_protocol(resolve(base, items)).rows(items, "val")) > 0


def check_folder(folder: Path, search: Search) -> None:
    """Raise if the folder holds another search."""
    file = folder / "tune.json"
    hint = "delete it: it is written again from the storage of the search"
    if file.exists() and read_json(file, "tune", hint=hint).get("study") != search.name:
        raise LikewiseError(
            f"tune: '{folder}' holds another search (other settings, ranges or data); choose another --out"
        )
