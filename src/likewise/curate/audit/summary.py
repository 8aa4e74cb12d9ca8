"""Summary of an audit on the terminal: the most important results, and the files with all of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from likewise.core.notebook import table
from likewise.core.render.gallery import one_line
from likewise.core.render.html import score_text
from likewise.core.settings import Audit
from likewise.curate.audit.forecast import curve_cells, forecast_lines
from likewise.curate.audit.proof import proof_lines
from likewise.curate.audit.read import (
    Findings,
    Sample,
    WorkerLine,
    read_findings,
    read_forecast,
    read_proof,
    read_workers,
)
from likewise.curate.audit.states import rare_states
from likewise.score.error_overlap import ErrorOverlap, show_overlap

MAX_SUSPECT_LINES, MAX_GROUP_LINES, MAX_MERGE_LINES, MAX_WORKER_LINES = 10, 5, 10, 5
"""Maximum number of lines of each table."""

WEAK_ERROR_SHARE = 0.5
"""Share of test errors above which a warning is printed: label scores of such a weak network are unreliable."""

SPLIT_COLUMNS = ("split", ">samples", ">classes", ">wrong labels, estimated", ">flagged")
"""Columns of the table of splits that every audit has; > marks columns of numbers."""


MIN_NAME_WIDTH = 12
"""Minimum width of a column of names, in terminal cells."""


def show_findings(audited) -> None:
    """Print the most important results of an audit, and the files with all of them.

    Args:
        audited: an object with the `folder` of the audit.
    """
    console, found = Console(highlight=False, markup=False), read_findings(audited.folder)
    show_conflicts(console, found)
    show_splits(console, found)
    show_votes(console, found, read_workers(audited.folder))
    (show_suspects if found.questions is None else show_labels)(console, found)
    show_merges(console, found)
    show_groups(console, found)
    show_across(console, found)
    console.print()
    for note in found.about["notes"]:
        console.print(f"Note: {one_line(note)}")
    files = [("audit.html", "page for a browser"), ("audit.csv", "all samples with their scores")]
    files += [("labels.csv", "missing and superfluous labels")] if found.questions is not None else []
    for file, what in files:
        console.print(f"{audited.folder / file}: {what}", soft_wrap=True)
    for name, head in (("verify", "Causes, tested"), ("retrain", "Retrained")):
        if sentence := (found.about.get(name) or {}).get("summary"):
            console.print(f"{head}: {sentence}", soft_wrap=True)
    show_forecast(console, audited.folder)


def show_forecast(console: Console, folder: Path) -> None:
    """Print what a review brings: the forecast in sentences and as a table, and the result if there is one."""
    if forecast := read_forecast(folder):
        for line in forecast_lines(forecast):
            console.print(line, soft_wrap=True)
        title = "What a review brings, in points (90 % interval)"
        show_columns(console, title, (">reviewed", ">minutes", ">corrected", ">R@1", ">MAP@R"), curve_cells(forecast))
    if proof := read_proof(folder):
        console.print("\nForecast and result", style="bold")
        for line in proof_lines(proof):
            console.print(f"  {line}", soft_wrap=True)
    console.print()


def findings_html(audited) -> str:
    """Return the splits and the most suspect labels as HTML tables for a notebook."""
    found = read_findings(audited.folder)
    notes = [*found.about["notes"], f"page: {audited.folder / 'audit.html'}"]
    suspects = [line[:3] + line[4:] for line in suspect_lines(found)]
    heads = ("score", "row", "label", "suggested", "nearest with the suggested label", "file")
    columns = [name.lstrip(">") for name in split_columns(found)]
    conflicts, count = conflict_lines(found)
    return "".join(
        [
            table(found.about["title"], columns, split_lines(found), [*unknown_lines(found), *notes]),
            table(f"copies with different labels{counted(len(conflicts), count)}", ("score", "row", "label", "file"), conflicts)
            if conflicts else "",
            table("missing and superfluous labels", ("probability", "row", "label", "kind", "file"), label_lines(found)[0])
            if found.questions else "",
            table(f"the most suspect labels{counted(len(suspects), len(flagged_samples(found)))}", heads, suspects),
        ]
    )  # fmt: skip


def unknown_lines(found: Findings) -> list[str]:
    """Return how many labels of each split cannot be scored, and why."""
    return [
        f"unknown in {name}: {count:,} label{'s' * (count != 1)} cannot be scored ({one_line(split['unknown_reason'])})"
        for name, split in found.about["parts"].items()
        if (count := split.get("states", {}).get("unknown"))
    ]


def split_columns(found: Findings) -> list[str]:
    """Return the columns of the table of splits; > marks columns of numbers."""
    return [*SPLIT_COLUMNS, *(f">{state}" for state in rare_states(found.about))]


def split_lines(found: Findings) -> list[tuple[str, ...]]:
    """Return name, samples, classes, estimated wrong labels, flagged labels and counts of rare states of every split."""
    lines = []
    for name, split in found.about["parts"].items():
        states = split.get("states", {})
        scored, wrong = max(1, split["samples"] - states.get("unknown", 0)), split["wrong"]
        share = "unknown" if wrong is None else f"{wrong:,.0f} ({wrong / scored:.1%})"
        rare = (f"{states.get(state, 0):,}" for state in rare_states(found.about))
        lines.append((name, f"{split['samples']:,}", f"{split['classes']:,}", share, f"{split['flagged']:,}", *rare))
    return lines


def show_splits(console: Console, found: Findings) -> None:
    """Print the table of splits, why labels are unknown, and the number of test errors."""
    show_columns(console, found.about["title"], split_columns(found), split_lines(found))
    count, kinds = found.to_review()
    if count:
        console.print(f"To review: {count:,} ({kinds}).", soft_wrap=True)
    for line in unknown_lines(found):
        console.print(line[0].upper() + line[1:])
    errors = found.about["errors"]
    if errors.get("queries"):
        share = errors["confusion"] / errors["queries"]
        what = "Test errors" if "test" in found.about["parts"] else "Nearest neighbour with another label"
        console.print(f"\n{what}: {errors['confusion']:,} of {errors['queries']:,} queries ({share:.1%})")
        if share > WEAK_ERROR_SHARE:
            console.print("The network separates these classes poorly, so more labels are flagged than are wrong.")


def openable(found: Findings, path: str) -> str:
    """Return the path of a sample so that it can be pasted into a shell of the current folder."""
    if not path or not found.about["root"]:
        return path
    whole = os.path.join(found.about["root"], path)
    return shlex.quote(min(os.path.relpath(whole), whole, key=len))


def flagged_samples(found: Findings) -> Sequence[Sample]:
    """Return the suspect labels that no exact copy contradicts."""
    return found.suspects.in_state("flagged")


def conflict_lines(found: Findings) -> tuple[list[tuple[str, ...]], int]:
    """Return score, row, label and file of exact copies with several labels, image by image, and how many there are."""
    some = found.suspects.in_state("conflict")
    return [
        (score_text(s.score or 0.0), str(s.row), s.label, openable(found, s.path)) for s in some[:MAX_SUSPECT_LINES]
    ], len(some)


def show_conflicts(console: Console, found: Findings) -> None:
    lines, count = conflict_lines(found)
    images = len({one.same_as for one in found.suspects.in_state("conflict")})
    title = f"Copies with different labels: {images:,} image{'s' * (images != 1)} in {count:,} files; at most one label is right"
    show_columns(console, f"{title}{counted(len(lines), count)}", (">score", ">row", "label", "file"), lines)


def suspect_lines(found: Findings) -> list[tuple[str, ...]]:
    """Return score, row, label, an arrow, suggested label, the neighbours' votes and the file of the most suspect labels."""
    lines = []
    for one in flagged_samples(found)[:MAX_SUSPECT_LINES]:
        labels = [found.sample[row].label for row in found.near.get(one.row, [])]
        votes = f"{labels.count(one.suggested)} of {len(labels)}" if labels else ""
        lines.append(
            (
                score_text(one.score or 0.0),
                str(one.row),
                one.label,
                "->",
                one.suggested,
                votes,
                openable(found, one.path),
            )
        )
    return lines


