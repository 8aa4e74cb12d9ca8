"""tune: settings and ranges -> a search on validation classes -> the best settings, and how they were found."""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from likewise._notebook import table, view
from likewise.config import KEPT_OUT, Bench, Train, Tune, check, to_dict
from likewise.config.overrides import settings_of
from likewise.experiments.bench import bench
from likewise.experiments.grid import Grid, Point, as_train, read_grid, toml
from likewise.experiments.jobs import Crew, Job, Planner
from likewise.experiments.search_space import Range, read_entries, read_ranges, settle
from likewise.io.files import read_json, write_aside, write_json
from likewise.io.progress import bar
from likewise.render.benchmark import rows_for_csv
from likewise.render.benchmark_table import Sheet
from likewise.render.tuning import Dial, Shot, draw_search
from likewise.runs.dataset import make_protocol
from likewise.runs.defaults import fold_specs, resolve
from likewise.runs.devices import choose_device
from likewise.runs.environment import environment
from likewise.runs.folder import Run
from likewise.runs.settings import read_config
from likewise.types import LikewiseError

FOLDS = "ClassFolds()"
JUDGES = ("data", "root", "recipe", "protocol", "noise", "seed", "select", "metrics", "device", "workers", "skip_bad")
"""Settings by which a search judges, or that leave what is learned as it is: to vary them would compare nothing."""

NETWORKS = ("model.safetensors", "best.safetensors", "state.pt")


@dataclass(frozen=True)
class Search:
    """What is searched: settings, ranges, and the folds whose mean decides."""

    base: Train
    ranges: list[Range]
    protocols: list[str]
    name: str

    def settings(self, values: dict[str, object]) -> Train:
        return settle(self.base, self.ranges, values)


@dataclass(frozen=True)
class Found:
    """What tune leaves: the content of tune.json, the settings that won, and the table of the final runs if any."""

    about: dict
    best: Train
    final: Sheet | None
    folder: Path

    @view
    def _repr_html_(self) -> str:
        best, count = self.about["best"], self.about["count"]
        lines = [(name, f"{v:.6g}" if isinstance(v, float) else v) for name, v in best["values"].items()]
        lines.append((f"val {self.about['select']}", f"{100 * best['value']:.1f} %"))
        trials = ", ".join(f"{number} {state}" for state, number in count.items() if number)
        said = [f"trials: {trials}", f"settings: {self.folder / 'best.toml'}"]
        shown = table(f"best settings, trial {best['number']}", (), lines, said)
        return shown + (self.final._repr_html_() if self.final else "")


def tune(config: Tune, say=print) -> Found:
    """Search, or go on searching. Processes that are started with the same settings share the search.

    A trial is worth the mean over the folds of the best validation score of each; the test part is not scored. A trial that
    diverges or is refused is worth 0. What a search's runs keep is their log, not their networks.
    """
    check(config)
    try:
        from likewise.experiments.optuna_study import counted, open_study, take_up, without_password
    except ModuleNotFoundError:
        raise LikewiseError("tune: the search needs Optuna, which is not there; pip install 'likewise[tune]'") from None
    choose_device(config.device)
    folder = Path(config.out or Path("tune") / Path(config.config).stem).expanduser()
    planner = Planner(folder / "runs", say)
    search = prepare(config, planner, say)
    must_be_ours(folder, search)
    storage = config.storage or str(folder / "study.journal")
    study = open_study(search.name, storage, config.sampler, config.pruner, config.seed)
    take_up(study)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run_trials(config, search, study, planner)
    finally:
        written = None
        while written != (written := json.dumps(about := summary(config, search, study, without_password(storage)))):
            write(folder, about, search)  # and look again: another process may have written meanwhile what it saw later
    if about["best"] is None:
        reason = next((t["reason"] for t in about["trials"] if t["reason"]), "no trial has ended")
        raise LikewiseError(
            f"tune: no trial of {len(about['trials'])} gave a score ({reason}); change settings or ranges"
        )
    best, final = search.settings(about["best"]["values"]), None
    running = [t for t in counted(study) if not t.state.is_finished()]
    if config.final and running:
        say(f"{len(running)} trials are still under way elsewhere; who ends last trains the final runs")
    elif config.final:
        final = train_final(config, best, search, folder, say)
        columns, lines = rows_for_csv(final)
        about |= {"final": {"columns": columns, "lines": lines, "notes": final.notes}}
        write_json(folder / "tune.json", about)
    return Found(about, best, final, folder)


def prepare(config: Tune, planner: Planner, say) -> Search:
    """Settings from a file or a run, ranges from the file and the command, folds from the protocol."""
    path, ours = Path(config.config).expanduser(), {"evaluate": False, "allow_imports": config.allow_imports}
    ours |= {"device": config.device} if config.device else {}
    if path.is_dir():
        base, grid = replace(read_config(Run(path)), recipe=None, peek_every=None, **ours), Grid("", {}, {}, {})
        if not has_val(base, planner):
            say(f"the protocol of {path} has no validation part; {FOLDS} takes its place")
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
    if base.peek_every or any(r.name == "peek_every" for r in ranges):
        raise LikewiseError("tune: peek_every looks at the test part, which a search must not; leave it out")
    if not has_val(replace(base, protocol=protocols[0]), planner):
        raise LikewiseError(
            f"tune: {base.protocol} has no validation part to search on; use {FOLDS} or UnseenClasses(val=0.2)"
        )
    same = {k: v for k, v in to_dict(base).items() if k not in KEPT_OUT}
    text = json.dumps([same, entries, planner.items(base)[1]], sort_keys=True)
    return Search(base, ranges, protocols, f"likewise-{hashlib.sha256(text.encode()).hexdigest()[:12]}")


