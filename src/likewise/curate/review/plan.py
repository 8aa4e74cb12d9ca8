"""Plan of a review: the open flagged questions in groups and in their order, what the next decisions gain, and when to stop.

A plan follows from the audit and one reviewer's own current decisions: reviewers work blind. The minutes that are left follow
from the pace of the reviewer, measured from the times of their decisions. The newest plan of each reviewer stays in memory.
Plans of large audits are made by a thread, so that no other request waits for them.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from likewise.core.errors import LikewiseError
from likewise.curate.audit.forecast import SECONDS_PER_DECISION, forecast_at
from likewise.curate.audit.read import read_consensus, read_forecast, read_proof
from likewise.curate.audit.review_queue import (
    POSTERIOR_FILE,
    Action,
    ReviewQueue,
    class_numbers,
    queue_of_findings,
    read_queue,
)
from likewise.curate.review.consensus import chosen_label
from likewise.curate.review.items import Questioned, Questions
from likewise.curate.review.store import Decision, Store, Stored, tidy
from likewise.labels.review_forecast import MAX_GROUP_SIZE, METRICS, expected_decisions, remaining_gain

NEXT_DECISIONS_COUNT = 20
"""Number of decisions whose expected gain the stop rule compares with a number of the user."""

MAX_INLINE_SECONDS = 0.02
"""CPU time of a plan that is made in the event loop at most; 3.4 ms with 3,000 rows and 541 suspects."""
MAX_PLANS_COUNT = 256
"""Maximum number of plans in memory, of different reviewers and orders."""
MAX_GAP_SECONDS = 60.0
"""Longest time between two decisions that counts as work; a longer one is a break."""
MIN_MEASURED_LABELS = 10
"""Number of labels from which a pace is measured; with fewer it is assumed."""


class Group(NamedTuple):
    """Questions that the page shows at once."""

    kind: Literal["same", "each", "copies", "off-topic"]
    items: tuple[str, ...]
    actions: tuple[Action, ...]  # what a reviewer decides one after another: one action, or one per item
    wrong: float  # highest probability that a label is wrong
    rank: float = math.inf  # place among the samples with differing votes, of those that come first

    @property
    def gain(self) -> float:
        return sum(one.gain for one in self.actions)

    @property
    def decisions(self) -> float:
        return sum(one.cost for one in self.actions)


@dataclass(frozen=True)
class Plan:
    """A plan of a reviewer."""

    stored: int  # id of the reviewer's last stored row that the plan includes; 0: none
    items: list[str]  # all open flagged questions, each once, in the order of the review
    gain: float | None  # expected gain of the next decisions, as a share of MAP@R
    shown: str  # what the page shows, as JSON, but for the parts that do not follow from decisions


class PlanWorker:
    """The newest plan of every reviewer and order; requests for the same plan share it.

    Plans that take longer than MAX_INLINE_SECONDS are made by one thread. Shorter ones are made in the event loop: a thread that
    competes with it for the interpreter lock would take several times as long, and delay other requests more.

    Args:
        make: returns a plan (reviewer, order) that includes at least what the reviewer had stored when it was called.
        last_id: returns the id of what a reviewer stored last.
    """

    def __init__(self, make: Callable[[str, str], Plan], last_id: Callable[[str], int]):
        self.make, self.last_id, self.thread = make, last_id, ThreadPoolExecutor(1, "plan")
        self.newest: OrderedDict[tuple[str, str], Plan] = OrderedDict()
        self.pending: dict[tuple[str, str], Future[Plan]] = {}
        self.seconds = math.inf  # CPU time of the plan that was made last
        self.lock = threading.Lock()

    async def find(self, reviewer: str, order: str, since: int | None = None) -> Plan:
        """Return the newest plan that includes the reviewer's stored row `since`; None: all that they have stored by now.

        With `since=0` nothing is waited for but the first plan; if it lacks stored rows, the thread begins the next one.
        """
        key, last = (reviewer, order), self.last_id(reviewer)
        wanted = last if since is None else min(since, last)
        newest = self.newest.get(key)
        if newest is None or newest.stored < last:
            if self.seconds <= MAX_INLINE_SECONDS:
                if newest is not None and newest.stored >= wanted:
                    return newest
                await asyncio.sleep(0)  # between two plans, other requests come first
                return self._make(key)
            work = self.start(key)
            while newest is None or newest.stored < wanted:
                newest = await asyncio.shield(asyncio.wrap_future(work))
                work = self.start(key) if newest.stored < wanted else work
        return newest

    def start(self, key: tuple[str, str]) -> Future[Plan]:
        """Return a future of a plan that is waiting or being made; begin one if there is none."""
        work = self.pending.get(key)
        if work is None or work.done():
            work = self.pending[key] = self.thread.submit(self._make, key)
        return work

    def _make(self, key: tuple[str, str]) -> Plan:
        with self.lock:
            begin = time.thread_time()
            found = self.newest[key] = self.make(*key)
            self.newest.move_to_end(key)
            while len(self.newest) > MAX_PLANS_COUNT:
                self.newest.popitem(last=False)
            self.pending.pop(key, None)
            self.seconds = time.thread_time() - begin
        return found


class Planner:
    """The plans of an audit's reviewers.

    Args:
        folder: folder of the audit, with its forecast and consensus if it has them; None: there are none.
    """

    def __init__(self, store: Store, questions: Questioned, folder: Path | None = None):
        self.store, self.questions, self.findings, self.folder = store, questions, store.findings, folder
        self.forecast = None if folder is None else read_forecast(folder)
        self.base = SamplePlans(questions, folder) if self.findings.questions is None else LabelSetPlans(questions)
        self.unit = gain_unit(self.forecast) if self.base.has_posterior else None
        self.flagged = {item for one in questions.flagged for item in questions.stored_items(one)}
        self.meters: dict[str, PaceMeter] = {}
        self.worker = PlanWorker(self._plan, store.last_id)

    @property
    def default_order(self) -> str:
        """The order of the forecast, or else the most suspect labels first."""
        order = "suspicion" if self.forecast is None else self.forecast["order"]
        return order if order in self.base.orders else "suspicion"

    def check_order(self, order: str) -> str:
        """Return the order to use; raise if it is not possible with this audit."""
        if order and order not in self.base.orders:
            names = ", ".join(self.base.orders)
            raise LikewiseError(
                f"review: the order of this audit must be one of {names}, got {order!r}; choose one of these"
            )
        return order or self.default_order

    def check_stop(self, least: float | None) -> float | None:
        """Return the number of the stop rule; raise if there is no forecast to compare it with."""
        if least is not None and self.unit is None:
            reason = (self.forecast or {}).get("reason")
            remedy = (
                f"leave it out: no gain can be forecast, because {reason}" if reason else "audit with --forecast first"
            )
            raise LikewiseError(f"review: --stop-below needs a forecast, but this audit has none; {remedy}")
        return least

    def _plan(self, reviewer: str, order: str) -> Plan:
        """Return the plan as of now; called in the thread of plans only."""
        stored, decided = self.store.last_id(reviewer), self.store.decided(reviewer)
        groups, unit = self.base.groups(decided, order), self.unit
        coming = remaining_gain([action for one in groups for action in one.actions], NEXT_DECISIONS_COUNT)
        items = [item for one in groups for item in one.items]
        labels = sum(len(self.questions.stored_items(item)) for item in items)
        gain, pace = None if unit is None else unit * coming, self.measure_pace(reviewer, decided)
        shown = {
            "decisions": len(decided),
            "order": order,
            "orders": self.base.orders,
            "groups": [self.describe(one) for one in groups],
            "next": {"decisions": NEXT_DECISIONS_COUNT, "gain": gain},
            "left": {
                "items": len(items), "gain": None if unit is None else unit * sum(one.gain for one in groups),
                "minutes": labels * pace.seconds / 60,
            },
            "pace": pace._asdict(),
            "forecast": self.forecast,
            "here": self.forecast_here(decided.keys()),
        }  # fmt: skip
        return Plan(stored, items, gain, json.dumps(shown))

    def measure_pace(self, reviewer: str, decided: Mapping[str, Decision]) -> Pace:
        """Return the pace of a reviewer, from the rows that are new since the last time."""
        meter = self.meters.get(reviewer) or PaceMeter(self.flagged)
        for one in self.store.history(reviewer, meter.rows):
            self.meters[reviewer] = meter
            meter.add(one)
        return meter.pace({d.id for d in decided.values()})

    async def open_items(self, reviewer: str, order: str = "") -> list[str]:
        """Return the items of all open flagged questions in the order of the review."""
        return (await self.worker.find(tidy(reviewer), self.check_order(order))).items

    async def plan(self, reviewer: str, order: str = "", least: float | None = None, since: int | None = None) -> str:
        """Return the plan as the page shows it, as JSON; `decisions` is the number of the reviewer's decisions that it includes.

        Args:
            order: "suspicion", "gain" or "votes"; empty: that of the forecast.
            least: points of MAP@R; stop if the next decisions are expected to gain less. None: there is no stop rule.
            since: see `PlanWorker.find`.
        """
        found = await self.worker.find(tidy(reviewer), self.check_order(order), since)
        rest = {
            "stop": None if found.gain is None or least is None else found.gain < least / 100,
            "proof": None if self.folder is None else read_proof(self.folder),
        }
        return f"{found.shown[:-1]},{json.dumps(rest)[1:]}"

    def describe(self, group: Group) -> dict:
        """Return a group as the page shows it; the forecast has no gain of removing images of no class."""
        known = self.unit is not None and group.kind != "off-topic"
        return {
            "items": group.items, "kind": group.kind, **self.base.labels(group),
            "gain": (self.unit or 0.0) * group.gain if known else None, "decisions": group.decisions,
        }  # fmt: skip

    def forecast_here(self, decided: Collection[str]) -> dict | None:
        """Return the forecast gain after the labels that were reviewed so far; None without a forecast."""
        if self.forecast is None or self.forecast["reason"] or not self.forecast["curve"]:
            return None
        k = len(self.base.forecast_items.intersection(decided))
        return {"k": k, **{name: forecast_at(self.forecast, k, name) for name in METRICS}}


def gain_unit(forecast: dict | None) -> float | None:
    """Return the factor from the gains of the queue to shares of MAP@R; None: no gain was forecast.

    The queue is scaled to the forecast gain of all suspects. If that is not above 0, no decision is expected to gain anything.
    """
    if forecast is None or forecast["reason"] or not forecast["curve"]:
        return None
    return 1.0 if forecast["curve"][-1]["MAP@R"]["gain"] > 0 else 0.0


class SamplePlans:
    """Groups of questions about samples with one label each, from the label posterior and a reviewer's decisions."""

    def __init__(self, questions: Questioned, folder: Path | None):
        self.questions, self.findings = questions, questions.findings
        self.has_posterior = folder is not None and (folder / POSTERIOR_FILE).exists()
        queue = read_queue(folder) if folder is not None and self.has_posterior else queue_of_findings(self.findings)
        self.number = class_numbers(queue, self.findings)
        self.unused = int(queue.candidates.label.max()) + 1
        # those of which a gain is forecast
        self.forecast_items = {str(row) for row in queue.row[queue.suspects].tolist()}
        single = questions.single
        self.off_topic = [str(one.row) for one in self.findings.off_topic if str(one.row) in single]
        asked = {row for rows in questions.flagged.values() for row in rows} | {
            one.row for one in self.findings.suspects
        }
        self.whole, self.queue = queue, self.narrowed(queue, asked)
        self.row = self.queue.row.tolist()
        self.place = {row: at for at, row in enumerate(self.row)}
        self.rank = {row: at for at, row in enumerate(disputed_rows(folder) if folder is not None else [])}
        self.orders = ["suspicion", "gain", *["votes"] * bool(self.rank)]

    def narrowed(self, queue: ReviewQueue, rows: Collection[int]) -> ReviewQueue:
        """Return a queue with some rows only; rows that are neither flagged nor decided do not change a plan."""
        at = torch.isin(queue.row, torch.tensor(sorted(rows), dtype=queue.row.dtype)).nonzero()[:, 0]
        place = {row: n for n, row in enumerate(queue.row[at].tolist())}
        suspects = torch.tensor([place[one.row] for one in self.findings.suspects], dtype=torch.long)
        return ReviewQueue(
            queue.row[at], queue.candidates.of(at), queue.effect[at], suspects, queue.cluster[at], queue.decided[at]
        )

    def widened(self, rows: set[int]) -> SamplePlans:
        """Return these plans with other rows in their queue too."""
        found = copy(self)
        found.queue = self.narrowed(self.whole, rows | self.place.keys())
        found.row = found.queue.row.tolist()
        found.place = {row: at for at, row in enumerate(found.row)}
        return found

    def updated(self, decided: Mapping[str, Decision]) -> ReviewQueue:
        """Return the queue after a reviewer's decisions; those that are unsure are no evidence."""
        made = [d for d in decided.values() if d.kind == "sample"]
        number, chosen = dict(self.number), {}
        for one in made:
            if one.choice != "unsure":
                name = chosen_label(self.findings, one)
                chosen[self.place[int(one.item)]] = number.setdefault(name, self.unused + len(number))
        positions, labels = (torch.tensor(list(some), dtype=torch.long) for some in (chosen, chosen.values()))
        return self.queue.decide(positions, labels).without(self.positions(int(one.item) for one in made))

    def positions(self, rows: Iterable[int]) -> torch.Tensor:
        """Return the positions of rows in the queue."""
        return torch.tensor([self.place[row] for row in rows], dtype=torch.long)

    def groups(self, decided: Mapping[str, Decision], order: str) -> list[Group]:
        """Return the open questions in groups, in their order."""
        others = {int(d.item) for d in decided.values() if d.kind == "sample"} - self.place.keys()
        if others:  # decisions about labels that are not flagged
            return self.widened(others).groups(decided, order)
        queue = self.updated(decided)
        wrong, gain = queue.candidates.wrong.tolist(), queue.gain.tolist()
        copies = {
            item: rows
            for item, rows in self.questions.flagged.items()
            if len(rows) > 1 and not all(str(row) in decided for row in rows)
        }
        outside = [item for item in self.off_topic if item not in decided]
        together, lone = self.divide(queue, copies, order)
        key = (lambda at: (-gain[at], at)) if order == "gain" else (lambda at: (-wrong[at], at))
        first = [at for at in lone if order == "votes" and self.row[at] in self.rank]
        lone = sorted(set(lone).difference(first), key=key)
        found = [self.group("same", [one], wrong) for one in together]
        for some in (sorted(first, key=lambda at: self.rank[self.row[at]]), lone):
            for begin in range(0, len(some), MAX_GROUP_SIZE):
                actions = [Action((at,), -1, gain[at]) for at in some[begin : begin + MAX_GROUP_SIZE]]
                found.append(self.group("each", actions, wrong, order == "votes"))
        for rows in copies.values():
            at = [self.place[row] for row in rows]
            counted = [row for row in rows if str(row) in self.forecast_items and str(row) not in decided]
            one = Action(tuple(at), -1, sum(gain[self.place[row]] for row in counted))
            found.append(self.group("copies", [one], wrong, order == "votes")._replace(items=(str(rows[0]),)))
        return sorted([*found, *self.off_topic_groups(outside)], key=lambda one: order_key(one, order))

    def divide(self, queue: ReviewQueue, copies: Questions, order: str) -> tuple[list[Action], list[int]]:
        """Return the groups that have one suggested class, and the positions of the other open suspects.

        Samples whose suggestion in the audit is not the one of the posterior are decided alone: the page suggests that of the
        audit.
        """
        best, sample = queue.candidates.suggested.tolist(), self.findings.sample
        queue = queue.without(self.positions(row for rows in copies.values() for row in rows))
        alone = []
        for at in queue.open.tolist():
            disputed = order == "votes" and self.row[at] in self.rank
            if disputed or self.number.get(sample[self.row[at]].suggested, -1) != best[at]:
                alone.append(at)
        actions = queue.without(torch.tensor(alone, dtype=torch.long)).actions("gain")
        alone += [one.rows[0] for one in actions if len(one.rows) == 1]
        return [one for one in actions if len(one.rows) > 1], alone

    def group(self, kind, actions: Sequence[Action], wrong: Sequence[float], by_votes: bool = False) -> Group:
        """Return the group of some actions."""
        at = [n for one in actions for n in one.rows]
        rank = min(self.rank.get(self.row[n], math.inf) for n in at) if by_votes else math.inf
        return Group(kind, tuple(str(self.row[n]) for n in at), tuple(actions), max(wrong[n] for n in at), rank)

    def off_topic_groups(self, items: list[str]) -> list[Group]:
        """Return the groups of images that fit no class, the most probable first; an image that fits one is an exception."""
        found, sample = [], self.findings.sample
        for begin in range(0, len(items), MAX_GROUP_SIZE):
            some = tuple(items[begin : begin + MAX_GROUP_SIZE])
            outside = [sample[int(item)].off_topic or 0.0 for item in some]
            one = Action(tuple(self.place[int(item)] for item in some), -1, 0.0, expected_decisions(outside))
            found.append(Group("off-topic", some, (one,), max(outside)))
        return found

    def labels(self, group: Group) -> dict:
        """Return the suggested and the given class of a group; empty if they differ."""
        samples = [self.findings.sample[row] for item in group.items for row in self.questions.flagged[item]]
        suggested = "" if group.kind in ("copies", "off-topic") else common(one.suggested for one in samples)
        return {"suggested": suggested, "given": common(one.label for one in samples)}


