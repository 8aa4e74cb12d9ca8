"""What a confidence finds, beside the truth where it is known, and losses over time: for the record, and never for training."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.metrics.detection import auroc, inspect
from likewise.types import Relabelling, SampleWeights

BINS = 60


class Watch:
    """Looks over a confidence's shoulder, step by step, on the device; nothing waits for it until it is asked.

    Args:
        samples: how many train.
        noisy: which labels are known to be wrong, where that is known.
    """

    def __init__(self, samples: int, noisy: Bool[np.ndarray, "N"] | None, device: torch.device):
        self.noisy = None if noisy is None else torch.as_tensor(noisy, device=device)
        self.last = torch.full((3, samples), torch.nan, device=device)  # suspicion, threshold and weight when last seen
        self.sums: dict[str, Tensor] = {}

    def see(self, trust: SampleWeights, row: Tensor) -> None:
        """One batch. What is not defined in it (no wrong label, say) is left out of the means."""
        w = trust.w.detach().float()
        suspicion, threshold = (None if t is None else t.detach().float() for t in (trust.suspicion, trust.threshold))
        self.last[2].index_copy_(0, row, w)
        self.add("weight", w.mean())
        if suspicion is None:
            return
        self.last[0].index_copy_(0, row, suspicion)
        flagged = None
        if threshold is not None:
            self.last[1].index_copy_(0, row, threshold.expand(len(row)))
            flagged = suspicion >= threshold
            self.add("suspected share", flagged.float().mean())
        if self.noisy is not None:
            for name, value in detection(suspicion, flagged, self.noisy[row]).items():
                self.add(name, value)

    def add(self, name: str, value: Float[Tensor, ""]) -> None:
        both = torch.stack([value.nan_to_num(), (~value.isnan()).float()])
        self.sums[name] = self.sums[name] + both if name in self.sums else both

    def take(self) -> dict[str, Float[Tensor, ""]]:
        """Sums since the last call, and over how many steps; `means` makes means of them once they are at hand."""
        sums, self.sums = self.sums, {}
        return {f"{word} of {name}": n for name, both in sums.items() for word, n in zip(("sum", "count"), both)}

    @staticmethod
    def means(numbers: dict[str, float]) -> dict[str, float]:
        """Of the steps in which a number was defined, from what `take` gave; other numbers among them are left alone."""
        counts = {k.removeprefix("count of "): n for k, n in numbers.items() if k.startswith("count of ")}
        return {name: numbers[f"sum of {name}"] / count for name, count in counts.items() if count}

    def histogram(self) -> dict | None:
        """Suspicion over the samples when last seen: counts of right and wrong labels (or of all), threshold, mean weight."""
        suspicion, threshold, w = (
            self.last.cpu().double().numpy()
        )  # float32 cannot cut a range of a few steps into bins
        seen = np.isfinite(suspicion)
        if not seen.any():
            return None
        edges = np.histogram_bin_edges(suspicion[seen], BINS)
        noisy = np.zeros(len(seen), bool) if self.noisy is None else self.noisy.cpu().numpy()
        place = np.clip(np.digitize(suspicion, edges) - 1, 0, BINS - 1)
        count = np.bincount(place[seen], minlength=BINS)
        trusted = np.bincount(place[seen], w[seen], minlength=BINS) / np.maximum(count, 1)
        known = threshold[np.isfinite(threshold)]
        return {
            "edges": [float(edges[0]), float(edges[-1])],
            "right": np.bincount(place[seen & ~noisy], minlength=BINS).tolist(),
            "wrong": None if self.noisy is None else np.bincount(place[seen & noisy], minlength=BINS).tolist(),
            "weight": [round(float(v), 4) if n else None for v, n in zip(trusted, count, strict=True)],
            "threshold": float(known.mean()) if len(known) else None,
        }

    def verdict(self, verdict: Relabelling, given: Tensor, clean: Tensor | None) -> dict[str, float]:
        """A verdict's own numbers, and how right it was where that is known."""
        used = verdict.w > 0
        self.last[2] = verdict.w
        if verdict.suspicion is not None:
            self.last[0] = verdict.suspicion
            self.last[1] = torch.nan if verdict.threshold is None else verdict.threshold
        facts = {
            "labels used": float(used.float().mean()),
            "labels repaired": float((used & (verdict.y != given)).float().mean()),
        }
        facts |= verdict.facts
        if clean is None:
            return facts
        right, noisy = verdict.y == clean, given != clean
        facts["right before"] = float((~noisy).float().mean())
        facts["right among used"] = float((right & used).sum() / used.sum().clamp_min(1))
        facts["wrong labels repaired"] = (
            float((right & used & noisy).sum() / noisy.sum()) if noisy.any() else float("nan")
        )
        if verdict.suspicion is not None:
            flagged = None if verdict.threshold is None else verdict.suspicion >= verdict.threshold
            facts |= {k: float(v) for k, v in detection(verdict.suspicion, flagged, noisy).items()}
        return {name: value for name, value in facts.items() if value == value}


@dataclass(eq=False)
class LossHistory:
    """The loss of every training sample, pass after pass: summed on the device, fetched once a pass.

    Args:
        sums: of the losses since the last line, and how many they were.
        loss: a line for each pass, NaN where a sample was not drawn.
        step: at which each pass ended.
    """

    sums: Float[Tensor, "2 N"]
    loss: list[Float[Tensor, "N"]] = field(default_factory=list)
    step: list[int] = field(default_factory=list)

    def see(self, loss: Float[Tensor, "B"], row: Int[Tensor, "B"]) -> None:
        """One batch; a sample may stand in it several times."""
        loss = loss.float()
        self.sums.index_add_(1, row, torch.stack([loss, torch.ones_like(loss)]))

    def end_pass(self, step: int) -> None:
        """The means since the last line become one more; where there was no step since, nothing does."""
        if step in (0, *self.step[-1:]):
            return
        self.loss.append((self.sums[0] / self.sums[1]).cpu())
        self.step.append(step)
        self.sums.zero_()


def detection(
    suspicion: Float[Tensor, "B"], flagged: Bool[Tensor, "B"] | None, noisy: Bool[Tensor, "B"]
) -> dict[str, Float[Tensor, ""]]:
    """How well suspicion finds the wrong labels of a batch; NaN where it has none, or nothing else.

    Formula: recall = P(flagged | wrong), precision = P(wrong | flagged), false alarms = P(flagged | right),
        AUROC = P(suspicion of a wrong one > that of a right one), ties counting half
    """
    wrong, right = noisy.float(), (~noisy).float()
    finite = suspicion.nan_to_num(nan=torch.finfo(suspicion.dtype).max)  # what is broken is most suspect
    found = {"AUROC": auroc(inspect(-finite, noisy))}
    if flagged is not None:
        hit = flagged.float()
        found["recall"] = (hit * wrong).sum() / wrong.sum()
        found["precision"] = (hit * wrong).sum() / hit.sum()
        found["false alarms"] = (hit * right).sum() / right.sum()
    return {name: value.where(torch.isfinite(value), torch.nan) for name, value in found.items()}
