"""Large batches on a small card: the loss sees the whole batch, the network a few pictures at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from likewise.types import LikewiseError, Output


class FirstPass(NamedTuple):
    """What the second pass needs of the first."""

    parts: tuple[Tensor, ...]  # the batch, cut
    states: list[list[Tensor]]  # of every generator, before every part
    autocast: torch.autocast
    out: Output


class Chunked:
    """A network that keeps the activations of one chunk at most, whatever the batch; twice the forward passes.

    Paper: Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup, RepL4NLP 2021.
    Formula: dL/dw = sum_k sum_i (dL/dout_i) (dout_i/dw), i in chunk k: first all of out without a graph, then dL/dout, which is
        kept, then chunk after chunk again with a graph.
    Differs: chunks are even (they differ by one sample at most), so that BatchNorm never meets a last chunk of one sample.
    Needs: a network that treats each sample for itself. BatchNorm in training sees a chunk for its batch, and its running
        statistics move once per chunk. Whatever mixes samples across the batch inside of the network cannot be chunked. With
        norms over several processes, all of them need the same number of chunks.

    A batch that fits into one chunk, and a call without a gradient, cost nothing more than the network itself.

    Args:
        network: gives an `Output` for a batch.
        chunk: the most samples that go through the network at once.
    """

    def __init__(self, network: nn.Module, chunk: int):
        if chunk < 1:
            raise LikewiseError(f"Chunked: chunk must be at least 1, got {chunk}")
        self.network = network
        self.chunk = chunk
        self.held: FirstPass | None = None

    def __call__(self, x: Shaped[Tensor, "B ..."]) -> Output:
        """What the network gives; the fields are leaves that collect gradients, for `finish`."""
        if self.held is not None:
            raise LikewiseError("Chunked: a batch is still unfinished; call finish() after its backward()")
        if len(x) <= self.chunk:
            return self.network(x)
        parts = x.tensor_split(-(-len(x) // self.chunk))
        states, outs = [], []
        with torch.no_grad():
            for part in parts:
                states.append([generator.get_state() for generator in generators(x.device)])
                outs.append(self.network(part))
        torch.clear_autocast_cache()  # older torch keeps weights there that were cast without a graph
        learns = torch.is_grad_enabled() and any(p.requires_grad for p in self.network.parameters())
        out = Output(
            *(None if of[0] is None else torch.cat(of).requires_grad_(learns) for of in zip(*outs, strict=True))  # pyright: ignore[reportArgumentType]
        )
        if learns:
            self.held = FirstPass(parts, states, same_autocast(x.device.type), out)
        return out

    def finish(self) -> None:
        """After `backward()`: the gradients that the outputs have collected go on into the network's parameters."""
        held, self.held = self.held, None
        if held is None or all(field is None or field.grad is None for field in held.out):
            return
        count = len(held.parts)
        nothing = (None,) * count
        fields = (nothing if f is None or f.grad is None else f.grad.tensor_split(count) for f in held.out)
        sources = generators(held.parts[0].device)
        with preserved_state(sources, list(self.network.buffers())):
            for part, states, slopes in zip(held.parts, held.states, zip(*fields, strict=True), strict=True):
                for generator, state in zip(sources, states, strict=True):
                    generator.set_state(state)
                with torch.enable_grad(), held.autocast:
                    out = self.network(part)
                used = [
                    (t, slope) for t, slope in zip(out, slopes, strict=True) if slope is not None and t.requires_grad
                ]
                if used:
                    torch.autograd.backward(*zip(*used, strict=True))  # pyright: ignore[reportArgumentType]


def generators(device: torch.device) -> list[torch.Generator]:
    """Where a network on this device draws random numbers from. Their states are on the host: nothing waits for the device."""
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        return [torch.default_generator, torch.cuda.default_generators[number]]
    if device.type == "mps":
        return [torch.default_generator, torch.mps._get_default_mps_generator()]
    return [torch.default_generator]


def same_autocast(device: str) -> torch.autocast:
    """Autocast as it is here, to be entered elsewhere."""
    return torch.autocast(device, torch.get_autocast_dtype(device), enabled=torch.is_autocast_enabled(device))


@contextmanager
def preserved_state(sources: list[torch.Generator], buffers: list[Tensor]) -> Iterator[None]:
    """Generators and buffers (BatchNorm's running statistics) are afterwards what they were before."""
    states, kept = [generator.get_state() for generator in sources], [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        for generator, state in zip(sources, states, strict=True):
            generator.set_state(state)
        for buffer, old in zip(buffers, kept, strict=True):
            buffer.copy_(old)
