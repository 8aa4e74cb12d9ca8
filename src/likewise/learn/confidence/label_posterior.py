from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.contracts import Confidence
from likewise.core.similarity import full_precision_matmul
from likewise.core.types import Embedded, LikewiseError, Relabelling, SampleWeights, Votes
from likewise.data.label_sets import label_table
from likewise.labels.ballots import ballots_of, own_probability
from likewise.labels.candidate_classes import MAX_DENSE_CLASSES, Columns, class_of, given_column, without_drawn
from likewise.labels.given_sets import given_sets
from likewise.labels.label_evidence import LabelEvidence, discriminate, discriminate_sets, joint_scores
from likewise.labels.label_noise import SCORE_BLOCK_SIZE, Noise
from likewise.labels.neighbour_votes import MAX_CONFLICT_SHARE
from likewise.labels.off_topic import off_topic
from likewise.labels.vote_evidence import find_consensus

STORED_CANDIDATES_COUNT = 8
"""Number of likely labels per sample whose posteriors are stored between two relabelling rounds."""

MAX_STORED_STATES = 2**28
"""Maximum number of states (samples x labels) that `LabelSetPosterior` stores: nine bytes each, 2.4 GB."""

MIN_CLASS_SAMPLES = 4
"""Number of samples that a class keeps, or all of them if it has fewer: with fewer, it would have hardly any pairs."""


