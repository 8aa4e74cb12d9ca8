"""One optimiser step over one batch, in one process or several. Nothing here waits for the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from likewise.contracts import BatchSampler
from likewise.distributed.collectives import gathered, share_of
from likewise.distributed.sharded_proxies import shares
from likewise.engine.cuda_graphs import Fast, Mode
from likewise.engine.grad_cache import Chunked
from likewise.models.synced_norm import sync_norms
from likewise.training.optim import clip, forget
from likewise.training.state import TrainState
from likewise.types import Batch, LikewiseError, Output, SampleWeights


class StepResult(NamedTuple):
    """What a step computed. `place`: the batch's places among the training samples; `losses`: unweighted, per network."""

    output: Output
    place: Int[Tensor, "B"]
    value: Float[Tensor, ""]
    weights: list[SampleWeights]
    losses: list[Float[Tensor, "B"]]


def step(state: TrainState, runner: NetworkRunner, batch: Batch) -> StepResult:
    """Train on one batch: forward pass, objective, backward pass, optimiser; then move everything on to the next step.

    Args:
        batch: this process's share of the pictures, and the rows of the whole batch.
    """
    config, components, samples = state.config, state.components, state.samples
    state.schedule.before_step(state.step)
    state.optimizer.zero_grad(set_to_none=True)
    runner.train_backbone(state.step >= state.plan.warmup)
    place = samples.position[batch.row]
    weight = samples.weight[batch.row]
    batch = Batch(batch.x, state.y[place], place)
    bf16 = config.precision == "bf16"
    networks = [] if components.mixup else runner.networks(batch.x, len(place), bf16)
    state.seed(1 + state.rank)
    with torch.autocast(state.device.type, torch.bfloat16, enabled=bf16):
        if components.mixup:
            output, value = mixed_loss(state, batch, weight)
            weights, losses = [], []
        else:
            outputs = [gather_outputs(network(batch.x), len(place), state.processes) for network in networks]
            state.seed(0)
            if components.teacher is not None:
                target = gathered(components.teacher(batch.x).z, len(place))
                for miner in components.taught:
                    miner.see_teacher(target)
            output = outputs[0]
            value, weights, losses = state.objective(outputs, batch, weight)
    value.backward()
    runner.finish_backward()
    sum_gradients(state)
    clip(config, components.trained())
    state.optimizer.step()
    state.step, state.mode = state.step + 1, runner.mode
    result = StepResult(output, place, value, weights, losses)
    advance(state, result)
    return result


def advance(state: TrainState, result: StepResult) -> None:
    """Update what moves on by itself after a step (memories, samplers, teacher), and what the log sums up."""
    components = state.components
    if type(state.sampler).observe is not BatchSampler.observe:
        state.sampler.observe(result.output.z.detach(), state.within[result.place])
    for part in (*components.losses, state.sampler, components.confidence, *components.terms):
        if part is not None:
            forget(state.optimizer, part.after_step(state.step))
    if components.teacher is not None:
        components.teacher.update(components.embedder)
    for weights in result.weights[:1]:
        state.monitor.see(weights, result.place)
    if state.history:
        state.history.see(result.losses[0], result.place)
    # Pair losses skip pairs whose similarity is NaN and stay finite; the logged value must not.
    state.total += result.value.detach() + 0 * result.output.e.detach().sum()
    state.counted += 1


def mixed_loss(state: TrainState, batch: Batch, weight: Float[Tensor, "B"]) -> tuple[Output, Float[Tensor, ""]]:
    """Return the output for mixtures of samples, and their loss: every label that is mixed in brings its sample weight."""
    assert state.components.mixup is not None
    loss = state.components.loss
    output, mixture = state.components.mixup(batch.x)
    z = output.z if loss.input == "unit" else output.e
    values = [share * (weight[source] * loss(z, batch.y[source])).mean() for source, share in mixture]
    return output, state.config.loss_weight * sum(values)  # pyright: ignore[reportReturnType]


