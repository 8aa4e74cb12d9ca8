"""Every part on a registry keeps its contract, and every check catches a part made to break it."""

import numpy as np
import pytest
import torch
from bare_work import LOSSES, check_fault, check_spec
from likewise.contracts import BatchSampler, Confidence, Miner, NoiseModel, QueryMetric, SetMetric, Term
from likewise.losses import MultiSimilarity, Triplet
from likewise.metrics import metric
from likewise.miners import SemiHard
from likewise.relevance import SharedLabels
from likewise.terms import language_guidance as guidance
from likewise.types import Items, Pairs, Relabelling, SampleWeights

from likewise import confidence, metrics, miners, noise, samplers, terms
from likewise.core.settings.spec import build
from likewise.models.pretrained.encoders import PretrainedNetwork
from likewise.score.metrics.ranking import recall_at
from likewise.testing import (
    CHECK_CLASSES,
    CHECK_DIM,
    CHECK_LABELS,
    check_confidence,
    check_label_noise,
    check_metric,
    check_miner,
    check_noise,
    check_reader,
    check_sampler,
    check_term,
)
from likewise.testing.loss import ONE_GRAPH


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(name, bare):
    bare(check_spec, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "MultiSimilarity(miner=None)",
        "Contrastive(miner=SemiHard())",
        "Contrastive(miner=HardPairs())",
        "Triplet(squared=True)",
        "Triplet(miner=Random(per_anchor=False))",
        "AdaptiveHierarchical(space='hyperbolic')",
        "AdaptiveHierarchical(form='triplet')",
        "AdaptiveHierarchical(form='lifted')",
        "Contrastive(margin=2.7, space='hyperbolic')",
        "Triplet(squared=True, space='hyperbolic')",
        "MultiSimilarity(space='hyperbolic')",
        "Histogram(space='hyperbolic')",
        "ForwardCorrection(share=0.0)",
        "ForwardCorrection(temperature=None)",
        "ProxyNCA(squared=False)",
        "Margin(count='all')",
        "SNR(count='all')",
        "Triplet(miner=SemiHard(upper=False))",
        *(f"Triplet(miner={name}())" for name in miners.__all__ if getattr(miners, name).yields == "triplets"),
    ],
)
def test_losses_with_other_miners(text, bare):
    bare(check_spec, text)


@pytest.mark.parametrize("name", miners.__all__)
def test_every_miner(name):
    check_miner(lambda: build(name, Miner, classes=CHECK_CLASSES))


