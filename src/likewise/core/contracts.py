"""Contracts: the abstract base class of every kind of component. Read this file first.

A component with settings is a class that inherits directly from one contract; a component without settings is a plain function.
The annotations of a constructor also hold the ranges of its arguments (`margin: Positive`), which `CheckedArguments` checks.
Loss, Term, Confidence and BatchSampler may also override the hooks `after_step` and `observe_state`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from likewise.core.argument_checks import CheckedArguments, Rule
from likewise.core.batch_checks import check_shapes, check_values
from likewise.core.similarity import is_traced
from likewise.core.supervision import Relevance as Relevance  # re-exported: it is a contract too
from likewise.core.supervision import RelevanceInput, check_inputs
from likewise.core.types import (
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


class TrainingHooks:
    """The two hooks through which the training loop calls a component after a step."""

    def after_step(self, step: int) -> list[nn.Parameter] | None:
        """Update the state of the component; called once after each optimiser step.

        Everything that this method changes must be in `state_dict`, so that training can resume. Return the parameters whose
        values were replaced, if any: the training loop deletes their optimiser state.
        """

    def observe_state(self) -> dict[str, Tensor]:
        """Return detached scalar tensors by name; the training loop logs them at regular intervals."""
        return {}


class Loss(nn.Module, TrainingHooks, CheckedArguments, ABC):
    """(z, y) -> one value per sample; the mean over the batch is the loss that the paper defines.

    A pair loss compares the batch with itself, or with `ref` if it is given. A loss that compares samples with its own parameters
    (proxies) ignores `ref`, and its docstring states so.
    """

    input: Literal["unit", "raw"] = "unit"
    """Which embeddings `z` are: of unit length, or raw (before the division by length; evaluation is then Euclidean too)."""

    lr_factor: float = 1.0
    """Learning rate of the loss's own parameters, as a multiple of the network's learning rate."""

    remembers: bool = False
    """Whether the loss stores embeddings with their labels, so that it does not work with mixtures of samples (mixup)."""

    can_shard: bool = False
    """Whether the rows of `proxies` can be distributed over several processes."""

    relevance_inputs: tuple[RelevanceInput, ...] = ()
    """What of a `Relevance` the loss can use in place of equal labels, preferred first; empty: the loss needs single labels."""

    graded: bool = False
    """Whether the loss uses the value of the relevance (`Pairs.value`); otherwise positives and negatives by its threshold."""

    def __init__(self):
        super().__init__()
        self.relevance: Relevance | None = None  # a module: assigned later, it is registered

    def with_relevance(self, relevance: Relevance) -> Loss:
        """Use a relevance in place of equal labels, in this loss and the losses inside it. Return the loss itself.

        `y` then holds ids of that relevance (`Relevance.by`). Raise if a loss cannot use it.
        """
        inside = [module for module in self.modules() if isinstance(module, Loss)]
        for loss in inside:
            loss.check_relevance(relevance)
        for loss in inside:
            loss.relevance = relevance
        return self

    def check_relevance(self, relevance: Relevance) -> None:
        """Raise if the loss cannot use a relevance: by default, if it gives nothing of `relevance_inputs`."""
        check_inputs(type(self).__name__, self.relevance_inputs, getattr(self, "classes", None), relevance)

    @classmethod
    def input_of(cls, arguments: Mapping[str, Any]) -> Literal["unit", "raw"]:
        """Return the `input` of a loss with these constructor arguments, without building the loss.

        A loss whose `input` depends on its arguments must override this method.

        Args:
            arguments: argument name -> value, defaults included. A component is an instance or a `config.spec.Described`.
        """
        return cls.input

    def __call__(self, z: Tensor, y: Tensor, ref: Ref | None = None) -> Tensor:
        """Check the batch, then call `forward`.

        On an accelerator, values cannot be checked without a device sync: invalid samples get the value NaN instead of an error.
        """
        traced = is_traced()
        check_shapes(self, z, y, ref, traced)
        y = y.long()  # labels may be int32 or smaller, but indexing needs int64
        classes = getattr(self, "classes", None) if self.relevance is None else self.relevance.ids
        valid = check_values(self, z, y, classes, traced)
        if valid is None:
            return super().__call__(z, y, ref)
        y = y if classes is None else y.clamp(0, classes - 1)  # an index out of range would abort the CUDA context
        return super().__call__(z, y, ref).where(valid, torch.nan)

    @abstractmethod
    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        """Return the loss of every sample of a batch that was checked."""

    def predict(self, z: Float[Tensor, "B D"]) -> Int[Tensor, "B"] | None:
        """Return the predicted class of every sample, by default that of the nearest proxy; None if the loss predicts none.

        Args:
            z: embeddings as `forward` takes them: of unit length, or raw.
        """
        proxies = getattr(self, "proxies", None)
        if proxies is None or proxies.ndim != 2 or self.input != "unit":
            return None
        from likewise.core.distributed.sharded_proxies import nearest  # imported late: only losses with proxies need it

        return nearest(z, proxies, getattr(self, "classes", len(proxies)))


def input_of(loss: Any) -> Literal["unit", "raw"]:
    """Return the `input` of a loss, given as an instance or as a `config.spec.Described`."""
    if isinstance(loss, Loss):
        return loss.input
    kind = getattr(loss, "kind", None)
    if not isinstance(kind, type) or not issubclass(kind, Loss):
        raise LikewiseError(f"loss: an inner loss must be a Loss, got {loss!r}; see `likewise list losses`")
    return kind.input_of(loss.arguments)


class Term(nn.Module, TrainingHooks, CheckedArguments, ABC):
    """An addition to the objective that needs more than (z, y): features, rows or a teacher. Returns one value per sample.

    The labels of the batch are class numbers 0..C-1, and its rows count the training samples from 0.
    """

    weight: float = 1.0
    """Factor of the term in the objective."""

    weighted: bool = False
    """Whether the sample weights of the confidence also apply to this term."""

    syncs: bool = False
    """Whether `forward` reads values on the host, which costs one device sync per step."""

    uses_classes: bool = True
    """Whether the term uses labels as classes and so not with a `Relevance`; copies of the training loss get its ids."""

    @abstractmethod
    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        """Return the value of the term for every sample, given the network's output for the batch."""

    def hold(self, **modules: nn.Module) -> None:
        """Set attributes to modules that are not saved, moved or trained with the term, such as the network in training."""
        vars(self).update(modules)

    def prepare(self, given: TrainingSetInfo) -> None:
        """Compute what the term needs from the whole training set; called before the first step and after each resume."""


