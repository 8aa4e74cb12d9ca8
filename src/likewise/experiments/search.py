"""What tune searches: settings, ranges, the folds whose mean decides, and the name under which processes share the search."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from likewise.config import KEPT_OUT, Train, Tune, to_dict
from likewise.experiments.grid import as_train, read_grid
from likewise.experiments.grid_types import Grid
from likewise.experiments.jobs import Planner
from likewise.experiments.search_space import Range, read_entries, read_ranges, settle
from likewise.io.files import read_json
from likewise.runs.folder import Run
from likewise.types import LikewiseError

FOLDS = "ClassFolds()"
JUDGES = ("data", "root", "recipe", "protocol", "noise", "seed", "select", "metrics", "device", "workers", "skip_bad")
"""Settings by which a search judges, or that leave what is learned as it is: to vary them would compare nothing."""


@dataclass(frozen=True)
class Search:
    """What is searched: settings, ranges, and the folds whose mean decides."""

    base: Train
    ranges: list[Range]
    protocols: list[str]
    name: str

    def settings(self, values: dict[str, object]) -> Train:
        return settle(self.base, self.ranges, values)


def prepare(config: Tune, planner: Planner, say: Callable[[str], None]) -> Search:
    """Settings from a file or a run, ranges from the file and the command, folds from the protocol."""
    from likewise.runs.defaults import fold_specs, resolve
    from likewise.runs.settings import read_config

    path, ours = Path(config.config).expanduser(), {"evaluate": False, "allow_imports": config.allow_imports}
    ours |= {"device": config.device} if config.device else {}
    if path.is_dir():
        base, grid = replace(read_config(Run(path)), recipe=None, test_every=None, **ours), Grid("", {}, {}, {})
        if not has_val(base, planner):
            say(f"the protocol of {path} has no validation split; {FOLDS} takes its place")
            usual = resolve(replace(base, sampler=None), planner.items(base)[0]).sampler == base.sampler
            base = replace(base, protocol=FOLDS, sampler=None if usual else base.sampler)  # for fewer classes
    else:
        grid = read_grid(path)
        if grid.axes:
            raise LikewiseError(f"tune: '{path}' has axes, which are for bench; write [ranges] instead")
        base = as_train(grid.settings, **ours)
    base = replace(base, protocol=base.protocol or FOLDS)
    entries = grid.ranges | read_entries(config.ranges, base.loss)
    ranges = read_ranges(entries, base)
    protocol = base.protocol or FOLDS
    protocols = fold_specs(protocol) or [protocol]
    for r in ranges:
        if (name := r.name.split(".")[0]) in JUDGES:
            raise LikewiseError(
                f"tune: '{name}' is the same for all trials, or they could not be compared; set it in the config"
            )
    if base.test_every or any(r.name == "test_every" for r in ranges):
        raise LikewiseError("tune: test_every looks at the test split, which a search must not; leave it out")
    if not has_val(replace(base, protocol=protocols[0]), planner):
        raise LikewiseError(
            f"tune: {base.protocol} has no validation split to search on; use {FOLDS} or UnseenClasses(val=0.2)"
        )
    same = {k: v for k, v in to_dict(base).items() if k not in KEPT_OUT}
    text = json.dumps([same, entries, planner.items(base)[1]], sort_keys=True)
    return Search(base, ranges, protocols, f"likewise-{hashlib.sha256(text.encode()).hexdigest()[:12]}")


def has_val(base: Train, planner: Planner) -> bool:
    """Whether the protocol of these settings leaves rows for validation."""
    from likewise.runs.dataset import make_protocol
    from likewise.runs.defaults import resolve

    items, _ = planner.items(base)
    return len(make_protocol(resolve(base, items)).rows(items, "val")) > 0


def must_be_ours(folder: Path, search: Search) -> None:
    """Raise if the folder holds another search."""
    file = folder / "tune.json"
    hint = "delete it: it is written anew from what the storage of the search holds"
    if file.exists() and read_json(file, "tune", hint=hint).get("study") != search.name:
        raise LikewiseError(
            f"tune: '{folder}' holds another search (other settings, ranges or data); choose another --out"
        )
