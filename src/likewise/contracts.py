"""Contracts: what each kind of component takes and returns. Read this file first.

A part with settings is a class under one of these contracts; a part without settings is a plain function.
Depth: contract, class, stop. Loss, Term, Confidence and BatchSampler may also override `after_step` and `observe_state`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from likewise.batch_checks import is_sound, must_fit
from likewise.similarity import observed
from likewise.types import (
    Batch,
    Embedded,
    Items,
    LikewiseError,
    Output,
    Pairs,
    PeerView,
    Ref,
    Relabelling,
    Retrieval,
    SampleWeights,
    TrainingSetInfo,
    Tuples,
)

Split = Literal["train", "val", "test"]


class Stepper:
    """The two doors a part may open to the training loop, and no others."""

    def after_step(self, step: int) -> list[nn.Parameter] | None:
        """Called once after each optimiser step. All it changes is in `state_dict`. It may return parameters that it put
        somewhere else: what the optimiser remembers of these is dropped."""

    def observe_state(self) -> dict[str, Tensor]:
        """Detached facts worth a line in the log, read every so many steps."""
        return {}


class Loss(nn.Module, Stepper, ABC):
    """(z, y) -> one number per sample; its mean is the number in the paper.

    `input` says what z must be: unit embeddings, or the raw ones before the norm (then evaluation is Euclidean too).
    `lr_factor` times the network's learning rate is what the paper gives to the loss's own parameters. `remembers`: it keeps
    embeddings by their labels, so mixtures of samples must not come in. `can_shard`: its `proxies` can be shared out among
    processes. `ref` is what samples are compared with in place of the batch. A loss that compares them with parameters of its own
    (proxies) does not use it, and its docstring says so.
    """

    input: Literal["unit", "raw"] = "unit"
    lr_factor: float = 1.0
    remembers: bool = False
    can_shard: bool = False

    @classmethod
    def input_of(cls, arguments: Mapping[str, Any]) -> Literal["unit", "raw"]:
        """Return the `input` of a loss made with these arguments. A loss whose `input` depends on them must override this.

        Args:
            arguments: by name, defaults included. A component among them is an instance, or a `config.spec.Described`.
        """
        return cls.input

    def __call__(self, z: Tensor, y: Tensor, ref: Ref | None = None) -> Tensor:
        """`forward`, once the batch is what it must be. Where looking would mean waiting for an accelerator, numbers of wrong
        samples become NaN instead of an error."""
        watched = observed()
        must_fit(self, z, y, ref, watched)
        y = y.long()  # shorter whole numbers are labels too, but no indices
        sound = is_sound(self, z, y, watched)
        if sound is None:
            return super().__call__(z, y, ref)
        classes = getattr(self, "classes", None)
        y = y if classes is None else y.clamp(0, classes - 1)  # an index out of range would stop the device
        return super().__call__(z, y, ref).where(sound, torch.nan)

    @abstractmethod
    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]: ...

    def predict(self, z: Float[Tensor, "B D"]) -> Int[Tensor, "B"] | None:
        """The class it would name for each sample: that of the nearest proxy. None: it has no classes."""
        proxies = getattr(self, "proxies", None)
        if proxies is None or proxies.ndim != 2 or self.input != "unit":
            return None
        from likewise.distributed.sharded_proxies import (
            nearest,  # not above: components without classes need none of it
        )

        return nearest(z, proxies, getattr(self, "classes", len(proxies)))


def input_of(loss: Any) -> Literal["unit", "raw"]:
    """Return the `input` of a loss, given as an instance or as a `config.spec.Described`."""
    if isinstance(loss, Loss):
        return loss.input
    kind = getattr(loss, "kind", None)
    if not isinstance(kind, type) or not issubclass(kind, Loss):
        raise LikewiseError(f"an inner loss must be a Loss, got {loss!r}; see `likewise list losses`")
    return kind.input_of(loss.arguments)


class Term(nn.Module, Stepper, ABC):
    """What the objective adds beside the loss and needs more than (z, y): features, rows, a teacher.

    One number per sample, like a loss. `weight` scales it; `trusted`: the confidence's weights apply to it too. In the batch
    it gets, labels are class numbers 0..C-1 and rows count the training samples. `waits`: it must look at values, so an
    accelerator waits once a step.
    """

    weight: float = 1.0
    weighted: bool = False
    syncs: bool = False

    @abstractmethod
    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]: ...

    def prepare(self, given: TrainingSetInfo) -> None:
        """Called once before the first step, and again when a training goes on: for what is worked out once and kept."""


class Miner(ABC):
    """Chooses among the pairs; a constructor argument of pair losses. A loss states which of the two kinds it takes.

    `gives` says which kind it makes. Losses hand over blocks of rows; `whole`: it must see all rows at once.
    `momentum`: it wants a teacher, a moving average of the network, that keeps so much of itself at a step.
    """

    yields: Literal["pairs", "triplets"] = "triplets"
    whole: bool = False
    momentum: float | None = None

    def see_teacher(self, z: Float[Tensor, "B D"]) -> None:  # noqa: B027 - most miners have no teacher
        """For a miner with a teacher, before every loss: what the teacher makes of the batch."""

    @abstractmethod
    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None) -> Pairs | Tuples: ...


def must_give(miner: Miner | None, kind: Literal["pairs", "triplets"], loss: str, example: str) -> None:
    """For a loss's constructor: raise if the miner makes the other kind."""
    if miner is not None and miner.yields != kind:
        raise LikewiseError(f"{loss} needs a miner of {kind}, such as {example}, got {type(miner).__name__}")


