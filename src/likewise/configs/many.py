"""The settings of commands that train for you: demo, and those that train many times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Demo:
    """Train on the built-in glyphs with wrong labels among them, and show what was learned."""

    out: str | None = None
    """Folder of the run."""
    share: float = 0.3
    """Share of the training labels that are spoiled."""
    length: str = "12e"
    """How long to train, in passes ("12e") or steps ("550")."""
    data: str = "glyphs"
    """The glyphs to use, with arguments if wanted: "glyphs(classes=60)"."""
    seed: int = 0
    """Seed of everything random."""
    again: bool = False
    """Train anew although the demo has been run before."""
