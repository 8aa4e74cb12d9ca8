from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal

from likewise.core.contracts import Logger
from likewise.core.errors import LikewiseError, require_package


class WandB(Logger):
    """A run at Weights & Biases: curves over `step`, the settings, and the test scores in its summary.

    Needs: `pip install "likewise[wandb]"` and `wandb login`; or `mode="offline"`, and `wandb sync RUN/wandb/offline-*` later.
        A resumed training continues its W&B run, by the id.

    Args:
        project: name of the W&B project.
        entity: the user or team; None: your default.
        mode: "offline" only writes to the run folder.
    """

    def __init__(
        self, project: str = "likewise", entity: str | None = None, mode: Literal["online", "offline"] = "online"
    ):
        require_package("wandb", "WandB")
        self.project = project
        self.entity = entity
        self.mode: Literal["online", "offline"] = mode
        self.run: Any = None  # set by start

    def start(self, name: str, folder: Path, config: dict, key: str | None) -> str:
        import wandb

        if self.mode == "online" and not is_logged_in(wandb):
            raise LikewiseError(
                "WandB: it needs an API key, but found none; run `wandb login` first, or use mode='offline'"
            )
        self.run = wandb.init(
            project=self.project, entity=self.entity, mode=self.mode, name=name, dir=str(folder), config=config, id=key,
            resume=None if key is None else "allow", reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", init_timeout=30),
        )  # fmt: skip
        self.run.define_metric("step", hidden=True)
        self.run.define_metric("*", step_metric="step")
        return self.run.id

    def log(self, step: int, numbers: dict[str, float]) -> None:
        self.run.log({"step": step, **numbers})

    def end(self, scores: dict[str, float] | None) -> None:
        self.run.summary.update(scores or {})
        self.run.finish(exit_code=1 if scores is None else 0)


def is_logged_in(wandb) -> bool:
    """Return whether W&B has an API key, without a prompt for one; older versions of wandb have no argument `prompt`."""
    has_prompt_argument = "prompt" in inspect.signature(wandb.login).parameters
    return bool(wandb.login(prompt=False) if has_prompt_argument else wandb.api.api_key)
