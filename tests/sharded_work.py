"""What the processes of test_sharded do: work out losses whose proxies they share, learn, and store and read what they hold."""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from likewise.contracts import Loss
from likewise.losses import ArcFace, NormSoftmax, ProxyNCA
from likewise.types import LikewiseError
from torch import nn
from torch.nn import functional as F

from likewise.core.distributed.collectives import gathered, world
from likewise.core.distributed.sharded_proxies import (
    full_optimizer_state,
    gradient_norm,
    own,
    own_optimizer_state,
    shard,
    whole,
)
from likewise.core.settings.spec import build

CLASSES, DIM = 7, 5  # neither two nor three processes share seven classes evenly
SPECS = (
    "NormSoftmax()", "NormSoftmax(temperature=1.0)", "ArcFace()", "ArcFace(scale=64.0, margin=0.0)", "ArcFace(margin=1.5)",
    "CosFace()", "CosFace(scale=5.0, margin=0.0)", "ProxyNCA()", "ProxyNCA(scale=1.0)", "ProxyNCA(positive_in_denominator=True)",
    "Softmax()",
)  # fmt: skip
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9),
}
LEFT_AT = 3
"""After so many of five steps three processes store what they have."""


def made(text: str) -> Loss:
    torch.manual_seed(1)
    loss = build(text, Loss, classes=CLASSES, dim=DIM).double()
    shard(loss)
    return loss


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Nine samples, two of them on the far side of their own proxies or on one: where formulas bend."""
    draw = torch.Generator().manual_seed(seed)
    z = F.normalize(torch.randn(9, DIM, generator=draw, dtype=torch.float64), dim=1)
    y = torch.tensor([0, 0, 1, 2, 3, 4, 5, 6, 6])
    torch.manual_seed(1)
    unit = F.normalize(NormSoftmax(CLASSES, DIM).proxies.detach().double(), dim=1)
    z[0], z[8] = -unit[0], unit[6]
    return z, y


def look(text: str) -> dict[str, torch.Tensor]:
    """Numbers, gradients and guesses of one loss; how many matrices of logits it keeps."""
    loss, (z, y) = made(text), batch()
    z.requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        each = loss(z, y)
    (each * torch.arange(1.0, 10.0)).sum().backward()
    spoiled = torch.cat([z.detach(), torch.full((1, DIM), torch.nan, dtype=torch.float64)])
    return {
        "each": each.detach(), "z": z.grad, "proxies": gathered(loss.proxies.grad, CLASSES),
        "guess": loss.predict(spoiled)[:9], "guess of NaN": loss.predict(spoiled)[9], "held": torch.tensor(len(loss.proxies)),
        "kept": torch.tensor(sum(shape == (9, len(loss.proxies)) for shape in kept)),
    }  # fmt: skip


def by_hand_case() -> torch.Tensor:
    found = []
    for loss in (NormSoftmax(3, 2, temperature=1.0), ProxyNCA(3, 2, scale=1.0), ArcFace(3, 2, scale=2.0, margin=0.5)):
        loss.double().proxies.data = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]], dtype=torch.float64)
        shard(loss)
        found.append(loss(torch.tensor([[0.6, 0.8]], dtype=torch.float64), torch.tensor([1])))
    return torch.cat(found).detach()


def learn(name: str, folder: Path) -> dict[str, torch.Tensor]:
    """A network and its loss after five steps. Three processes store their state on the way; others go on from it."""
    torch.manual_seed(2)
    body = nn.Linear(DIM, DIM).double()
    both = nn.ModuleDict({"body": body, "inner": made("ArcFace()")})
    optimizer = OPTIMIZERS[name](both.parameters())
    file, start = folder / f"{name}.pt", 0
    if file.exists():
        state = torch.load(file)
        both.load_state_dict(own(both, state["tensors"]))
        optimizer.load_state_dict(own_optimizer_state(optimizer, state["memory"], [both]))
        start = LEFT_AT
    for step in range(start, 5):
        if step == LEFT_AT and world()[1] == 3:
            state = {"tensors": whole(both), "memory": full_optimizer_state(optimizer, [both])}
            if world()[0] == 0:
                torch.save(state, file)
            else:  # a part of the proxies is never taken for all of them
                assert "inner.proxies" not in state["tensors"] and state["memory"]["state"][2].keys() <= {"step"}
        x, y = batch(step)
        optimizer.zero_grad()
        both.inner(F.normalize(body(x), dim=1), y).mean().backward()
        norm = gradient_norm([body, both.inner])
        optimizer.step()
    proxies = gathered(both.inner.proxies.detach(), CLASSES)
    return {"body": body.weight.detach(), "proxies": proxies, "norm": norm}


def refusals() -> dict[str, str]:
    """What is said where sharing out is impossible."""
    found = {}
    for text, classes in (("NormSoftmax()", 1), ("Hierarchical(loss=NormSoftmax(), coarse=2)", CLASSES)):
        try:
            shard(build(text, Loss, classes=classes, dim=DIM, per_pass=1))
        except LikewiseError as error:
            found[text] = str(error)
    return found


def everything(folder: Path) -> dict:
    return {
        "look": {text: look(text) for text in SPECS},
        "learned": {name: learn(name, folder) for name in OPTIMIZERS},
        "by hand": by_hand_case(),
        "refusals": refusals(),
    }


def start_all(folder: Path) -> dict[int, list[dict]]:
    """What each of three processes found, and then each of two, by how many there were."""
    mp.spawn(host, (str(folder),), nprocs=1)
    return {many: [torch.load(folder / f"{many}-{me}.pt") for me in range(many)] for many in (3, 2)}


def host(_: int, folder: str) -> None:
    """A fresh process that imports once what the three would each take seconds to import."""
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    mp.start_processes(work, (folder,), nprocs=3, start_method="fork")


def work(me: int, folder: str) -> None:
    torch.set_num_threads(1)
    for many in (3, 2):
        if me < many:
            dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{many}", rank=me, world_size=many)
            try:
                torch.save(everything(Path(folder)), f"{folder}/{many}-{me}.pt")
            finally:
                dist.destroy_process_group()