def has_val(base: Train, planner: Planner) -> bool:
    items, _ = planner.items(base)
    return len(make_protocol(resolve(base, items)).rows(items, "val")) > 0


def must_be_ours(folder: Path, search: Search) -> None:
    file = folder / "tune.json"
    hint = "delete it: it is written anew from what the storage of the search holds"
    if file.exists() and read_json(file, "tune", hint=hint).get("study") != search.name:
        raise LikewiseError(
            f"tune: '{folder}' holds another search (other settings, ranges or data); choose another --out"
        )


def run_trials(config: Tune, search: Search, study, planner: Planner) -> None:
    """Trial after trial, until the budget is used up over all processes."""
    from optuna.trial import TrialState

    from likewise.experiments.optuna_study import counted, hand_back, next_trial, suggest

    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    before = sum(t.state in ended for t in counted(study))
    with (
        Crew(config.jobs, planner.say) as crew,
        bar("tune", config.trials, start=before, quiet=config.quiet) as progress,
    ):
        while trial := next_trial(study, config.trials):
            try:
                values = {r.name: suggest(trial, r) for r in search.ranges}
                scores, reason = run_folds(search, values, trial, crew, planner)
            except BaseException:
                hand_back(study, trial.number, trial.params)
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


def run_folds(search: Search, values: dict, trial, crew: Crew, planner: Planner) -> tuple[list[float], str | None]:
    """The score of each fold, in order; fewer where the pruner gave the trial up. And why the trial failed, if it did."""
    try:
        chosen = search.settings(values)
        jobs = [planner.job(replace(chosen, protocol=protocol)) for protocol in search.protocols]
    except LikewiseError as error:
        return [], str(error)
    known = {place: validated(job) for place, job in enumerate(jobs) if job.state == "finished"}
    left, scores = [place for place in range(len(jobs)) if place not in known], []
    with closing(crew.work([jobs[place].config for place in left])) as work:
        while len(scores) < len(jobs):
            while len(scores) not in known:
                place, outcome = next(work)
                if outcome.crashed:
                    raise LikewiseError(f"tune: a training broke down, and not by its settings: {outcome.error}")
                if outcome.error:
                    return scores, outcome.error
                known[left[place]] = validated(jobs[left[place]])
            scores.append(known[len(scores)])
            trial.report(sum(scores) / len(scores), len(scores))
            if len(scores) < len(jobs) and trial.should_prune():
                break
    return scores, None


def validated(job: Job) -> float:
    """The best validation score of a run that has ended. Its networks have served: a search would fill the disk with them."""
    seen = [line[f"val {job.config.select}"] for line in job.run.read_log() if f"val {job.config.select}" in line]
    score = max(seen, default=math.nan)
    if not math.isfinite(score):
        raise LikewiseError(
            f"tune: '{job.run.path}' has no {job.config.select} on its validation part to go by, got {seen}"
        )
    for name in NETWORKS:
        (job.run.path / name).unlink(missing_ok=True)
    return score


def summary(config: Tune, search: Search, study, storage: str) -> dict:
    """The content of tune.json: the budget, what was searched and how, every trial, and the best."""
    trials = []
    for t in study.get_trials(deepcopy=False):
        if t.state.name == "FAIL" and not t.params:  # one too many, given up at once
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
        "trials": trials, "versions": environment(choose_device(config.device))["versions"] | {"optuna": version("optuna")},
    }  # fmt: skip


def write(folder: Path, about: dict, search: Search) -> None:
    write_json(folder / "tune.json", about)
    if about["best"] is None:
        return
    title = f"best of {about['count']['complete']} full trials: val {about['select']} {about['best']['value']:.4f}"
    ranges = {r.name: r.text for r in search.ranges}
    best = Grid(title, settings_of(search.settings(about["best"]["values"])), {}, ranges)
    with write_aside(folder / "best.toml") as file:
        file.write_text(toml(best), "utf-8")
    shots = [
        Shot(t["number"], t["value"], t["state"], t["values"]) for t in about["trials"] if t["folds"] or t["reason"]
    ]
    dials = [Dial(r.name, r.choices, r.low, r.high, r.log) for r in search.ranges]
    label = (
        f"mean val {about['select']} over {about['folds']} folds" if about["folds"] > 1 else f"val {about['select']}"
    )
    title = "several losses" if "loss" in ranges else search.base.loss
    with write_aside(folder / "tune.png") as file:
        draw_search(file, dials, shots, label, title)


def train_final(config: Tune, best: Train, search: Search, folder: Path, say) -> Sheet:
    """Fresh seeds, all folds, and now the test part: bench does it, as anybody could again."""
    seeds = [Point(str(s), {"seed": s}) for s in range(search.base.seed + 1, search.base.seed + 1 + config.final)]
    with write_aside(folder / "final.toml") as file:
        file.write_text(
            toml(Grid("the best setting of a search, with fresh seeds", settings_of(best), {"seed": seeds}, {})),
            "utf-8",
        )
    return bench(  # pyright: ignore[reportReturnType] - a Table comes only with list or slurm
        Bench(
            str(folder / "final.toml"), out=str(folder / "final"), jobs=config.jobs, device=config.device,
            allow_imports=config.allow_imports, quiet=config.quiet,
        ), say,
    )  # fmt: skip
