"""What the processes of test_ranks and test_synced_norm do: small sums together, and norms over a batch that is shared out."""

from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from likewise.core.distributed.collectives import copied, gathered, highest, share, summed, total, world
from likewise.models import Embedder
from likewise.models.synced_norm import sync_norms

SAMPLES = 7


def leaf(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def collectives() -> dict[str, object]:
    """Every function of `ranks`, in numbers that a test can work out by hand."""
    me, many = world()
    found: dict[str, object] = {"shares": {n: [share(n, rank) for rank in range(many)] for n in range(9)}}
    found["my shares"] = [share(n) for n in range(9)]
    whole = torch.arange(SAMPLES * 4).view(4, SAMPLES).T  # not contiguous
    part = whole[share(SAMPLES)].double().requires_grad_()
    found["gathered"] = gathered(part, SAMPLES)
    (found["gathered"].cumsum(0) ** 2).sum().backward()
    found["gathered slope"] = part.grad
    found["gathered int"] = gathered(whole[share(SAMPLES)], SAMPLES)
    found["gathered bool"] = gathered(whole[share(SAMPLES)] % 3 == 0, SAMPLES)
    few = torch.arange(2.0)[share(2)]  # of three processes, one has nothing
    found["gathered few"] = gathered(few, 2)
    for name, together in (("total", total), ("summed", summed), ("copied", copied)):
        given = leaf(me + 1, 2 * me) if together is not copied else leaf(2, -1)
        value = together(given)
        (value**2 * (me + 1 if together is not summed else 1)).sum().backward()
        found |= {name: value, f"{name} slope": given.grad, f"{name} given": given}
    inner = leaf(3, 5)
    (summed(copied(inner) * (me + 1)) ** 2).sum().backward()
    found["copied summed slope"] = inner.grad
    given = leaf(me, -me)
    found |= {"highest": highest(given), "highest given": given, "highest int": highest(torch.tensor([me, 3 - me]))}
    return {name: value.detach() if isinstance(value, Tensor) else value for name, value in found.items()}


NORMS = {
    "1d": (partial(nn.BatchNorm1d, 3), (SAMPLES, 3)),
    "1d with places": (partial(nn.BatchNorm1d, 3), (SAMPLES, 3, 4)),
    "2d": (partial(nn.BatchNorm2d, 3, eps=0.1), (SAMPLES, 3, 2, 4)),
    "3d, one sample or none": (partial(nn.BatchNorm3d, 3), (2, 3, 2, 1, 2)),
    "mean of all": (partial(nn.BatchNorm2d, 3, momentum=None), (SAMPLES, 3, 2, 2)),
    "plain": (partial(nn.BatchNorm2d, 3, affine=False, track_running_stats=False), (SAMPLES, 3, 2, 2)),
    "timm": (lambda: with_activation(), (SAMPLES, 3, 2, 2)),
    "frozen": (lambda: nn.BatchNorm2d(3).eval(), (SAMPLES, 3, 2, 2)),
}


def with_activation() -> nn.Module:
    from timm.layers import BatchNormAct2d  # slow to import

    return BatchNormAct2d(3, act_layer=nn.SiLU)


def norms(sync=sync_norms) -> dict[str, dict[str, Tensor]]:
    """Three batches through each norm; gradients of parameters are summed, the rest is put together again."""
    found = {}
    for name, (make, shape) in NORMS.items():
        torch.manual_seed(0)
        norm = make().double()
        for p in norm.parameters():
            nn.init.normal_(p)
        x, slope = torch.randn(3, *shape, dtype=torch.float64) * 2 + 1, torch.randn(3, *shape, dtype=torch.float64)
        sync(norm)
        mine = share(shape[0])
        outs, slopes = [], []
        for step in range(3):
            part = x[step][mine].requires_grad_()
            out = norm(part)
            (out * slope[step][mine] + out**2).sum().backward()
            outs.append(gathered(out.detach(), shape[0]))
            slopes.append(gathered(part.grad, shape[0]))
        found[name] = {"out": torch.stack(outs), "slope": torch.stack(slopes), "eval": norm.eval()(x[0]).detach()}
        found[name] |= {f"{key} slope": total(p.grad) for key, p in norm.named_parameters()} | dict(norm.state_dict())
    return found | {"halves": halves(sync), "far": far(sync), "network": network(sync)}


def halves(sync) -> dict[str, Tensor]:
    """16-bit numbers, as autocast hands them over to a norm in float32."""
    torch.manual_seed(0)
    x = (torch.randn(SAMPLES, 3, 8, 8) * 2 + 5).bfloat16()
    norm = nn.BatchNorm2d(3)
    sync(norm)
    part = x[share(SAMPLES)].requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = norm(part)
    (out.float() ** 3).sum().backward()
    found = {"out": gathered(out.detach(), SAMPLES), "slope": gathered(part.grad, SAMPLES)}
    return found | {"mean": norm.running_mean, "var": norm.running_var}


def far(sync) -> dict[str, Tensor]:
    """Values far from zero, each process's own far from another's, in float32."""
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 3, 16, 16) + 3000 + torch.arange(SAMPLES).view(-1, 1, 1, 1) / 4
    norm = nn.BatchNorm2d(3, momentum=1.0)
    sync(norm)
    norm(x[share(SAMPLES)])
    return {"x": x, "var": norm.running_var}


def network(sync) -> dict[str, Tensor]:
    """All of a backbone with timm's norms in it, part of its activations worked out twice."""
    torch.manual_seed(0)
    embedder = Embedder("mobilenetv3_small_050", 4, pretrained=False).double()
    x = torch.rand(SAMPLES, 3, 32, 32, dtype=torch.float64)
    sync(embedder)
    if world()[1] > 1:
        embedder.recompute()
    out = embedder(x[share(SAMPLES)])
    (out.e**2).sum().backward()
    found = {"e": gathered(out.e.detach(), SAMPLES)} | {
        f"slope {key}": total(p.grad) for key, p in embedder.named_parameters()
    }
    return found | {key: value for key, value in embedder.state_dict().items() if "running" in key or "batches" in key}


def start_all(folder, what: str) -> dict[int, list[dict]]:
    """The answers of two, then of three real processes to "collectives" or "norms"."""
    mp.spawn(work, (str(folder), what), nprocs=3)
    return {n: [torch.load(f"{folder}/{i} of {n}.pt", weights_only=False) for i in range(n)] for n in (2, 3)}


def work(me: int, folder: str, what: str) -> None:
    torch.set_num_threads(1)
    for many in range(max(me + 1, 2), 4):
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet{many}", rank=me, world_size=many)
        try:
            torch.save(globals()[what](), f"{folder}/{me} of {many}.pt")
        finally:
            dist.destroy_process_group()