@pytest.mark.parametrize("name", samplers.__all__)
def test_every_sampler(name):
    """Each class has a label of its own, and one that it shares with another."""
    facts = {"label_sets": [(c, 6 + c // 2) for c in range(6)]}
    facts["relevance"] = SharedLabels(facts["label_sets"], threshold=0.3)
    per = {"SamplesPerLabel": ", per_label=2", "RelatedSamples": ", per_anchor=2"}.get(name, "")
    text = f"{name}(batch=6{per})"
    check_sampler(lambda labels, seed: build(text, BatchSampler, labels=labels, seed=seed, **facts), 6)


@pytest.mark.parametrize(
    "text",
    [
        "SamplesPerClass(batch=6, with_replacement=True)",
        "SamplesRandom(batch=6, with_replacement=True)",
        "GreedyCoreset(batch=6, pool=12, published_indices=True)",
        "GreedyCoreset(batch=6, per_class=3, pool=12)",
        "DistanceMatching(batch=6, per_class=1, pool=12, published_cost=True)",
        "DistanceMatching(batch=6, pool=12, candidates=3)",
        "FrechetMatching(batch=6, pool=12, candidates=3)",
    ],
)
def test_samplers_with_other_settings(text):
    check_sampler(lambda labels, seed: build(text, BatchSampler, labels=labels, seed=seed), 6)


SEVERAL_LABELS = ["AddLabels", "DropLabels"]


@pytest.mark.parametrize("name", [*SEVERAL_LABELS, "Uniform"])
@pytest.mark.parametrize("exact", [True, False])
def test_every_noise_model_for_several_labels(name, exact):
    check_label_noise(lambda share: build(f"{name}(share={share}, exact={exact})", NoiseModel))


@pytest.mark.parametrize("name", [one for one in noise.__all__ if one not in SEVERAL_LABELS])
def test_every_noise_model(name):
    names = [f"class {number}" for number in range(70)]
    facts = {
        "class_names": names,
        "taxonomy": {one: (f"kind {number % 3}",) for number, one in enumerate(names)},
        "features": np.random.default_rng(2).normal(size=(2000, 3)).astype(np.float32),
    }
    share = 0.28 if name == "SmallCluster" else 0.3  # whole classes of a tenth each: three pass 0.28 by little
    check_noise(lambda share: build(f"{name}(share={share})", NoiseModel, **facts), share)


@pytest.mark.parametrize(
    "name",
    [
        n
        for name in metrics.NAMES
        if not metrics.is_tree_metric(n := name.replace("@k", "@1")) and n != "triplet-agreement"
    ],
)
def test_every_metric(name):
    """Metrics of the class tree take a TreeRetrieval; tests/score/metrics/test_tree.py has them."""
    check_metric(
        metric(name), best=0.5 if name.endswith(("/C", "@C")) else 1.0
    )  # the study counts the query: R / (R + 1)


@pytest.mark.parametrize(
    "text",
    [
        *confidence.__all__,
        "ProcSim(threshold='mean')",
        "ProcSim(threshold='mixture', weigh_proxies=True)",
        "ProcSim(score_by='margin', tau_factor=0.5)",
        "ProcSim(lam=0.1, beta0=-0.5, ddof=1)",
        "SuperLoss(tau='ema')",
        "SuperLoss(tau='log_classes')",
        "PRISM(share=0.3, window=1, memory=6, warmup=2)",
        "N2D2(neighbours=3, least=0.8, memory=6)",
        "CoTeaching(share=0.4, ramp='1')",
        "CoTeachingPlus(share=0.4, start='0')",
        "LabelPosterior(repair=False, least=0.9)",
    ],
)
def test_every_confidence(text):
    facts = {
        "classes": CHECK_CLASSES,
        "dim": CHECK_DIM,
        "labels": CHECK_LABELS,
        "label_sets": tuple((c, CHECK_CLASSES) if c % 2 else (c,) for c in range(CHECK_CLASSES)),
        "seed": 0,
        "per_pass": 2,
        "steps": 8,
        "share": 0.2,
    }
    check_confidence(lambda: build(text, Confidence, **facts))


@pytest.mark.parametrize(
    "text",
    [
        *terms.__all__,
        "LanguageGuidance(level='sample', mask_same_label=False, direction='language')",
        "LanguageGuidance(by='names', temperature=2)",
        "LanguageGuidance(by='images')",
        "S2SD(delay=0)",
        "Ensemble(balanced=True, reconstruction=0.5)",
        "DiVA(memory=5, rho=0.5)",
        "MIC(clusters=3, every=2, random_share=0)",
        "IntraBatch(layers=2, concatenate=True, dropout=0)",
    ],
)
def test_every_term(text, monkeypatch):
    inner = (lambda: Triplet(miner=SemiHard())) if text.startswith("DiVA") else MultiSimilarity
    facts = {"per_pass": 1, "steps": 6, "dims": (5, 7), "make_loss": lambda dim, classes=0: inner()}
    facts |= {"labels": np.array(CHECK_LABELS), "dim": CHECK_DIM, "seed": 0, "classes": CHECK_CLASSES}

    class Pixels(torch.nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :6]

    def encode(texts):
        return torch.stack([torch.randn(8, generator=torch.Generator().manual_seed(sum(map(ord, t)))) for t in texts])

    looker = PretrainedNetwork(Pixels(), 4, (0.0,) * 3, (1.0,) * 3)
    monkeypatch.setattr(guidance, "load_classifier", lambda name, weights: (looker, tuple("abcdef")))
    monkeypatch.setattr(guidance, "load_image_encoder", lambda name, weights: looker)
    monkeypatch.setattr(guidance, "text_encoder", lambda name, device: encode)
    check_term(lambda network: build(text, Term, embedder=network, **facts))


def test_the_plain_loss_passes(bare):
    bare(check_fault, "")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("mean", "12 samples must give 12 values"),
        ("nan", "not finite"),
        ("root", "gradient not finite where"),
        ("order", "order of samples matters"),
        ("inputs", "inputs were changed"),
        ("types", "parameters changed their type"),
        ("sixteen", "must give|not finite float32"),
        ("state", "restored from its state differs"),
        ("reference", "batch as reference"),
        ("float labels", "labels above 2.24"),
        ("argument", "spec does not come back"),
        ("curvature", "second derivative differs"),
        pytest.param(
            "graph",
            "does not compile as one graph",
            marks=pytest.mark.skipif(not ONE_GRAPH, reason="an older compiler"),
        ),
        ("compiled", "compiled, it gives other values"),
        ("waits", "which is a device sync"),
    ],
)
def test_a_faulty_loss_is_caught(fault, says, bare):
    with pytest.raises(AssertionError, match=says):
        bare(check_fault, fault)


class TakesAll(Miner):
    def __call__(self, sim, pairs, dim, margin=None):
        return Pairs(torch.ones_like(pairs.pos), pairs.neg)


class Unseeded(Miner):
    def __call__(self, sim, pairs, dim, margin=None):
        draw = torch.as_tensor(np.random.default_rng().random(sim.shape)) < 0.5
        return Pairs(pairs.pos & draw, pairs.neg & draw)


@pytest.mark.parametrize(("bad", "says"), [(TakesAll, "no positive"), (Unseeded, "same seed")])
def test_a_faulty_miner_is_caught(bad, says):
    with pytest.raises(AssertionError, match=says):
        check_miner(bad)


class Stuck(BatchSampler):
    def __init__(self, labels, seed, fault):
        self.labels, self.seed, self.fault = labels, seed, fault

    def __len__(self):
        return 3

    def epoch_batches(self, number):
        seed = 0 if self.fault == "seed" else self.seed
        size = 5 if self.fault == "size" else 6
        order = np.random.default_rng((seed, number)).permutation(len(self.labels))
        if self.fault == "rows":
            order = order + len(order)
        batches = order[: 3 * size].reshape(3, size).tolist()
        return batches[:2] if self.fault == "short" else batches

    def load_state_dict(self, state):
        if self.fault != "state":
            super().load_state_dict(state)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("seed", "another seed"),
        ("size", "wrong size"),
        ("rows", "does not exist"),
        ("short", "epoch must have"),
        ("state", "restored"),
    ],
)
def test_a_faulty_sampler_is_caught(fault, says):
    check_sampler(lambda labels, seed: Stuck(labels, seed, ""), 6)
    with pytest.raises(AssertionError, match=says):
        check_sampler(lambda labels, seed: Stuck(labels, seed, fault), 6)