class LabelSetPlans:
    """Groups of questions about single labels of samples with several labels: those about one label, of one kind."""

    orders = ["suspicion"]
    forecast_items: frozenset[str] = frozenset()
    has_posterior = False

    def __init__(self, questions: Questioned):
        self.questions, self.asked = questions, questions.findings.questions or {}

    def groups(self, decided: Mapping[str, Decision], order: str) -> list[Group]:
        """Return the open questions in groups, the most suspect first."""
        by_key: dict[tuple[str, str], list[str]] = defaultdict(list)
        for item in self.questions.flagged:  # the most suspect first
            if item not in decided:
                by_key[self.asked[item].kind, self.asked[item].label].append(item)
        found = []
        for items in by_key.values():
            for begin in range(0, len(items), MAX_GROUP_SIZE):
                some = tuple(items[begin : begin + MAX_GROUP_SIZE])
                chance = [self.asked[item].chance or 0.0 for item in some]
                action = Action(tuple(self.asked[item].row for item in some), -1, 0.0, expected_decisions(chance))
                found.append(Group("same", some, (action,), max(chance)))
        return sorted(found, key=lambda one: order_key(one, order))

    def labels(self, group: Group) -> dict:
        """Return the missing label that a group suggests to add, or the superfluous label that its samples have."""
        one = self.asked[group.items[0]]
        names = ("suggested", "given") if one.kind == "missing" else ("given", "suggested")
        return {names[0]: one.label, names[1]: "", "question": one.kind}


