"""Passes the log of a training to loggers, in a thread of its own; a logger may fail."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from likewise.config import Train, to_dict
from likewise.config.spec import build, canonical
from likewise.contracts import Logger
from likewise.runs.folder import Run

KEPT = "loggers.json"
"""What of loggers stays in the run folder, by spec: the key of its record, and what it was told beyond the last saved state."""


def make_loggers(config: Train) -> dict[str, Logger]:
    """By spec. Raises where one cannot be made, such as for want of its package."""
    return {canonical(text): build(text, Logger, allow_imports=config.allow_imports) for text in config.loggers}


class Telling:
    """Whom to tell, and what they know already. A context: leaving it ends the loggers, with scores if all went well.

    A training that goes on computes again what came after its last saved state. The log forgets those lines, but a logger has
    no way to: what it was told once, by step and name, it is not told again. A logger that is new to a run gets the log so far.
    """

    def __init__(self, run: Run, config: Train, loggers: dict[str, Logger], say: Callable[[str], None]):
        self.run, self.config, self.say = run, config, say
        self.loggers, self.told = dict(loggers), {}
        self.thread: ThreadPoolExecutor | None = None

    def begin(self, step: int) -> None:
        """Before the log is cut back to this step, from which training goes on."""
        if not self.loggers:
            return
        lines = self.run.read_log()
        there = self.run.read_json(KEPT) if (self.run.path / KEPT).exists() else {}
        beyond = {(line["step"], name) for line in lines if line.get("step", 0) > step for name in numbers_of(line)}
        self.told = {text: beyond | {(at, name) for at, name in kept["told"]} for text, kept in there.items()}
        new = [text for text in self.loggers if text not in there]
        self.thread = ThreadPoolExecutor(1, "loggers")
        self.thread.submit(self.start, there)
        for text in new:
            for line in lines:
                if line.get("step", 0) <= step:
                    self.thread.submit(self.log, text, line)

    def start(self, there: dict[str, dict]) -> None:
        settings = {name: value for name, value in to_dict(self.config).items() if value is not None}
        for text, logger in list(self.loggers.items()):
            key = there.get(text, {}).get("key")
            key = self.attempt(text, lambda: logger.start(self.run.path.name, self.run.path, settings, key))  # noqa: B023
            if key is not None:
                there[text] = {"key": key, "told": sorted(self.told.get(text, ()))}
        self.run.write_json(KEPT, there)

    def tell(self, line: dict) -> None:
        """Send a line of the log to every logger."""
        if self.thread is None:
            return
        for text in list(self.loggers):
            self.thread.submit(self.log, text, line)

    def log(self, text: str, line: dict) -> None:
        known = self.told.get(text, ())
        numbers = {n: v for n, v in numbers_of(line).items() if (line["step"], n) not in known}
        if numbers and text in self.loggers:
            self.attempt(text, lambda: self.loggers[text].log(line["step"], numbers))

    def attempt(self, text: str, call: Callable):
        """Do it; a logger that fails is told of once, and left alone from there on."""
        try:
            return call()
        except BaseException as error:  # of all kinds: in a thread, not even KeyboardInterrupt is the user's
            del self.loggers[text]
            reason = (str(error).splitlines() or [""])[0] or type(error).__name__
            self.say(f"logger {text} fails ({reason}); training goes on without it")

    def __enter__(self) -> Telling:
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if self.thread is None:
            return
        scores = None if kind is not None else numbers_of((self.run.scores or {}).get("metrics", {}), "test ")
        for text in list(self.loggers):
            self.thread.submit(self.end, text, scores)
        self.thread.shutdown()

    def end(self, text: str, scores: dict[str, float] | None) -> None:
        if text in self.loggers:
            self.attempt(text, lambda: self.loggers[text].end(scores))


def numbers_of(line: dict, before: str = "") -> dict[str, float]:
    """The numbers of a line, those inside of others under both names: {"lr": {"head": 0.1}} is "lr/head"."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found |= numbers_of(value, f"{before}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and (before or name != "step"):
            found[f"{before}{name}"] = float(value)
    return found