class Watcher(BatchSampler):
    """Sorts rows by their embeddings; one that looks at embeddings can fail in ways of its own."""

    def __init__(self, labels, seed, fault):
        self.labels, self.seed, self.fault, self.z, self.chosen = labels, seed, fault, None, (-1, [])

    def __len__(self):
        return 3

    def start(self, embed):
        if self.z is None or self.fault == "refills":
            self.z = embed().z[:, 0].clone()

    def observe(self, z, row):
        self.z[row] = z[:, 0]

    def epoch_batches(self, number):
        if self.chosen[0] != number:
            order = (self.z + np.random.default_rng((self.seed, number)).normal(size=len(self.z))).argsort()
            self.chosen = (number, order[:18].reshape(3, 6).tolist())
        return self.chosen[1]

    def state_dict(self):
        z = self.z.numpy() if self.fault == "arrays" else self.z
        return super().state_dict() | {"z": z, "chosen": (-1, []) if self.fault == "forgets" else self.chosen}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.z, self.chosen = state["z"], state["chosen"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("refills", "requested new ones"),
        ("forgets", "returns other batches after step 1"),
        ("arrays", "tensors and plain values only"),
    ],
)
def test_a_faulty_sampler_that_looks_at_embeddings_is_caught(fault, says):
    check_sampler(lambda labels, seed: Watcher(labels, seed, ""), 6)
    with pytest.raises(AssertionError, match=says):
        check_sampler(lambda labels, seed: Watcher(labels, seed, fault), 6)


class Sloppy(NoiseModel):
    """Draws any class, the own one included: fewer labels become wrong than asked for."""

    def __init__(self, share):
        self.share = share

    def __call__(self, y, rng):
        return np.where(rng.random(len(y)) < self.share, rng.permutation(y), y) if self.share else y


def test_a_faulty_noise_model_is_caught():
    with pytest.raises(AssertionError, match="of the labels are wrong"):
        check_noise(lambda share: Sloppy(share / 2))


