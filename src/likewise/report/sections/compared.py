"""Section "Side by side": two runs that were asked the same queries, who is better, and which queries changed most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from likewise.evaluation.compare import conclude, join, same, shared_metrics
from likewise.numerics.bootstrap import paired
from likewise.report.opened import Opened
from likewise.report.queries import ask, asked_list, places_of
from likewise.report.records import Asked, Facts, Pool, Viewed
from likewise.report.section import Packing, Section, Studies
from likewise.types import LikewiseError


class Compared(NamedTuple):
    """Two runs on the same queries, those that changed most first."""

    a: int
    b: int
    metric: str  # what queries are compared by
    verdict: str  # in a sentence
    queries: tuple[tuple[Asked, Asked], ...]


def set_beside(
    a: int, b: int, opened: Sequence[Opened], viewed: Sequence[Viewed], pool: Pool, top: int, seed: int
) -> Compared:
    """What run b makes of the queries of run a: a verdict, and the queries that changed most."""
    first, second = opened[a].queries, opened[b].queries
    assert first is not None and second is not None
    one, other = join(first, second, False)
    names = shared_metrics(one, other, None)
    metric = "MAP@R" if "MAP@R" in names else names[0]
    old, new = one.each[metric], other.each[metric]
    by_query = paired(old[:, None], new[:, None], seed=seed)
    by_class = paired(old[:, None], new[:, None], one.label, seed=seed)
    verdict = same(one, other, None, None) or conclude(metric, by_query, by_class, 0)
    place = places_of(one.row, pool.row)

    def asked(q: np.int64, value: np.ndarray, seen: Viewed) -> Asked:
        assert seen.near is not None and seen.near_sim is not None
        return ask(int(place[q]), float(value[q]), pool.label, seen.near, seen.near_sim)

    changed = changed_most(old, new, top)
    queries = tuple((asked(q, old, viewed[a]), asked(q, new, viewed[b])) for q in changed)
    return Compared(a, b, metric, with_names(verdict, viewed[a].name, viewed[b].name), queries)


def with_names(verdict: str, a: str, b: str) -> str:
    """A sentence about A and B, about these runs."""
    words = {"B - A": f"{b} - {a}", "B is": f"{b} is", "A and B": f"{a} and {b}"}
    for word, name in words.items():
        if word in verdict:
            return verdict.replace(word, name, 1)
    return verdict


def changed_most(old: Float[np.ndarray, "Q"], new: Float[np.ndarray, "Q"], top: int) -> Int[np.ndarray, "c"]:
    """Queries that changed most, first those that changed by most: half of them gains and half losses, as far as there are
    so many, so that neither side is picked for its best."""
    gain = np.nan_to_num(new - old)
    order = np.argsort(-np.abs(gain), kind="stable")
    up, down = order[gain[order] > 1e-12], order[gain[order] < -1e-12]
    half = top // 2
    some = max(top - half, top - len(down)), max(half, top - len(up))
    both = np.concatenate([up[: some[0]], down[: some[1]]])
    return both[np.argsort(-np.abs(gain[both]), kind="stable")]


def of_page(studies: Studies) -> tuple[Compared, ...]:
    """Compare every further run of a pool with the first; where that cannot be done, a note says why."""
    found, viewed, config = [], studies.viewed, studies.config
    for number, pool in enumerate(studies.pools):
        here = [i for i, one in enumerate(studies.opened) if viewed[i].pool == number and one.queries is not None]
        for other in here[1:]:
            try:
                found.append(set_beside(here[0], other, studies.opened, viewed, pool, config.top, config.seed))
            except LikewiseError as error:
                studies.notes.append(f"{viewed[here[0]].name} and {viewed[other].name} are not compared ({error})")
    return tuple(found)


def pack(found: tuple[Compared, ...], packing: Packing) -> list[dict]:
    return [one._asdict() | {"queries": [[asked_list(a), asked_list(b)] for a, b in one.queries]} for one in found]


def has_changes(facts: Facts) -> bool:
    """Return whether two runs answer a query differently."""
    return any(one.queries for one in facts.found.get("compared", ()))


SECTION = Section(
    "compared",
    "Side by side",
    "Two models, the same query",
    of_page=of_page,
    pack=pack,
    shown_if=has_changes,
)
