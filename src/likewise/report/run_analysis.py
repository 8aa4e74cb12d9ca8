"""One run, or one file of embeddings -> all that a page shows of it."""

from __future__ import annotations

import dataclasses

import numpy as np

from likewise.config import KEPT_OUT, Report, Train
from likewise.config.spec import brief
from likewise.metrics import as_text
from likewise.render.scores import with_interval
from likewise.report.neighbours import as_tensor, neighbours
from likewise.report.opened import Opened
from likewise.report.records import Pool, Score, Viewed
from likewise.report.section import Study, load_sections

FIRST = (
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
"""Settings that are always told, in this order; the others where they are not the usual."""

BRIEF = ("loss", "confidence", "sampler", "protocol", "head")
"""Specs that are told without arguments that have their default. Noise and terms are told in full: a rate is never left out."""


def view(one: Opened, number: int, pool: Pool | None, config: Report) -> Viewed:
    """Return what every section shows of a run. `number` is that of the pool."""
    study = study_run(one, pool, config)
    found = {}
    for section in load_sections():
        value = section.of_run(study) if section.of_run else None
        if value:
            found[section.name] = value
    return Viewed(
        one.name,
        number,
        headline(one),
        {} if one.settings is None else told(one.settings),
        scores_of(one.scores),
        study.decides,
        found,
        study.near,
        study.near_sim,
        tuple(study.notes),
        one.similarity,
    )


def study_run(one: Opened, pool: Pool | None, config: Report) -> Study:
    """Read and rank what sections share: the log, the embeddings, and the nearest neighbours of every sample."""
    log = [] if one.run is None else one.run.read_log()
    study = Study(one, config, log, decides(one), [*one.notes, *before(one.scores)], pool)
    if pool is None:
        return study
    assert one.items is not None
    z = None if one.items.x is None else as_tensor(one.items.x, one.similarity)
    near, sim = neighbours(one, z, config.k, config.quiet)
    return dataclasses.replace(study, z=z, near=near, near_sim=sim)


def before(scores: dict) -> list[str]:
    """What the network was before training, where that was looked at."""
    from likewise.evaluation.baseline import say_loss

    known = scores.get("before", {}).get("metrics", {})
    told = ", ".join(f"{name} {as_text(name, value)}" for name, value in known.items())
    return [f"before training: {told}", *filter(None, [say_loss(scores).replace("\n", " ")])] if told else []


def headline(one: Opened) -> str:
    """What it is, in one line."""
    if one.settings is None:
        assert one.items is not None and one.items.x is not None
        return f"{len(one.items)} embeddings of {one.items.x.shape[1]} numbers, {len(np.unique(one.items.y))} classes"
    parts = [one.settings.loss, one.settings.confidence, *one.settings.terms]
    noise = f", with {one.settings.noise}" if one.settings.noise else ""
    return f"{' + '.join(brief(part) for part in parts if part)} on {one.settings.data}{noise}"


def told(settings: Train) -> dict[str, str]:
    """Settings that matter for what was learned, in words."""
    usual = {f.name: f.default for f in dataclasses.fields(Train)}
    every = dataclasses.asdict(settings)
    names = [*FIRST, *(n for n in every if n not in FIRST and n not in KEPT_OUT and every[n] != usual[n])]
    shown = {}
    for name in (n for n in names if every[n] not in (None, (), "")):
        value = every[name] if isinstance(every[name], list | tuple) else (every[name],)
        shown[name] = ", ".join(map(brief if name in BRIEF else str, value))
    return shown


def decides(one: Opened) -> str:
    """The metric that ranks queries."""
    names = [] if one.queries is None else list(one.queries.each)
    return "MAP@R" if "MAP@R" in names else names[0] if names else ""


def scores_of(scores: dict) -> dict[str, Score]:
    """Every metric; those of galleries that were asked alone behind those of all."""
    found = {}
    for gallery, some in {"": scores, **scores.get("galleries", {})}.items():
        for name, value in some.get("metrics", {}).items():
            low, high = some.get("interval", {}).get(name) or (None, None)
            ends = None if low is None or high is None else (low, high)
            value = float("nan") if value is None else value
            found[f"{name}, {gallery}" if gallery else name] = Score(value, low, high, with_interval(name, value, ends))
    return found
