"""Records that the steps of an audit pass on: the source, its retrieval errors and their causes, and label scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from likewise.config import Train
from likewise.contracts import Loss
from likewise.runs.folder import Run
from likewise.types import Embedded, Items

Kind = Literal["clean", "individual", "merge", "diffuse"]


class AuditSplit(NamedTuple):
    """Embeddings of one split.

    Labels in `e` are numbers of the classes of this split, with `names`; `e.row` are rows of the data.
    """

    e: Embedded
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Subject:
    """The data and network that are audited. `splits` has every row once; `test` has the samples in which errors are searched.

    `loss` is set if its gradient by a linear head can be computed. `history`: losses of the training split in every epoch.
    """

    title: str
    items: Items  # with the given labels
    splits: dict[str, AuditSplit]
    test: AuditSplit
    notes: list[str]
    device: torch.device
    run: Run | None = None
    settings: Train | None = None
    embedder: nn.Module | None = None
    plain: Callable | None = None  # transform of images without augmentation
    loss: Loss | None = None
    linear: bool = False
    history: Float[Tensor, "T N"] | None = None


class WrongPairs(NamedTuple):
    """Pairs (`query`, `partner`) and their squared distance between unit vectors, the worst first.

    `wrong` is the query's nearest sample of another class, `mate` its nearest sample of its own class (-1: none). One of
    the two is the
    partner; the other is shown beside it.
    """

    query: Int[Tensor, "P"]
    partner: Int[Tensor, "P"]
    wrong: Int[Tensor, "P"]
    mate: Int[Tensor, "P"]
    distance: Float[Tensor, "P"]


class RetrievalErrors(NamedTuple):
    """Retrieval errors as pairs of two types.

    `confusion`: query and nearest neighbour, which has another label; they should be farther apart; the closest pairs come
    first.
    `mis_similar`: query and nearest sample of its own class, where a sample of another class is closer; the farthest come
    first.
    """

    confusion: WrongPairs
    mis_similar: WrongPairs


@dataclass(frozen=True, eq=False)
class Causes:
    """The training samples that influence each error most, the strongest first. Rows are positions in the training split.

    `spread` is the root mean square of the influence over all samples: values far below it are not distinguishable from 0.
    """

    harmful_row: Int[Tensor, "Q K"]
    harmful: Float[Tensor, "Q K"]
    helpful_row: Int[Tensor, "Q K"]
    helpful: Float[Tensor, "Q K"]
    spread: Float[Tensor, "Q"]


class Errors(NamedTuple):
    """Errors to explain: pairs of test samples (positions in the test split), and the name and type of each error."""

    pair: Int[Tensor, "P 2"]
    sign: Float[Tensor, "P"]
    error: Int[Tensor, "P"]  # number of the error of each pair
    name: list[tuple[str, str]]  # (error, type)

    def some(self, low: int, high: int) -> Errors:
        """Return the errors from `low` to `high` - 1, numbered from 0."""
        mine = (self.error >= low) & (self.error < high)
        return Errors(self.pair[mine], self.sign[mine], self.error[mine] - low, self.name[low:high])


@dataclass(frozen=True, eq=False)
class ExplainedErrors:
    """Retrieval errors, the causes of the worst ones if they can be computed, and the summed influence per training sample."""

    pairs: RetrievalErrors
    errors: Errors
    g: Float[Tensor, "N D"] | None = None  # `embedding_gradients` of the training split, if there is a loss
    causes: Causes | None = None
    pull: Float[Tensor, "N"] | None = None  # sum of absolute influences over errors
    verified: dict | None = None


@dataclass(frozen=True, eq=False)
class LabelQuality:
    """P(the label is right) for every sample, and the suggested label if it is wrong.

    `score` combines the `single` scores. `confidence`: probability of the suggested label if the given one is wrong;
    `margin`: its
    lead over the next label. `any` and `similar`: estimated shares of labels that are exchanged with any class, and with a
    similar one. `off_topic`: probability that the image fits no class; None: not computed.
    """

    score: Float[Tensor, "N"]
    single: dict[str, Float[Tensor, "N"]]
    suggested: Int[Tensor, "N"]
    confidence: Float[Tensor, "N"]
    margin: Float[Tensor, "N"]
    any: float
    similar: float
    uninformative: bool = False  # features separate classes no better than chance, so no label is flagged
    off_topic: Float[Tensor, "N"] | None = None


@dataclass(frozen=True, eq=False)
class ClassFindings:
    """Result of the suggested labels for each class.

    `kind`: "clean" (no sample leaves the class), "individual" (a few do), "merge" (many do, nearly all to `target`) or
    "diffuse" (many
    do, to several classes). `of_all` and `of_touched`: share of samples with another suggested label, among all samples and
    among those
    of classes that some sample leaves.
    """

    label: Int[np.ndarray, "C"]
    size: Int[np.ndarray, "C"]
    moved: Int[np.ndarray, "C"]  # samples for which another label is suggested
    target: Int[np.ndarray, "C"]  # most frequent suggested label, of ties the lowest; -1: none
    entropy: Float[np.ndarray, "C"]  # of the suggested labels, in nats; 0 if they are all equal
    kind: tuple[Kind, ...]
    of_all: float
    of_touched: float


@dataclass(frozen=True, eq=False)
class SplitQuality:
    """Label scores, nearest neighbours and class findings of one split."""

    quality: LabelQuality
    single: dict[str, Float[Tensor, "N"]]
    near: Int[np.ndarray, "N K"]  # positions in the split, -1: none
    classes: ClassFindings
    wrong: float  # estimated number of wrong labels; samples alone in their class are not counted

    @property
    def flagged(self) -> Bool[Tensor, "N"]:
        """Whether each label is more likely wrong than right."""
        return self.quality.score < 0.5


def to_device(e: Embedded, device: torch.device) -> Embedded:
    """Return the embeddings with all tensors on a device."""
    return Embedded(*(None if t is None else t.to(device) for t in (e.z, e.y, e.row, e.e, e.f)))  # pyright: ignore[reportArgumentType]
