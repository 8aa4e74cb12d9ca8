"""Records that the steps of an audit pass on: the source, its retrieval errors and their causes, and label scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.contracts import Loss
from likewise.core.settings import Train
from likewise.core.types import Embedded, Items
from likewise.curate.audit.label_probability import LabelQuality
from likewise.curate.audit.states import STATE_DESCRIPTIONS
from likewise.labels.class_overlap import OverlapState
from likewise.runs.folder import Run

Kind = Literal["clean", "individual", "mixed", "merge", "diffuse", "unknown"]


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
    loss: Loss | None = None
    linear: bool = False
    history: Float[Tensor, "T N"] | None = None
    own: dict[str, list[str]] | None = None  # all columns of the user's table; None: the data is no table
    start_features: Float[Tensor, "R F"] | None = None  # of every data row, by the network before its training

    def features_of(
        self, names: list[str], rows: Int[Tensor, "N"]
    ) -> tuple[Float[Tensor, "N F"], Float[Tensor, "N G"] | None, Bool[Tensor, "N"]]:
        """Return the features of some splits, those from before the training if there are such, and which rows did not train.

        Args:
            rows: rows of the data of these splits, in their order.
        """
        parts = [self.splits[name].e for name in names]
        tables = [e.z if e.f is None else e.f for e in parts]
        x = tables[0] if len(tables) == 1 else torch.cat(tables)  # one split may be most of the memory
        untrained = torch.cat([torch.full((len(e.y),), name != "train") for name, e in zip(names, parts)])
        return x, None if self.start_features is None else self.start_features[rows], untrained


class WrongPairs(NamedTuple):
    """Pairs (`query`, `partner`) and their squared distance between unit vectors, the worst first.

    `wrong` is the query's nearest sample of another class, `mate` its nearest sample of its own class (-1: none). One of the two
    is the partner; the other is shown beside it.
    """

    query: Int[Tensor, "P"]
    partner: Int[Tensor, "P"]
    wrong: Int[Tensor, "P"]
    mate: Int[Tensor, "P"]
    distance: Float[Tensor, "P"]


class RetrievalErrors(NamedTuple):
    """Retrieval errors as pairs of two types.

    `confusion`: query and nearest neighbour, which has another label; they should be farther apart; the closest pairs come first.
    `mis_similar`: query and nearest sample of its own class, where a sample of another class is closer; the farthest come first.
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
    queries: Int[Tensor, "Q"] | None = None  # places of the queries among the test samples; None: all


@dataclass(frozen=True, eq=False)
class ClassFindings:
    """Result of the suggested labels for each class, and of the comparison with its nearest classes.

    `kind`: "clean" (no sample leaves the class), "individual" (a few do), "merge" (many do, nearly all to `target`) or
    "diffuse" (many do, to several classes). With `state`, "merge" means that `partner` is the same class under another
    name, and "mixed" that many samples leave for `target`, which is another class. `of_all` and `of_touched`: share of
    samples with another suggested label, among all samples and among those of classes that some sample leaves.
    """

    label: Int[np.ndarray, "C"]
    size: Int[np.ndarray, "C"]
    moved: Int[np.ndarray, "C"]  # samples for which another label is suggested
    target: Int[np.ndarray, "C"]  # most frequent suggested label, of ties the lowest; -1: none
    entropy: Float[np.ndarray, "C"]  # of the suggested labels, in nats; 0 if they are all equal
    kind: tuple[Kind, ...]
    of_all: float
    of_touched: float
    partner: Int[np.ndarray, "C"] | None = None
    """Label of the class that is most likely the same class; -1: none was compared."""
    overlap: Float[np.ndarray, "C"] | None = None  # probability that it is; NaN where the state is "unknown"
    state: tuple[OverlapState, ...] = ()


class CopyEvidence(NamedTuple):
    """Evidence from copies of a sample with other labels: a sentence, and the suggested label if the given one is wrong."""

    reason: str
    suggested: str = ""  # class name; empty: the suggestion without copies holds
    confidence: float = 0.0
    margin: float = 0.0
    exact: bool = True  # False: near copies


@dataclass(frozen=True, eq=False)
class SplitQuality:
    """Label scores, nearest neighbours and class findings of one split, and the evidence from copies with other labels."""

    quality: LabelQuality
    single: dict[str, Float[Tensor, "N"]]
    near: Int[np.ndarray, "N K"]  # positions in the split, -1: none
    classes: ClassFindings
    alone: Bool[np.ndarray, "N"]  # whether no other sample of the split has the class
    copies: dict[int, CopyEvidence] = field(default_factory=dict)  # position in the split -> evidence
    blank: dict[int, str] = field(default_factory=dict)  # position of a blank or unreadable image -> reason

    @property
    def wrong(self) -> float:
        """Estimated number of wrong labels among those that can be scored; NaN if none can."""
        known = self.quality.score[~self.quality.score.isnan()]
        return float((1 - known).sum()) if len(known) else float("nan")

    @property
    def flagged(self) -> Bool[Tensor, "N"]:
        """Whether each label is more likely wrong than right; False if that is unknown."""
        return self.quality.score < 0.5

    @property
    def state(self) -> np.ndarray:
        """The state of every sample, a key of `STATE_DESCRIPTIONS`.

        If several apply, it is the first of conflict, off-topic, unknown and flagged; a blank image is always off-topic.
        """
        conflict = np.zeros(len(self.alone), bool)
        conflict[[place for place, one in self.copies.items() if one.exact and place not in self.blank]] = True
        outside = self.quality.is_off_topic.numpy()
        cases = [conflict, outside, self.quality.score.isnan().numpy(), self.flagged.numpy()]
        return np.select(cases, ["conflict", "off-topic", "unknown", "flagged"], "ok")

    @property
    def state_counts(self) -> dict[str, int]:
        """State -> number of samples that have it."""
        return {state: int((self.state == state).sum()) for state in STATE_DESCRIPTIONS}

    def suggestion(self, place: int, names: tuple[str, ...]) -> tuple[str, float, float]:
        """Return the label that is suggested if the given one is wrong, its confidence, and its margin."""
        if place in self.copies and self.copies[place].suggested:
            return self.copies[place][1:4]
        q = self.quality
        return names[int(q.suggested[place])], float(q.confidence[place]), float(q.margin[place])


def to_device(e: Embedded, device: torch.device) -> Embedded:
    """Return the embeddings with all tensors on a device."""
    return Embedded(*(None if t is None else t.to(device) for t in (e.z, e.y, e.row, e.e, e.f)))  # pyright: ignore[reportArgumentType]


def has_own_split(items: Items) -> bool:
    """Return whether the data states the split of its rows; otherwise a protocol splits them."""
    return items.split is not None and bool((items.split != "").any())
