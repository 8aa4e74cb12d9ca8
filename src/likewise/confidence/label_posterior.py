from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Confidence
from likewise.numerics.label_noise import discriminate
from likewise.similarity import full_precision_matmul
from likewise.types import Embedded, LikewiseError, Relabelling, SampleWeights


class LabelPosterior(Confidence):
    """Relabels or drops samples whose label disagrees with the features of the whole training set; estimates the noise rate.

    Paper: ours. It combines linear discriminants, cross-fitting (in the first round no label affects its own posterior) and label
        noise as a mixture whose shares are fitted, as in forward correction (Patrini et al., CVPR 2017).
    Formula: p_c(x) = softmax_c(t LDA_c(x)), fitted without x's fold;
        P(given y | true c) = (1 - u - v) [y = c] + u [y != c] / (C - 1) + v K_cy, K_cy ~ sum_i p_ic p_iy for y != c;
        t, u and v maximise the likelihood of the given labels; q_c ~ p_c(x) P(y | c);
        the label becomes argmax q; the sample is dropped if max q < `least`
    Differs: it is ours. On clean labels the fitted u and v are near 0, so that almost nothing changes. A class that would have
        fewer than two samples gets back the samples with that given label.
    Needs: features that separate the classes, such as those of a pretrained network; otherwise it changes few labels.
        It cannot detect a class whose samples all have the label of one other class.

    Args:
        classes: number of training classes; the run fills it in.
        labels: given label of every training sample; the run fills it in.
        every: time between two relabelling rounds, each of which embeds the whole training set without gradient. The first round
            is before the first step.
        least: smallest posterior with which a label is used.
        repair: True: relabel a sample whose most likely label differs from the given one; False: drop it.
        rounds: alternations between fitting the discriminants and fitting the label posteriors.
        folds: number of cross-fitting folds; each fold is scored by discriminants fitted on the other folds.
        shrink: shrinkage of the covariance towards a multiple of the identity, in (0, 1].
        seed: of the division into folds; the run fills it in.
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
            raise LikewiseError(
                "LabelPosterior: the features must be finite, got NaN or infinite values; lower lr or set clip_norm"
            )
        top, sure, own = y.clone(), x.new_ones(len(x)), x.new_ones(len(x))
        with full_precision_matmul(x):
            settings = {"rounds": self.rounds, "folds": self.folds, "shrink": self.shrink, "seed": self.seed}
            each, noise = discriminate(x, y, self.classes, **settings)
            for rows in each.blocks():
                q = noise.posterior(each.scores(rows), y[rows])
                sure[rows], top[rows] = q.max(1)
                own[rows] = q.gather(1, y[rows, None]).squeeze(1)
        used = (sure >= self.least) & ((top == y) | self.repair)
        while True:  # a vanishing class gets its given samples back, which may take them from another class
            class_size = torch.bincount(top[used], minlength=self.classes)
            restored = (class_size[y] < 2) & ~(used & (top == y))
            if not restored.any():
                break
            top, used = top.where(~restored, y), used | restored
        self.w.copy_(used.to(self.w))
        facts = {"wrong labels, any": noise.any, "wrong labels, similar": noise.similar}
        return Relabelling(y=top, w=used.float(), suspicion=1 - own, threshold=0.5, facts=facts)
