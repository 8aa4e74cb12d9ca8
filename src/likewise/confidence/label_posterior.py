from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.confidence.discriminant import Discriminant
from likewise.contracts import Confidence
from likewise.similarity import full_products
from likewise.types import Embedded, LikewiseError, Trust, Verdict

SHARPNESS = tuple(0.02 * 1.5**i for i in range(13))  # to 2.6
CONFUSABLE = 2048
"""Classes up to which mix-ups of similar classes are told from any other; beyond, their table would not fit."""


class LabelPosterior(Confidence):
    """Repair or leave out the labels that the whole training set speaks against; how readily, the set itself says.

    Paper: ours. Made of linear discriminants, cross-fitting (no label speaks for itself) and label noise as a mixture whose
        shares are fitted, as in forward correction (Patrini et al., CVPR 2017).
    Formula: p_c(x) = softmax_c(t LDA_c(x)), fitted without x's fold;
        P(given y | true c) = (1 - u - v) [y = c] + u [y != c] / (C - 1) + v K_cy, K_cy ~ sum_i p_ic p_iy for y != c;
        t, u and v maximise the likelihood of the given labels; q_c ~ p_c(x) P(y | c);
        the label becomes argmax q, and is left out where max q < `least`
    Differs: it is ours. On clean labels u and v come out near 0, so that next to nothing is changed. A class that would keep
        fewer than two samples gets back those that were given its label.
    Needs: features that tell classes apart, such as those of a pretrained network; the less they do, the less it changes. A class
        whose samples all carry one other class's name cannot be seen.

    Args:
        classes: number of training classes; the run fills it in.
        labels: classes of the training samples as given; the run fills it in.
        every: time between two looks at the whole training set, which cost a pass without gradient each. The first is
            taken before the first step.
        least: how sure a label must be to be used.
        repair: a sample with another likely label gets it; False: it is only left out.
        rounds: how often discriminants and label posteriors are fitted in turn.
        folds: parts that the samples are cut into; each is judged by the others.
        shrink: how far the covariance is drawn towards a multiple of the unit matrix.
        seed: of the cut; the run fills it in.
    """

    def __init__(
        self,
        classes: int,
        labels: Int[np.ndarray, "N"],
        every: str = "2e",
        least: float = 0.5,
        repair: bool = True,
        rounds: int = 2,
        folds: int = 5,
        shrink: float = 0.4,
        seed: int = 0,
    ):
        super().__init__()
        if classes < 2 or not 0 <= least <= 1 or rounds < 1 or folds < 2 or not 0 < shrink <= 1:
            raise LikewiseError(
                "LabelPosterior: classes >= 2, least in [0, 1], rounds >= 1, folds >= 2 and shrink in (0, 1] must hold, got "
                f"classes={classes}, least={least}, rounds={rounds}, folds={folds}, shrink={shrink}"
            )
        self.classes = classes
        self.labels = labels
        self.every = every
        self.least = least
        self.repair = repair
        self.rounds = rounds
        self.folds = folds
        self.shrink = shrink
        self.seed = seed
        self.register_buffer("w", torch.ones(len(labels)))

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> Trust:
        return Trust(w=self.w[row])

    @torch.no_grad()
    def judge(self, e: Embedded) -> Verdict:
        x, y = (e.z if e.f is None else e.f).float(), e.y
        if not torch.isfinite(x).all():
            raise LikewiseError("LabelPosterior: the features hold NaN or infinite numbers; lower lr or set clip_norm")
        x = (x - x.mean(0)) / x.std().clamp_min(1e-12)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.seed))
        top, sure, own = y.clone(), x.new_ones(len(x)), x.new_ones(len(x))
        with full_products(x):
            each = Discriminant(x, (order % self.folds).to(x.device), self.folds, self.classes)
            for rows in each.blocks():
                each.add(rows, F.one_hot(y[rows], self.classes).to(x))
            for _ in range(self.rounds):
                each.fit(self.shrink)
                noise = fit_noise(each, y)
                each.clear()
                for rows in each.blocks():
                    q = noise.posterior(each.scores(rows), y[rows])
                    each.add(rows, q)
                    sure[rows], top[rows] = q.max(1)
                    own[rows] = q.gather(1, y[rows, None]).squeeze(1)
        used = (sure >= self.least) & ((top == y) | self.repair)
        while True:  # a class that would be gone stays as it was given, and may then be missed by another
            left = torch.bincount(top[used], minlength=self.classes)
            gone = (left[y] < 2) & ~(used & (top == y))
            if not gone.any():
                break
            top, used = top.where(~gone, y), used | gone
        self.w.copy_(used.to(self.w))
        facts = {"wrong labels, any": noise.any, "wrong labels, similar": noise.similar}
        return Verdict(y=top, w=used.float(), suspicion=1 - own, threshold=0.5, facts=facts)


class Noise(NamedTuple):
    """How given labels come about: which share of them is any other class's, and which that of a similar one."""

    sharpness: float
    any: float
    similar: float
    table: Float[Tensor, "C C"] | None  # P(given | true), of those mixed up with a similar class

    def posterior(self, scores: Float[Tensor, "b C"], y: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        """P(true class | features, given label)."""
        q = torch.softmax(self.sharpness * scores, 1)
        true = q.gather(1, y[:, None]) * (1 - self.any - self.similar)
        said = self.any / (q.shape[1] - 1)
        q = q * (said if self.table is None else said + self.similar * self.table[:, y].T)
        q = q.scatter(1, y[:, None], true)
        return q / q.sum(1, keepdim=True).clamp_min(1e-30)


def fit_noise(each: Discriminant, y: Int[Tensor, "N"]) -> Noise:
    """The sharpness and shares under which the given labels are most likely."""
    found = [at_sharpness(each, y, t) for t in SHARPNESS]
    return max(found, key=lambda pair: pair[0])[1]


def at_sharpness(each: Discriminant, y: Int[Tensor, "N"], sharpness: float) -> tuple[float, Noise]:
    """The likelihood (its logarithm) of the given labels at this sharpness, and the shares that make it largest."""
    table, sums = None, each.x.new_zeros(each.classes, each.classes)
    if each.classes <= CONFUSABLE:
        for rows in each.blocks():
            p = torch.softmax(sharpness * each.scores(rows), 1)
            sums += p.T @ p
        table = sums.fill_diagonal_(0) / sums.sum(1, keepdim=True).clamp_min(1e-30)
    own, similar = [], []
    for rows in each.blocks():
        p = torch.softmax(sharpness * each.scores(rows), 1)
        own.append(p.gather(1, y[rows, None]).squeeze(1))
        if table is not None:
            similar.append((p * table[:, y[rows]].T).sum(1))
    own = torch.cat(own)
    ways = [own, (1 - own) / (each.classes - 1), *([torch.cat(similar)] if similar else [])]
    shares, likelihood = fit_shares(torch.stack(ways))
    return likelihood, Noise(sharpness, shares[1], shares[2] if similar else 0.0, table)


def fit_shares(ways: Float[Tensor, "W N"], steps: int = 100) -> tuple[list[float], float]:
    """Shares of a mixture that make what was seen most likely, by expectation-maximisation, and that likelihood's logarithm."""
    shares = ways.new_full((len(ways),), 0.2 / (len(ways) - 1))
    shares[0] = 0.8
    for _ in range(steps):
        part = shares[:, None] * ways
        shares = (part / part.sum(0).clamp_min(1e-30)).mean(1)
    return shares.tolist(), float((shares[:, None] * ways).sum(0).clamp_min(1e-30).log().sum())