class Miner(CheckedArguments, ABC):
    """Chooses the pairs or triplets of a batch that a pair loss uses; a constructor argument of that loss."""

    yields: Literal["pairs", "triplets"] = "triplets"
    """What the miner returns: masks of pairs (`Pairs`) or indices of triplets (`Tuples`)."""

    whole: bool = False
    """Whether the miner needs all anchors in one call; otherwise a loss may call it once per block of anchors."""

    momentum: float | None = None
    """Momentum of the teacher (a moving average of the network's weights) that the miner needs; None: it needs no teacher."""

    def see_teacher(self, z: Float[Tensor, "B D"]) -> None:
        """Store the teacher's embeddings of the batch; called before every loss if `momentum` is set."""

    @abstractmethod
    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None) -> Pairs | Tuples:
        """Return the chosen pairs or triplets.

        Args:
            sim: cosine similarity of every anchor to every reference row.
            pairs: all positives and negatives, to choose from.
            dim: size of the embedding.
            margin: margin of the loss, for miners that use it; None if the loss has none.
        """


PairMiner = Annotated[Miner, Rule("yield pairs, like HardPairs()", lambda miner: miner.yields == "pairs")]
TripletMiner = Annotated[Miner, Rule("yield triplets, like SemiHard()", lambda miner: miner.yields == "triplets")]


class BatchSampler(TrainingHooks, CheckedArguments, ABC):
    """Chooses the rows of every batch. The same seed (and the same embeddings in `observe`) gives the same rows.

    Iteration never ends: it starts at `step` and continues epoch after epoch.
    """

    step: int = 0
    """Number of batches that were trained so far; iteration starts with the next one."""

    largest_class: int | None = None
    """Upper bound of the samples of one class in a batch; None if the sampler has no such bound."""

    groups: Int[np.ndarray, "N"] | None = None
    """Group of every row in the current epoch, such as its cluster, which terms get as `Batch.group`; None: there are none.

    A sampler whose groups depend on embeddings must override `observe`: the batches of an epoch are then drawn after the epoch
    before it was trained.
    """

    @abstractmethod
    def epoch_batches(self, number: int) -> list[list[int]]:
        """Return all `len(self)` batches of epoch `number` as lists of rows; depends on the seed and the number only."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches in an epoch."""

    def __iter__(self) -> Iterator[list[int]]:
        """Yield batches without end, starting at `step`."""
        number, first = divmod(self.step, len(self))
        while True:
            yield from self.epoch_batches(number)[first:]
            number, first = number + 1, 0

    def start(self, embed: Callable[[], Embedded]) -> None:
        """Read the embeddings of the training set, for samplers that use them; called once before training."""

    def observe(self, z: Float[Tensor, "B D"], row: Int[Tensor, "B"]) -> None:
        """Read the embeddings of a batch, for samplers that use them; called after every step."""

    def after_step(self, step: int) -> None:
        """Set `self.step`, the number of finished steps."""
        self.step = step

    def state_dict(self) -> dict:
        """Return the state that a checkpoint stores."""
        return {"step": self.step}

    def load_state_dict(self, state: dict) -> None:
        """Restore the state from a checkpoint."""
        self.step = state["step"]


