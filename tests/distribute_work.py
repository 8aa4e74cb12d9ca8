"""What the processes of test_distribute do: rank the same data together, and train on one batch together."""

import dataclasses
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from likewise.confidence import PRISM, ProcSim
from likewise.losses import CrossBatchMemory, MultiSimilarity
from likewise.metrics import RankingDepth
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.terms import LanguageGuidance
from likewise.types import Batch, Embedded, Items, Output

from likewise.core.distributed.collectives import share, world
from likewise.core.distributed.process_group import any_process, broadcast_from_first, first_process_first
from likewise.learn.training.step import Objective, gather_outputs
from likewise.score.retrieve import Scoring, retrieve
from likewise.score.tree_levels import plan_levels


def rank_all() -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)
    y = np.arange(61) % 7
    x = (rng.normal(size=(7, 6))[y] + rng.normal(size=(61, 6))).astype(np.float32)
    x[10:20] = x[10]
    x[40] = x[3]
    group = np.where(np.arange(61) % 9 == 0, 1, -1)
    tree = {name: ("first" if name < "d" else "second",) for name in "abcdefg"}
    marked = Items(
        "toy", y, tuple("abcdefg"), x=x, query=np.arange(61) < 31, gallery=np.arange(61) >= 5, group=group,
        camera=(np.arange(61) // 7 % 3).astype(str), taxonomy=tree,
    )  # fmt: skip
    e = Embedded(torch.as_tensor(x), torch.as_tensor(y), torch.arange(61))
    out = {}
    pairs = np.array([[1, 40], [12, 13], [50, 8]])
    for name, items, protocol in (
        ("sides", marked, QueryGallery()),
        ("all", dataclasses.replace(marked, query=None, gallery=None), UnseenClasses()),
    ):
        for deep in (False, True):
            for levels in (None, plan_levels(["MAP@R:level1"], items, e.y)):
                found = retrieve(e, Scoring(items, protocol, exclude=pairs), RankingDepth(12, deep), levels=levels)
                for field in dataclasses.fields(found):
                    if (value := getattr(found, field.name)) is not None:
                        out[f"{name} {deep} {levels is None} {field.name}"] = value.nan_to_num()
    return out


SAMPLES, CLASSES, DIM = 24, 5, 6


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(7, 8), torch.nn.Linear(8, DIM)

    def forward(self, x: torch.Tensor) -> Output:
        f = self.body(x).tanh()
        e = self.head(f)
        return Output(torch.nn.functional.normalize(e, dim=1), e, f)


def make_objective(name: str) -> Objective:
    if name == "PRISM":
        doubt = PRISM(CLASSES, DIM, np.arange(SAMPLES) % CLASSES, share=0.25, window=2)
        parts = [CrossBatchMemory(DIM, size=SAMPLES)], doubt, []
    else:
        guidance = LanguageGuidance(weight=2.0, level="sample", weighted=True)
        guidance.table = torch.nn.functional.normalize(torch.randn(9, 4), dim=1)
        guidance.index = torch.randint(0, 9, (SAMPLES, 2))
        parts = [MultiSimilarity()], ProcSim(CLASSES, DIM, lam=0.1, lr=0.05), [guidance]
    for part in (*parts[0], parts[1], *parts[2]):
        part.double()
    return Objective(*parts)


def train_together(name: str) -> dict[str, torch.Tensor]:
    """Three steps, each process with its share of every batch: all gradients, and how far labels were believed."""
    torch.manual_seed(0)
    network, objective = Network().double(), make_objective(name)
    x, weight = torch.randn(SAMPLES, 7, dtype=torch.float64), torch.rand(SAMPLES, dtype=torch.float64) + 0.5
    found = {}
    for step in range(3):
        rows = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(step))[:13]
        mine = x[rows[share(len(rows))]]
        out = gather_outputs(network(mine), len(rows), world()[1])
        value, (trust,), _ = objective([out], Batch(mine, rows % CLASSES, rows), weight[rows])
        network.zero_grad()
        value.backward()
        for key, p in network.named_parameters():
            if world()[1] > 1:
                dist.all_reduce(p.grad)
            found[f"{step} {key}"] = p.grad.clone()
            p.data -= 0.1 * p.grad
        found |= {f"{step} value": value.detach(), f"{step} w": trust.w}
        for part in (*objective.losses, objective.confidence, *objective.terms):
            part.after_step(step + 1)
    return found


def agree() -> dict[str, torch.Tensor]:
    """Who says what, and who comes when: the order in which processes were at work."""
    me, many = world()
    moments = []
    first_process_first(lambda: moments.append(time.monotonic()))
    mine = torch.tensor(moments, dtype=torch.float64)
    return {
        "anybody": torch.tensor(any_process(me == many - 1, False)),
        "same": broadcast_from_first(torch.arange(3) + me),
        "not before the first": mine >= broadcast_from_first(mine.clone()),
    }


def everything() -> dict[str, dict[str, torch.Tensor]]:
    return {
        "agree": agree(),
        "rank": rank_all(),
        "ProcSim": train_together("ProcSim"),
        "PRISM": train_together("PRISM"),
    }


def start_all(processes: int, folder) -> list[dict[str, dict[str, torch.Tensor]]]:
    mp.spawn(work, (processes, str(folder)), nprocs=processes)
    return [torch.load(f"{folder}/{i}.pt") for i in range(processes)]


def work(me: int, many: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=me, world_size=many)
    try:
        torch.save(everything(), f"{folder}/{me}.pt")
    finally:
        dist.destroy_process_group()