def order_key(group: Group, order: str) -> tuple:
    """Return the sort key of a group: expected gain per decision, or differing votes and the highest suspicion."""
    if order == "gain":
        return (-group.gain / group.decisions, -group.wrong, group.actions[0].rows)
    return (group.rank, -group.wrong, group.actions[0].rows)


def common(texts: Iterable[str]) -> str:
    """Return the text if all are the same, else an empty one."""
    found = set(texts)
    return found.pop() if len(found) == 1 else ""


def disputed_rows(folder: Path) -> list[int]:
    """Return the rows whose votes differ, from consensus.csv: those with the smallest share of votes for the consensus first."""
    found = [one for one in read_consensus(folder) if int(one.voted.rpartition(" x ")[2]) < one.votes]
    return [one.row for one in sorted(found, key=lambda one: (one.for_consensus / one.votes, -one.wrong, one.row))]


class Pace(NamedTuple):
    """Seconds per flagged label, and the number of labels that it was measured with; 0: the pace is assumed."""

    seconds: float
    measured: int


class PaceMeter:
    """Measures the pace of one reviewer from what they store, row by row, so that no row is read twice.

    Decisions that were made at once are one act. The time of an act is the gap to the act before it, of any kind; the first act
    and acts after a break have no known time and do not count. The time of undone decisions and of undos counts, their labels do
    not.
    Formula: (sum of the gaps before acts about flagged labels) / (number of flagged labels that these acts decide)

    Args:
        flagged: items of flagged labels.
    """

    def __init__(self, flagged: Collection[str]):
        self.flagged, self.seconds, self.rows = flagged, 0.0, 0
        self.timed: set[int] = set()  # ids of decisions about flagged labels, in acts with a known time
        self.act = self.counted = 0  # the last act, and the last act whose gap is in `seconds`; a bulk, or minus an id
        self.gap, self.end = 0.0, -math.inf

    def add(self, stored: Stored) -> None:
        """Add what the reviewer stored next."""
        one, act = stored.decision, stored.bulk or -stored.decision.id
        when = datetime.fromisoformat(one.time).timestamp()
        if act != self.act:
            self.act, self.gap = act, when - self.end
        self.end = when
        self.rows += 1
        if one.item not in self.flagged or not 0 <= self.gap <= MAX_GAP_SECONDS:
            return
        if act != self.counted:
            self.counted = act
            self.seconds += self.gap
        self.timed.add(one.id)

    def pace(self, current: Collection[int]) -> Pace:
        """Return the pace.

        Args:
            current: ids of the current decisions.
        """
        labels = len(self.timed.intersection(current))
        return Pace(SECONDS_PER_DECISION, 0) if labels < MIN_MEASURED_LABELS else Pace(self.seconds / labels, labels)
