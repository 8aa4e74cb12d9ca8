"""When things happen in a training, counted in steps."""

from __future__ import annotations

from dataclasses import dataclass

from likewise.config import Train
from likewise.durations import period_of, steps_of, training_steps


@dataclass(frozen=True)
class Plan:
    """Durations of a training in steps. None: the event never happens. `checkpoint_every` may also be seconds ("30s")."""

    per_pass: int
    steps: int
    warmup: int
    log_every: int
    validate_every: int
    test_every: int | None
    relabel_every: int | None
    checkpoint_every: int | str
    patience: int | None


def make_plan(config: Train, per_pass: int, relabel_every: str | None) -> Plan:
    """Convert the durations of the settings to steps, for passes of `per_pass` batches.

    Args:
        relabel_every: how often the confidence scores all labels, as it gives it itself; None for one that never does.
    """

    def steps(name: str, least: int = 0) -> int:
        return steps_of(getattr(config, name), per_pass, name, least=least)

    def period(text: str | None, name: str, owner: str = "train") -> int | None:
        return steps_of(text, per_pass, name, least=1, owner=owner) if text else None

    return Plan(
        per_pass=per_pass,
        steps=training_steps(config.epochs, config.steps, per_pass),
        warmup=steps("warmup"),
        log_every=config.log_every,
        validate_every=steps("validate_every", least=1),
        test_every=period(config.test_every, "test_every"),
        relabel_every=period(relabel_every, "every", config.confidence or ""),
        checkpoint_every=period_of(config.checkpoint_every, per_pass, "checkpoint_every", least=1),
        patience=config.patience,
    )
