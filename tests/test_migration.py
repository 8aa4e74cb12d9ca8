"""The tables of docs/from-pytorch-metric-learning.md, run: rows that claim the same number agree, the others differ."""

import re
from pathlib import Path

import likewise.losses
import likewise.miners
import pytest
import torch
from likewise.metrics import metric
from likewise.relevance import GivenValues, SharedLabels
from likewise.samplers import SamplesPerClass
from likewise.similarity import compare
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers, samplers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch.nn import functional as F

from likewise.core.retrieval.ranking import rank

PAGE = (Path(__file__).parent.parent / "docs" / "from-pytorch-metric-learning.md").read_text("utf-8")
THEIRS = {
    "losses": losses,
    "miners": miners,
    "distances": distances,
    "reducers": reducers,
    "regularizers": regularizers,
}
OURS = {name: getattr(registry, name) for registry in (likewise.losses, likewise.miners) for name in registry.__all__}
Y = torch.arange(6).repeat_interleave(4)

pytestmark = pytest.mark.parity


def rows(section: str, columns: int = 4) -> list[list[str]]:
    """The cells of the tables below a heading, without their heads."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return [cells for cells in lines[2:] if len(cells) == columns]


def cases(section: str):
    return [pytest.param(*cells[:3], id=cells[1].strip("`")) for cells in rows(section)]


def code(cell: str, names: dict) -> list:
    return [eval(text, dict(names)) for text in re.findall(r"`([^`]+)`", cell)]


def embeddings(seed: int = 0) -> torch.Tensor:
    """Classes that overlap, none of unit length."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(6, 8, generator=g, dtype=torch.float64)[Y] + torch.randn(24, 8, generator=g, dtype=torch.float64)


def give_weights(mine: torch.nn.Module, other: torch.nn.Module) -> None:
    """What theirs learns, in the layout of ours."""
    for name, theirs in other.named_parameters():
        if name in ("proxies", "W"):
            mine.proxies.data = theirs.data.T.clone() if name == "W" else theirs.data.clone()
        elif name == "fc":  # the centres of a class side by side; ours: first all first centres
            mine.centres.data = theirs.data.T.view(6, -1, 8).transpose(0, 1).reshape(-1, 8).clone()


def both(left: str, right: str) -> tuple[list[float], list[torch.Tensor]]:
    """The two numbers of a row, and the gradients by the embeddings. Memories see two batches before."""
    torch.manual_seed(0)
    other, *miner = code(left, THEIRS)
    (mine,) = code(right, OURS)
    mine, other = mine.double(), other.double()
    give_weights(mine, other)
    for seed in (1, 2) if mine.remembers else ():
        mine(F.normalize(embeddings(seed), dim=1), Y)
        mine.after_step(seed)
        other(embeddings(seed), Y)
    unit = F.normalize(embeddings(), dim=1) if "SNRDistance" in left else embeddings()  # told not to normalise
    a, b = unit.clone().requires_grad_(), unit.clone().requires_grad_()
    first = mine(F.normalize(a, dim=1) if mine.input == "unit" else a, Y).mean()
    second = other(F.normalize(b, dim=1) if "SNRDistance" in left else b, Y, miner[0](b, Y) if miner else None)
    grads = torch.autograd.grad(first, a) + torch.autograd.grad(second, b)
    return [first.item(), second.item()], list(grads)


@pytest.mark.parametrize(("left", "right", "same"), cases("Losses"))
def test_losses(left, right, same):
    (mine, other), (slope, other_slope) = both(left, right)
    assert mine > 0.01
    if same == "no":
        assert mine != pytest.approx(other, rel=1e-3)
        return
    assert same in ("yes", "value")
    assert mine == pytest.approx(other, rel=1e-5)
    assert slope.abs().max() > 1e-4
    assert torch.allclose(slope, other_slope, rtol=1e-4, atol=1e-6) == (same == "yes")


