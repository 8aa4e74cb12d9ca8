"""What the processes of test_faults do: train until they are killed, or until the disk is full."""

import os
import resource
import signal

from likewise.configs import Train
from likewise.run import Run
from likewise.stages.train import Training, train
from likewise.types import LikewiseError

LINE = 10
"""Characters of a line that tells a step."""


def train_and_tell(settings: dict, told: str) -> None:
    """Every step goes to a file once it is done, and so does, with a minus, the step that it goes on from."""
    file = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    step, restore = Training.one_step, Training.restore

    def one_step(self, batch):
        step(self, batch)
        os.write(file, f"{self.step:<{LINE - 1}}\n".encode())

    def restore_it(self, *say):
        restore(self, *say)
        os.write(file, f"{-self.step - 1:<{LINE - 1}}\n".encode())

    Training.one_step, Training.restore = one_step, restore_it
    train(Train(**settings))


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
