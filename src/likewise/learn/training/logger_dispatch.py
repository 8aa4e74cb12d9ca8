"""Send the log of a training to loggers, in a separate thread; a logger that fails does not stop training."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from likewise.core.argument_checks import fits
from likewise.core.contracts import Logger
from likewise.core.errors import LikewiseError
from likewise.core.settings import Train, to_dict
from likewise.core.settings.spec import build, canonical
from likewise.runs.folder import Run

LOGGERS_FILE = "loggers.json"
"""File of the run folder: for every logger spec, the key of its record, and the (step, name) pairs that it received after the
last checkpoint."""

STORED_TYPES = {str: {"key": str, "sent": list}}
"""Types of the values in that file."""


def make_loggers(config: Train) -> dict[str, Logger]:
    """Return the loggers of the settings, by spec. Raises if a logger cannot be built, for example without its package."""
    return {canonical(text): build(text, Logger, allow_imports=config.allow_imports) for text in config.loggers}


class LoggerDispatch:
    """The loggers of a run. A context: leaving it ends the loggers, with the scores unless an exception was raised.

    A resumed training computes the steps after its last checkpoint again. The log of the run drops those lines, but a logger
    cannot: so a value that a logger received once, by step and name, is not sent again. A logger that is new to a run receives
    the log so far.
    """

    def __init__(self, run: Run, config: Train, loggers: dict[str, Logger], say: Callable[[str], None]):
        self.run, self.config, self.say = run, config, say
        self.loggers, self.sent = dict(loggers), {}
        self.thread: ThreadPoolExecutor | None = None

    def begin(self, step: int) -> None:
        """Start the loggers. Call it before the log is truncated to `step`, where training resumes."""
        if not self.loggers:
            return
        lines = self.run.read_log()
        stored = self.run.read_json(LOGGERS_FILE) if (self.run.path / LOGGERS_FILE).exists() else {}
        sent = [pair for entry in stored.values() for pair in entry["sent"]] if fits(stored, STORED_TYPES) else [None]
        if not all(fits(pair, [int, str]) for pair in sent):
            raise LikewiseError(
                f"train: {self.run.path / LOGGERS_FILE} must have the key and the sent values of each logger, but is damaged; "
                "delete it: the loggers then start new records"
            )
        beyond = {(line["step"], name) for line in lines if line.get("step", 0) > step for name in numbers_of(line)}
        self.sent = {text: beyond | {(at, name) for at, name in entry["sent"]} for text, entry in stored.items()}
        new = [text for text in self.loggers if text not in stored]
        self.thread = ThreadPoolExecutor(1, "loggers")
        self.thread.submit(self.start, stored)
        for text in new:
            for line in lines:
                if line.get("step", 0) <= step:
                    self.thread.submit(self.log, text, line)

    def start(self, stored: dict[str, dict]) -> None:
        """Call `start` of every logger, and write the keys of their records."""
        settings = {name: value for name, value in to_dict(self.config).items() if value is not None}
        for text, logger in list(self.loggers.items()):
            key = stored.get(text, {}).get("key")
            key = self.attempt(text, lambda: logger.start(self.run.path.name, self.run.path, settings, key))  # noqa: B023
            if key is not None:
                stored[text] = {"key": key, "sent": sorted(self.sent.get(text, ()))}
        self.run.write_json(LOGGERS_FILE, stored)

    def send(self, line: dict) -> None:
        """Send a line of the log to every logger."""
        if self.thread is None:
            return
        for text in list(self.loggers):
            self.thread.submit(self.log, text, line)

    def log(self, text: str, line: dict) -> None:
        """Send a line to one logger, without the values that it has received already."""
        known = self.sent.get(text, ())
        numbers = {n: v for n, v in numbers_of(line).items() if (line["step"], n) not in known}
        if numbers and text in self.loggers:
            self.attempt(text, lambda: self.loggers[text].log(line["step"], numbers))

    def attempt(self, text: str, call: Callable):
        """Call a method of a logger and return its result. A logger that fails is reported once and not used again."""
        try:
            return call()
        except BaseException as error:  # also KeyboardInterrupt: in this thread, the user cannot have caused it
            del self.loggers[text]
            reason = (str(error).splitlines() or [""])[0] or type(error).__name__
            self.say(f"logger {text} failed ({reason}); training continues without it")

    def __enter__(self) -> LoggerDispatch:
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if self.thread is None:
            return
        scores = None if kind is not None else numbers_of((self.run.scores or {}).get("metrics", {}), "test ")
        for text in list(self.loggers):
            self.thread.submit(self.end, text, scores)
        self.thread.shutdown()

    def end(self, text: str, scores: dict[str, float] | None) -> None:
        """Call `end` of one logger, unless it has failed before."""
        if text in self.loggers:
            self.attempt(text, lambda: self.loggers[text].end(scores))


def numbers_of(line: dict, before: str = "") -> dict[str, float]:
    """Return the numbers of a log line as a flat dict: {"lr": {"head": 0.1}} becomes {"lr/head": 0.1}."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found |= numbers_of(value, f"{before}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and (before or name != "step"):
            found[f"{before}{name}"] = float(value)
    return found