class NetworkRunner:
    """Runs the networks of a training: as they are, as CUDA graphs, compiled, or a chunk at a time.

    Make it once the state is the one to go on from: processes then agree on all tensors.
    """

    def __init__(self, state: TrainState):
        config, embedders = state.config, state.components.embedders
        if state.processes > 1:
            for module in state.components.modules().values():
                broadcast(module)
            for embedder in embedders:
                sync_norms(embedder)
        for embedder in embedders:
            embedder.train()
            if config.recompute:
                embedder.recompute()
        norms = [m for e in embedders for m in e.modules() if isinstance(m, _BatchNorm) and m.training]
        self.embedders, self.chunk_size, self.processes = embedders, config.chunk_size, state.processes
        self.meets_in_norms = state.processes > 1 and bool(norms)
        wish = config.execution
        if wish == "auto" and (config.recompute or state.samples.items.x is not None or self.meets_in_norms):
            wish = "eager"  # a graph can hold neither a repeated forward pass nor a norm over processes
        self.fast = [Fast(e, wish, state.plan.steps - state.step, state.mode) for e in embedders]
        self.chunked = [Chunked(e, config.chunk_size) for e in embedders] if config.chunk_size else []
        self.backbone_trains: bool | None = None
        self.mode: Mode | None = state.mode

    def train_backbone(self, trains: bool) -> None:
        """Freeze the backbones during the warm-up, and let them learn after it."""
        if trains == self.backbone_trains:
            return
        self.backbone_trains = trains
        for embedder, fast in zip(self.embedders, self.fast, strict=True):
            fast.renew()
            for parameter in embedder.backbone_parameters():
                parameter.requires_grad_(trains)

    def networks(self, x: Tensor, count: int, bf16: bool) -> Sequence[nn.Module | Chunked]:
        """Return what to call for a batch of `count` samples, of which `x` is this process's share."""
        if self.chunk_size and self.meets_in_norms:
            check_chunks(count, self.chunk_size, self.processes)
        part = x.tensor_split(max(1, -(-len(x) // self.chunk_size)))[0] if self.chunk_size else x
        made = [fast.network(part, bf16) for fast in self.fast]
        self.mode = self.fast[0].known if self.fast[0].tried else self.mode
        for chunked, network in zip(self.chunked, made, strict=False):
            chunked.network = network
        return self.chunked or made

    @property
    def known_mode(self) -> Mode | None:
        """How the first network runs; None until that was decided."""
        return self.fast[0].known

    @property
    def milliseconds(self) -> Mapping[Mode, float]:
        """Milliseconds per step of every way to run the first network that was tried."""
        return self.fast[0].tried

    def finish_backward(self) -> None:
        """Carry gradients on into networks that ran a chunk at a time."""
        for chunked in self.chunked:
            chunked.finish()


def sum_gradients(state: TrainState) -> None:
    """Combine the gradients of all processes.

    Each process has the gradient of the network from its own pictures: these are summed. Those of losses and terms come
    from the whole batch and agree up to rounding: they are averaged.
    """
    if state.processes == 1:
        return
    components = (*state.components.losses, *state.components.terms)
    own = [p for e in state.components.embedders for p in e.parameters() if p.requires_grad]
    sharded = {p for part in components for _, p, _ in shares(part)}
    alike = dict.fromkeys(p for part in components for p in part.parameters() if p.requires_grad)
    alike = [p for p in alike if p not in sharded and p.grad is not None]
    for p in own:  # a process whose pictures did not reach a parameter still takes part
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    if alike:
        torch._foreach_div_([p.grad for p in alike if p.grad is not None], state.processes)
    grads = [p.grad for p in (*own, *alike) if p.grad is not None]
    for dtype in dict.fromkeys(g.dtype for g in grads):  # in the same order in every process
        some = [g for g in grads if g.dtype == dtype]
        flat = torch.cat([g.flatten() for g in some])
        dist.all_reduce(flat)
        pieces = flat.split([g.numel() for g in some])
        torch._foreach_copy_(some, [p.view_as(g) for p, g in zip(pieces, some, strict=True)])


def gather_outputs(out: Output, count: int, processes: int) -> Output:
    """Return the outputs of all processes in the order of the batch; gradients flow to this process's own share."""
    if processes == 1:
        return out
    present = [t for t in out if t is not None]
    flat = gathered(torch.cat([t.flatten(1) for t in present], 1), count)  # one call: latency costs more than bytes
    pieces = iter(flat.split([t.shape[1:].numel() for t in present], 1))
    return Output(*(None if t is None else next(pieces).reshape(count, *t.shape[1:]).to(t).contiguous() for t in out))  # pyright: ignore[reportArgumentType]


def check_chunks(count: int, chunk: int, processes: int) -> None:
    """Raise unless all processes need the same number of chunks: they meet in every norm."""
    shares = [range(count)[share_of(count, rank, processes)] for rank in range(processes)]
    if len({math.ceil(len(share) / chunk) for share in shares}) > 1:
        raise LikewiseError(
            f"train: a batch of {count} is shared among {processes} processes, some of which would need one chunk of {chunk} "
            f"more than others; give a chunk of {chunk + 1}, or a batch that {processes} divides"
        )


def broadcast(module: nn.Module) -> None:
    """Copy all tensors of the first process to the others; of sharded parameters each process keeps its own rows."""
    sharded = {p.data_ptr() for _, p, _ in shares(module)}
    for t in module.state_dict().values():
        if t.data_ptr() not in sharded and t.numel():
            dist.broadcast(t, 0)