def test_a_faulty_metric_is_caught():
    with pytest.raises(AssertionError, match="NaN"):
        check_metric(lambda found: torch.ones(len(found.relevant)))
    with pytest.raises(AssertionError, match="must score 1"):
        check_metric(lambda found: metric("RP")(found) * 0.9)


class Spread(SetMetric):
    """Length of the mean embedding, to spoil in one way at a time."""

    def __init__(self, fault: str = ""):
        self.fault = fault

    def __call__(self, z, y):
        if self.fault == "inputs":
            z.mul_(2)
        value = z.mean(0).norm()
        if self.fault == "order":
            return float(z[0, 0])
        return value if self.fault == "tensor" else float(value + ((y == 0).sum() if self.fault == "classes" else 0))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("tensor", "one number, got a Tensor"),
        ("inputs", "inputs were changed"),
        ("order", "the order of the rows changed the value"),
        ("classes", "the numbering of the classes changed the value"),
    ],
)
def test_a_faulty_metric_of_the_set_is_caught(fault, says):
    check_metric(Spread())
    with pytest.raises(AssertionError, match=says):
        check_metric(Spread(fault))


class Deep(QueryMetric):
    """Whether one of the first three answers is right; it looks three ranks deep."""

    depth = 3

    def __call__(self, found):
        return recall_at(found, 3)


def test_a_metric_that_looks_deeper_is_given_deeper_rankings():
    check_metric(Deep())


def test_a_faulty_reader_is_caught(tmp_path):
    draws = np.random.default_rng(0)

    def read(y=(0, 1), fresh=False):
        x = (draws if fresh else np.random.default_rng(0)).normal(size=(2, 3)).astype(np.float32)
        return Items("two", np.array(y), ("a", "b"), x=x)

    def pictures():
        return Items("two", np.array([0, 1]), ("a", "b"), path=("a.png", "b.png"), root=str(tmp_path))

    check_reader(read)
    for bad, says in (
        (lambda: read(y=(0, 2)), "y is not within 0 to 1"),
        (lambda: read(fresh=True), "called twice, the reader returns different data"),
        (pictures, "a.png"),
        (lambda: [read()], "must return likewise.types.Items"),
    ):
        with pytest.raises(AssertionError, match=says):
            check_reader(bad)


class Doubt(Confidence):
    """A sound confidence, to spoil in one way at a time."""

    needs_loss, every = True, "1e"

    def __init__(self, fault: str = "", scale: int = 0):
        super().__init__()
        self.fault = fault
        self.scale = scale + (fault == "argument")
        self.bias = torch.randn(())  # drawn, and in no state
        self.seen, self.believed = None, 1.0
        self.register_buffer("mean", torch.ones(()))

    def forward(self, z, y, row, loss):
        each = loss if self.fault == "gradient" else loss.detach()
        w = (self.believed / (1 + (each / self.mean).square())).nan_to_num()
        self.seen = loss.detach().nan_to_num().mean()
        match self.fault:
            case "shape":
                w = w[:1]
            case "below":
                w = w - 1
            case "finite":
                w = w / (loss - loss.mean()).abs()
            case "broken loss":
                w = w + 0 * loss.detach()
            case "partner":
                return SampleWeights(w, partner=w)
            case "suspicion":
                return SampleWeights(w, suspicion=w.mean())
            case "threshold":
                return SampleWeights(w, threshold=w)
            case "mean":
                return SampleWeights(w, mean_over="all")
            case "other":
                return w
            case "inputs":
                loss += 1
            case "draws":
                w = w * torch.rand(len(y))
            case "order":
                w = w * torch.arange(1, len(y) + 1)
            case "sixteen":
                w = w.to(z.dtype)
            case "state":
                w = w * self.bias.exp()
            case "waits":
                w = w * (2 if z.device.type == "meta" and bool((w > 0).any()) else 1)
        return SampleWeights(w, suspicion=each.detach())

    def after_step(self, step):
        if self.seen is not None and self.fault != "types":
            self.mean.copy_(self.mean * 0.9 + self.seen * 0.1)
        elif self.fault == "types" and step > 3:
            self.mean = self.mean.double()

    def relabel(self, e):
        match self.fault:
            case "verdict":
                return e.y
            case "short":
                return Relabelling(e.y[:5], torch.ones(5))
            case "class":
                return Relabelling(e.y + 1, torch.ones(12))
            case "weight":
                return Relabelling(e.y, -torch.ones(12))
            case "moody":
                return Relabelling(e.y, torch.rand(12))
            case "given":
                e.f.zero_()
            case "forgets":
                self.believed = 0.5
        return Relabelling(e.y, torch.ones(12))


