"""GradCache: large batches in little GPU memory. The loss gets the whole batch, the network one chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from likewise.core.argument_checks import CheckedArguments, Count
from likewise.core.types import LikewiseError, Output


class FirstPass(NamedTuple):
    """State of the first forward pass that the second one needs."""

    chunks: tuple[Tensor, ...]  # chunks of the batch
    states: list[list[Tensor]]  # state of every random generator before every chunk
    autocast: torch.autocast
    out: Output


class Chunked(CheckedArguments):
    """A network that stores the activations of one chunk at a time, for any batch size; each chunk runs forward twice.

    Paper: Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup, RepL4NLP 2021.
    Formula: dL/dw = sum_k sum_i (dL/dout_i) (dout_i/dw), i in chunk k: first compute all of out without a graph, then dL/dout,
        which is stored, then every chunk again with a graph.
    Differs: chunk sizes differ by one sample at most, so that BatchNorm never gets a last chunk of one sample.
    Needs: a network that computes each sample independently. BatchNorm in training normalises each chunk separately and updates
        its running statistics once per chunk. A network that mixes samples of the batch cannot be chunked. With norms
        synchronised over several processes, all processes need the same number of chunks.

    A batch that fits into one chunk, and a call without a gradient, run the network once.

    Args:
        network: returns an `Output` for a batch.
        chunk: largest number of samples in one forward pass.
    """

    def __init__(self, network: nn.Module, chunk: Count):
        self.network = network
        self.chunk = chunk
        self.first_pass: FirstPass | None = None

    def __call__(self, x: Shaped[Tensor, "B ..."]) -> Output:
        """Return the output of the network; its fields are leaf tensors whose gradients `finish` reads."""
        if self.first_pass is not None:
            raise LikewiseError(
                "Chunked: the previous batch must be finished first; call finish() after its backward()"
            )
        if len(x) <= self.chunk:
            return self.network(x)
        chunks = x.tensor_split(-(-len(x) // self.chunk))
        states, outs = [], []
        with torch.no_grad():
            for chunk in chunks:
                states.append([generator.get_state() for generator in generators(x.device)])
                outs.append(self.network(chunk))
        torch.clear_autocast_cache()  # older torch caches weights that were cast without a graph
        learns = torch.is_grad_enabled() and any(p.requires_grad for p in self.network.parameters())
        out = Output(
            *(None if of[0] is None else torch.cat(of).requires_grad_(learns) for of in zip(*outs, strict=True))  # pyright: ignore[reportArgumentType]
        )
        if learns:
            self.first_pass = FirstPass(chunks, states, same_autocast(x.device.type), out)
        return out

    def finish(self) -> None:
        """Compute the gradients of the network's parameters from those of the outputs; call this after `backward()`."""
        first, self.first_pass = self.first_pass, None
        if first is None or all(field is None or field.grad is None for field in first.out):
            return
        count = len(first.chunks)
        nothing = (None,) * count
        fields = (nothing if f is None or f.grad is None else f.grad.tensor_split(count) for f in first.out)
        sources = generators(first.chunks[0].device)
        with preserved_state(sources, list(self.network.buffers())):
            for chunk, states, slopes in zip(first.chunks, first.states, zip(*fields, strict=True), strict=True):
                for generator, state in zip(sources, states, strict=True):
                    generator.set_state(state)
                with torch.enable_grad(), first.autocast:
                    out = self.network(chunk)
                used = [
                    (t, slope) for t, slope in zip(out, slopes, strict=True) if slope is not None and t.requires_grad
                ]
                if used:
                    torch.autograd.backward(*zip(*used, strict=True))  # pyright: ignore[reportArgumentType]


def generators(device: torch.device) -> list[torch.Generator]:
    """Return the random generators of a network on this device. Their states are on the host, so reading needs no device sync."""
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        return [torch.default_generator, torch.cuda.default_generators[number]]
    if device.type == "mps":
        return [torch.default_generator, torch.mps._get_default_mps_generator()]
    return [torch.default_generator]


def same_autocast(device: str) -> torch.autocast:
    """Return a context with the current autocast settings."""
    return torch.autocast(device, torch.get_autocast_dtype(device), enabled=torch.is_autocast_enabled(device))


@contextmanager
def preserved_state(sources: list[torch.Generator], buffers: list[Tensor]) -> Iterator[None]:
    """Restore random generators and buffers (running statistics of BatchNorm) when the context ends."""
    states, kept = [generator.get_state() for generator in sources], [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        for generator, state in zip(sources, states, strict=True):
            generator.set_state(state)
        for buffer, old in zip(buffers, kept, strict=True):
            buffer.copy_(old)


def activation_bytes(network: nn.Module, x: Shaped[Tensor, "B ..."]) -> int:
    """Return the bytes per sample that a forward pass of the network stores for its backward pass, measured with x."""
    stored: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        stored[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = network(x)  # kept until the end, so that no two tensors have the same address
        for parameter in network.parameters():
            stored.pop(parameter.untyped_storage().data_ptr(), None)
        del out
    return sum(stored.values()) // len(x)
