"""What the processes of test_faults do: train until they are killed, or until the disk is full."""

import io
import os
import resource
import signal
from pathlib import Path

import torch
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks
from likewise.runs.folder import Run

LINE = 10
"""Characters of a line that tells a step."""


def train_until_killed(settings: dict, told: str, moment: int) -> None:
    """Train, and be killed at this moment of the training, counted from 1: on every machine it is the same one.

    Moments are before and after a step, restoring, saving, a line of the log and everything that puts a file into its
    place; in the middle of writing a state; and in the middle of a line of the log. Every step goes to the file `told`
    once it is done; so does, with a minus, the step that it goes on from, and 0 for every save that came to its end.
    """
    file, left, log = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT), moment, Path(settings["out"], "log.jsonl")
    write_state = torch.save

    def pass_moment(damage=None) -> None:
        nonlocal left
        left -= 1
        if not left:
            if damage:
                damage()
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(number: int) -> None:
        os.write(file, f"{number:<{LINE - 1}}\n".encode())

    def around(owner, name: str, after=lambda *_: None) -> None:
        real = getattr(owner, name)

        def call(*arguments, **named):
            pass_moment()
            found = real(*arguments, **named)
            after(*arguments)
            pass_moment()
            return found

        setattr(owner, name, call)

    def save_in_halves(state, aside) -> None:
        whole = io.BytesIO()
        write_state(state, whole)
        half = len(whole.getvalue()) // 2
        aside.write(whole.getvalue()[:half])
        aside.flush()
        pass_moment()
        aside.write(whole.getvalue()[half:])

    torch.save = save_in_halves

    def between(number) -> None:
        pass_moment()
        tell(number)
        pass_moment()

    hooks = Hooks(
        after_step=lambda state: between(state.step),
        restored=lambda state: between(-state.step - 1),
        saved=lambda state: between(0),
    )
    around(Run, "log", lambda *_: pass_moment(lambda: os.truncate(log, log.stat().st_size - 5)))
    around(os, "fsync")
    around(os, "replace")
    train(Train(**settings), hooks=hooks)


def fill_the_disk(settings: dict, told: str) -> None:
    """From the third save on, files cannot grow beyond half of the state."""
    save, saves, (soft, hard) = Run.save_state, [], resource.getrlimit(resource.RLIMIT_FSIZE)

    def save_state(self, state):
        saves.append(1)
        if len(saves) == 3:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, ((self.path / "state.pt").stat().st_size // 2, hard))
        save(self, state)

    Run.save_state = save_state
    try:
        train(Train(**settings))
    except LikewiseError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        with open(told, "w", encoding="utf-8") as file:
            file.write(str(error))