def show_suspects(console: Console, found: Findings) -> None:
    flagged, states = flagged_samples(found), [one.get("states", {}) for one in found.about["parts"].values()]
    if not flagged:
        if not any(state.get("unknown") for state in states):
            console.print("\nNo label is flagged." if not found.suspects else "\nNo other label is flagged.")
        return
    lines = suspect_lines(found)
    title = f"The most suspect labels{counted(len(lines), len(flagged))} (nearest: with the suggested label)"
    show_columns(console, title, (">score", ">row", "label", "", "suggested", ">nearest", "file"), lines)


def show_votes(console: Console, found: Findings, workers: list[WorkerLine]) -> None:
    """Print the consensus of votes: how many labels it changes and leaves open, and the least accurate workers."""
    if not (facts := found.about.get("votes")):
        return
    by = "votes and features" if facts["features"] else "votes alone (the features do not explain them)"
    who = f" of {facts['workers']:,} workers" if facts["workers"] else ""
    console.print(
        f"\nVotes: {facts['votes']:,}{who} about {facts['samples']:,} samples; they differ in {facts['disputed']:,} of "
        f"{facts['several']:,}. By {by}, the consensus is another label in {facts['changed']:,}, undecided in "
        f"{facts['undecided']:,}, and by estimate wrong in {facts['expected_wrong']:,.0f} (such estimates were too low in tests)."
    )
    if facts["exchanged"]:
        console.print(f"Most votes seem to be for another class: {', '.join(map(one_line, facts['exchanged']))}")
    some = workers[:MAX_WORKER_LINES]
    title = f"The least accurate workers{counted(len(some), len(workers))}"
    cells = [(w.name, f"{w.votes:,}", f"{w.accuracy:.0%}", f"{w.low:.0%} to {w.high:.0%}", w.confusion) for w in some]
    show_columns(console, title, ("worker", ">votes", ">right", ">95 % interval", "most frequent confusion"), cells)


