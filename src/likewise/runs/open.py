"""`OpenRun`: a run with its settings, data, protocol, network, transform and similarity, loaded on first use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from likewise.core.contracts import Loss, Protocol, input_of
from likewise.core.devices import choose_device
from likewise.core.settings import Train, check
from likewise.core.settings.spec import describe
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.data.augment import Plain
from likewise.data.dataset import inject_noise, load_items, make_protocol
from likewise.data.decoded_cache import Pixels
from likewise.data.fingerprint import fingerprint
from likewise.models.embedder import Embedder
from likewise.runs.folder import Run
from likewise.runs.network import open_embedder, transforms


def read_config(run: Run, **changes) -> Train:
    """Return the settings of a run, with `changes`. `allow_imports` is False unless changed: the caller must allow it again."""
    stored = run.about["config"]
    known = {f.name for f in dataclasses.fields(Train)}
    unknown = sorted(stored.keys() - known)
    if unknown:
        raise LikewiseError(
            f"run: '{run.path}' has settings that this version of likewise does not know: {', '.join(unknown)}; update likewise"
        )
    stored = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    stored: dict[str, Any] = stored | {"allow_imports": False} | changes
    if "data" not in stored:
        raise LikewiseError(
            f"run: the settings in '{run.path}' must name the data; its config.json is damaged or from another program: "
            "restore a copy of it"
        )
    config = Train(**stored)
    check(config)
    for name in ("backbone", "protocol", "sampler", "augment"):  # training writes the values that it chose
        if getattr(config, name) is None:
            raise LikewiseError(
                f"run: the settings in '{run.path}' must name the {name}; its config.json is damaged or from another program: "
                "restore a copy of it"
            )
    return config


def similarity_of(config: Train) -> str:
    """Return the similarity of a run's embeddings: "cosine" if its loss takes unit embeddings, "euclidean" if raw ones."""
    loss = describe(config.loss, Loss, allow_imports=config.allow_imports)
    return "cosine" if input_of(loss) == "unit" else "euclidean"


class OpenRun:
    """A run with everything needed to use its network. Reads the settings at once; data, network and device on first use.

    Args:
        run: the run folder.
        checkpoint: the network: "best" on validation, "last", or "untrained".
        device: the device or its name; None: the GPU if there is one.
        data: new location of the data, if it has moved; `root` likewise.
        allow_imports: whether specs in the settings may import components by dotted name, which runs their code.
        workers: processes that read images; -1: half of the cores.
        quiet: show no progress bars.
        `say`: receives messages for the user.
        settings: the settings, if the caller has read them; then `data`, `root` and `allow_imports` are not used.
        items: the data, if the caller has loaded it and knows that it is the data of the run.
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
        workers: int = -1,
        quiet: bool = False,
        say: Callable[[str], None] = print,
        settings: Train | None = None,
        items: Items | None = None,
    ):
        self.run, self.checkpoint, self.workers, self.quiet, self.say = run, checkpoint, workers, quiet, say
        self.named, self.moved = bool(data), {k: v for k, v in (("data", data), ("root", root)) if v}
        self.settings = settings or read_config(run, allow_imports=allow_imports, **self.moved)
        self._device = device
        self._items = items
        self._protocol: Protocol | None = None
        self._network: Embedder | None = None
        self._transform: Plain | None = None
        self._similarity: str | None = None

    def __repr__(self) -> str:
        return f"OpenRun('{self.run.path}', checkpoint='{self.checkpoint}')"

    @property
    def device(self) -> torch.device:
        if not isinstance(self._device, torch.device):
            self._device = choose_device(self._device)
        return self._device

    @property
    def items(self) -> Items:
        """The data, checked against the fingerprint of the run; labels as in the data, without injected noise."""
        return self.take(self.load()) if self._items is None else self._items

    def take(self, items: Items) -> Items:
        """Use data that the caller has loaded; raises unless it is the data of this run."""
        check_fingerprint(self.run, items, self.settings.data)
        self._items = items
        return items

    def load(self, own: bool = True) -> Items:
        """Load the data of the settings; a location given as --data or --root replaces theirs. Does not check its fingerprint.

        Args:
            own: the data is that of the run, whose broken images are known; otherwise all images are checked.
        """
        options: dict[str, Any] = {"skipped": self.run.skipped} if own else {"quiet": self.quiet, "say": self.say}
        options |= {"workers": self.workers, "allow_imports": self.settings.allow_imports}
        try:  # a run may not be trustworthy: download data from a hub only if the user has named it
            return load_items(self.settings.data, self.settings.root, **options, fetch=self.named)
        except LikewiseError as error:
            hint = "" if self.moved else " (if the data of this run has moved, give its location: --data, --root)"
            raise LikewiseError(f"{error}{hint}") from None

    @property
    def noisy_items(self) -> Items:
        """The data with the labels of training: with the label noise of the settings injected."""
        settings = self.settings
        return inject_noise(self.items, self.protocol, settings.noise, settings.seed, settings.allow_imports)

    @property
    def protocol(self) -> Protocol:
        if self._protocol is None:
            self._protocol = make_protocol(self.settings)
        return self._protocol

    @property
    def network(self) -> Embedder:
        """The network of `checkpoint`, on the device, in evaluation mode."""
        if self._network is None:
            self._network = open_embedder(self.run, self.settings, self.checkpoint, self.device)
        return self._network

    @property
    def transform(self) -> Plain | None:
        """The image transform of evaluation; None for feature vectors."""
        if self._transform is None:
            self._transform = transforms(self.settings, self.network)[1]
        return self._transform

    @property
    def similarity(self) -> str:
        """The similarity of its embeddings: "cosine" or "euclidean"."""
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
        """Return the embeddings of these rows by the network.

        Args:
            items: the data of the run, or other data.
            pixels: the decoded images of these items, if the caller has them.
            how: further arguments of `engine.embed.embed_rows`.
        """
        from likewise.data.placement import once
        from likewise.runs.embed import embed_rows

        options = {
            "held": once(pixels, rows, self.device),
            "workers": self.workers,
            "quiet": self.quiet,
            "title": title,
        } | how
        return embed_rows(self.network, items, rows, self.transform, device=self.device, **options)


def has_fingerprint(run: Run, items: Items) -> bool:
    """Return whether the items have the fingerprint of the data of the run."""
    return fingerprint(items) == run.about["data"]


def check_fingerprint(run: Run, items: Items, data: str) -> None:
    """Raise unless the items have the fingerprint of the training data of the run."""
    if not has_fingerprint(run, items):
        raise LikewiseError(
            f"run: '{data}' must be the data that '{run.path}' was trained with, but files, labels or splits have changed; "
            "restore the data; `likewise evaluate RUN --data DATA` scores the run on other data"
        )
