"""The label posterior as the few most probable classes of every sample: draws of true labels, and its update from decisions.

All functions are pure: (candidates, ...) -> candidates. Drawn worlds have an error of the calibration that all labels of a draw
share. A reviewer who keeps ten labels of one kind changes what is expected of the rest; the kinds of a sample are its pair of
given and suggested class, each of the two classes, its band of probability, and all samples together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

CANDIDATES_COUNT = 8
"""Number of the most probable classes of a sample that are kept, its given class included."""

KIND_SPREADS = {"all": 1.0, "band": 1.0, "given": 0.7, "suggested": 0.7, "pair": 1.0}
"""Kind -> standard deviation, known beforehand, of its shift of the log odds: the fewer decisions, the smaller the shift."""

BAND_EDGES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
"""Edges of the bands of the probability that a label is wrong."""

MIN_PROBABILITY = 1e-3
"""In the fit of the shifts, probabilities that are nearer to 0 or 1 than this count as this far from it."""

SWEEPS_COUNT = 12
"""Number of times that the shifts of all kinds are fitted in turn."""


class Candidates(NamedTuple):
    """The most probable true classes of every sample and their probabilities, which sum to 1; the given class comes first."""

    label: Int[Tensor, "N K"]
    probability: Float[Tensor, "N K"]

    @property
    def wrong(self) -> Float[Tensor, "N"]:
        """Probability that the given label is wrong."""
        return 1 - self.probability[:, 0]

    @property
    def suggested(self) -> Int[Tensor, "N"]:
        """The most probable other class."""
        best = self.probability[:, 1:].argmax(1, keepdim=True) + 1
        return self.label.gather(1, best)[:, 0]

    def of(self, rows: Int[Tensor, "n"] | Bool[Tensor, "N"]) -> Candidates:
        """Return the candidates of some samples."""
        return Candidates(self.label[rows], self.probability[rows])

    def with_wrong(self, wrong: Float[Tensor, "N"]) -> Candidates:
        """Return the candidates with other probabilities that the given label is wrong; the other classes keep their ratios."""
        rest = self.probability[:, 1:]
        total = rest.sum(1, keepdim=True)
        share = torch.where(total > 0, rest / total.clamp_min(1e-30), 1 / max(1, rest.shape[1]))
        return Candidates(self.label, torch.cat([(1 - wrong)[:, None], wrong[:, None] * share], 1))


def keep_candidates(q: Float[Tensor, "n C"], own: Int[Tensor, "n"], count: int = CANDIDATES_COUNT) -> Candidates:
    """Return the candidates of samples from their posterior over all classes."""
    count = min(count, q.shape[1])
    given = q.gather(1, own[:, None])
    top = q.scatter(1, own[:, None], -1).topk(count - 1, 1)
    kept = torch.cat([given, top.values.clamp_min(0)], 1)
    return Candidates(torch.cat([own[:, None], top.indices], 1), kept / kept.sum(1, keepdim=True).clamp_min(1e-30))


def shift_odds(candidates: Candidates, shift: float) -> Candidates:
    """Return the candidates with the log odds of every wrong label moved by the same amount."""
    wrong = candidates.wrong.clamp(0, 1)
    inner = wrong.clamp(1e-12, 1 - 1e-12)
    moved = torch.sigmoid(torch.logit(inner) + shift)
    return candidates.with_wrong(torch.where((wrong > 0) & (wrong < 1), moved, wrong))


def draw_worlds(candidates: Candidates, worlds: int, spread: float, seed: int = 0) -> Int[Tensor, "S N"]:
    """Return the true labels of every sample in S worlds.

    Formula: each world has one shift of the log odds, the quantile (s + 1/2) / S of N(0, spread^2), in random order.
    """
    random = torch.Generator().manual_seed(seed)
    quantile = (torch.randperm(worlds, generator=random).double() + 0.5) / worlds
    shifts = spread * torch.special.ndtri(quantile)
    found = []
    for shift in shifts.tolist():
        edges = shift_odds(candidates, shift).probability.double().cumsum(1)
        dice = torch.rand(len(edges), 1, generator=random, dtype=torch.float64) * edges[:, -1:]
        place = (edges <= dice).sum(1, keepdim=True).clamp_max(edges.shape[1] - 1)
        found.append(candidates.label.gather(1, place)[:, 0])
    return torch.stack(found)


def update_posterior(
    candidates: Candidates, rows: Int[Tensor, "D"], decided: Int[Tensor, "D"], certainty: float = 0.999
) -> Candidates:
    """Return the posterior after some decisions.

    Formula: log odds of a wrong label = those of the posterior + a shift for each of its kinds, the shifts being normal with mean
        0; the most probable shifts given the decisions. The same for the suggested class among the wrong labels, by the
        suggested class. A decided label has the probability `certainty`.

    Args:
        rows: decided samples, each once.
        decided: the label that the reviewer chose for each, the given label for "keep".
        certainty: probability that a decision is right; reviewers err.
    """
    if not len(rows):
        return candidates
    given, suggested = candidates.label[:, 0].numpy(), candidates.suggested.numpy()
    wrong = candidates.wrong.double().numpy()
    at, chosen = rows.numpy(), decided.numpy()
    kinds = sample_kinds(given, suggested, wrong)
    changed = chosen != given[at]
    wrong = shifted(wrong, kinds, at, changed)
    found = candidates.with_wrong(torch.as_tensor(wrong).to(candidates.probability))
    found = _update_suggestions(found, at[changed], chosen[changed], suggested)
    return fix_decided(found, rows, decided, certainty)


def sample_kinds(
    given: Int[np.ndarray, "N"], suggested: Int[np.ndarray, "N"], wrong: Float[np.ndarray, "N"]
) -> dict[str, Int[np.ndarray, "N"]]:
    """Return for every kind the number of every sample's group."""
    pair = given.astype(np.int64) * (int(max(given.max(), suggested.max())) + 1) + suggested
    groups = {
        "all": np.zeros_like(given),
        "band": np.digitize(wrong, BAND_EDGES),
        "given": given,
        "suggested": suggested,
    }
    return {name: np.unique(values, return_inverse=True)[1] for name, values in (groups | {"pair": pair}).items()}


