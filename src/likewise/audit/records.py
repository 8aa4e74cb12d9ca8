"""What the steps of an audit hand to one another: the subject, its errors and their causes, and its labels scored."""

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
    """Rows that are audited together. Labels in `e` count the classes of the part, by `names`; `e.row` are the data's rows."""

    e: Embedded
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Subject:
    """What is audited. `part` has every row once; `test` is where errors are looked for, as the protocol pools it.

    `loss` is there where its gradient by a linear head can be had. `history`: losses of the train split in every pass.
    """

    title: str
    items: Items  # labels as given
    part: dict[str, AuditSplit]
    test: AuditSplit
    notes: list[str]
    device: torch.device
    run: Run | None = None
    settings: Train | None = None
    embedder: nn.Module | None = None
    plain: Callable | None = None
    loss: Loss | None = None
    linear: bool = False
    history: Float[Tensor, "T N"] | None = None


class WrongPairs(NamedTuple):
    """Pairs (`query`, `partner`) and their squared distance between unit vectors, the worst first.

    `wrong` is the query's nearest sample of another class, `mate` its nearest of the own class (-1: it is alone); one of the two
    is the partner, the other shows a person what was to be told apart.
    """

    query: Int[Tensor, "P"]
    partner: Int[Tensor, "P"]
    wrong: Int[Tensor, "P"]
    mate: Int[Tensor, "P"]
    distance: Float[Tensor, "P"]


class RetrievalErrors(NamedTuple):
    """`confusion`: the nearest neighbour has another label, so that the two should be farther apart; the nearest come first.
    `mis_similar`: the nearest sample of the own class, where one of another class is nearer; the farthest come first."""

    confusion: WrongPairs
    mis_similar: WrongPairs


@dataclass(frozen=True, eq=False)
class Causes:
    """The samples that matter most for each error, the strongest first. Rows are positions among the training samples.

    `spread` is the root mean square over all samples: what is far below it has a sign by chance.
    """

    harmful_row: Int[Tensor, "Q K"]
    harmful: Float[Tensor, "Q K"]
    helpful_row: Int[Tensor, "Q K"]
    helpful: Float[Tensor, "Q K"]
    spread: Float[Tensor, "Q"]


class Errors(NamedTuple):
    """Errors to explain: the pairs of test samples of each (positions in the test split), and what each error is called."""

    pair: Int[Tensor, "P 2"]
    sign: Float[Tensor, "P"]
    error: Int[Tensor, "P"]  # which error a pair belongs to
    name: list[tuple[str, str]]  # (error, kind)

    def some(self, low: int, high: int) -> Errors:
        mine = (self.error >= low) & (self.error < high)
        return Errors(self.pair[mine], self.sign[mine], self.error[mine] - low, self.name[low:high])


@dataclass(frozen=True, eq=False)
class ExplainedErrors:
    """The test errors, causes of the worst of them where they can be told, and how hard each training sample pulls at them."""

    found: RetrievalErrors
    errors: Errors
    g: Float[Tensor, "N D"] | None = None  # `shares` of the training samples, where the loss can be asked
    causes: Causes | None = None
    pull: Float[Tensor, "N"] | None = None
    verified: dict | None = None


@dataclass(frozen=True, eq=False)
class LabelQuality:
    """P(the label is right) for every sample, and the label it should have if it is not.

    `score` is made of the `single` ones. `confidence`: of the suggested label, given that the own one is wrong; `margin`: how far
    it is ahead of the next. `any` and `similar`: shares of labels that are those of any other class, and of a similar one.
    """

    score: Float[Tensor, "N"]
    single: dict[str, Float[Tensor, "N"]]
    suggested: Int[Tensor, "N"]
    confidence: Float[Tensor, "N"]
    margin: Float[Tensor, "N"]
    any: float
    similar: float
    silent: bool = False  # features tell classes apart no better than chance, so nobody is doubted


@dataclass(frozen=True, eq=False)
class ClassFindings:
    """What suggestions say about each class.

    `kind`: "clean" (nobody leaves it), "individual" (a few do), "merge" (many do, nearly all for `target`) or "diffuse" (many do,
    for several classes). `of_all` and `of_touched`: the share of samples with another label, among all samples and among those
    of classes that anybody leaves.
    """

    label: Int[np.ndarray, "C"]
    size: Int[np.ndarray, "C"]
    moved: Int[np.ndarray, "C"]  # samples for which another label is suggested
    target: Int[np.ndarray, "C"]  # the label suggested most often, the lowest of equals; -1: none
    entropy: Float[np.ndarray, "C"]  # of the other labels suggested, in nats: 0 where they are one
    kind: tuple[Kind, ...]
    of_all: float
    of_touched: float


@dataclass(frozen=True, eq=False)
class SplitQuality:
    """What is said of every sample of a part; `y` are its labels as the part counts them."""

    judged: LabelQuality
    single: dict[str, Float[Tensor, "N"]]
    near: Int[np.ndarray, "N K"]  # positions in the part, -1: none
    classes: ClassFindings
    wrong: float  # how many labels are, by the scores; samples alone in their class are not counted

    @property
    def flagged(self) -> Bool[Tensor, "N"]:
        return self.judged.score < 0.5


def to_device(e: Embedded, device: torch.device) -> Embedded:
    return Embedded(*(None if t is None else t.to(device) for t in (e.z, e.y, e.row, e.e, e.f)))  # pyright: ignore[reportArgumentType]
