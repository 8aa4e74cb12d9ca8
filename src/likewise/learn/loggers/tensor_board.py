from __future__ import annotations

from pathlib import Path
from typing import Any

from likewise.core.contracts import Logger
from likewise.core.errors import require_package


class TensorBoard(Logger):
    """Curves for TensorBoard, in the folder `tensorboard` of the run; `tensorboard --logdir runs` shows all runs.

    Needs: `pip install "likewise[tensorboard]"`. A resumed training adds another file to the folder, as TensorBoard expects; a
        restarted training first deletes the files.
    """

    def __init__(self):
        require_package("tensorboard", "TensorBoard")
        self.last = 0
        self.writer: Any = None  # set by start

    def start(self, name: str, folder: Path, config: dict, key: str | None) -> str:
        from torch.utils.tensorboard import SummaryWriter

        place = folder / "tensorboard"
        if key is None:
            for old in place.glob("events.out.tfevents.*"):
                old.unlink()
        self.writer = SummaryWriter(str(place))
        if key is None:
            lines = "\n".join(f"    {word}: {value}" for word, value in config.items())
            self.writer.add_text("settings", lines)
        return "tensorboard"

    def log(self, step: int, numbers: dict[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)
        self.writer.flush()  # written even if the training is killed later
        self.last = step

    def end(self, scores: dict[str, float] | None) -> None:
        for name, number in (scores or {}).items():
            self.writer.add_scalar(name, number, self.last)
        self.writer.close()