class BatchSampler(Stepper, ABC):
    """The rows of every batch, counted in steps. Same seed (and same observed embeddings), same rows.

    Iterating never ends: it goes on from `step`, one pass over the data after another.
    `largest_class`: the most samples of one class that a batch can hold, where the sampler can tell.
    """

    step: int = 0
    largest_class: int | None = None

    @abstractmethod
    def one_pass(self, number: int) -> list[list[int]]:
        """All batches of pass `number`: `len(self)` lists of rows, from the seed and the number."""

    @abstractmethod
    def __len__(self) -> int:
        """Batches in one pass over the data."""

    def __iter__(self) -> Iterator[list[int]]:
        number, first = divmod(self.step, len(self))
        while True:
            yield from self.one_pass(number)[first:]
            number, first = number + 1, 0

    def start(self, embed: Callable[[], Embedded]) -> None:
        """Called once before training, for samplers that look at embeddings."""

    def observe(self, z: Float[Tensor, "B D"], row: Int[Tensor, "B"]) -> None:
        """Called after every step with that batch's embeddings."""

    def after_step(self, step: int) -> None:
        self.step = step

    def state_dict(self) -> dict:
        return {"step": self.step}

    def load_state_dict(self, state: dict) -> None:
        self.step = state["step"]


class Confidence(nn.Module, Stepper, ABC):
    """How far to believe each label: masks and weights, never the removal of rows.

    It gets detached embeddings, and rows that count the training samples. `needs_loss`: it wants the unweighted loss too;
    `needs_guess`: a loss with classes.
    `every`: how long between two looks at the whole training set ("1e"); None: it never wants one. `peers`: how many
    networks it needs in training.
    """

    needs_loss: bool = False
    needs_prediction: bool = False
    every: str | None = None
    peers: int = 1

    @abstractmethod
    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights: ...

    def relabel(self, e: Embedded) -> Relabelling | None:
        """A look at the whole training set, its labels as they were given. None: no verdict yet."""
        return None

    def exchange(self, seen: list[PeerView], y: Int[Tensor, "B"], row: Int[Tensor, "B"]) -> list[SampleWeights]:
        """For several networks in training: how far each believes every label, given what all of them see."""
        return [self(one.z, y, row, one.loss) for one in seen]


class NoiseModel(ABC):
    """True labels -> labels wrong in places. A pure function of labels and generator."""

    @abstractmethod
    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]: ...


class Protocol(ABC):
    """Which rows belong to a part, which are queries and which the gallery.

    `shares_classes`: train and test hold the same classes by design, which elsewhere would be a leak. `tests`: there is a test
    split; without one everything trains, and nothing is scored.
    """

    shares_classes: bool = False
    has_test_split: bool = True

    @abstractmethod
    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]: ...

    def query_gallery(
        self, items: Items, rows: Int[np.ndarray, "n"]
    ) -> tuple[Bool[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        """Which of these rows ask, and which may answer; all of them, unless a protocol says otherwise."""
        return np.ones(len(rows), bool), np.ones(len(rows), bool)

    def galleries(self, items: Items, rows: Int[np.ndarray, "n"]) -> tuple[str, ...]:
        """Names of the galleries among these rows that can be ranked one at a time, with `only`."""
        return ()

    def only(self, gallery: str) -> Protocol:
        """This protocol, but one named gallery alone answers."""
        raise LikewiseError(f"{type(self).__name__}: it knows no galleries by name, got '{gallery}'; use QueryGallery")


class Logger(ABC):
    """Where the log of a training also goes. It is called beside the training, which never waits for it; should it fail, the
    user is told once and training goes on without it."""

    @abstractmethod
    def start(self, name: str, folder: Path, config: dict, key: str | None) -> str:
        """Before the first line. Gives a key under which the same record is found again.

        Args:
            name: of the run.
            folder: of the run.
            config: the settings of the training.
            key: where a training goes on, what this gave at its beginning; None: a new record.
        """

    @abstractmethod
    def log(self, step: int, numbers: dict[str, float]) -> None:
        """A line of the log, nested names joined by "/": "loss", "lr/head", "val MAP@R". What it was told before a training was
        cut short is not told again."""

    @abstractmethod
    def end(self, scores: dict[str, float] | None) -> None:
        """The last call, with the scores of the test split; None: the training stopped on the way, and may go on."""


Metric = Callable[[Retrieval], Float[Tensor, "Q"]]
"""A metric per query as a function: one number per query, NaN where there is nothing to find."""


class QueryMetric(ABC):
    """Retrieval -> one number per query; high is good, NaN where there is nothing to find. For metrics of your own.

    `depth`: the rank to which every ranking must go; the first R + 1 ranks are always there. `all_hits`: it reads the ranks of
    all relevant answers, however deep.
    """

    depth: int = 1
    all_hits: bool = False

    @abstractmethod
    def __call__(self, found: Retrieval) -> Float[Tensor, "Q"]: ...


class SetMetric(ABC):
    """Unit embeddings of a whole set and their labels -> one number; NaN where it is not defined. For metrics of your own."""

    @abstractmethod
    def __call__(self, z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> float: ...
