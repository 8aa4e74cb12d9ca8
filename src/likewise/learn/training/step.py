"""One optimiser step on one batch, in one process or several, without a device sync; and the objective.

The objective is loss_weight * mean_i(w_i loss_i) + sum over terms of weight_t * mean_i(v_ti term_ti).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from likewise.core.contracts import BatchSampler, Confidence, Loss, Term
from likewise.core.devices import free_memory
from likewise.core.distributed.collectives import gathered, share_of
from likewise.core.distributed.sharded_proxies import shares
from likewise.core.types import Batch, LikewiseError, Output, PeerView, Ref, SampleWeights
from likewise.learn.training.schedule import clip, reset_state
from likewise.learn.training.state import TrainState
from likewise.models.cuda_graphs import Mode, ModeTuner
from likewise.models.grad_cache import Chunked, activation_bytes
from likewise.models.synced_norm import sync_norms

MAX_MEMORY_SHARE = 0.6
"""Share of the free memory that the activations of a batch may take; the backward pass needs some more."""


class StepResult(NamedTuple):
    """Result of a step.

    `place`: positions of the batch among the training samples; `losses`: per network, the unweighted loss of every sample; empty
    with mixup.
    """

    output: Output
    place: Int[Tensor, "B"]
    value: Float[Tensor, ""]
    weights: list[SampleWeights]
    losses: list[Float[Tensor, "B"]]


def step(state: TrainState, runner: NetworkRunner, batch: Batch) -> StepResult:
    """Train on one batch: forward pass, objective, backward pass, optimiser, then `advance`.

    Args:
        batch: this process's share of the images, and the rows of the whole batch.
    """
    config, components, samples = state.config, state.components, state.samples
    objective = Objective(components.losses, components.confidence, components.terms, config.loss_weight)
    state.schedule.before_step(state.step)
    state.optimizer.zero_grad(set_to_none=True)
    runner.train_backbone(state.step >= state.plan.warmup)
    place = samples.position[batch.row]
    weight = samples.weight[batch.row]
    batch = Batch(batch.x, state.y[place], place, groups_of(state, place))
    bf16 = config.precision == "bf16"
    networks = [] if components.mixup else runner.networks(batch.x, len(place), bf16)
    state.seed(1 + state.rank)
    with torch.autocast(state.device.type, torch.bfloat16, enabled=bf16):
        if components.mixup:
            output, value = mixed_loss(state, objective.ids(batch), batch, weight)
            weights, losses = [], []
        else:
            outputs = [gather_outputs(network(batch.x), len(place), state.processes) for network in networks]
            state.seed(0)
            if components.teacher is not None:
                target = gathered(components.teacher(batch.x).z, len(place))
                for miner in components.taught_miners:
                    miner.see_teacher(target)
            output = outputs[0]
            value, weights, losses = objective(outputs, batch, weight)
    value.backward()
    runner.finish_backward()
    sum_gradients(state)
    clip(config, components.trained())
    state.optimizer.step()
    state.step, state.mode = state.step + 1, runner.mode
    result = StepResult(output, place, value, weights, losses)
    advance(state, result)
    return result


def groups_of(state: TrainState, place: Int[Tensor, "B"]) -> Int[Tensor, "B"] | None:
    """Return the group of the sampler for each of these training samples; None if the sampler has no groups."""
    groups = state.sampler.groups
    return None if groups is None else torch.as_tensor(groups, device=state.device)[state.kept_position[place]]


def advance(state: TrainState, result: StepResult) -> None:
    """Update memories, sampler, teacher and the statistics of the log after an optimiser step."""
    components = state.components
    if type(state.sampler).observe is not BatchSampler.observe:
        state.sampler.observe(result.output.z.detach(), state.kept_position[result.place])
    for component in (*components.losses, state.sampler, components.confidence, *components.terms):
        if component is not None:
            reset_state(state.optimizer, component.after_step(state.step))
    if components.teacher is not None:
        components.teacher.update(components.embedder)
    if state.average is not None:
        state.average.update()
    for weights in result.weights[:1]:
        state.monitor.add_batch(weights, result.place)
    if state.history:
        state.history.add_batch(result.losses[0], result.place)
    # Pair losses skip pairs whose similarity is NaN and stay finite; the logged value must become NaN.
    state.total += result.value.detach() + 0 * result.output.e.detach().sum()
    state.counted += 1


def mixed_loss(
    state: TrainState, ids: Int[Tensor, "B"], batch: Batch, weight: Float[Tensor, "B"]
) -> tuple[Output, Float[Tensor, ""]]:
    """Return the output and the loss of mixed samples: the loss with each label, times its share and its sample's weight."""
    assert state.components.mixup is not None
    loss = state.components.loss
    output, mixture = state.components.mixup(batch.x)
    z = output.z if loss.input == "unit" else output.e
    values = [share * (weight[source] * loss(z, ids[source])).mean() for source, share in mixture]
    return output, state.config.loss_weight * sum(values)  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, eq=False)