class LabelPosterior(Confidence):
    """Relabels or drops samples whose label disagrees with the features of the whole training set; estimates the noise rate.

    Paper: ours. It combines Gaussian class densities (as in probabilistic linear discriminant analysis), votes of neighbours,
        cross-fitting (no label affects its own posterior) and label noise as a mixture whose shares are fitted, as in forward
        correction (Patrini et al., CVPR 2017).
    Formula: p_c(x) = softmax_c(a log N_c(x) + b log V_c(x) + log prior_c), fitted without x's fold, V the votes of neighbours;
        P(given y | true c) = (1 - u - v) [y = c] + u [y != c] / (C - 1) + v K_cy, K_cy ~ sum_i p_ic p_iy for y != c,
        or, for systematic exchanges, ~ sum_i p_ic [y_i = y] where that is large;
        a, b, u and v maximise the likelihood of the given labels; q_c ~ p_c(x) P(y | c), mean over the rounds;
        the label becomes argmax q; the sample is dropped if max q < `least`
    Differs: it is ours. A round in which the features explain the labels no better than chance changes nothing. A round does not
        count for a sample that was relabelled and trained with the label that the round favours. Exact copies with different
        labels share one posterior. A sample that fits no class, or for which a new class is likelier than the suggested one, is
        dropped, not relabelled. A class keeps `MIN_CLASS_SAMPLES` samples.
    Needs: features that separate the classes, such as those of a pretrained network; otherwise it changes few labels.
        It cannot detect a class whose samples all have the label of one other class.

    Args:
        classes: number of training classes; the run fills it in.
        labels: given label of every training sample; the run fills it in.
        every: time between two relabelling rounds, each of which embeds the whole training set without gradient. The first round
            is before the first step.
        least: smallest posterior with which a label is used: 0.5 if a wrong label does as much harm as a right one does good.
        repair: True: relabel a sample whose most likely label differs from the given one; False: drop it.
        rounds: 1: densities are fitted with the given labels; 2: also with the posteriors of these.
        folds: number of cross-fitting folds; each fold is scored by densities fitted on the other folds.
        shrink: shrinkage of the covariance towards a multiple of the identity, in (0, 1]; None: the most likely of some values.
        seed: of the division into folds; the run fills it in.
        group: group of every training sample, -1: none; samples of a group are in one fold; the run fills it in.
        copies: returns a number for every training sample that exact copies share; the run fills it in.
        votes: labels of the training samples by several workers; the run fills them in. The label of a sample is then the
            consensus of votes and features, and its weight the posterior of that label.
    """

    w: Tensor
    label: Tensor
    candidate: Tensor
    evidence: Tensor
    own: Tensor
    rounds_seen: Tensor
    cluster: Tensor
    outside: Tensor
    setting: Tensor

    def __init__(
        self,
        classes: int,
        labels: Int[np.ndarray, "N"],
        every: str = "2e",
        least: float = 0.5,
        repair: bool = True,
        rounds: int = 2,
        folds: int = 10,
        shrink: float | None = None,
        seed: int = 0,
        group: Int[np.ndarray, "N"] | None = None,
        copies: Callable[[], Int[np.ndarray, "N"]] | None = None,
        votes: Votes | None = None,
    ):
        super().__init__()
        if classes < 2 or not 0 <= least <= 1 or rounds < 1 or folds < 2 or not (shrink is None or 0 < shrink <= 1):
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
        self.group = group
        self.copies = copies
        self.votes = votes
        n, k = len(labels), min(STORED_CANDIDATES_COUNT, classes)
        self.register_buffer("w", torch.ones(n))
        self.register_buffer("label", torch.as_tensor(labels).clone())  # label that the sample was last trained with
        self.register_buffer("candidate", torch.zeros(n, k, dtype=torch.int64))  # likely labels of the rounds so far
        self.register_buffer("evidence", torch.zeros(n, k))  # sums of their posteriors
        self.register_buffer("own", torch.zeros(n))  # sum of the posteriors of the given label
        self.register_buffer("rounds_seen", torch.zeros(n))  # number of rounds that counted for the sample
        self.register_buffer("cluster", torch.full((n,), -1))  # near copies by the features of the first round
        # fits no class, by the features of the first round
        self.register_buffer("outside", torch.zeros(n, dtype=torch.bool))
        self.register_buffer("setting", torch.full((2,), -1.0))  # setting of `discriminate`, chosen in the first round

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        return SampleWeights(w=self.w[row])

    @torch.no_grad()
    def relabel(self, e: Embedded) -> Relabelling:
        x, y = finite_features("LabelPosterior", e), e.y
        with full_precision_matmul(x):
            found = self._posterior(x, y)
            if self.votes is not None:
                found = self._with_votes(found, x, y, self.votes)
        self.w.copy_(found.w)
        self.label.copy_(found.y)
        return found

    def _posterior(self, x: Float[Tensor, "N F"], y: Int[Tensor, "N"]) -> Relabelling:
        """Return the labels and weights by the features and the given labels."""
        each, noise = self._discriminate(x, y)
        conflicts = self._conflicts(y)
        if noise.informative:
            if not bool(self.rounds_seen.any()):
                self.outside.copy_(off_topic(x, y, self.classes).probability >= 0.5)
            fits = self._add_round(each, noise, y, conflicts) & ~self.outside
        else:
            fits = ~self.outside
        seen = self.rounds_seen.clamp_min(1)
        sure, place = (self.evidence / seen[:, None]).max(1)
        top = self.candidate.gather(1, place[:, None])[:, 0]
        own = self.own / seen
        untouched = self.rounds_seen == 0
        top, sure, own = y.where(untouched, top), sure.where(~untouched, 1), own.where(~untouched, 1)
        used = (sure >= self.least) & ~self.outside & ((top == y) | (fits & self.repair))
        used &= ~(untouched & (conflicts >= 0))  # one of two labels is wrong, and there is no evidence which
        top, used = keep_classes(top, used, own, y, self.classes)
        facts = {"wrong labels, any": noise.any, "wrong labels, similar": noise.similar}
        facts = facts if noise.informative else {name: float("nan") for name in facts}
        return Relabelling(y=top, w=used.float(), suspicion=1 - own, threshold=0.5, facts=facts)

    def _with_votes(
        self, found: Relabelling, x: Float[Tensor, "N F"], y: Int[Tensor, "N"], votes: Votes
    ) -> Relabelling:
        """Return the labels with those of voted samples replaced by the consensus of votes and features.

        The weight of a consensus is its posterior, and 0 below `least`. Samples without votes stay as they are.
        """
        assert found.suspicion is not None
        voted = torch.zeros_like(y, dtype=torch.bool)
        voted[torch.as_tensor(votes.row, device=y.device)] = True
        ballots = ballots_of(votes.completed(y.cpu().numpy()), len(y), self.classes)
        group = None if self.group is None else torch.as_tensor(self.group)
        consensus = find_consensus(x.cpu(), ballots, folds=min(self.folds, 5), seed=self.seed, group=group)
        q, columns = consensus.q, consensus.votes.columns
        decided = consensus.votes.decided(q)
        label, sure = decided.label.to(y.device), (1 - decided.wrong).to(self.w)
        own = own_probability(q.to(self.w), y, columns).where(voted, 1 - found.suspicion)
        used = (sure >= self.least) & ((label == y) | self.repair) & ~self.outside
        top, used = label.where(voted, found.y), used.where(voted, found.w > 0)
        top, used = keep_classes(top, used, own, y, self.classes)
        weight = torch.where(top == label, sure, own).where(voted, 1).where(used, 0).to(self.w)
        mine = voted.cpu()
        facts = found.facts | {
            "consensus, expected wrong": float(decided.wrong[mine].mean()),
            "undecided": float(decided.undecided[mine].double().mean()),
        }
        return Relabelling(y=top, w=weight, suspicion=1 - own, threshold=0.5, facts=facts)

    def _discriminate(self, x: Float[Tensor, "N F"], y: Int[Tensor, "N"]) -> tuple[LabelEvidence, Noise]:
        """Return the evidence of this round; the first round finds near copies and chooses the setting for all rounds."""
        group = None if self.group is None else torch.as_tensor(self.group, device=y.device)
        cluster = None if bool((self.cluster < 0).any()) else self.cluster
        chosen = float(self.setting[1])
        setting = (
            (bool(self.setting[0]), chosen) if chosen > 0 else None if self.shrink is None else (True, self.shrink)
        )
        each, noise = discriminate(
            x, y, self.classes, rounds=self.rounds, folds=self.folds, setting=setting, seed=self.seed, group=group,
            cluster=cluster,
        )  # fmt: skip
        self.cluster.copy_(each.cluster)
        if noise.informative:
            self.setting.copy_(torch.tensor([float(each.setting[0]), each.setting[1]]))
        return each, noise

    def _conflicts(self, y: Int[Tensor, "N"]) -> Int[Tensor, "N"]:
        """Return a number for exact copies that have different labels, -1 for all other samples."""
        if self.copies is None:
            return torch.full_like(y, -1)
        copy = torch.as_tensor(self.copies(), device=y.device)
        same = torch.zeros(int(copy.max()) + 1, dtype=y.dtype, device=y.device).index_put_((copy,), y)
        differs = torch.zeros_like(same, dtype=torch.bool).index_fill_(0, copy[same[copy] != y], True)
        found = copy.where(differs[copy], -1)
        several_labels = (found >= 0).float().mean() > MAX_CONFLICT_SHARE
        return torch.full_like(y, -1) if several_labels else found

    def _add_round(
        self, each: LabelEvidence, noise: Noise, y: Int[Tensor, "N"], conflicts: Int[Tensor, "N"]
    ) -> Bool[Tensor, "N"]:
        """Add the posteriors of one round to the evidence. Returns where the likeliest class is likelier than a new class."""
        fits = torch.ones_like(y, dtype=torch.bool)
        for rows in each.blocks():
            scores, columns = each.scores(rows), each.columns(rows)
            q = noise.posterior(scores, y[rows], columns)
            self._count(rows, q, columns, y[rows])
            fits[rows] = likelier_than_new(each, rows, scores, q)
        rows = (conflicts >= 0).nonzero()[:, 0]
        if len(rows):
            number, size = conflicts[rows].unique(return_inverse=True, return_counts=True)[1:]
            scores, columns = joint_scores(each, rows, number, y)
            joint = noise.probabilities(scores, columns).clamp_min(1e-30).log() / size[number][:, None]
            joint = joint + noise.label_probabilities(y[rows], columns).to(joint).clamp_min(1e-30).log()
            q = joint.new_zeros(len(size), joint.shape[1]).index_add_(0, number, joint).softmax(1)[number]
            for buffer in (self.evidence, self.own, self.rounds_seen):
                buffer[rows] = 0  # the joint posterior of the copies replaces those of the single samples
            self.label[rows] = y[rows]
            self._count(rows, q, columns, y[rows])
            fits[rows] = likelier_than_new(each, rows, scores, q)
        return fits

    def _count(
        self, rows: Int[Tensor, "b"], q: Float[Tensor, "b W"], columns: Columns | None, y: Int[Tensor, "b"]
    ) -> None:
        """Add posteriors to the stored candidates, except where training with a repaired label confirms the repair."""
        own = q.gather(1, given_column(y, columns))[:, 0]
        value, column = without_drawn(q, columns).topk(self.candidate.shape[1], 1)
        label = class_of(column, columns)
        trained = self.label[rows]
        counts = ~((trained != y) & (self.w[rows] > 0) & (label[:, 0] == trained))
        old, sums = self.candidate[rows], self.evidence[rows]
        names, values = torch.cat([old, label], 1), torch.cat([sums, value.to(sums)], 1)
        same = names[:, :, None] == names[:, None, :]
        total = (same * values[:, None, :]).sum(2)
        repeated = torch.tril(same, -1).any(2)
        best = total.masked_fill(repeated, -1).topk(old.shape[1], 1)
        chosen = names.gather(1, best.indices)
        self.candidate[rows] = chosen.where(counts[:, None], old)
        self.evidence[rows] = best.values.clamp_min(0).where(counts[:, None], sums)
        self.own[rows] += own.to(sums) * counts
        self.rounds_seen[rows] += counts


