"""Statistics of a confidence for the log: flagged against true labels, and losses per epoch. Training does not use them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.types import Relabelling, SampleWeights
from likewise.score.metrics.detection import auroc, count_ties

HISTOGRAM_BINS = 60
"""Bins of the histogram of suspicions in the log."""


class NoiseMonitor:
    """Records sample weights and suspicions of every step on the device, without a device sync.

    Args:
        samples: number of training samples.
        noisy: mask of the wrong labels; None if the true labels are not known.
    """

    def __init__(self, samples: int, noisy: Bool[np.ndarray, "N"] | None, device: torch.device):
        self.noisy = None if noisy is None else torch.as_tensor(noisy, device=device)
        self.last = torch.full((3, samples), torch.nan, device=device)  # suspicion, threshold, weight
        self.sums: dict[str, Tensor] = {}

    def add_batch(self, weights: SampleWeights, row: Tensor) -> None:
        """Record the sample weights of one batch. A value that the batch does not define (NaN) is left out of the means."""
        w = weights.w.detach().float()
        suspicion, threshold = (
            None if t is None else t.detach().float() for t in (weights.suspicion, weights.threshold)
        )
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
        """Add a value to the sum of its name, unless it is NaN."""
        both = torch.stack([value.nan_to_num(), (~value.isnan()).float()])
        self.sums[name] = self.sums[name] + both if name in self.sums else both

    def take_sums(self) -> dict[str, Float[Tensor, ""]]:
        """Return and reset "sum of NAME" and "count of NAME" of every added value; `means` divides them on the host."""
        sums, self.sums = self.sums, {}
        return {f"{word} of {name}": n for name, both in sums.items() for word, n in zip(("sum", "count"), both)}

    @staticmethod
    def means(numbers: dict[str, float]) -> dict[str, float]:
        """Return the mean of every name in `take_sums`, over the steps that defined it; other entries are ignored."""
        counts = {k.removeprefix("count of "): n for k, n in numbers.items() if k.startswith("count of ")}
        return {name: numbers[f"sum of {name}"] / count for name, count in counts.items() if count}

    def histogram(self) -> dict | None:
        """Return the histogram of the last suspicion of every sample: counts of right and wrong labels, threshold, mean weight.

        If the true labels are not known, all labels count as right and "wrong" is None. None if there are no suspicions.
        """
        # In float64: the bins of a narrow range would coincide in float32.
        suspicion, threshold, w = self.last.cpu().double().numpy()
        seen = np.isfinite(suspicion)
        if not seen.any():
            return None
        edges = np.histogram_bin_edges(suspicion[seen], HISTOGRAM_BINS)
        noisy = np.zeros(len(seen), bool) if self.noisy is None else self.noisy.cpu().numpy()
        place = np.clip(np.digitize(suspicion, edges) - 1, 0, HISTOGRAM_BINS - 1)
        count = np.bincount(place[seen], minlength=HISTOGRAM_BINS)
        mean_weight = np.bincount(place[seen], w[seen], minlength=HISTOGRAM_BINS) / np.maximum(count, 1)
        known = threshold[np.isfinite(threshold)]
        return {
            "edges": [float(edges[0]), float(edges[-1])],
            "right": np.bincount(place[seen & ~noisy], minlength=HISTOGRAM_BINS).tolist(),
            "wrong": None
            if self.noisy is None
            else np.bincount(place[seen & noisy], minlength=HISTOGRAM_BINS).tolist(),
            "weight": [round(float(v), 4) if n else None for v, n in zip(mean_weight, count, strict=True)],
            "threshold": float(known.mean()) if len(known) else None,
        }

    def relabelling_facts(self, relabelling: Relabelling, given: Tensor, clean: Tensor | None) -> dict[str, float]:
        """Return the statistics of a relabelling round for the log, with its accuracy if the true labels `clean` are known."""
        used = relabelling.w > 0
        self.last[2] = relabelling.w
        if relabelling.suspicion is not None:
            self.last[0] = relabelling.suspicion
            self.last[1] = torch.nan if relabelling.threshold is None else relabelling.threshold
        facts = {
            "labels used": float(used.float().mean()),
            "labels repaired": float((used & (relabelling.y != given)).float().mean()),
        }
        facts |= relabelling.facts
        if clean is None:
            return facts
        right, noisy = relabelling.y == clean, given != clean
        facts["right before"] = float((~noisy).float().mean())
        facts["right among used"] = float((right & used).sum() / used.sum().clamp_min(1))
        facts["wrong labels repaired"] = (
            float((right & used & noisy).sum() / noisy.sum()) if noisy.any() else float("nan")
        )
        if relabelling.suspicion is not None:
            flagged = None if relabelling.threshold is None else relabelling.suspicion >= relabelling.threshold
            facts |= {k: float(v) for k, v in detection(relabelling.suspicion, flagged, noisy).items()}
        return {name: value for name, value in facts.items() if value == value}


@dataclass(eq=False)
class LossHistory:
    """The mean loss of every training sample in every epoch: summed on the device, copied to the host once per epoch.

    Args:
        sums: sum of the losses of every sample in the current epoch, and their number.
        loss: the mean losses of each finished epoch; NaN for a sample that was not drawn.
        step: the step at which each epoch ended.
    """

    sums: Float[Tensor, "2 N"]
    loss: list[Float[Tensor, "N"]] = field(default_factory=list)
    step: list[int] = field(default_factory=list)

    def add_batch(self, loss: Float[Tensor, "B"], row: Int[Tensor, "B"]) -> None:
        """Add the losses of one batch, which may contain a sample several times."""
        loss = loss.float()
        self.sums.index_add_(1, row, torch.stack([loss, torch.ones_like(loss)]))

    def end_epoch(self, step: int) -> None:
        """Append the mean losses since the last epoch; does nothing if there was no step since."""
        if step in (0, *self.step[-1:]):
            return
        self.loss.append((self.sums[0] / self.sums[1]).cpu())
        self.step.append(step)
        self.sums.zero_()


def detection(
    suspicion: Float[Tensor, "B"], flagged: Bool[Tensor, "B"] | None, noisy: Bool[Tensor, "B"]
) -> dict[str, Float[Tensor, ""]]:
    """Return how well suspicion separates wrong from right labels in a batch; NaN if the batch has only one of the two.

    Formula: recall = P(flagged | wrong), precision = P(wrong | flagged), false alarms = P(flagged | right),
        AUROC = P(suspicion of a wrong one > that of a right one), ties counting half
    """
    wrong, right = noisy.float(), (~noisy).float()
    finite = suspicion.nan_to_num(nan=torch.finfo(suspicion.dtype).max)  # NaN ranks first
    found = {"AUROC": auroc(count_ties(-finite, noisy))}
    if flagged is not None:
        hit = flagged.float()
        found["recall"] = (hit * wrong).sum() / wrong.sum()
        found["precision"] = (hit * wrong).sum() / hit.sum()
        found["false alarms"] = (hit * right).sum() / right.sum()
    return {name: value.where(torch.isfinite(value), torch.nan) for name, value in found.items()}
