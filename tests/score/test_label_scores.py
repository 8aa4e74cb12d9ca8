"""Scores per label by a loop over all pairs."""

import numpy as np
import pytest
from likewise.protocols import UnseenClasses
from score.several_labels import embedded, random_items

from likewise.score.label_scores import LabelTable
from likewise.score.retrieve import Scoring
from likewise.score.scoring import score_all


def test_every_label_by_a_loop():
    items, sets = random_items()
    exclude = np.array([[0, 1], [5, 9], [20, 21]])
    scoring = Scoring(items, UnseenClasses(), ("R@1", "R@5", "R@50"), quiet=True, exclude=exclude)
    result, _, found = score_all(embedded(items), scoring)
    hidden = {(int(a), int(b)) for a, b in exclude} | {(int(b), int(a)) for a, b in exclude}
    assert set(result["labels"]["mean"]) == {"R@1", "R@5"}  # ten results are stored
    each = {}
    for label in range(7):
        hits, sizes = [], 0
        for q in (i for i in range(160) if label in sets[i]):
            rest = [
                g for g in range(160)
                if g != q and label in sets[g] and (q, g) not in hidden and not (items.group[q] == items.group[g] >= 0)
            ]  # fmt: skip
            if rest:
                hits.append([label in sets[g] for g in found.row[q].tolist()])
                sizes += 1
        each[f"l{label}"] = [np.mean([h[0] for h in hits]), np.mean([any(h[:5]) for h in hits]), sizes]
    for label, one in result["labels"]["each"].items():
        assert [*one["metrics"].values(), one["queries"]] == pytest.approx(each[label]), label
        assert all(low < one["metrics"][name] < high for name, (low, high) in one["interval"].items())
    assert result["labels"]["mean"]["R@1"] == pytest.approx(np.mean([one[0] for one in each.values()]))


def test_a_label_table_expands_and_answers():
    table = LabelTable([(0, 2), (1,)])
    place, label = table.expand(np.array([1, 0]))
    assert place.tolist() == [0, 1, 1] and label.tolist() == [1, 0, 2]
    assert table.has(np.array([0, 0, 1]), np.array([2, 1, 1])).tolist() == [True, False, True]