def finite_features(owner: str, e: Embedded) -> Float[Tensor, "N F"]:
    """Return the features of the training set, or its embeddings without features; raise if one is not finite."""
    x = (e.z if e.f is None else e.f).float()
    if not torch.isfinite(x).all():
        raise LikewiseError(
            f"{owner}: the features must be finite, got NaN or infinite values; lower lr or set clip_norm"
        )
    return x


def likelier_than_new(
    each: LabelEvidence, rows: Int[Tensor, "b"], scores: Float[Tensor, "M b C"], q: Float[Tensor, "b C"]
) -> Bool[Tensor, "b"]:
    """Return where the features are likelier under the class of the highest posterior than under a class without samples."""
    return scores[0].gather(1, q.argmax(1, keepdim=True))[:, 0] > each.density.unseen_scores(rows)


def keep_classes(
    top: Int[Tensor, "N"], used: Bool[Tensor, "N"], own: Float[Tensor, "N"], y: Int[Tensor, "N"], classes: int
) -> tuple[Int[Tensor, "N"], Bool[Tensor, "N"]]:
    """Return labels and mask after each class got back the given samples that it needs, those most probably right first."""
    order = own.argsort(descending=True, stable=True)
    order = order[y[order].argsort(stable=True)]  # by class, and within a class the most probably right first
    given = torch.bincount(y, minlength=classes)
    first = given.cumsum(0) - given
    rank = torch.empty_like(y)
    rank[order] = torch.arange(len(y), device=y.device) - first[y[order]]
    while True:  # a sample that returns to its class may leave another class with too few samples
        short = torch.bincount(top[used], minlength=classes) < given.clamp_max(MIN_CLASS_SAMPLES)
        restored = short[y] & (rank < MIN_CLASS_SAMPLES) & ~(used & (top == y))
        if not restored.any():
            return top, used
        top, used = y.where(restored, top), used | restored


