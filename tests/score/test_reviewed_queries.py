"""The form for reviewers: every sample once, queries in random order, and what was written is read back."""

import csv

import numpy as np
import torch
from likewise.types import Embedded, Items, Retrieval

from likewise.score.wrong_labels import read_review, with_labels, write_form


def test_a_form_and_its_labels(tmp_path):
    n = 12
    items = Items("toy", np.arange(n) % 3, ("a", "b", "c"), path=tuple(f"{i}.jpg" for i in range(n)))
    y = torch.as_tensor(items.y)
    e = Embedded(torch.zeros(n, 1), y, torch.arange(n))
    row = torch.stack([(torch.arange(n) + 1) % n, (torch.arange(n) + 2) % n], 1)
    none = torch.arange(n)
    ranking = with_labels(Retrieval(none, row, row > 0, row.double(), none, none, none, none), y)
    file = tmp_path / "forms" / "review.csv"
    write_form(file, e, items, ranking, 2)
    with open(file, newline="") as text:
        lines = list(csv.DictReader(text))
    assert sorted(int(line["row"]) for line in lines) == list(range(n))
    first = int(lines[0]["query"])
    assert [int(line["row"]) for line in lines[:3]] == [first, (first + 1) % n, (first + 2) % n]
    assert lines[0]["path"] == f"{first}.jpg" and lines[0]["given"] == items.class_name[items.y[first]]
    lines[0]["label"], lines[1]["label"] = "b", "a new class"
    with open(file, "w", newline="") as text:
        writer = csv.DictWriter(text, lines[0].keys())
        writer.writeheader()
        writer.writerows(lines)
    label, drawn = read_review(str(file), e, items, ranking, y)
    assert label[first] == 1 and label[(first + 1) % n] == 3 and (label >= 0).sum() == 2 and drawn[0] == first
