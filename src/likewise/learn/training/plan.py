"""The durations and intervals of a training, in steps."""

from __future__ import annotations

from dataclasses import dataclass

from likewise.core.durations import period_of, steps_of, training_steps
from likewise.core.settings import Train

MAX_LOG_INTERVAL, MIN_LOG_LINES = 20, 50
"""Steps between two lines of the log, and lines that a shorter training has (one per step if it has fewer steps)."""


@dataclass(frozen=True)
class Plan:
    """Durations and intervals of a training in steps. None: never. `checkpoint_every` may also be seconds ("30s")."""

    steps_per_epoch: int
    steps: int
    warmup: int
    log_every: int
    validate_every: int
    test_every: int | None
    relabel_every: int | None
    checkpoint_every: int | str
    patience: int | None


def make_plan(config: Train, steps_per_epoch: int, relabel_every: str | None) -> Plan:
    """Convert the durations of the settings to steps.

    Args:
        relabel_every: interval between relabelling rounds, from the confidence; None if it has none.
    """

    def steps(name: str, least: int = 0) -> int:
        return steps_of(getattr(config, name), steps_per_epoch, name, least=least)

    def period(text: str | None, name: str, owner: str = "train") -> int | None:
        return steps_of(text, steps_per_epoch, name, least=1, owner=owner) if text else None

    total = training_steps(config.epochs, config.steps, steps_per_epoch)
    return Plan(
        steps_per_epoch=steps_per_epoch,
        steps=total,
        warmup=steps("warmup"),
        log_every=config.log_every or min(MAX_LOG_INTERVAL, max(1, total // MIN_LOG_LINES)),
        validate_every=steps("validate_every", least=1),
        test_every=period(config.test_every, "test_every"),
        relabel_every=period(relabel_every, "every", config.confidence or ""),
        checkpoint_every=period_of(config.checkpoint_every, steps_per_epoch, "checkpoint_every", least=1),
        patience=config.patience,
    )
