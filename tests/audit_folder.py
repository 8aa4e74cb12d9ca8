"""A small audit's folder, for those who read it."""

import csv
import json

import numpy as np

HEADS = {
    "audit": "row path label score suggested confidence margin reason split posterior loss group left top right bottom",
    "pairs": "query other type distance wrong mate",
    "causes": "error kind direction place row influence relative",
    "classes": "split label size moved share target entropy kind partner overlap state",
    "duplicates": "row other similarity bits kind parts same_label",
}


def write_table(folder, name, lines):
    with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEADS[name].split(), *lines])


def write_audit(folder, owl="owl"):
    """Rows 0-5 train (wren, robin), 6-11 test (tit, owl); 1 and 8 are suspect."""
    lines = []
    for row in range(12):
        part, names = ("train", ("wren", "robin")) if row < 6 else ("test", ("tit", owl))
        suspect = row in (1, 8)
        instead = names[1 - row // 3 % 2] if suspect else ""
        score = {1: 0.0004, 8: 0.125}.get(row, 0.5 + row / 100)
        box = [7, 2, 3, 40.5, 50] if row == 1 else [""] * 5
        told = [instead, 0.75, 0.5, "far from its class"] if suspect else ["", "", "", ""]
        lines.append(
            [row, f"a/{row}.png", names[row // 3 % 2], score, *told, part, row / 20, row / 40 if row < 6 else "", *box]
        )
    write_table(folder, "audit", lines)
    write_table(
        folder,
        "pairs",
        [
            [6, 9, "confusion", 0.25, 9, 7],
            [8, 10, "confusion", 0.5, 10, 7],
            [8, 7, "mis-similar", 1, 10, 7],
            [9, 6, "mis-similar", 2, 6, -1],
        ],
    )
    causes = [
        ["6-9", "confusion", "helpful", 1, 0, -1.5, -3],
        ["tit", "group", "harmful", 2, 4, 1, 2],
        ["tit", "group", "harmful", 1, 5, 2, 4],
    ]
    write_table(folder, "causes", causes)
    classes = [
        ["train", "wren", 3, 1, 0.34, "robin", 0, "merge", "robin", 0.99, "merge"],
        ["train", "robin", 3, 2, 0.67, "wren", 0.1, "merge", "wren", 0.99, "merge"],
        ["test", "tit", 3, 0, 0, "", 0, "clean", "", "", "unknown"],
    ]
    write_table(folder, "classes", classes)
    write_table(
        folder,
        "duplicates",
        [[0, 6, 0.99, 3, "same", "train-test", "False"], [1, 2, 0.9, "", "near", "train-train", 1]],
    )
    np.savez(
        folder / "neighbours.npz", row=np.arange(12), near=np.where(np.arange(6) < 2, [[r] for r in range(12)], -1)
    )
    part = {
        "samples": 6,
        "classes": 2,
        "wrong": 1.6,
        "flagged": 1,
        "of_all": 0.25,
        "of_touched": 0.5,
        "any": 0.1,
        "similar": 0.2,
    }
    about = {
        "target": "runs/a", "kind": "run", "title": "birds: Triplet()", "root": "", "rows": 12, "pictures": True,
        "parts": {"train": part, "test": part}, "scores": {"score": "all", "posterior": "chance", "loss": "ranked"},
        "influence": "first order", "errors": {"queries": 6, "confusion": 2, "mis_similar": 1},
        "duplicates": {"train-test": 1, "train-train": 1}, "measured": None, "suggested": None, "notes": ["no [i]history"],
        "verify": None, "retrain": None,
    }  # fmt: skip
    (folder / "audit.json").write_text(json.dumps(about))
    return folder