def test_the_plain_confidence_and_the_plain_term_pass():
    check_confidence(Doubt)
    check_term(Beside)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("shape", "12 samples must give 12 weights"),
        ("below", "not finite, or below 0"),
        ("finite", "where all samples are equal: a weight is not finite|for a batch of 1: a weight is not finite"),
        ("broken loss", "where a loss is not finite"),
        ("partner", "must be a mask"),
        ("suspicion", "suspicion must have one value per sample"),
        ("threshold", "must be one number"),
        ("mean", "'batch' or 'kept', got 'all'"),
        ("other", "must return SampleWeights, got Tensor"),
        ("gradient", "a gradient flows"),
        ("inputs", "inputs were changed"),
        ("types", "changed its type"),
        ("draws", "called twice, it returns"),
        ("order", "order of samples matters"),
        ("sixteen", "weights must be float32"),
        ("verdict", "must return a Relabelling or None"),
        ("short", "one label and one weight"),
        ("class", "a label that is not among the classes"),
        ("weight", "weight of a relabelling"),
        ("moody", "the relabelling differs"),
        ("given", "inputs were changed"),
        ("forgets", "restored from its state, it returns other"),
        ("argument", "spec does not come back"),
        ("state", "restored from its state, it returns other"),
        ("waits", "which is a device sync"),
    ],
)
def test_a_faulty_confidence_is_caught(fault, says, unchecked):
    with pytest.raises(AssertionError, match=says):
        check_confidence(lambda: Doubt(fault))


class Beside(Term):
    """A sound term, to spoil in one way at a time."""

    def __init__(self, embedder, fault: str = "", scale: int = 0):
        super().__init__()
        if fault == "network":
            self.embedder = embedder
        else:
            self.__dict__["embedder"] = embedder
        self.fault = fault
        self.scale = scale + (fault == "argument")
        self.bias, self.prepared = torch.randn(()), 0
        self.register_buffer("ramp", torch.zeros(()))

    def prepare(self, given):
        assert sum(len(place) for _, place in given.pictures(None)) == len(given.labels) == 12
        self.prepared += 1

    def forward(self, out, batch):
        each = (1 + self.ramp) * (out.z @ out.z.T).float().square().mean(1)
        match self.fault:
            case "mean":
                return each.mean()
            case "nan":
                return each / (len(batch.y) - 1)
            case "constant":
                return each.detach() + 0 * out.z.sum(1)
            case "steep":
                return each + (out.z - out.z.detach()).norm(dim=1).sqrt()
            case "inputs":
                out.f.detach().zero_()
            case "changes the network":
                self.embedder.body.bias.data.add_(1)
            case "sixteen":
                return out.z @ out.z.sum(0)
            case "order":
                return each * torch.arange(1, len(batch.y) + 1)
            case "prepared":
                return each * self.prepared
            case "state":
                return each * self.bias
            case "waits":
                return each * (2 if out.z.device.type == "meta" and bool((batch.y > 0).any()) else 1)
        return each

    def after_step(self, step):
        self.ramp.fill_(step)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("mean", "12 samples must give 12 values"),
        ("nan", "not finite for a batch of 1"),
        ("constant", "no gradient reaches"),
        ("steep", "gradient not finite"),
        ("network", "saved a second time"),
        ("inputs", "inputs were changed"),
        ("changes the network", "the network was changed"),
        ("sixteen", "not finite float32"),
        ("order", "order of samples matters"),
        ("prepared", "prepared again, it gives"),
        ("argument", "spec does not come back"),
        ("state", "restored from its state, it returns other"),
        ("waits", "which is a device sync"),
    ],
)
def test_a_faulty_term_is_caught(fault, says):
    with pytest.raises(AssertionError, match=says):
        check_term(lambda network: Beside(network, fault))


def test_a_term_may_say_that_it_waits(monkeypatch):
    monkeypatch.setattr(Beside, "syncs", True)
    check_term(lambda network: Beside(network, "waits"))