def test_the_page_names_every_loss_and_miner_of_theirs():
    for registry in (losses, miners):
        wanted = {name for name, thing in vars(registry).items() if isinstance(thing, type)}
        wanted -= {name for name in wanted if name.startswith("Base") or name.endswith("Mixin")}
        wanted -= {"EmbeddingsAlreadyPackagedAsTriplets"}  # a layout of the batch, no choice
        assert [name for name in sorted(wanted) if not re.search(rf"\b{name}\b", PAGE)] == []


@pytest.mark.parametrize(("left", "right", "same"), cases("Miners"))
def test_miners(left, right, same):
    z = F.normalize(embeddings(), dim=1)
    torch.manual_seed(0)
    (other,), (mine,) = code(left, THEIRS), code(right, OURS)
    sim, pairs = compare(z, Y)
    found = mine(sim, pairs, 8, 0.2)
    chosen = other(z, Y)
    if mine.yields == "pairs":
        a, p, again, n = chosen
        ours = {*map(tuple, found.pos.nonzero().tolist())}, {*map(tuple, found.neg.nonzero().tolist())}
        theirs = {*zip(a.tolist(), p.tolist())}, {*zip(again.tolist(), n.tolist())}
    else:
        ours = {*zip(*(side[found.valid].tolist() for side in (found.a, found.p, found.n)))}
        theirs = {*zip(*(side.tolist() for side in (chosen if len(chosen) == 3 else (*chosen[:2], chosen[3]))))}
    assert (ours == theirs) == (same == "yes")


def test_batches():
    (left, right, *_), *_ = rows("Batches", 2)
    names = {"labels": Y.numpy(), "SamplesPerClass": SamplesPerClass, "samplers": samplers}
    (other,), (mine, *_) = code(left, names), code(right.split(":")[0], names)
    for batch in (next(iter(mine)), list(other)[:24]):
        assert sorted(Y[batch].bincount(minlength=6).tolist()) == [4] * 6


def test_metrics():
    z = F.normalize(embeddings(), dim=1)
    found = rank(z, Y, k=5, all_hits=True)  # for mAP
    names = [[cell.strip("`") for cell in cells] for cells in rows("Evaluation", 2)]
    theirs = AccuracyCalculator([name for name, _ in names], k=None, device=torch.device("cpu")).get_accuracy(
        z.float(), Y
    )
    for name, ours in names:
        assert float(metric(ours)(found).nanmean()) == pytest.approx(theirs[name], abs=1e-6), ours


@pytest.mark.parametrize("kind", ["labels", "matrix"])
def test_a_hand_made_mask_of_shared_labels_is_a_relevance(kind):
    """Value and gradient are those of PML with pairs made by hand; in float64 only the order of the sums differs."""
    sets = [(0, 2), (0, 3), (1, 2), (1, 3), (0, 2, 3), (1,)]
    has = torch.zeros(6, 4)
    for row, labels in enumerate(sets):
        has[row, list(labels)] = 1
    pos = (has @ has.T > 0)[Y][:, Y]
    pairs = (pos & ~torch.eye(24, dtype=torch.bool)).nonzero(as_tuple=True) + (~pos).nonzero(as_tuple=True)
    relevance = GivenValues(pos.float()) if kind == "matrix" else SharedLabels(sets, measure="any")
    ids = torch.arange(24) if kind == "matrix" else Y
    a, b = embeddings().requires_grad_(), embeddings().requires_grad_()
    loss = likewise.losses.MultiSimilarity(beta=50, miner=None).with_relevance(relevance)
    mine, other = loss(F.normalize(a, dim=1), ids).mean(), losses.MultiSimilarityLoss()(b, indices_tuple=pairs)
    assert mine.item() == pytest.approx(other.item(), rel=1e-6) and mine > 0.01
    grads = torch.autograd.grad(mine, a) + torch.autograd.grad(other, b)
    assert torch.allclose(*grads, rtol=1e-5, atol=1e-8)