class LabelSetPosterior(Confidence):
    """Adds labels that are surely missing and removes labels that are surely wrong, where samples have several labels each.

    Paper: ours. The probabilities are those of `likewise audit` for label sets: every label is a problem of two classes, with
        densities, votes of neighbours and the other labels as evidence, and with fitted shares of missing and wrong labels.
    Formula: q_il = P(the given state of label l is wrong), mean over the rounds; the state is changed if q_il >= `least`, and the
        sample gets the label set of the training set that differs least from its changed set, if that is nearer than its own
    Differs: it is ours. No sample is dropped, and no label set is new: a set that no other sample has is replaced by the nearest
        one. A round does not count for a label that was changed and that the round would change too.
    Needs: data with several labels per sample, and features that separate them; labels of few samples are left alone. Three
        tables of samples x labels take nine bytes per state in memory and checkpoints, and a round about twice as much.

    Args:
        labels: given class (set of labels) of every training sample; the run fills it in.
        label_sets: label numbers of every class; the run fills it in.
        every: time between two relabelling rounds, each of which embeds the whole training set without gradient. The first round
            is before the first step.
        least: smallest probability of an error with which a label is added or removed.
        folds: number of cross-fitting folds.
        seed: of the division into folds; the run fills it in.
        group: group of every training sample, -1: none; samples of a group are in one fold; the run fills it in.
    """

    total: Tensor
    seen: Tensor
    changed: Tensor
    sets: Tensor

    uses_classes = False

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        label_sets: Sequence[Sequence[int]],
        every: str = "2e",
        least: float = 0.9,
        folds: int = 10,
        seed: int = 0,
        group: Int[np.ndarray, "N"] | None = None,
    ):
        super().__init__()
        if not 0.5 <= least <= 1 or folds < 2:
            raise LikewiseError(
                f"LabelSetPosterior: least in [0.5, 1] and folds >= 2 must hold, got least={least}, folds={folds}"
            )
        self.labels = labels
        self.label_sets = label_sets
        self.every = every
        self.least = least
        self.folds = folds
        self.seed = seed
        self.group = group
        shape = (len(labels), 1 + max(max(one) for one in label_sets))
        if shape[0] * shape[1] > MAX_STORED_STATES:
            raise LikewiseError(
                f"LabelSetPosterior: at most {MAX_STORED_STATES:,} states (samples x labels) can be stored, got "
                f"{shape[0]:,} x {shape[1]:,}; train without --robust, or repair the labels first with `likewise audit`"
            )
        sets = torch.as_tensor(label_table(label_sets, shape[1]))
        self.register_buffer("sets", sets, persistent=False)
        self.register_buffer("total", torch.zeros(shape))  # sum of the probabilities of an error over the rounds
        self.register_buffer("seen", torch.zeros(shape))  # number of rounds that counted
        self.register_buffer("changed", torch.zeros(shape, dtype=torch.bool))  # states that the last round changed

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        return SampleWeights(w=torch.ones_like(row, dtype=torch.float32))

    @torch.no_grad()
    def relabel(self, e: Embedded) -> Relabelling:
        x, y = finite_features("LabelSetPosterior", e), e.y
        has = self.sets[y]
        group = None if self.group is None else torch.as_tensor(self.group, device=y.device)
        with full_precision_matmul(x):
            given = given_sets(has) if has.shape[1] > MAX_DENSE_CLASSES else has.float()
            each, noise = discriminate_sets(x, given, folds=self.folds, seed=self.seed, group=group)
            known = noise.informative.to(x.device)
            for rows in each.blocks():
                wrong = noise.wrong(each.scores(rows), has[rows].float()) * known
                counts = ~(self.changed[rows] & (wrong > 0.5))
                self.total[rows] += (wrong * counts).to(self.total)
                self.seen[rows] += counts
        wrong = self.total / self.seen.clamp_min(1)
        self.changed.copy_(wrong >= self.least)
        top = nearest_sets(has ^ self.changed, self.sets, y)
        shares = [float(share[known.to(share.device)].mean()) for share in (noise.missing, noise.superfluous)]
        facts: dict[str, float] = {"missing labels": shares[0], "superfluous labels": shares[1]}
        return Relabelling(
            y=top, w=torch.ones_like(wrong[:, 0]), suspicion=wrong.max(1).values, threshold=0.5, facts=facts
        )


def nearest_sets(wanted: Bool[Tensor, "N L"], sets: Bool[Tensor, "S L"], y: Int[Tensor, "N"]) -> Int[Tensor, "N"]:
    """Return the class whose label set differs least from the wanted set, the first of ties; `y` if no other differs less."""
    table, size, found = sets.float(), sets.sum(1).float(), y.clone()
    for rows in (wanted != sets[y]).any(1).nonzero()[:, 0].split(max(1, SCORE_BLOCK_SIZE // len(sets))):
        apart = wanted[rows].sum(1, keepdim=True) + size - 2 * wanted[rows].float() @ table.T
        least, place = apart.min(1)
        own = apart.gather(1, y[rows, None])[:, 0]
        found[rows] = torch.where(least < own, place, y[rows])
    return found
