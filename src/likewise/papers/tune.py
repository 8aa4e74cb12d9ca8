"""tune: search ranges of settings for the best validation score; the ranges, from text to values of settings."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import tomllib
import typing
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from likewise.core.devices import choose_device
from likewise.core.errors import LikewiseError, pip_install
from likewise.core.files import atomic_write, make_folder, read_json, write_json
from likewise.core.notebook import table, view
from likewise.core.progress import bar
from likewise.core.settings import SETTINGS_OUTSIDE_IDENTITY, Bench, Train, Tune, check, to_dict
from likewise.core.settings.overrides import (
    find_argument,
    has_argument,
    hints_of_train,
    plain,
    settings_of,
    with_argument,
)
from likewise.core.settings.spec import canonical
from likewise.papers.bench import choose_executor, run_grid
from likewise.papers.benchmark_formats import rows_for_csv, show_benchmark
from likewise.papers.benchmark_table import BenchmarkTable
from likewise.papers.executors import Executor, LocalExecutor
from likewise.papers.grid import Grid, Point, as_train, read_grid, toml
from likewise.papers.grid_plan import Job, Planner, plan_grid
from likewise.runs.folder import Run
from likewise.runs.machine import environment

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

WEIGHT_FILES = ("model.safetensors", "best.safetensors", "state.pt")


PAPER_RANGES = "reality-check"
INNER_LOSSES = ("loss", "coarse_loss")
"""Arguments of a loss that are losses themselves."""

RANGES_OF_CLUSTERING = ("loss.coarse", "loss.every")
"""Built-in ranges that do not apply to groups from a tree (argument `depth`)."""


@dataclass(frozen=True)
class TuneResult:
    """The result of tune: the content of tune.json, the best settings, and the table of the final runs if there are any."""

    about: dict
    best: Train
    final: BenchmarkTable | None
    folder: Path

    @view
    def _repr_html_(self) -> str:
        best, count = self.about["best"], self.about["count"]
        lines = [(name, f"{v:.6g}" if isinstance(v, float) else v) for name, v in best["values"].items()]
        lines.append((f"val {self.about['select']}", f"{100 * best['value']:.1f} %"))
        trials = ", ".join(f"{number} {state}" for state, number in count.items() if number)
        notes = [f"trials: {trials}", f"settings: {self.folder / 'best.toml'}"]
        shown = table(f"best settings, trial {best['number']}", (), lines, notes)
        return shown + (self.final._repr_html_() if self.final else "")


@dataclass(frozen=True)
class Range:
    """The range of one setting: `choices`, or `low` to `high`. `unit` is appended to the value: "e" for epochs."""

    name: str
    text: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False
    unit: str = ""


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


def tune(config: Tune, say=print) -> TuneResult:
    """Run a search, or resume it, and return its result. Processes with the same settings share one search.

    The value of a trial is the best validation score of each fold, averaged over the folds; the test split is not scored. A
    trial that fails has the value 0. The runs of a search keep their logs, but not their networks.
    """
    check(config)
    try:
        from likewise.papers.optuna_study import counted, open_study, requeue_lost_trials, without_password
    except ModuleNotFoundError:
        raise LikewiseError(
            f"tune: the search needs Optuna, which is not installed; {pip_install('likewise[tune]')}"
        ) from None
    device = choose_device(config.device)
    folder = Path(config.out or Path("tune") / Path(config.config).stem).expanduser()
    planner = Planner(folder / "runs", say)
    search = prepare(config, planner, say)
    check_folder(folder, search)
    make_folder(folder, "tune")
    storage = config.storage or str(folder / "study.journal")
    if not config.storage and os.path.islink(storage):  # its last line may be cut off, and lines are added
        raise LikewiseError(f"tune: '{storage}' must not be a link; give the file that it names with --storage")
    study = open_study(search.name, storage, config.sampler, config.pruner, config.seed)
    requeue_lost_trials(study)
    try:
        run_trials(config, search, study, planner)
    finally:
        written, shown = None, without_password(storage)
        # repeated until unchanged: another process may have written a newer state in the meantime
        while written != (written := json.dumps(about := summary(config, search, study, shown, device))):
            write_search(folder, about, search, study)
    if about["best"] is None:
        reason = next((t["reason"] for t in about["trials"] if t["reason"]), "no trial has ended")
        raise LikewiseError(
            f"tune: a trial must have a score, but none of {len(about['trials'])} has ({reason}); change settings or ranges"
        )
    best, final = search.settings(about["best"]["values"]), None
    running = [t for t in counted(study) if not t.state.is_finished()]
    if config.final_runs and running:
        say(f"{len(running)} trials are still running in other processes; the last process trains the final runs")
    elif config.final_runs:
        final = train_final(config, best, search, folder, device, say)
        columns, lines = rows_for_csv(final)
        about |= {"final": {"columns": columns, "lines": lines, "notes": final.notes}}
        write_json(folder / "tune.json", about)
    return TuneResult(about, best, final, folder)


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
            own = None if usual else base.sampler  # the usual sampler is chosen again, for fewer classes
            base = replace(base, protocol=DEFAULT_PROTOCOL, sampler=own)
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


def run_trials(config: Tune, search: Search, study, planner: Planner) -> None:
    """Run trials until all processes together have used up the budget."""
    from optuna.trial import TrialState

    from likewise.papers.optuna_study import counted, next_trial, requeue_trial

    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    before = sum(t.state in ended for t in counted(study))
    with (
        LocalExecutor(config.jobs, planner.say) as executor,
        bar("tune", config.trials, start=before, quiet=config.quiet) as progress,
    ):
        while trial := next_trial(study, config.trials):
            try:
                values = {r.name: suggest(trial, r) for r in search.ranges}
                scores, reason = run_folds(search, values, trial, executor, planner)
            except BaseException:
                requeue_trial(study, trial.number, trial.params)
                raise
            trial.set_user_attr("folds", scores)
            trial.set_user_attr("reason", reason)
            if not reason and len(scores) < len(search.protocols):
                study.tell(trial, state=TrialState.PRUNED)
            else:
                study.tell(trial, 0.0 if reason else sum(scores) / len(scores))
            now = counted(study)
            values = (t.value for t in now if t.state == TrialState.COMPLETE and t.value is not None)
            best = max(values, default=math.nan)
            progress.advance(sum(t.state in ended for t in now) - progress.done, f"best {best:.4f}")


def suggest(trial, r: Range) -> object:
    """Return the value of a range in a trial."""
    if r.choices:
        return trial.suggest_categorical(r.name, r.choices)
    if r.whole:
        return trial.suggest_int(r.name, round(r.low), round(r.high), log=r.log)
    return trial.suggest_float(r.name, r.low, r.high, log=r.log)


def run_folds(
    search: Search, values: dict, trial, executor: Executor, planner: Planner
) -> tuple[list[float], str | None]:
    """Return the score of each fold in order (fewer if the trial was pruned), and the error of a failed trial or None."""
    try:
        chosen = search.settings(values)
        jobs = [planner.job(replace(chosen, protocol=protocol)) for protocol in search.protocols]
    except LikewiseError as error:
        return [], str(error)
    known = {place: validated(job) for place, job in enumerate(jobs) if job.state == "finished"}
    left, scores = [place for place in range(len(jobs)) if place not in known], []
    with closing(executor.work([jobs[place].config for place in left])) as work:
        while len(scores) < len(jobs):
            while len(scores) not in known:
                place, outcome = next(work)
                if outcome.crashed:
                    raise LikewiseError(
                        f"tune: a training crashed, and its settings are not the cause: {outcome.error}"
                    )
                if outcome.error:
                    return scores, outcome.error
                known[left[place]] = validated(jobs[left[place]])
            scores.append(known[len(scores)])
            trial.report(sum(scores) / len(scores), len(scores))
            if len(scores) < len(jobs) and trial.should_prune():
                break
    return scores, None


def validated(job: Job) -> float:
    """Return the best validation score of a finished run, and delete its networks: a search would fill the disk."""
    scores = [line[f"val {job.config.select}"] for line in job.run.read_log() if f"val {job.config.select}" in line]
    score = max(scores, default=math.nan)
    if not math.isfinite(score):
        raise LikewiseError(
            f"tune: '{job.run.path}' must have a finite {job.config.select} on its validation split, got {scores}; train it again"
        )
    for name in WEIGHT_FILES:
        (job.run.path / name).unlink(missing_ok=True)
    return score


def train_final(
    config: Tune, best: Train, search: Search, folder: Path, device: torch.device, say: Callable[[str], None]
) -> BenchmarkTable:
    """Train all folds with new seeds, score the test split, and return the table; final.toml is its grid."""
    seeds = [Point(str(s), {"seed": s}) for s in range(search.base.seed + 1, search.base.seed + 1 + config.final_runs)]
    with atomic_write(folder / "final.toml") as file:
        file.write_text(
            toml(Grid("the best setting of a search, with new seeds", settings_of(best), {"seed": seeds}, {})),
            "utf-8",
        )
    final = Bench(
        str(folder / "final.toml"), out=str(folder / "final"), jobs=config.jobs, device=config.device,
        allow_imports=config.allow_imports, quiet=config.quiet,
    )  # fmt: skip
    return run_grid(plan_grid(final, say), final, choose_executor(final, say), device)


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


def write_search(folder: Path, about: dict, search: Search, study) -> None:
    """Write the files of a search; best.toml and the figure only if a trial has a score."""
    write_json(folder / "tune.json", about)
    if about["best"] is None:
        return
    title = f"best of {about['count']['complete']} full trials: val {about['select']} {about['best']['value']:.4f}"
    ranges = {r.name: r.text for r in search.ranges}
    best = Grid(title, settings_of(search.settings(about["best"]["values"])), {}, ranges)
    with atomic_write(folder / "best.toml") as file:
        file.write_text(toml(best), "utf-8")
    label = f"val {about['select']}"
    label = f"mean {label} over {about['folds']} folds" if about["folds"] > 1 else label
    from likewise.papers.optuna_study import draw_search

    with atomic_write(folder / "tune.png") as file:
        draw_search(file, study, label)


def show_tuning(found: TuneResult, config: Tune) -> None:
    """Print the best settings of a search, how its trials ended, and the table of the final runs if there is one.

    With `quiet`, nothing is printed.
    """
    if config.quiet:
        return
    best, count = found.about["best"], found.about["count"]
    shown = Table("", f"best, trial {best['number']}")
    for name, value in best["values"].items():
        shown.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    shown.add_row(f"val {found.about['select']}", f"{100 * best['value']:.1f} %")
    Console().print(shown)
    print("trials: " + ", ".join(f"{number} {state}" for state, number in count.items() if number))
    for reason in sorted({t["reason"] for t in found.about["trials"] if t["reason"]})[:5]:
        print(f"  failed: {reason}")
    if found.final:
        show_benchmark(found.final)
    print(f"settings: {found.folder / 'best.toml'}\nfigure:   {found.folder / 'tune.png'}")


def read_entries(words: typing.Iterable[str], loss: str, of_file: dict[str, str] | None = None) -> dict[str, str]:
    """Return name -> range from `name=range` arguments and from a file, whose ranges the arguments override.

    The argument `reality-check` adds the ranges of that paper for the names that neither gives.
    """
    paper: dict[str, str] = {}
    given: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if word.strip() == PAPER_RANGES:
            paper = built_in(loss)
        elif not equals or not name.strip():
            raise LikewiseError(
                f"tune: a range must be name=low..high or name=a|b|c, got '{word}'; "
                f"or use {PAPER_RANGES} for the ranges of that paper"
            )
        else:
            given[name.strip()] = text
    return paper | (of_file or {}) | given


def read_ranges(entries: dict[str, str], base: Train) -> list[Range]:
    """Return the ranges of these texts, after checking both ends or all choices of each on the settings."""
    if not entries:
        raise LikewiseError(
            'tune: there must be a range to search, got none; give --ranges "lr=1e-5..1e-2 log" "loss.margin=0..1", '
            f"or --ranges {PAPER_RANGES}, or write [ranges] into the file"
        )
    found = [read_range(name, text, base) for name, text in entries.items()]
    for at in range(max(2, *(len(r.choices) for r in found))):
        ends: dict[str, Any] = {
            r.name: r.choices[at % len(r.choices)] if r.choices else (r.low, r.high)[at % 2] for r in found
        }
        apply_values(base, found, {r.name: round(ends[r.name]) if r.whole else ends[r.name] for r in found})
    return found


def read_range(name: str, text: str, base: Train) -> Range:
    """Parse "0..1", "1e-5..1e-2 log", "10e..40e" or "64|128|256"; whole numbers if the setting is one."""
    low, dots, high = text.partition("..")
    kind = type_of(base, name)
    if not dots:
        choices = tuple(word.strip() for word in text.split("|"))
        if not all(choices) or len(set(choices)) < len(choices):
            raise LikewiseError(f"tune: range {name} must be low..high or choices separated by |, got '{text}'")
        return Range(name, text.strip(), choices)
    high, log = high.strip().removesuffix("log").strip(), high.strip().endswith("log")
    unit = "e" if kind is str and low.strip().endswith("e") and high.endswith("e") else ""
    try:
        if "..." in text:  # 0...5 may mean 0 to 5, or 0 to .5
            raise ValueError
        ends = [float(end.strip().removesuffix(unit)) for end in (low, high)]
    except ValueError:
        raise LikewiseError(f"tune: range {name} must lie between two numbers, got '{text}'; write 0..1") from None
    whole = kind in (int, str) or (
        kind is type(None) and all(e.is_integer() for e in ends) and "." not in low.strip() + high
    )
    if not (math.isfinite(ends[0]) and ends[0] < ends[1] < math.inf) or (log and ends[0] <= 0):
        must = "0 < low < high" if log else "low < high"
        raise LikewiseError(f"tune: range {name} must have {must}, got '{text}'")
    if whole and not all(end.is_integer() and abs(end) <= 2**53 for end in ends):
        raise LikewiseError(f"tune: {name} is a whole number up to 2**53, so its range must be too, got '{text}'")
    return Range(name, text.strip(), low=ends[0], high=ends[1], log=log, whole=whole, unit=unit)


def type_of(base: Train, name: str) -> type:
    """Return the type of a setting, by its annotation; of an argument of a spec, by its current value."""
    if "." not in name:
        plain(name, "")  # raises for an unknown name
        hint = hints_of_train()[name]
        inside = {hint, *typing.get_args(hint)}
        return next((kind for kind in (int, float, str) if kind in inside), str)
    node = find_argument(base, name, "tune")
    return type(node.value) if isinstance(node, ast.Constant) else str


def apply_values(base: Train, ranges: list[Range], values: dict[str, object]) -> Train:
    """Return the settings with these values; plain settings are set first, then arguments of specs."""
    config = base
    for r in sorted(ranges, key=lambda r: "." in r.name):
        value = f"{values[r.name]}{r.unit}" if r.unit else values[r.name]
        if "." in r.name:
            config = with_argument(config, r.name, value, "tune")
        else:
            changed = {r.name: plain(r.name, _literal(value) if r.choices else value)}
            config = replace(config, **({"steps": None} if r.name == "epochs" else {}), **changed)
    check(config)
    return config


def built_in(loss: str) -> dict[str, str]:
    """Return the ranges of Musgrave et al., A Metric Learning Reality Check, for the arguments that a loss has.

    Hierarchical has its own ranges and, under the names loss.loss and loss.coarse_loss, those of the loss of each level.
    """
    tables = tomllib.loads((files("likewise.papers.published") / f"{PAPER_RANGES}.toml").read_text("utf-8"))
    found = _ranges_inside(ast.parse(canonical(loss), mode="eval").body, "loss", tables)
    base = Train(data="", loss=loss)
    return {name: text for name, text in found.items() if "." not in name or has_argument(base, name)}


def _ranges_inside(node: ast.expr, name: str, tables: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the built-in ranges of a loss and of the losses inside it, also of arguments that it does not have.

    Args:
        node: the spec of the loss, with all arguments written out.
        name: dotted name of the loss in the settings.
        tables: built-in ranges by component.
    """
    component = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    if component not in tables:
        raise LikewiseError(
            f"tune: {PAPER_RANGES} has no ranges for {component}; it has ranges for {', '.join(tables)}. Give your own ranges"
        )
    arguments = {k.arg: k.value for k in getattr(node, "keywords", ())}
    fixed_groups = "depth" in arguments and ast.unparse(arguments["depth"]) != "None"
    found = {}
    for key, text in tables[component].items():
        if not (fixed_groups and key in RANGES_OF_CLUSTERING):
            found[f"{name}{key.removeprefix('loss')}" if key.startswith("loss.") else key] = text
    for argument in INNER_LOSSES:
        if isinstance(inner := arguments.get(argument), ast.Call):
            found |= _ranges_inside(inner, f"{name}.{argument}", tables)
    return found


def _literal(text: object) -> object:
    """Return a choice as a number or boolean if it is one, else as text."""
    try:
        value = ast.literal_eval(str(text))
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, bool | int | float) else text
