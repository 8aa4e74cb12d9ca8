"""Most wrong classes counted by hand; overlaps against published class numbers."""

import itertools
import math

import pytest
import torch
from likewise.errors import LikewiseError

from likewise.score.error_overlap import error_overlap, most_wrong

# The ten test classes of Cars196 with most errors: 3 losses x 5 seeds, as released with the paper on influence functions.
CARS = {
    "ProxyNCA++": [
        [103, 163, 183, 187, 186, 111, 178, 137, 179, 182],
        [163, 103, 182, 183, 137, 179, 148, 139, 172, 189],
        [183, 103, 166, 139, 179, 163, 128, 172, 176, 186],
        [103, 163, 183, 179, 187, 139, 166, 176, 186, 177],
        [103, 183, 178, 182, 102, 147, 186, 163, 187, 135],
    ],
    "ProxyAnchor": [
        [103, 163, 182, 183, 139, 111, 102, 176, 179, 166],
        [103, 163, 166, 176, 182, 139, 183, 124, 102, 172],
        [103, 183, 163, 179, 182, 166, 186, 102, 124, 176],
        [103, 186, 176, 182, 150, 180, 124, 128, 187, 163],
        [182, 163, 103, 102, 186, 178, 176, 183, 187, 124],
    ],
    "SoftTriple": [
        [163, 103, 179, 186, 183, 176, 187, 143, 102, 182],
        [163, 103, 183, 187, 139, 128, 176, 106, 175, 178],
        [166, 163, 103, 147, 183, 111, 139, 176, 123, 186],
        [103, 139, 147, 163, 179, 166, 183, 186, 178, 187],
        [183, 139, 187, 163, 103, 143, 182, 176, 147, 179],
    ],
}


def test_the_overlap_of_published_runs():
    worst = [torch.tensor(run) for runs in CARS.values() for run in runs]
    found = error_overlap(worst, [name for name, runs in CARS.items() for _ in runs], classes=98)
    assert (round(found.within, 3), round(found.between, 3), round(found.chance, 3)) == (0.613, 0.585, 0.102)
    assert len(found.label) == 28 and int(found.heat.all(0).sum()) == 2
    assert found.heat.sum(1).tolist() == [10] * 15


def test_overlaps_of_unequal_lists_by_hand():
    worst, methods = [[1, 2, 3], [3], [3, 4], [9, 1, 2, 3]], ["a", "b", "a", "b"]
    found = error_overlap([torch.tensor(some) for some in worst], methods, classes=20)
    within, between, chance = [], [], []
    for i, j in itertools.combinations(range(4), 2):
        a, b = set(worst[i]), set(worst[j])
        share = 2 * len(a & b) / (len(a) + len(b))
        assert found.matrix[i, j] == found.matrix[j, i] == pytest.approx(share)
        (within if methods[i] == methods[j] else between).append(share)
        chance.append(2 * len(a) * len(b) / 20 / (len(a) + len(b)))
    mean = [sum(part) / len(part) for part in (within, between, chance)]
    assert [found.within, found.between, found.chance] == pytest.approx(mean)
    assert found.label.tolist() == [1, 2, 3, 4, 9]
    assert found.heat[2].tolist() == [False, False, True, True, False]


def test_without_a_second_method_there_is_nothing_between():
    found = error_overlap([torch.tensor([1]), torch.tensor([1])], ["a", "a"], classes=2)
    assert found.within == 1 and math.isnan(found.between)


def test_chance_is_what_random_classes_share():
    g = torch.Generator().manual_seed(0)
    found = error_overlap([torch.randperm(40, generator=g)[:8] for _ in range(60)], ["a"] * 60, classes=40)
    assert found.within == pytest.approx(found.chance, abs=0.01)


def test_the_most_wrong_by_count_and_by_rate():
    counts = {7: (3, 6), 2: (2, 2), 5: (3, 4), 1: (0, 2), 9: (1, 1)}  # class: wrong, of so many
    y = torch.tensor([label for label, (_, size) in counts.items() for _ in range(size)])
    wrong = torch.tensor([i < bad for bad, size in counts.values() for i in range(size)])
    assert most_wrong(wrong, y).tolist() == [5, 7, 2, 9]
    assert most_wrong(wrong, y, k=2).tolist() == [5, 7]
    assert most_wrong(wrong, y, by="rate").tolist() == [2, 5, 7]
    assert most_wrong(wrong, y, by="rate", least=1).tolist() == [2, 9, 5, 7]
    assert most_wrong(wrong, y, by="rate", least=5).tolist() == [7]
    assert most_wrong(torch.ones(6).bool(), torch.tensor([3, 3, 1, 1, 2, 2]), k=2).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: most_wrong(torch.ones(2).bool(), torch.arange(2), by="size"), "'count' or 'rate'.*got by='size'"),
        (lambda: most_wrong(torch.ones(2).bool(), torch.arange(3)), "2 entries and 3 labels"),
        (lambda: error_overlap([torch.arange(2)], ["a"], 5), "two runs or more"),
        (lambda: error_overlap([torch.arange(2)] * 2, ["a"], 5), "2 runs and 1 methods"),
        (lambda: error_overlap([torch.arange(2), torch.tensor([1, 1])], ["a", "b"], 5), "run 1 does not"),
        (lambda: error_overlap([torch.arange(2), torch.arange(0)], ["a", "b"], 5), "run 1 does not"),
        (lambda: error_overlap([torch.arange(3)] * 2, ["a", "b"], 2), "got 2 where runs name 3"),
    ],
)
def test_bad_input_is_named(work, message, unchecked):
    with pytest.raises(LikewiseError, match=message):
        work()