class Confidence(nn.Module, TrainingHooks, CheckedArguments, ABC):
    """Computes sample weights during training, and may relabel. It never removes rows from a batch.

    Embeddings arrive detached, and rows count the training samples from 0.
    """

    needs_loss: bool = False
    """Whether `forward` needs the unweighted loss of every sample; otherwise it gets None."""

    needs_prediction: bool = False
    """Whether the confidence works only with a loss that predicts classes (`Loss.predict`)."""

    every: str | None = None
    """Duration between two relabelling rounds, such as "1e" for one epoch; None: there are none."""

    uses_classes: bool = True
    """Whether the confidence uses the labels, or changes them, as classes, so that it does not work with a `Relevance`."""

    peers: int = 1
    """Number of networks that must be trained together."""

    @abstractmethod
    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        """Return the sample weights of a batch."""

    def relabel(self, e: Embedded) -> Relabelling | None:
        """Return new labels and sample weights from the embeddings and given labels of the training set; None: no change."""
        return None

    def exchange(self, views: list[PeerView], y: Int[Tensor, "B"], row: Int[Tensor, "B"]) -> list[SampleWeights]:
        """Return the sample weights for each of several networks, given the outputs of all of them for the batch."""
        return [self(one.z, y, row, one.loss) for one in views]


class NoiseModel(CheckedArguments, ABC):
    """A rule that injects wrong labels. Depends on the labels and the random generator only."""

    @abstractmethod
    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]:
        """Return the labels with noise, given the true labels."""

    def change_labels(
        self, sample: Int[np.ndarray, "P"], label: Int[np.ndarray, "P"], rng: np.random.Generator
    ) -> tuple:
        """Return the pairs (sample, label) of samples with several labels, with noise; each keeps one. By default an error."""
        raise LikewiseError(f"{type(self).__name__}: needs one label per sample; use Uniform, DropLabels or AddLabels")


class Protocol(CheckedArguments, ABC):
    """The rule that assigns rows to splits, and the rows of a split to query and gallery."""

    shares_classes: bool = False
    """Whether the training and test splits have the same classes on purpose; otherwise shared classes are a leak."""

    has_test_split: bool = True
    """Whether there is a test split; without one, all rows are used for training and there are no test scores."""

    @abstractmethod
    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        """Return the rows of a split. Rows of the column `junk` are in no split; see `protocols.splits.in_splits`."""

    def query_gallery(
        self, items: Items, rows: Int[np.ndarray, "n"]
    ) -> tuple[Bool[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        """Return two masks of these rows: queries, and gallery. By default every row is both."""
        return np.ones(len(rows), bool), np.ones(len(rows), bool)

    def galleries(self, items: Items, rows: Int[np.ndarray, "n"]) -> tuple[str, ...]:
        """Return the names of the galleries among these rows that `only` can select."""
        return ()

    def only(self, gallery: str) -> Protocol:
        """Return this protocol restricted to one named gallery."""
        raise LikewiseError(f"{type(self).__name__}: it has no named galleries, got '{gallery}'; use QueryGallery")


class Logger(CheckedArguments, ABC):
    """Sends the log of a training to another tool, asynchronously: the training never waits for it.

    If a logger raises, the user sees one warning and the training continues without that logger.
    """

    @abstractmethod
    def start(self, name: str, folder: Path, config: dict, key: str | None) -> str:
        """Open the record of a run and return its key; called before the first line.

        Args:
            name: name of the run.
            folder: folder of the run.
            config: settings of the training.
            key: key that `start` returned when this training first started; None: create a new record.
        """

    @abstractmethod
    def log(self, step: int, numbers: dict[str, float]) -> None:
        """Write one line of the log.

        After a resume, steps that were logged before are not logged again.

        Args:
            numbers: name -> value; nested names are joined by "/": "loss", "lr/head", "val MAP@R".
        """

    @abstractmethod
    def end(self, scores: dict[str, float] | None) -> None:
        """Close the record with the scores of the test split; None: the training was interrupted and may be resumed."""


Metric = Callable[[Retrieval], Float[Tensor, "Q"]]
"""A metric as a plain function: one value per query, NaN for a query without relevant rows."""


class QueryMetric(CheckedArguments, ABC):
    """A metric of your own: one value per query; high is good, NaN for a query without relevant rows."""

    depth: int = 1
    """Rank down to which the metric reads the rankings; ranks 1 to R + 1 (R: number of relevant rows) are always available."""

    all_hits: bool = False
    """Whether the metric reads the ranks of all relevant rows, at any depth."""

    @abstractmethod
    def __call__(self, found: Retrieval) -> Float[Tensor, "Q"]:
        """Return the value of every query."""


class SetMetric(CheckedArguments, ABC):
    """A metric of your own: one value for a whole set of unit embeddings with labels; NaN if it is not defined."""

    @abstractmethod
    def __call__(self, z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> float:
        """Return the value of the metric."""
