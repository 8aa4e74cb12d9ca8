"""What the processes of test_distribute do: rank the same data together."""

import dataclasses

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from likewise.metrics.ranking import Reach
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.scoring import retrieve
from likewise.types import Embedded, Items


def rank_alone() -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)
    y = np.arange(61) % 7
    x = (rng.normal(size=(7, 6))[y] + rng.normal(size=(61, 6))).astype(np.float32)
    x[10:20] = x[10]
    x[40] = x[3]
    group = np.where(np.arange(61) % 9 == 0, 1, -1)
    marked = Items("toy", y, tuple("abcdefg"), x=x, query=np.arange(61) < 31, gallery=np.arange(61) >= 5, group=group)
    e = Embedded(torch.as_tensor(x), torch.as_tensor(y), torch.arange(61))
    out = {}
    pairs = np.array([[1, 40], [12, 13], [50, 8]])
    for name, items, protocol in (
        ("sides", marked, QueryGallery()),
        ("all", dataclasses.replace(marked, query=None, gallery=None), UnseenClasses()),
    ):
        for deep in (False, True):
            found = retrieve(e, items, protocol, Reach(12, deep), exclude=pairs)
            for field in dataclasses.fields(found):
                out[f"{name} {deep} {field.name}"] = getattr(found, field.name).nan_to_num()
    return out


def start_all(processes: int, folder) -> list[dict[str, torch.Tensor]]:
    mp.spawn(work, (processes, str(folder)), nprocs=processes)
    return [torch.load(f"{folder}/{i}.pt") for i in range(processes)]


def work(me: int, many: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=me, world_size=many)
    try:
        torch.save(rank_alone(), f"{folder}/{me}.pt")
    finally:
        dist.destroy_process_group()
