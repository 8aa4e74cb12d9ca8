"""From which loss on a label is suspect, and how far it is believed beyond. Nothing here waits for an accelerator.

A threshold of infinity means that nobody is suspect. Losses that are not finite are left out.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.numerics.lambert_w import exp_minus_w

FEWEST = 4
"""Fewer losses cannot be split into two and two."""


def otsu(
    losses: Float[Tensor, "B"], ddof: int = 0, valid: Bool[Tensor, "B"] | None = None, min_separation: float = 0.0
) -> Float[Tensor, ""]:
    """The midpoint between two neighbours that splits the losses into low and high ones with the least variance within.

    Every midpoint t with two losses or more on each side is a candidate; C0 = {l < t}, C1 = {l >= t}, and the least
    |C0| Var C0 + |C1| Var C1 wins. One sort and running sums find what trying all of them finds.

    Args:
        losses: one number per sample.
        ddof: 0, the variance of Otsu's criterion; 1, the unbiased one.
        valid: which of them count. None: all that are finite.
        min_separation: the share of the variance that the split must explain; else the threshold is infinity.
    """
    if len(losses) < FEWEST:
        return _nowhere(losses)
    values, sound, n = _in_order(losses, valid)
    middle = (values[:-1] + values[1:]) / 2
    below = torch.searchsorted(values, middle)  # not the place itself: equal losses stand on one side
    apart = torch.where(sound, values - _mean(values, sound), 0)
    k, m, s = below.to(apart), (n - below).to(apart), _sums(apart)
    between = s[below].square() * n / (k * m).clamp_min(1)  # all of them add up to 0
    score = between
    if ddof:
        q = _sums(apart.square())
        low = (q[below] - s[below].square() / k) * k / (k - ddof)
        high = (q[-1] - q[below] - (s[-1] - s[below]).square() / m) * m / (m - ddof)
        score = -(low + high).where((k > ddof) & (m > ddof), torch.finfo(apart.dtype).max)
    place = torch.arange(len(middle), device=losses.device)
    best = score.where((place >= 1) & (place <= n - 3), -torch.inf).argmax(0, keepdim=True)
    enough = n >= FEWEST
    if min_separation:
        enough = enough & (between.gather(0, best) >= min_separation * apart.square().sum())
    return middle.gather(0, best).where(enough, torch.inf).squeeze(0)


def mixture(losses: Float[Tensor, "B"], steps: int = 10, tol: float = 1e-2, floor: float = 5e-4) -> Float[Tensor, ""]:
    """Where a low and a high Gaussian fitted to the losses are equally likely; infinity where the fit collapses.

    Losses are scaled to [0, 1] and the two best clusters (Otsu's) start the fit, which runs as scikit-learn's does.

    Args:
        losses: one number per sample.
        steps: the most steps of expectation and maximisation. DivideMix: 10.
        tol: no more steps once the mean log-likelihood gains less than this. DivideMix: 0.01.
        floor: added to each variance. DivideMix: 5e-4.
    """
    if len(losses) < FEWEST:
        return _nowhere(losses)
    values, sound, n = _in_order(losses, None)
    low, high = values[0], torch.where(sound, values, values[0]).max()
    span = high - low
    x = torch.where(sound, (values - low) / span.where(span > 0, 1), 0)
    count = sound.to(x)
    above = (values >= otsu(losses)).to(x)
    fit = _maximise(x, torch.stack([1 - above, above]) * count, floor)
    before, live = torch.full_like(span, -torch.inf), torch.ones_like(span, dtype=torch.bool)
    for _ in range(steps):
        each = _log_density(x, fit)
        whole = each.logsumexp(0)
        gained = (whole * count).sum() / n
        fit = torch.where(live, _maximise(x, (each - whole).exp() * count, floor), fit)
        live, before = live & ((gained - before).abs() >= tol), gained
    share, mean, _ = fit
    sane = (share.min() * n >= 1) & (mean[0] != mean[1]) & (span > 0) & (n >= FEWEST)
    return torch.where(sane, low + span * _crossing(fit), torch.inf)


class Average(nn.Module):
    """The mean of all losses of the training so far, each with the same weight; or a moving one. Used, then renewed.

    Args:
        rate: what the newest batch counts in a moving average. None: every loss counts the same.
    """

    mean: Tensor
    rest: Tensor
    count: Tensor

    def __init__(self, rate: float | None = None):
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("rest", torch.zeros(()))  # what the mean could not hold of its last changes
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, losses: Float[Tensor, "B"]) -> Float[Tensor, ""]:
        """The mean so far; at first that of the batch itself, and infinity where it has none."""
        sound = losses.isfinite()
        first = _mean(losses, sound).where(sound.any(), torch.inf)
        return torch.where(self.count > 0, self.mean.to(first), first)

    def add(self, losses: Float[Tensor, "B"]) -> None:
        sound = losses.isfinite()
        new = sound.sum()
        share = new / (self.count + new).clamp_min(1)
        if self.rate is not None:
            share = torch.where(self.count > 0, self.rate, 1.0) * (new > 0)
        change = share * (_mean(losses, sound).to(self.mean) - self.mean) + self.rest
        mean = self.mean + change
        self.rest.copy_(change - (mean - self.mean))
        self.mean.copy_(mean)
        self.count.add_(new)


def weigh(losses: Float[Tensor, "B"], tau: Float[Tensor, ""], lam: float, beta0: float = 0.0) -> Float[Tensor, "B"]:
    """e^-W(max(beta0, (l - tau) / lam) / 2): how far each sample is believed. 0 where a loss is not finite."""
    x = ((_wide(losses) - tau) / lam).clamp_min(beta0) / 2
    return exp_minus_w(x).where(tau < torch.inf, 1).where(losses.isfinite(), 0).float()


def _wide(t: Tensor) -> Tensor:
    return t.detach().to(torch.float32 if t.device.type == "mps" else torch.float64)


def _nowhere(losses: Tensor) -> Float[Tensor, ""]:
    return _wide(losses).new_full((), torch.inf)


def _mean(t: Float[Tensor, "B"], sound: Bool[Tensor, "B"]) -> Float[Tensor, ""]:
    t = _wide(t)
    return t.where(sound, 0).sum() / sound.sum().clamp_min(1)


def _sums(t: Float[Tensor, "B"]) -> Float[Tensor, "B1"]:
    """Sums of the first 0, 1, ... numbers."""
    return F.pad(t.cumsum(0), (1, 0))


def _in_order(losses: Tensor, valid: Tensor | None) -> tuple[Float[Tensor, "B"], Bool[Tensor, "B"], Int[Tensor, ""]]:
    """Losses that count, ascending, and infinity in place of the others; which places count; how many."""
    sound = losses.isfinite() if valid is None else losses.isfinite() & valid
    n = sound.sum()
    return _wide(losses).where(sound, torch.inf).sort().values, torch.arange(len(losses), device=losses.device) < n, n


def _maximise(x: Float[Tensor, "B"], share: Float[Tensor, "2 B"], floor: float) -> Float[Tensor, "3 2"]:
    """Share, mean and variance of each component, from how much of each sample it holds."""
    held = share.sum(1) + 10 * torch.finfo(x.dtype).eps
    mean = (share * x).sum(1) / held
    variance = (share * (x - mean[:, None]).square()).sum(1) / held + floor
    return torch.stack([held / held.sum(), mean, variance])


def _log_density(x: Float[Tensor, "B"], fit: Float[Tensor, "3 2"]) -> Float[Tensor, "2 B"]:
    share, mean, variance = fit[:, :, None]
    return share.log() - ((x - mean).square() / variance + (2 * math.pi * variance).log()) / 2


def _crossing(fit: Float[Tensor, "3 2"]) -> Float[Tensor, ""]:
    """Between the means, where both are as likely. Halfway where one of them is the likelier at both means.

    From one mean to the other, by how much the second is likelier is a parabola a t^2 + b t + c.
    """
    _, mean, variance = fit
    away = mean[1] - mean[0]
    c, end = _log_density(mean, fit).diff(dim=0).squeeze(0)
    a = (1 / variance[0] - 1 / variance[1]) * away.square() / 2
    b = end - c - a
    t = -2 * c / (b + (b.square() - 4 * a * c).clamp_min(0).sqrt())
    return mean[0] + away * t.where((c < 0) & (end > 0), 0.5)
