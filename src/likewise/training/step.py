"""One optimiser step over one batch, on one process or many. Nothing in here waits for the device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from likewise.contracts import BatchSampler
from likewise.distributed.collectives import gathered, share, world
from likewise.distributed.sharded_proxies import shares
from likewise.engine.cuda_graphs import Fast
from likewise.engine.grad_cache import Chunked
from likewise.models.synced_norm import sync_norms
from likewise.training.optim import clip, forget
from likewise.training.state import Parts
from likewise.types import Batch, LikewiseError, Output, Trust


class Stepping(Parts):
    """What a training is made of, and how it moves."""

    def line_up(self) -> None:
        """Before the first step, once the state is what it is to go on from."""
        config = self.config
        if world()[1] > 1:
            for module in self.modules().values():
                agree(module)
            for embedder in self.embedders:
                sync_norms(embedder)
        for embedder in self.embedders:
            embedder.train()
            if config.recompute:
                embedder.recompute()
        norms = [m for e in self.embedders for m in e.modules() if isinstance(m, _BatchNorm) and m.training]
        self.meet = world()[1] > 1 and bool(norms)  # processes do, inside of the network
        wish = config.speed
        if wish == "auto" and (config.recompute or self.items.x is not None or self.meet):
            wish = "eager"  # what is done twice, and norms over processes, are not for a graph
        self.learns: bool | None = None  # whether backbones do, once it was decided
        self.fast = [Fast(e, wish, self.steps - self.step, self.way) for e in self.embedders]
        self.chunked = [Chunked(e, config.chunk) for e in self.embedders] if config.chunk else []

    def one_step(self, batch: Batch) -> None:
        """The batch holds this process's share of the pictures, and the rows of all."""
        self.schedule.before_step(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        self.thaw()
        place = self.place[batch.row]
        batch, w = Batch(batch.x, self.y[place], place), self.weight[batch.row]
        networks = self.networks(batch.x, len(place))
        self.seed(1 + world()[0])
        bf16 = self.config.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            if self.mixup:
                out, value = self.mixed(batch, w)
                trusts, losses = [], []
            else:
                outs = [gather_outputs(network(batch.x), len(place)) for network in networks]
                self.seed(0)
                if self.teacher is not None:
                    seen = gathered(self.teacher(batch.x).z, len(place))
                    for miner in self.watchers:
                        miner.look(seen)
                out = outs[0]
                value, trusts, losses = self.objective(outs, batch, w)
        value.backward()
        for chunked in self.chunked:
            chunked.finish()
        self.add_up()
        clip(self.config, [*self.embedders, *self.losses, *self.terms])
        self.optimizer.step()
        self.step += 1
        self.after(out, place, value, trusts, losses)

    def thaw(self) -> None:
        """The backbone learns once the warm-up is over."""
        learns = self.step >= self.warmup
        if learns == self.learns:
            return
        self.learns = learns
        for embedder, fast in zip(self.embedders, self.fast, strict=True):
            fast.renew()
            for parameter in embedder.backbone_parameters():
                parameter.requires_grad_(learns)

    def networks(self, x: Tensor, count: int) -> Sequence[nn.Module | Chunked]:
        """What to call for this batch."""
        if self.mixup:
            return []
        bf16 = self.config.precision == "bf16"
        chunk = self.config.chunk
        if chunk and self.chunked and self.meet:
            must_be_as_many(count, chunk)
        part = x.tensor_split(max(1, -(-len(x) // chunk)))[0] if chunk and self.chunked else x
        made = [fast.network(part, bf16) for fast in self.fast]
        self.way = self.fast[0].known if self.fast[0].tried else self.way
        for chunked, network in zip(self.chunked, made, strict=False):
            chunked.network = network
        return self.chunked or made

    def mixed(self, batch: Batch, w: Float[Tensor, "B"]) -> tuple[Output, Float[Tensor, ""]]:
        """Mixtures of samples: a label, wherever it is mixed in, brings its weight."""
        assert self.mixup is not None
        out, shares = self.mixup(batch.x)
        z = out.z if self.loss.input == "unit" else out.e
        parts = [share * (w[whose] * self.loss(z, batch.y[whose])).mean() for whose, share in shares]
        return out, self.config.loss_weight * sum(parts)  # pyright: ignore[reportReturnType]

    def add_up(self) -> None:
        """Gradients of all processes. Each has the network's from its own pictures, which are added, and those of losses and
        terms from the whole batch, which are the same up to rounding and are made one."""
        many = world()[1]
        if many == 1:
            return
        own = [p for e in self.embedders for p in e.parameters() if p.requires_grad]
        cut = {p for part in (*self.losses, *self.terms) for _, p, _ in shares(part)}
        alike = dict.fromkeys(p for part in (*self.losses, *self.terms) for p in part.parameters() if p.requires_grad)
        alike = [p for p in alike if p not in cut and p.grad is not None]
        for p in own:  # a process whose pictures did not reach a parameter still takes part
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        if alike:
            torch._foreach_div_([p.grad for p in alike], many)
        grads = [p.grad for p in (*own, *alike) if p.grad is not None]
        for kind in dict.fromkeys(g.dtype for g in grads):  # in the same order everywhere
            some = [g for g in grads if g.dtype == kind]
            flat = torch.cat([g.flatten() for g in some])
            dist.all_reduce(flat)
            parts = flat.split([g.numel() for g in some])
            torch._foreach_copy_(some, [p.view_as(g) for p, g in zip(parts, some, strict=True)])

    def after(
        self,
        out: Output,
        place: Int[Tensor, "B"],
        value: Float[Tensor, ""],
        trusts: list[Trust],
        losses: list[Float[Tensor, "B"]],
    ) -> None:
        """What follows a step: parts that move on by themselves, and the record."""
        if type(self.sampler).observe is not BatchSampler.observe:
            self.sampler.observe(out.z.detach(), self.within[place])
        for part in (*self.losses, self.sampler, self.confidence, *self.terms):
            if part is not None:
                forget(self.optimizer, part.after_step(self.step))
        if self.teacher is not None:
            self.teacher.update(self.embedder)
        for trust in trusts[:1]:
            self.watch.see(trust, place)
        if self.history:
            self.history.see(losses[0], place)
        # Pair losses skip pairs whose similarity is NaN and stay finite; what is logged must not.
        self.total += value.detach() + 0 * out.e.detach().sum()
        self.counted += 1


def gather_outputs(out: Output, count: int) -> Output:
    """What the networks of all processes make of the batch, in its order; gradients flow to this process's own share."""
    if world()[1] == 1:
        return out
    there = [t for t in out if t is not None]
    flat = gathered(torch.cat([t.flatten(1) for t in there], 1), count)  # at once: asking costs more than carrying
    parts = iter(flat.split([t.shape[1:].numel() for t in there], 1))
    return Output(*(None if t is None else next(parts).reshape(count, *t.shape[1:]).to(t).contiguous() for t in out))  # pyright: ignore[reportArgumentType]


def must_be_as_many(count: int, chunk: int) -> None:
    """Processes meet in every norm, so all of them need the same number of chunks."""
    many = world()[1]
    if len({math.ceil(len(range(count)[share(count, rank)]) / chunk) for rank in range(many)}) > 1:
        raise LikewiseError(
            f"train: a batch of {count} is shared among {many} processes, some of which would need one chunk of {chunk} more "
            f"than others; give a chunk of {chunk + 1}, or a batch that {many} divides"
        )


def agree(module: nn.Module) -> None:
    """Everyone goes on with what the first process has; of shared-out parameters each keeps its own."""
    cut = {p.data_ptr() for _, p, _ in shares(module)}
    for t in module.state_dict().values():
        if t.data_ptr() not in cut and t.numel():
            dist.broadcast(t, 0)