class Objective:
    """The value that training minimises: the loss with sample weights, plus the terms.

    Args:
        losses: one for each network; several if the confidence trains several networks.
        confidence: computes the sample weights; None: all are 1.
        loss_weight: factor of the loss; every term has its own `weight`.
    """

    losses: list[Loss]
    confidence: Confidence | None = None
    terms: list[Term] = field(default_factory=list)
    loss_weight: float = 1.0

    def __call__(
        self, outs: list[Output], batch: Batch, weight: Float[Tensor, "B"]
    ) -> tuple[Float[Tensor, ""], list[SampleWeights], list[Float[Tensor, "B"]]]:
        """Return the value to minimise, summed over the networks; the sample weights; the unweighted losses of each network.

        Args:
            outs: output of each network for the batch.
            batch: labels are class numbers; rows are positions among the training samples.
            weight: sample weights of the data set.
        """
        ids = self.ids(batch)
        each = [out.z if loss.input == "unit" else out.e for out, loss in zip(outs, self.losses, strict=True)]
        weights, known_losses = self.sample_weights(outs, each, batch, ids)
        value: Any = 0.0
        losses = []
        for place, out in enumerate(outs):
            confidence_weights = weights[place] if weights else None
            loss_values = known_losses[place]
            if loss_values is None:
                loss_values = self.losses[place](each[place], ids, partners(each[place], ids, confidence_weights))
            losses.append(loss_values.detach())
            value = value + self.loss_weight * weighted_mean(loss_values, weight, confidence_weights)
            for term in self.terms:
                ones = torch.ones_like(weight)
                value = value + term.weight * weighted_mean(
                    term(out, batch._replace(y=ids)), ones, confidence_weights if term.weighted else None
                )
        return value, weights, losses

    def ids(self, batch: Batch) -> Int[Tensor, "B"]:
        """Return what losses get as labels: classes, or positions of training samples if their relevance is between samples."""
        relevance = self.losses[0].relevance
        return batch.row if relevance is not None and relevance.by == "sample" else batch.y

    def sample_weights(
        self, outs: list[Output], each: list[Tensor], batch: Batch, ids: Int[Tensor, "B"]
    ) -> tuple[list[SampleWeights], list[Float[Tensor, "B"] | None]]:
        """Return the sample weights of each network, and the unweighted losses if the confidence needed them.

        A loss is None if it must be computed (again), because the confidence excludes samples as partners.
        """
        nothing: list[Tensor | None] = [None] * len(outs)
        if self.confidence is None:
            return [], nothing
        seen = [out.z.detach() for out in outs]
        if len(outs) == 1 and not self.confidence.needs_loss:
            return [self.confidence(seen[0], batch.y, batch.row, None)], nothing
        known_losses = [loss(z, ids) for loss, z in zip(self.losses, each, strict=True)]
        if len(outs) == 1:
            weights = [self.confidence(seen[0], batch.y, batch.row, known_losses[0].detach())]
        else:
            every = zip(self.losses, seen, each, known_losses, strict=True)
            views = [PeerView(z, values.detach(), loss.predict(own.detach())) for loss, z, own, values in every]
            weights = self.confidence.exchange(views, batch.y, batch.row)
        return weights, [None if t.partner is not None else n for t, n in zip(weights, known_losses, strict=True)]


def partners(z: Float[Tensor, "B D"], ids: Int[Tensor, "B"], confidence_weights: SampleWeights | None) -> Ref | None:
    """Return the batch as a `Ref`, masking samples that the confidence excludes as partners; None if it excludes none."""
    if confidence_weights is None or confidence_weights.partner is None:
        return None
    return Ref(z, ids, torch.arange(len(ids), device=ids.device), used=confidence_weights.partner)


def weighted_mean(
    loss_values: Float[Tensor, "B"], weight: Float[Tensor, "B"], confidence_weights: SampleWeights | None
) -> Float[Tensor, ""]:
    """Return the weighted mean of the losses; a sample of weight 0 adds 0, even if its loss is NaN.

    Args:
        weight: sample weights of the data set.
        confidence_weights: sample weights of the confidence; None without a confidence.
    """
    total = weight if confidence_weights is None else weight * confidence_weights.w
    loss_values = (total * loss_values).where(total > 0, 0.0)
    if confidence_weights is None:
        return loss_values.mean()
    if confidence_weights.mean_over == "kept":
        return loss_values.sum() / (confidence_weights.w > 0).sum().clamp_min(1)
    return loss_values.mean()


