"""`OpenRun`: a run opened for use, with its settings, data, protocol, network, transform and similarity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from likewise.config import Train
from likewise.contracts import Protocol
from likewise.data.augment import Plain
from likewise.data.decoded_cache import Pixels
from likewise.models.embedder import Embedder
from likewise.runs.dataset import load_items, make_protocol, must_be_its_data, spoil
from likewise.runs.devices import choose_device
from likewise.runs.folder import Run
from likewise.runs.network import open_embedder, transforms
from likewise.runs.settings import read_config, similarity_of
from likewise.types import Embedded, Items, LikewiseError


class OpenRun:
    """A run opened for use. Settings are read at once; data, protocol, network and device when they are first used.

    Args:
        run: the run folder.
        which: which of its networks: "best" on validation, "last", or "untrained".
        device: the device or its name; None: the GPU if there is one.
        data: where the data is now, if it has moved; `root` likewise.
        allow_imports: whether specs in the settings may import components by dotted name, which runs their code.
        skip_bad: leave out unreadable pictures; a run that was trained so does so anyway.
        workers: processes that read pictures; -1: half of the cores.
        quiet: show no progress.
        say: takes a line for the user.
        settings: the settings, where the caller has read them; `data`, `root` and `allow_imports` are not used then.
        items: the data, where the caller has it and knows that it is the run's.
    """

    def __init__(
        self,
        run: Run,
        *,
        checkpoint: str = "best",
        device: torch.device | str | None = None,
        data: str | None = None,
        root: str | None = None,
        allow_imports: bool = False,
        skip_bad: bool = False,
        workers: int = -1,
        quiet: bool = False,
        say: Callable[[str], None] = print,
        settings: Train | None = None,
        items: Items | None = None,
    ):
        self.run, self.checkpoint, self.workers, self.quiet, self.say = run, checkpoint, workers, quiet, say
        self.named, self.moved = bool(data), {k: v for k, v in (("data", data), ("root", root)) if v}
        self.settings = settings or read_config(run, allow_imports=allow_imports, **self.moved)
        self.skip_bad = skip_bad or self.settings.skip_bad
        self._device = device
        self._items = items
        self._protocol: Protocol | None = None
        self._network: Embedder | None = None
        self._transform: Plain | None = None
        self._similarity: str | None = None

    def __repr__(self) -> str:
        return f"OpenRun('{self.run.path}', which='{self.checkpoint}')"

    @property
    def device(self) -> torch.device:
        if not isinstance(self._device, torch.device):
            self._device = choose_device(self._device)
        return self._device

    @property
    def items(self) -> Items:
        """The data, which must have the fingerprint that the run recorded. Labels are those of the data, without noise."""
        return self.take(self.load()) if self._items is None else self._items

    def take(self, items: Items) -> Items:
        """Use data that was loaded before, after a check that it is the data of this run."""
        must_be_its_data(self.run, items, self.settings.data)
        self._items = items
        return items

    def load(self) -> Items:
        """Return the data that the settings name, wherever it stands now. Whether it has changed is not checked."""
        way = {"skip_bad": self.skip_bad, "workers": self.workers, "quiet": self.quiet, "say": self.say}
        way |= {"allow_imports": self.settings.allow_imports}
        try:  # a run may be a stranger's: only data that the user names is fetched from a hub
            return load_items(self.settings.data, self.settings.root, **way, fetch=self.named)
        except LikewiseError as error:
            hint = "" if self.moved else " (if the data of this run has moved, say where it is: --data, --root)"
            raise LikewiseError(f"{error}{hint}") from None

    @property
    def noisy_items(self) -> Items:
        """The data with the labels that the run trained with: the noise of its settings is in them."""
        settings = self.settings
        return spoil(self.items, self.protocol, settings.noise, settings.seed, settings.allow_imports)

    @property
    def protocol(self) -> Protocol:
        if self._protocol is None:
            self._protocol = make_protocol(self.settings)
        return self._protocol

    @property
    def network(self) -> Embedder:
        """The network that `which` names, on the device, in evaluation mode."""
        if self._network is None:
            self._network = open_embedder(self.run, self.settings, self.checkpoint, self.device)
        return self._network

    @property
    def transform(self) -> Plain | None:
        """What the network sees of a picture; None where it takes feature vectors."""
        if self._transform is None:
            self._transform = transforms(self.settings, self.network)[1]
        return self._transform

    @property
    def similarity(self) -> str:
        """How its embeddings are compared: "cosine" or "euclidean"."""
        if self._similarity is None:
            self._similarity = similarity_of(self.settings)
        return self._similarity

    def embed(
        self,
        items: Items,
        rows: Int[np.ndarray, "n"],
        *,
        title: str = "embed",
        pixels: Pixels | None = None,
        **how: Any,
    ) -> Embedded:
        """Return the embeddings of these rows by the network, as `engine.embed.embed_rows` does, which takes `how`.

        Args:
            items: the run's own data, or any other.
            pixels: the decoded pictures of these items, where the caller has them.
        """
        from likewise.data.placement import once
        from likewise.engine.embed import embed_rows

        way = {
            "held": once(pixels, rows, self.device),
            "workers": self.workers,
            "quiet": self.quiet,
            "title": title,
        } | how
        return embed_rows(self.network, items, rows, self.transform, device=self.device, **way)