def label_lines(found: Findings) -> tuple[list[tuple[str, ...]], int]:
    """Return probability, row, label, kind and file of labels that are missing or superfluous, and how many there are."""
    asked = [one for one in (found.questions or {}).values() if one.state == "flagged"]
    lines = [
        (score_text(one.chance or 0.0), str(one.row), one.label, one.kind, openable(found, found.sample[one.row].path))
        for one in asked[:MAX_SUSPECT_LINES]
    ]
    return lines, len(asked)


def show_labels(console: Console, found: Findings) -> None:
    """Print the labels that are missing or superfluous, and how many labels are unknown."""
    lines, count = label_lines(found)
    if not lines:
        console.print("\nNo label is flagged as missing or superfluous.")
    title = f"Missing and superfluous labels{counted(len(lines), count)}"
    show_columns(console, title, (">probability", ">row", "label", "kind", "file"), lines)
    unknown = [one["label"] for one in found.about["labels"] if one.get("unknown")]
    if unknown:
        console.print(
            f"Unknown: {len(unknown):,} of {len(found.about['labels']):,} labels, such as {one_line(unknown[0])}"
        )


def show_merges(console: Console, found: Findings) -> None:
    merges = found.merges()
    lines = [(score_text(o.overlap or 0), o.split, o.label, "=", o.partner) for o in merges[:MAX_MERGE_LINES]]
    title = f"Classes that may be one class{counted(len(lines), len(merges))}"
    show_columns(console, title, (">probability", "split", "class", "", "class"), lines)
    unknown = sum(one.state == "unknown" for one in found.classes)
    if unknown:
        console.print(f"Unknown whether another class is the same: {unknown:,} of {len(found.classes):,} classes")


def show_groups(console: Console, found: Findings) -> None:
    lines = []
    for group in found.groups()[:MAX_GROUP_LINES]:
        harmful = found.causes["group", group.label].get("harmful", [])
        [worst] = [
            (str(c.row), (one := found.sample[c.row]).label, openable(found, one.path)) for c in harmful[:1]
        ] or [("",) * 3]
        lines.append((f"{group.errors} of {group.size}", group.label, group.confused[0][0], *worst))
    head = (">errors", "class", "confused with", ">row", "most harmful in training", "file")
    show_columns(console, "The worst test classes", head, lines)


def show_across(console: Console, found: Findings) -> None:
    """Print how many near duplicates are in two splits, and the files of some."""
    if not any(found.across.values()):
        return
    counts = ", ".join(f"{count} between {splits.replace('-', ' and ')}" for splits, count in found.across.items())
    pairs = [
        (one.parts, *(found.sample[row] for row in (one.row, one.other))) for one in found.duplicates if one.across
    ]
    lines = [
        (parts, str(a.row), openable(found, a.path), str(b.row), openable(found, b.path))
        for parts, a, b in pairs[:MAX_GROUP_LINES]
    ]
    title = f"Near duplicates across splits: {counts}"
    show_columns(console, title, ("splits", ">row", "file", ">row", "file"), lines)


def show_columns(console: Console, title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print a table without borders, one line per row.

    Columns of names shrink to the width of the terminal, the widest first; > in `head` marks columns of numbers. Files in the
    last column are not cut, so that they can be copied: half of the width is left for them, and longer lines are wrapped.
    """
    if not lines:
        return
    lines = [[one_line(cell) for cell in line] for line in ([name.lstrip(">") for name in head], *lines)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    names = [at for at, name in enumerate(head) if not name.startswith(">")]
    whole = {len(head) - 1} if head[-1] == "file" else set()
    left = [min(width, console.width // 2) if at in whole else width for at, width in enumerate(widths)]
    names = [at for at in names if at not in whole]
    for _ in range(sum(left) + 2 * len(left) - console.width):
        widest = max(names, key=lambda at: widths[at])
        widths[widest] = max(widths[widest] - 1, MIN_NAME_WIDTH)
    console.print(f"\n{one_line(title)}", style="bold")
    for place, line in enumerate(lines):
        cells = [
            " " * (width - cell_len(cell)) + cell if name.startswith(">") else fit(cell, width, from_end=name == "file")
            for name, cell, width in zip(head, line, widths, strict=True)
        ]
        text = Text("  " + "  ".join(cells).rstrip(), style="" if place else "dim")
        if whole:
            console.print(text, soft_wrap=True)
        else:
            console.print(text, no_wrap=True, overflow="ellipsis")


def fit(text: str, width: int, from_end: bool = False) -> str:
    """Return a text with exactly `width` cells, cut or padded.

    Args:
        from_end: a text that is cut keeps its end, as the name of a file.
    """
    if from_end and cell_len(text) > width:
        while cell_len(text) > width - 1:
            text = text[1:]
        return set_cell_size(f"…{text}", width)
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def counted(shown: int, whole: int) -> str:
    """Return how many of all items are shown, if not all are."""
    return f", {shown} of {whole:,}" if shown < whole else ""


def show_audit(found, config: Audit) -> None:
    """Print the findings of `likewise audit`, or the classes at which several runs fail; nothing with --quiet."""
    if not config.quiet:
        show_overlap(found) if isinstance(found, ErrorOverlap) else show_findings(found)
