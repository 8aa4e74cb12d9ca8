from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Confidence
from likewise.numerics.label_noise import discriminate
from likewise.similarity import full_products
from likewise.types import Embedded, LikewiseError, Relabelling, SampleWeights


class LabelPosterior(Confidence):
    """Repair or leave out the labels that the whole training set speaks against; how readily, the set itself says.

    Paper: ours. Made of linear discriminants, cross-fitting (in the first round no label speaks for itself) and label noise as a
        mixture whose shares are fitted, as in forward correction (Patrini et al., CVPR 2017).
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

    w: Tensor

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
    ) -> SampleWeights:
        return SampleWeights(w=self.w[row])

    @torch.no_grad()
    def relabel(self, e: Embedded) -> Relabelling:
        x, y = (e.z if e.f is None else e.f).float(), e.y
        if not torch.isfinite(x).all():
            raise LikewiseError("LabelPosterior: the features hold NaN or infinite numbers; lower lr or set clip_norm")
        top, sure, own = y.clone(), x.new_ones(len(x)), x.new_ones(len(x))
        with full_products(x):
            how = {"rounds": self.rounds, "folds": self.folds, "shrink": self.shrink, "seed": self.seed}
            each, noise = discriminate(x, y, self.classes, **how)
            for rows in each.blocks():
                q = noise.posterior(each.scores(rows), y[rows])
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
        return Relabelling(y=top, w=used.float(), suspicion=1 - own, threshold=0.5, facts=facts)