def shifted(
    probability: Float[np.ndarray, "N"], kinds: dict[str, Int[np.ndarray, "N"]], at: Int[np.ndarray, "D"],
    happened: np.ndarray,
) -> Float[np.ndarray, "N"]:  # fmt: skip
    """Return probabilities after some outcomes: their log odds plus the most probable shift of every kind."""
    inner = probability.clip(MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    odds = np.log(inner / (1 - inner))
    shift = {name: np.zeros(int(group.max()) + 1) for name, group in kinds.items()}
    seen, target = odds[at].copy(), happened.astype(float)
    for _ in range(SWEEPS_COUNT):
        for name, group in kinds.items():
            mine, size = group[at], len(shift[name])
            p = 1 / (1 + np.exp(-seen))
            precision = KIND_SPREADS[name] ** -2
            slope = np.bincount(mine, target - p, size) - precision * shift[name]
            curvature = np.bincount(mine, np.maximum(p * (1 - p), 0.02), size) + precision
            step = (slope / curvature).clip(-1, 1)
            shift[name] += step
            seen += step[mine]
    total = sum(shift[name][group] for name, group in kinds.items())
    rest = (1 - probability) * np.exp(-total)  # the shift applies to the exact odds, not to the limited ones
    return probability / np.maximum(probability + rest, np.finfo(float).tiny)


def _update_suggestions(
    candidates: Candidates, at: Int[np.ndarray, "d"], chosen: Int[np.ndarray, "d"], suggested: Int[np.ndarray, "N"]
) -> Candidates:
    """Return the candidates with another share of the suggested class among the wrong labels, from those that were relabelled."""
    if not len(at):
        return candidates
    rest = candidates.probability[:, 1:]
    total = rest.sum(1, keepdim=True)
    is_best = candidates.label[:, 1:] == torch.as_tensor(suggested)[:, None]
    best = (rest * is_best).sum(1, keepdim=True)
    share = (best / total.clamp_min(1e-30)).double().numpy()[:, 0]
    kinds = {"all": np.zeros_like(suggested), "suggested": np.unique(suggested, return_inverse=True)[1]}
    new = torch.as_tensor(shifted(share, kinds, at, chosen == suggested[at])).to(rest)[:, None]
    others = (total - best).clamp_min(0)
    scaled = torch.where(is_best, new * total, rest * ((1 - new) * total / others.clamp_min(1e-30)))
    kept = torch.where((others > 1e-12) & (best > 0), scaled, rest)
    return Candidates(candidates.label, torch.cat([candidates.probability[:, :1], kept], 1))


def fix_decided(
    candidates: Candidates, rows: Int[Tensor, "D"], decided: Int[Tensor, "D"], certainty: float
) -> Candidates:
    """Return the candidates with the decided labels almost certain; a class that was no candidate replaces the least probable."""
    label, probability = candidates.label.clone(), candidates.probability.clone()
    own, known = label[rows], (label[rows] == decided[:, None]).any(1)
    own[~known, -1] = decided[~known]
    hit = own == decided[:, None]
    hit &= hit.cumsum(1) == 1  # padded candidates may repeat the given label
    others = max(1, label.shape[1] - 1)
    label[rows] = own
    probability[rows] = torch.where(hit, certainty, (1 - certainty) / others).to(probability)
    return Candidates(label, probability)
