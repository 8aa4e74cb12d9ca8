"""Compute all data that a page shows of one run or one embedding file."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.progress import bar
from likewise.core.retrieval.ranking import rank
from likewise.core.settings import SETTINGS_OUTSIDE_IDENTITY, Report, Train
from likewise.core.settings.spec import brief
from likewise.core.types import LikewiseError
from likewise.core.vectors import in_memory
from likewise.curate.audit.read import read_findings
from likewise.report.report_target import relevance_of
from likewise.report.section import Pool, ReportTarget, RunView, Score, Study, load_sections, places_of
from likewise.runs.usage import sessions
from likewise.score.metrics import as_text
from likewise.score.query_sample import USUAL_QUERY_COUNT, draw_queries
from likewise.score.retrieve import hidden_groups
from likewise.score.score_table import (
    by_camera,
    corrected_cell,
    corrected_notes,
    label_lines,
    sample_lines,
    tree_lines,
    with_interval,
)

LEADING_SETTINGS = (
    "data",
    "recipe",
    "loss",
    "confidence",
    "terms",
    "noise",
    "sampler",
    "protocol",
    "backbone",
    "dim",
    "epochs",
    "steps",
    "lr",
    "seed",
)
"""Settings that are always shown, in this order; other settings are shown if they differ from their default."""

SHORTENED_SPECS = ("loss", "confidence", "sampler", "protocol", "head")
"""Settings whose specs are shown without default arguments. Noise and terms are shown in full, with every rate."""


def analyse_run(one: ReportTarget, number: int, pool: Pool | None, config: Report) -> RunView:
    """Return the data of every section for a run. `number` is the index of the pool; -1: the run was not scored."""
    study = study_run(one, pool, config)
    found = {}
    for section in load_sections():
        value = section.of_run(study) if section.of_run else None
        if value:
            found[section.name] = value
    return RunView(
        one.name,
        number,
        headline(one),
        {} if one.settings is None else shown_settings(one.settings),
        scores_of(one.scores),
        study.main_metric,
        found,
        study.near,
        study.near_sim,
        tuple(study.notes),
        one.similarity,
        scores_of(one.scores.get("before") or {}),
        facts_of(one),
        suspects_of(one),
        tuple(sample_lines(one.scores)),
        drawn_queries(one),
    )


def drawn_queries(one: ReportTarget) -> str:
    """Return how many queries were drawn of how many, such as "20,000 random queries of 1,000,000"; "" if all were ranked."""
    sample = None if one.queries is None else one.queries.sample
    return f"{sample['queries']:,} random queries of {sample['of']:,}" if sample else ""


def study_run(one: ReportTarget, pool: Pool | None, config: Report) -> Study:
    """Return the data that several sections use: the log, the embeddings and the nearest neighbours of the samples."""
    log = [] if one.run is None else one.run.read_log()
    study = Study(one, config, log, main_metric(one), notes_of(one), pool)
    if pool is None:
        return study
    assert one.items is not None
    z = None if one.items.x is None else as_tensor(in_memory(one.items.x), one.similarity)
    near, sim = neighbours(one, z, config.k, config.quiet)
    return dataclasses.replace(study, z=z, near=near, near_sim=sim, relevance=relevance_of(one))


def facts_of(one: ReportTarget) -> tuple[str, ...]:
    """Return the date, the time and the device of a training, and the number of queries and classes that it was scored on."""
    found = []
    trained = [] if one.run is None else [s for s in sessions(one.run) if s["train_seconds"]]
    if trained:
        steps = max((s["steps"] or [0])[-1] for s in trained)
        date = datetime.fromisoformat(trained[-1]["started"]).date()
        seconds = sum(s["train_seconds"] for s in trained)
        devices = ", ".join(dict.fromkeys(s["device"] for s in trained if s["device"]))
        time = f"{steps:,} steps in {seconds_as_text(seconds)} on {devices}"
        found.append(
            f"trained on {date:%-d %B %Y}: {time}" if steps else "not trained (0 steps): the network as it was built"
        )
    if one.queries is not None:
        classes = len(np.unique(one.queries.class_name.astype(str)))
        sets = "sets of labels" if one.items is not None and one.items.label_sets is not None else "classes"
        sample = one.queries.sample
        drawn = f", a random sample of {sample['of']:,} queries" if sample else ""
        found.append(f"scored on {len(one.queries.row):,} queries of {classes:,} {sets}{drawn}")
    return tuple(found)


def seconds_as_text(seconds: float) -> str:
    """Return a time as text: "40 s", "3 min" or "2.5 h"."""
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def suspects_of(one: ReportTarget) -> dict[int, str]:
    """Return the places of the samples whose label the audit of the run flagged -> suggested label; {} without an audit."""
    if one.run is None or one.row is None or not (one.run.path / "audit" / "audit.json").exists():
        return {}
    place = {int(row): i for i, row in enumerate(one.row)}
    try:
        flagged = read_findings(one.run.path / "audit").suspects
    except LikewiseError:  # the section on labels has a note about it
        return {}
    return {place[sample.row]: sample.suggested for sample in flagged if sample.row in place}


def notes_of(one: ReportTarget) -> list[str]:
    """Return notes about a target: its own, backbone, scores before training, class tree, corrected scores, wrong labels."""
    replaced = one.run.backbone_note if one.run is not None else ""
    return [
        *one.notes,
        *filter(None, [replaced]),
        *baseline_notes(one.scores, one.run.about["config"] if one.run is not None else None),
        *tree_lines(one.scores),
        *corrected_notes(one.scores),
        *label_lines(one.scores, one.run.path if one.run else "RUN"),
    ]


def baseline_notes(scores: dict, config: dict | None = None) -> list[str]:
    """Return notes with the scores of the baseline, the network before training, if they were computed."""
    from likewise.score.baseline import about_baseline, worse_than_baseline

    known = scores.get("before", {}).get("metrics", {})
    values = ", ".join(f"{name} {as_text(name, value)}" for name, value in known.items())
    about = about_baseline(scores, config) if config else ""
    if not values:
        return []
    return [f"before training: {values}", *filter(None, [about, worse_than_baseline(scores).replace("\n", " ")])]


def headline(one: ReportTarget) -> str:
    """Return one line about a target: loss, confidence, terms, data and noise of a run, or the size of an embedding file."""
    if one.settings is None:
        assert one.items is not None and one.items.x is not None
        return (
            f"{len(one.items)} embeddings of {one.items.x.shape[1]} dimensions, {len(np.unique(one.items.y))} classes"
        )
    specs = [one.settings.loss, one.settings.confidence, *one.settings.terms]
    noise = f", with {one.settings.noise}" if one.settings.noise else ""
    return f"{' + '.join(brief(spec) for spec in specs if spec)} on {one.settings.data}{noise}"


def shown_settings(settings: Train) -> dict[str, str]:
    """Return the settings that change what is learned, as text: name -> value."""
    default = {f.name: f.default for f in dataclasses.fields(Train)}
    every = dataclasses.asdict(settings)
    names = [
        *LEADING_SETTINGS,
        *(
            n
            for n in every
            if n not in LEADING_SETTINGS and n not in SETTINGS_OUTSIDE_IDENTITY and every[n] != default[n]
        ),
    ]
    shown = {}
    for name in (n for n in names if every[n] not in (None, (), "")):
        value = every[name] if isinstance(every[name], list | tuple) else (every[name],)
        shown[name] = ", ".join(map(brief if name in SHORTENED_SPECS else str, value))
    return shown


def main_metric(one: ReportTarget) -> str:
    """Return the metric that orders queries: MAP@R if it was computed; "" without queries."""
    names = [] if one.queries is None else list(one.queries.each)
    return "MAP@R" if "MAP@R" in names else names[0] if names else ""


def scores_of(scores: dict) -> dict[str, Score]:
    """Return every metric of the whole gallery, then of each named gallery and of each camera: name -> score."""
    found = {}
    for gallery, some in {"": scores, **scores.get("galleries", {}), **by_camera(scores)}.items():
        for name, value in some.get("metrics", {}).items():
            low, high = some.get("interval", {}).get(name) or (None, None)
            ends = None if low is None or high is None else (low, high)
            value = float("nan") if value is None else value
            reason = some.get("no_value", {}).get(name) or some.get("no_interval", {}).get(name, "")
            cells = with_interval(name, value, ends), reason, corrected_cell(name, some)
            found[f"{name}, {gallery}" if gallery else name] = Score(value, low, high, *cells)
    return found


def as_tensor(x: Float[np.ndarray, "N D"], similarity: str) -> Float[Tensor, "N D"]:
    """Return embeddings as a tensor, scaled to unit length if they are compared by cosine."""
    z = torch.as_tensor(x if x.flags.writeable else x.copy())  # torch warns about read-only arrays
    return F.normalize(z, dim=1) if similarity == "cosine" else z


def neighbours(
    one: ReportTarget, z: Float[Tensor, "N D"] | None, k: int, quiet: bool
) -> tuple[Int[np.ndarray, "N K"], Float[np.ndarray, "N K"]]:
    """Return the places and similarities of the `k` nearest gallery samples of every sample; -1 and NaN for missing ones.

    Neighbours that the evaluation saved are used if there are at least `k` for a query; other samples are ranked now, at most
    as many as `places_to_rank` allows. If `z` is None, saved neighbours are used in any number, and nothing is ranked.
    """
    assert one.items is not None and one.row is not None
    n = len(one.row)
    near, sim = np.full((n, k), -1), np.full((n, k), np.nan)
    todo = np.ones(n, bool)
    if one.queries is not None and (one.queries.nearest.shape[1] >= min(k, n - 1) or z is None):
        place, width = places_of(one.queries.row, one.row), min(k, one.queries.nearest.shape[1])
        near[place, :width] = places_of(one.queries.nearest[:, :width], one.row)
        sim[place, :width] = np.where(near[place, :width] >= 0, one.queries.similarity[:, :width], np.nan)
        todo[place] = False
    gallery = np.flatnonzero(one.query_gallery[1])
    query = places_to_rank(one, todo)
    if z is None or not len(query) or not len(gallery):
        return near, sim
    own = torch.as_tensor(places_of(query, gallery))
    y = torch.as_tensor(one.items.y)
    group = hidden_groups(one.items)
    groups: dict[str, Any] = {} if group is None else {"group": group[query], "gallery_group": group[gallery]}
    with bar(f"rank {one.name}", 100, quiet=quiet) as shown:
        found = rank(
            z[query], torch.zeros_like(y[query]), z[gallery], torch.ones_like(y[gallery]), k=k, own=own,
            similarity=one.similarity, progress=shown.reach, **groups,
        )  # fmt: skip
    width = found.row.shape[1]
    row = found.row.numpy()
    near[query, :width] = np.where(row >= 0, gallery[row], -1)
    sim[query, :width] = np.where(row >= 0, found.sim.numpy(), np.nan)
    return near, sim


def places_to_rank(one: ReportTarget, todo: Bool[np.ndarray, "N"]) -> Int[np.ndarray, "q"]:
    """Return the samples among `todo` whose neighbours are ranked: a random sample, stratified by class, if they are many.

    With the queries of a sample that were ranked for the scores, they are at most `USUAL_QUERY_COUNT`.
    """
    assert one.items is not None
    query = np.flatnonzero(todo)
    ranked = len(one.queries.row) if one.queries is not None and one.queries.sample else 0
    most = max(0, USUAL_QUERY_COUNT - ranked)
    if len(query) <= most or not most:
        return query[:most]
    return np.sort(query[draw_queries(one.items.y[query], most)])
