"""Actions of a scripted reviewer on the real review page: key presses and clicks until every suspect is decided.

    python benchmarks/review_actions.py [--suspects 1000] [--views groups one] [--seed 0] [--out review_actions.json]

Writes an audit of drawn characters. 80 % of the suspects form clusters with one suggestion each, the others have a suggestion of
their own. One suggestion in ten is wrong: the given label is right, or, for one in twenty of these, the image shows nothing. The
script starts `likewise review`, and decides in chromium by keys and clicks only, as a reviewer would who sees the true class of
every image; some decisions are wrong at first and are undone. At the end the stored decisions are compared with the intended
ones. Prints one JSON object per view.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from likewise.errors import LikewiseError
from measure import parse_with_quick
from PIL import Image

from likewise.curate.audit.read import read_findings
from likewise.curate.review.store import Store
from likewise.data.glyphs import glyphs

CLUSTERED_SHARE, WRONG_SHARE, EMPTY_SHARE = 0.8, 0.1, 0.05
"""Share of suspects in clusters, of suggestions that are wrong, and of these that show nothing."""
CLUSTER_SIZES = (10, 38)
"""Smallest and largest number of suspects of a cluster."""
IMAGES_PER_CLASS = 60
SURE, UNSURE = 0.9, 0.45
"""Confidence of a suggestion in a cluster, and of others."""
GROUPS_BETWEEN_UNDOS, ITEMS_BETWEEN_UNDOS = 10, 100
"""Decisions after which the reviewer makes a wrong one and undoes it."""
WAIT_MS = 60_000
COLUMNS = ("row", "path", "label", "score", "state", "suggested", "confidence", "margin", "reason", "split")


@dataclass
class World:
    """An audit with known truth: what the reviewer intends for every suspect, by row."""

    folder: Path
    intended: dict[str, str] = field(default_factory=dict)  # "keep", "remove" or "relabel CLASS"


def write_world(folder: Path, suspects: int, seed: int) -> World:
    """Write an audit of `suspects` flagged labels among drawn characters."""
    rng = np.random.default_rng(seed)
    sizes = cluster_sizes(rng, round(CLUSTERED_SHARE * suspects))
    lone, others = suspects - sum(sizes), max(3, suspects // 25)  # classes without a cluster
    items = glyphs(size=40, per_class=IMAGES_PER_CLASS, classes=len(sizes) + others)
    unused = [rng.permutation(np.flatnonzero(items.y == c)).tolist() for c in range(items.classes)]
    Image.fromarray(rng.integers(90, 160, (40, 40), dtype=np.uint8)).save(folder / "empty.png")
    world, lines = World(folder), {}
    suggestions = [(c, SURE) for c, size in enumerate(sizes) for _ in range(size)]
    suggestions += [(len(sizes) + at % others, UNSURE) for at in range(lone)]
    for suggested, confidence in suggestions:
        wrong = bool(rng.random() < WRONG_SHARE)
        another = [c for c in range(len(sizes), items.classes) if c != suggested]
        row = unused[int(rng.choice(another)) if wrong else suggested].pop()
        truth, empty = int(items.y[row]), wrong and bool(rng.random() < EMPTY_SHARE)
        given = (
            truth if wrong else int(rng.choice(another[:: max(1, len(another) // 3)]))
        )  # few classes are confused with one
        lines[row] = [
            row, str(folder / "empty.png") if empty else items.path[row], items.class_name[given],
            float(rng.uniform(0.02, 0.15)), "flagged", items.class_name[suggested], confidence, confidence / 2, "", "",
        ]  # fmt: skip
        right = "keep" if wrong else f"relabel {items.class_name[suggested]}"
        world.intended[str(row)] = "remove" if empty else right
    write_audit(folder, items, lines)
    return world


def cluster_sizes(rng: np.random.Generator, count: int) -> list[int]:
    """Return random sizes of clusters that sum to `count`."""
    sizes: list[int] = []
    while (left := count - sum(sizes)) > 0:
        sizes.append(min(left, int(rng.integers(CLUSTER_SIZES[0], CLUSTER_SIZES[1] + 1))))
    return sizes


def write_audit(folder: Path, items, lines: dict[int, list]) -> None:
    """Write audit.csv and audit.json; rows without a line have labels that are right."""
    with (folder / "audit.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for row, y in enumerate(items.y):
            fine = [row, items.path[row], items.class_name[y], 0.95, "ok", "", "", "", "", ""]
            table.writerow(lines.get(row, fine))
    about = {"title": "glyphs", "root": items.root, "rows": len(items.y), "pictures": True}
    (folder / "audit.json").write_text(json.dumps(about), "utf-8")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Start `likewise review` and yield the address of the page."""
    command = [sys.executable, "-P", "-m", "likewise", "review", str(folder), "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield next(word for line in server.stdout or () for word in line.split() if word.startswith("http://"))
        finally:
            server.send_signal(signal.SIGINT)


class Reviewer:
    """A reviewer who knows the intended decisions, and counts every key press and click on the page."""

    def __init__(self, page, world: World):
        self.page, self.intended, self.actions = page, world.intended, Counter()

    def press(self, key: str) -> None:
        self.actions[key] += 1
        self.page.keyboard.press(key)

    def click(self, item: str) -> None:
        self.actions["click"] += 1
        self.page.click(f"#group .tile[data-item='{item}'] .pick")

    def shown(self, view: str) -> list[str]:
        """Return the items on the screen; empty: the review is at its end."""
        place = {"groups": "#group .tile", "one": "main[data-item]:not([data-item=''])"}[view]
        self.page.wait_for_selector(f"{place}, main.ending", timeout=WAIT_MS)
        return self.page.eval_on_selector_all(place, "found => found.map(one => one.dataset.item)")

    def suggestions(self, items: Sequence[str]) -> set[str]:
        """Return which of the items the reviewer would accept."""
        return {item for item in items if self.intended[item].startswith("relabel")}

    def review_groups(self) -> int:
        """Decide group by group; return the number of groups."""
        self.press("b")
        count = 0
        while items := self.shown("groups"):
            count += 1
            if count % GROUPS_BETWEEN_UNDOS == 0:
                self.press("k")  # in error
                self.press("Backspace")
                if self.shown("groups") != items:
                    raise LikewiseError("review_actions: an undo must bring the same group back, got another")
            empty = [item for item in items if self.intended[item] == "remove"]
            if empty and len(empty) < len(items):
                self.press("Escape")
                for item in empty:
                    self.click(item)
            if empty:
                self.press("x")
                continue  # the rest of the group stays on the screen
            read = "found => found.map(one => one.dataset.item)"
            unmarked = self.page.eval_on_selector_all("#group .tile.open", read)  # a click accepts, a second one keeps
            for item in items:
                for _ in range((item in unmarked) + (self.intended[item] == "keep")):
                    self.click(item)
            self.press("Enter")
        return count

    def review_one_by_one(self) -> int:
        """Decide one by one; return the number of items."""
        count = 0
        while items := self.shown("one"):
            count += 1
            if count % ITEMS_BETWEEN_UNDOS == 0:
                self.press("u")  # in error
                self.press("Backspace")
            self.press({"keep": "k", "remove": "x"}.get(self.intended[items[0]], "r"))
        return count


def measure_view(view: str, world: World, seed: int) -> dict:
    """Review an audit in one view; return the number of actions and of wrong, missing and needless decisions."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise LikewiseError("review_actions: chromium must be installed, but was not found; install it")
    with served(world.folder) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(WAIT_MS)
        page.add_init_script("localStorage.setItem('reviewer', 'script')")
        page.goto(address)
        page.wait_for_selector("#actions button", timeout=WAIT_MS)
        begin, reviewer = time.perf_counter(), Reviewer(page, world)
        screens = reviewer.review_groups() if view == "groups" else reviewer.review_one_by_one()
        wall, whole = time.perf_counter() - begin, f"{len(world.intended):,}"
        page.wait_for_selector(f"#count:has-text('{whole} of {whole}')")
        browser.close()
    with closing(Store(world.folder / "decisions.sqlite", read_findings(world.folder))) as store:
        made = {d.item: f"{d.choice} {d.label}".strip() for d in store.current_decisions()}
    lost = [item for item in world.intended if item not in made]
    wrong = [item for item, choice in world.intended.items() if made.get(item, choice) != choice]
    return {
        "view": view, "seed": seed, "suspects": len(world.intended), "screens": screens, "actions": reviewer.actions.total(),
        "by_kind": dict(reviewer.actions.most_common()), "lost": len(lost), "wrong": len(wrong),
        "needless": len(made.keys() - world.intended.keys()), "seconds": round(wall, 1),
    }  # fmt: skip


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suspects", type=int, default=1000)
    parser.add_argument("--views", nargs="+", choices=("groups", "one"), default=("groups", "one"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("review_actions.json"))
    return parse_with_quick(parser, words, suspects=30)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    found = []
    for view in options.views:
        with tempfile.TemporaryDirectory() as folder:
            world = write_world(Path(folder), options.suspects, options.seed)
            found.append(measure_view(view, world, options.seed))
        print(json.dumps(found[-1]))
    options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