class NetworkRunner:
    """Runs the networks of a training: eager, as CUDA graphs, compiled, or in chunks of a batch.

    On a CPU, a batch of images whose activations do not fit into the free memory runs in chunks, if that changes no result.
    Construct it after the checkpoint was loaded: it copies all tensors of the first process to the others.

    Args:
        say: takes the sentence that says so.
    """

    def __init__(self, state: TrainState, say: Callable[[str], None] = lambda sentence: None):
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
        self.syncs_norms = state.processes > 1 and bool(norms)
        execution = config.execution
        if execution == "auto" and (config.recompute or state.samples.items.x is not None or self.syncs_norms):
            execution = "eager"  # a CUDA graph supports neither a repeated forward pass nor norms over processes
        self.fast = [ModeTuner(e, execution, state.plan.steps - state.step, state.mode) for e in embedders]
        self.chunked = [Chunked(e, config.chunk_size) for e in embedders] if config.chunk_size else []
        self.say = say
        reads_images_on_cpu = state.device.type == "cpu" and state.samples.items.x is None
        self.may_chunk = reads_images_on_cpu and not (
            config.chunk_size or norms or config.recompute or state.processes > 1
        )
        self.backbone_trains: bool | None = None
        self.mode: Mode | None = state.mode

    def train_backbone(self, trains: bool) -> None:
        """Freeze the backbones (during the warm-up), or train them (after it)."""
        if trains == self.backbone_trains:
            return
        self.backbone_trains = trains
        for embedder, fast in zip(self.embedders, self.fast, strict=True):
            fast.renew()
            for parameter in embedder.backbone_parameters():
                parameter.requires_grad_(trains)

    def networks(self, x: Tensor, count: int, bf16: bool) -> Sequence[nn.Module | Chunked]:
        """Return the callable of every network for a batch of `count` samples; `x` is this process's share of it."""
        if self.may_chunk and self.backbone_trains:
            self.may_chunk = False
            self.fit_memory(x)
        if self.chunk_size and self.syncs_norms:
            check_chunks(count, self.chunk_size, self.processes)
        chunk = x.tensor_split(max(1, -(-len(x) // self.chunk_size)))[0] if self.chunk_size else x
        made = [fast.network(chunk, bf16) for fast in self.fast]
        self.mode = self.fast[0].known if self.fast[0].tried else self.mode
        for chunked, network in zip(self.chunked, made, strict=False):
            chunked.network = network
        return self.chunked or made

    def fit_memory(self, x: Tensor) -> None:
        """Choose chunks if the activations of the batch x need more than `MAX_MEMORY_SHARE` of the free memory."""
        free = free_memory()
        needed = sum(activation_bytes(embedder, x[:2]) for embedder in self.embedders) * len(x)
        if free is None or needed <= MAX_MEMORY_SHARE * free:
            return
        parts = math.ceil(needed / (MAX_MEMORY_SHARE * free))
        self.chunk_size = max(1, len(x) // parts)
        self.chunked = [Chunked(embedder, self.chunk_size) for embedder in self.embedders]
        self.say(
            f"memory: a batch of {len(x)} images needs about {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free: the "
            f"network takes {self.chunk_size} images at a time, each twice, with the same result (--chunk-size sets their number)"
        )

    @property
    def known_mode(self) -> Mode | None:
        """Execution mode of the first network; None until it was chosen."""
        return self.fast[0].known

    @property
    def milliseconds(self) -> Mapping[Mode, float]:
        """Milliseconds per step of the first network in every execution mode that was tried."""
        return self.fast[0].tried

    def finish_backward(self) -> None:
        """Propagate the gradients into networks that ran in chunks."""
        for chunked in self.chunked:
            chunked.finish()


def sum_gradients(state: TrainState) -> None:
    """Combine the gradients of all processes.

    The gradients of the networks come from each process's own images, so they are summed. The gradients of losses and terms
    come from the whole batch in every process and are equal up to rounding, so they are averaged.
    """
    if state.processes == 1:
        return
    components = (*state.components.losses, *state.components.terms)
    own = [p for e in state.components.embedders for p in e.parameters() if p.requires_grad]
    sharded = {p for component in components for _, p, _ in shares(component)}
    alike = dict.fromkeys(p for component in components for p in component.parameters() if p.requires_grad)
    alike = [p for p in alike if p not in sharded and p.grad is not None]
    for p in own:  # all processes must reduce the same parameters, also those without a gradient here
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
    """Return the outputs of all processes in the order of the batch; gradients flow to this process's share only."""
    if processes == 1:
        return out
    present = [t for t in out if t is not None]
    flat = gathered(torch.cat([t.flatten(1) for t in present], 1), count)  # one call: latency costs more than bytes
    pieces = iter(flat.split([t.shape[1:].numel() for t in present], 1))
    return Output(*(None if t is None else next(pieces).reshape(count, *t.shape[1:]).to(t).contiguous() for t in out))  # pyright: ignore[reportArgumentType]


def check_chunks(count: int, chunk: int, processes: int) -> None:
    """Raise unless all processes need the same number of chunks: every norm is a collective operation."""
    shares = [range(count)[share_of(count, rank, processes)] for rank in range(processes)]
    if len({math.ceil(len(share) / chunk) for share in shares}) > 1:
        raise LikewiseError(
            f"train: all processes must need the same number of chunks, but a batch of {count} over {processes} processes gives "
            f"some of them one chunk of {chunk} more; use --chunk-size {chunk + 1}, or a batch size divisible by {processes}"
        )


def broadcast(module: nn.Module) -> None:
    """Copy all tensors of the first process to the others, except sharded parameters: each process keeps its own rows."""
    sharded = {p.data_ptr() for _, p, _ in shares(module)}
    for t in module.state_dict().values():
        if t.data_ptr() not in sharded and t.numel():
            dist.broadcast(t, 0)
