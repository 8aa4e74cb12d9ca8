"""Write the files of a search: tune.json with all trials, best.toml with the best settings, tune.png."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from likewise.core.files import atomic_write, write_json
from likewise.core.settings import Tune
from likewise.core.settings.overrides import settings_of
from likewise.papers.experiments.grid import toml
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.search import Search
from likewise.papers.render.tuning import SearchDimension, SearchTrial, draw_search
from likewise.runs.environment import environment


def summary(config: Tune, search: Search, study, storage: str, device: torch.device) -> dict:
    """Return the content of tune.json: budget, ranges, settings, all trials, and the best trial."""
    trials = []
    for t in study.get_trials(deepcopy=False):
        if t.state.name == "FAIL" and not t.params:  # beyond the budget: ended before it started
            continue
        reason = t.user_attrs.get("reason")
        state = "failed" if reason else {"FAIL": "interrupted"}.get(t.state.name, t.state.name.lower())
        trials.append({
            "number": t.number, "state": state, "value": t.value if t.state.name == "COMPLETE" else None,
            "values": t.params, "folds": t.user_attrs.get("folds", []), "reason": reason,
        })  # fmt: skip
    complete = [t for t in trials if t["state"] == "complete"]
    best = max(complete, key=lambda t: t["value"], default=None)
    count = {
        s: sum(t["state"] == s for t in trials) for s in ("complete", "pruned", "failed", "running", "interrupted")
    }
    return {
        "study": search.name, "storage": storage, "select": search.base.select, "protocol": search.base.protocol,
        "folds": len(search.protocols), "trials_wanted": config.trials, "count": count, "sampler": config.sampler,
        "pruner": config.pruner, "seed": config.seed, "training_seed": search.base.seed,
        "ranges": [asdict(r) for r in search.ranges], "settings": settings_of(search.base), "best": best,
        "trials": trials, "versions": environment(device)["versions"] | {"optuna": version("optuna")},
    }  # fmt: skip


def write_search(folder: Path, about: dict, search: Search) -> None:
    """Write the files of a search; best.toml and the figure only if a trial has a score."""
    write_json(folder / "tune.json", about)
    if about["best"] is None:
        return
    title = f"best of {about['count']['complete']} full trials: val {about['select']} {about['best']['value']:.4f}"
    ranges = {r.name: r.text for r in search.ranges}
    best = Grid(title, settings_of(search.settings(about["best"]["values"])), {}, ranges)
    with atomic_write(folder / "best.toml") as file:
        file.write_text(toml(best), "utf-8")
    shots = [
        SearchTrial(t["number"], t["value"], t["state"], t["values"])
        for t in about["trials"]
        if t["folds"] or t["reason"]
    ]
    dials = [SearchDimension(r.name, r.choices, r.low, r.high, r.log) for r in search.ranges]
    label = (
        f"mean val {about['select']} over {about['folds']} folds" if about["folds"] > 1 else f"val {about['select']}"
    )
    title = "several losses" if "loss" in ranges else search.base.loss
    with atomic_write(folder / "tune.png") as file:
        draw_search(file, dials, shots, label, title)
