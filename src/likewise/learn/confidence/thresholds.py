"""Loss thresholds that separate clean from noisy samples, and sample weights from them. No function here syncs with a device.

A threshold of infinity means that no sample is flagged. Losses that are not finite are ignored.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.learn.lambert_w import exp_minus_w

MIN_LOSSES = 4
"""Fewest losses that can be split, with two on each side."""


def otsu(losses: Float[Tensor, "B"], ddof: int = 0, valid: Bool[Tensor, "B"] | None = None) -> Float[Tensor, ""]:
    """Return Otsu's threshold: the split of the losses into low and high with the least variance within the two groups.

    Candidates are the midpoints t between consecutive losses with at least two losses on each side; C0 = {l < t}, C1 = {l >= t},
    and the threshold minimises |C0| Var C0 + |C1| Var C1. One sort and cumulative sums evaluate all candidates.

    Args:
        losses: one loss per sample.
        ddof: 0: the variance of Otsu's criterion; 1: the unbiased variance.
        valid: mask of the losses that count. None: all finite losses.
    """
    if len(losses) < MIN_LOSSES:
        return _infinity(losses)
    values, sound, n = _sorted_losses(losses, valid)
    middle = (values[:-1] + values[1:]) / 2
    below = torch.searchsorted(values, middle)  # searched, so that equal losses are on the same side
    apart = torch.where(sound, values - _mean(values, sound), 0)
    k, m, s = below.to(apart), (n - below).to(apart), _sums(apart)
    between = s[below].square() * n / (k * m).clamp_min(1)  # the deviations sum to 0
    score = between
    if ddof:
        q = _sums(apart.square())
        low = (q[below] - s[below].square() / k) * k / (k - ddof)
        high = (q[-1] - q[below] - (s[-1] - s[below]).square() / m) * m / (m - ddof)
        score = -(low + high).where((k > ddof) & (m > ddof), torch.finfo(apart.dtype).max)
    place = torch.arange(len(middle), device=losses.device)
    best = score.where((place >= 1) & (place <= n - 3), -torch.inf).argmax(0, keepdim=True)
    enough = n >= MIN_LOSSES
    return middle.gather(0, best).where(enough, torch.inf).squeeze(0)


def mixture(losses: Float[Tensor, "B"], steps: int = 10, tol: float = 1e-2, floor: float = 5e-4) -> Float[Tensor, ""]:
    """Return the loss at which the two Gaussians of a fitted mixture are equally likely; infinity if the fit collapses.

    Losses are scaled to [0, 1]; Otsu's two groups initialise the fit, which follows scikit-learn's GaussianMixture.

    Args:
        losses: one loss per sample.
        steps: maximum number of EM steps. DivideMix: 10.
        tol: the fit stops when the mean log-likelihood gains less than this. DivideMix: 0.01.
        floor: added to each variance. DivideMix: 5e-4.
    """
    if len(losses) < MIN_LOSSES:
        return _infinity(losses)
    values, sound, n = _sorted_losses(losses, None)
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
    sane = (share.min() * n >= 1) & (mean[0] != mean[1]) & (span > 0) & (n >= MIN_LOSSES)
    return torch.where(sane, low + span * _crossing(fit), torch.inf)


class Average(nn.Module):
    """Mean of all losses of the training so far, or a moving average of batch means. It is read before it is updated.

    Args:
        rate: weight of the newest batch in a moving average. None: the mean of all losses, equally weighted.
    """

    mean: Tensor
    rest: Tensor
    count: Tensor

    def __init__(self, rate: float | None = None):
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("rest", torch.zeros(()))  # rounding error of the last update (Kahan summation)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, losses: Float[Tensor, "B"]) -> Float[Tensor, ""]:
        """Return the mean so far; before the first update that of this batch, or infinity if no loss is finite."""
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
    """Return the sample weights e^-W(max(beta0, (l - tau) / lam) / 2); 0 for a loss that is not finite."""
    x = ((_in_float64(losses) - tau) / lam).clamp_min(beta0) / 2
    return exp_minus_w(x).where(tau < torch.inf, 1).where(losses.isfinite(), 0).float()


def _in_float64(t: Tensor) -> Tensor:
    return t.detach().to(torch.float32 if t.device.type == "mps" else torch.float64)


def _infinity(losses: Tensor) -> Float[Tensor, ""]:
    return _in_float64(losses).new_full((), torch.inf)


def _mean(t: Float[Tensor, "B"], sound: Bool[Tensor, "B"]) -> Float[Tensor, ""]:
    t = _in_float64(t)
    return t.where(sound, 0).sum() / sound.sum().clamp_min(1)


def _sums(t: Float[Tensor, "B"]) -> Float[Tensor, "B1"]:
    """Return the sums of the first 0, 1, ... values."""
    return F.pad(t.cumsum(0), (1, 0))


def _sorted_losses(
    losses: Tensor, valid: Tensor | None
) -> tuple[Float[Tensor, "B"], Bool[Tensor, "B"], Int[Tensor, ""]]:
    """Return the valid losses in ascending order followed by infinities, the mask of the valid positions, and their number."""
    sound = losses.isfinite() if valid is None else losses.isfinite() & valid
    n = sound.sum()
    return (
        _in_float64(losses).where(sound, torch.inf).sort().values,
        torch.arange(len(losses), device=losses.device) < n,
        n,
    )


def _maximise(x: Float[Tensor, "B"], share: Float[Tensor, "2 B"], floor: float) -> Float[Tensor, "3 2"]:
    """Return share, mean and variance of each Gaussian, from its responsibilities for the samples."""
    mass = share.sum(1) + 10 * torch.finfo(x.dtype).eps
    mean = (share * x).sum(1) / mass
    variance = (share * (x - mean[:, None]).square()).sum(1) / mass + floor
    return torch.stack([mass / mass.sum(), mean, variance])


def _log_density(x: Float[Tensor, "B"], fit: Float[Tensor, "3 2"]) -> Float[Tensor, "2 B"]:
    share, mean, variance = fit[:, :, None]
    return share.log() - ((x - mean).square() / variance + (2 * math.pi * variance).log()) / 2


def _crossing(fit: Float[Tensor, "3 2"]) -> Float[Tensor, ""]:
    """Return the point between the means where both Gaussians are equally likely, or the midpoint if one dominates at both means.

    With t from 0 at the first mean to 1 at the second, the log-likelihood ratio is the parabola a t^2 + b t + c.
    """
    _, mean, variance = fit
    away = mean[1] - mean[0]
    c, end = _log_density(mean, fit).diff(dim=0).squeeze(0)
    a = (1 / variance[0] - 1 / variance[1]) * away.square() / 2
    b = end - c - a
    t = -2 * c / (b + (b.square() - 4 * a * c).clamp_min(0).sqrt())
    return mean[0] + away * t.where((c < 0) & (end > 0), 0.5)
