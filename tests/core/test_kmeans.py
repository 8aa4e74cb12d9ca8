"""k-means against plain loops, against scikit-learn, and where points are few, equal or far away."""

import hashlib
import math
from fractions import Fraction
from itertools import accumulate

import pytest
import torch
from likewise.types import LikewiseError

from likewise.core import kmeans as module
from likewise.core.kmeans import kmeans

GRID = 4e-7
"""Above half a step of the grid that points are rounded to, times the square root of 6 coordinates, for points within 8."""


def some(rows=120, dim=6, classes=8, spread=0.7, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    return (torch.randn(classes, dim, generator=g)[y] + spread * torch.randn(rows, dim, generator=g)).to(dtype), y


def squared(a, b):
    return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))


def nearest_by_hand(x, centre):
    found = [min((squared(p, c), number) for number, c in enumerate(centre)) for p in x]
    return [number for _, number in found], sum(away for away, _ in found)


def lloyd_by_hand(x, centre, iterations):
    label, inertia = nearest_by_hand(x, centre)
    seen = [inertia]
    for _ in range(iterations):
        groups = [[p for p, number in zip(x, label, strict=True) if number == c] for c in range(len(centre))]
        centre = [[sum(column) / len(group) for column in zip(*group, strict=True)] for group in groups]
        label, inertia = nearest_by_hand(x, centre)
        seen.append(inertia)
    return centre, label, seen


def on_the_grid(x):
    """Points as whole numbers, worked out with Python's exact fractions: the step is 2^-25 of the longest from the mean."""
    exact = [[Fraction(value) for value in point] for point in x]
    bits = 30 - math.frexp(max(abs(value) for point in x for value in point))[1]
    coarse = [sum(round(value * 2**bits) for value in column) for column in zip(*exact, strict=True)]
    shift = [Fraction(float(total) / len(x) * 2.0**-bits) for total in coarse]
    moved = [[value - s for value, s in zip(point, shift, strict=True)] for point in exact]
    longest = math.frexp(math.sqrt(max(sum(value**2 for value in point) for point in moved)))[1]
    return [[round(Fraction(float(value)) * 2 ** (25 - longest)) for value in point] for point in moved]


def start_by_hand(x, k, seed):
    """Greedy k-means++, one exact distance at a time; each block of steps draws from the distances at its start."""
    tries = 2 * (2 + int(math.log(k)))
    draw = torch.rand(k, tries, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).tolist()
    chosen = [int(draw[0][0] * len(x))]
    away = [squared(p, x[chosen[0]]) for p in x]
    while len(chosen) < k:
        running = list(accumulate(away))
        for step in draw[len(chosen) : len(chosen) + max(1, min(len(chosen), k - len(chosen)) // 8)]:
            best = None
            for u in step:
                row = next(row for row, total in enumerate(running) if float(total) > u * float(running[-1]))
                left = [min(old, squared(p, x[row])) for old, p in zip(away, x, strict=True)]
                if best is None or sum(left) < best[0]:  # of equals the first
                    best = sum(left), row, left
            away = best[2]
            chosen.append(best[1])
    return chosen


@pytest.mark.parametrize("budget", [module.DISTANCE_BUDGET_BYTES, 1000, 1])
def test_iterations_by_hand(budget):
    x, _ = some()
    found = kmeans(x, 5, iterations=4, init=x[:5], budget=budget)
    centre, label, inertia = lloyd_by_hand(x.tolist(), x[:5].tolist(), 4)
    assert found.label.tolist() == label
    torch.testing.assert_close(found.centre, torch.tensor(centre, dtype=torch.float64), rtol=0, atol=4 * GRID)
    assert found.inertia.tolist() == pytest.approx(inertia)


@pytest.mark.parametrize("budget", [module.DISTANCE_BUDGET_BYTES, 1])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_start_by_hand(seed, budget):
    x, _ = some(90, 4)
    found = kmeans(x, 30, iterations=0, seed=seed, budget=budget)
    torch.testing.assert_close(found.centre, x[start_by_hand(on_the_grid(x.tolist()), 30, seed)], rtol=0, atol=GRID)
    assert len(found.inertia) == 1


@pytest.mark.parity
def test_iterations_are_those_of_scikit_learn():
    from sklearn.cluster import KMeans

    x, _ = some(400, 16, 30)
    theirs = KMeans(30, init=x[:30].numpy(), n_init=1, max_iter=50, tol=0, algorithm="lloyd").fit(x.numpy())
    ours = kmeans(x, 30, iterations=50, init=x[:30])
    assert ours.label.tolist() == theirs.labels_.tolist()
    assert len(ours.inertia) - 1 <= theirs.n_iter_ < 50  # both stop where nothing changes
    torch.testing.assert_close(ours.centre, torch.as_tensor(theirs.cluster_centers_), rtol=0, atol=1e-5)
    assert float(ours.inertia[-1]) == pytest.approx(theirs.inertia_)


@pytest.mark.parity
@pytest.mark.parametrize(("rows", "classes", "spread"), [(1000, 200, 2.0), (1180, 20, 2.0)])
def test_clusters_are_as_good_as_those_of_scikit_learn(rows, classes, spread):
    from sklearn.cluster import KMeans

    ours, theirs, even = [], [], []
    for seed in range(4):
        x, _ = some(rows, 64, classes, spread, seed, torch.float32)
        ours.append(float(kmeans(x, classes, seed=seed).inertia[-1]))
        theirs.append(KMeans(classes, n_init=1, max_iter=20, tol=0, random_state=seed).fit(x.numpy()).inertia_)
        even.append(float(kmeans(x, classes, init=x[torch.randperm(rows)[:classes]]).inertia[-1]))
    assert sum(ours) <= 1.005 * sum(theirs)
    assert sum(ours) < sum(even)


def test_clusters_that_stand_apart_are_found():
    for seed in range(5):
        x, y = some(400, 16, 40, 0.02, seed, torch.float32)
        found = kmeans(x, 40, seed=seed)
        assert len(found.label.unique()) == len((found.label * 40 + y).unique()) == 40


def test_same_seed_same_clusters_and_the_points_stay():
    x, _ = some(300, 8, 20, 1.0, dtype=torch.float32)
    before, default = x.clone(), torch.random.get_rng_state()
    first, other = kmeans(x, 20), kmeans(x, 20, seed=1)
    assert not torch.equal(first.centre, other.centre)
    assert torch.equal(x, before) and torch.equal(torch.random.get_rng_state(), default)
    for budget in (module.DISTANCE_BUDGET_BYTES, 1, 10_000):
        again = kmeans(x, 20, budget=budget)
        assert torch.equal(again.label, first.label) and torch.equal(again.centre, first.centre)
        assert torch.equal(again.inertia, first.inertia)


@pytest.mark.parametrize("spherical", [False, True])
def test_every_machine_finds_the_same_clusters(spherical):
    """To the last bit of labels, centres and inertia: the digest was made under three instruction sets and on a GPU.

    Points are multiples of 1/64, made of whole numbers, so that they are the same everywhere, too. Many are mirrored pairs:
    their candidates are equally good, which is where rounding used to choose.
    """
    index = torch.arange(400 * 6, dtype=torch.int64)
    half = ((index * 7919 + index**2 * 104729) % 1009 - 504).view(400, 6).float() / 64
    x = torch.cat([half, -half])
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        found = kmeans(x.to(device), 60, seed=3, spherical=spherical)
        numbers = (found.label, found.centre, found.inertia)
        digest = hashlib.sha256(b"".join(number.cpu().numpy().tobytes() for number in numbers)).hexdigest()
        assert digest[:16] == {False: "970312b434c717dd", True: "a3f886eb8970304d"}[spherical]


def test_memory_stays_within_the_budget(monkeypatch):
    sizes, product = [], torch.addmm
    monkeypatch.setattr(torch, "addmm", lambda *a, **b: sizes.append((out := product(*a, **b)).nbytes) or out)
    x, _ = some(3000, 4, 40, dtype=torch.float32)
    kmeans(x, 40, budget=2**18)
    assert 2**17 < max(sizes) <= 2**18


def test_inertia_falls_and_its_last_value_belongs_to_the_result():
    x, _ = some(300, 8, 20, 1.5)
    found = kmeans(x, 20)
    assert (found.inertia.diff() <= 1e-9).all() and len(found.inertia) > 3
    label, inertia = nearest_by_hand(x.tolist(), found.centre.tolist())
    assert found.label.tolist() == label and float(found.inertia[-1]) == pytest.approx(inertia)


def test_an_empty_cluster_takes_the_farthest_point():
    x = torch.tensor([[0.0], [1], [2], [11], [-5]])
    found = kmeans(x, 3, init=torch.tensor([[1.0], [1000], [-1000]]), iterations=1)
    assert found.centre[:, 0].tolist() == pytest.approx([1, 11, -5], abs=1024 * 2**-25)  # a step of the grid
    assert found.label.tolist() == [0, 0, 0, 1, 2] and found.inertia.tolist() == pytest.approx([138, 2], rel=1e-4)


def test_a_cluster_that_loses_all_its_points_to_empty_ones_keeps_its_place():
    x = torch.tensor([[0.0], [0.1], [50], [60]])
    found = kmeans(x, 4, init=torch.tensor([[0.05], [40], [-1000], [1000]]))
    assert sorted(found.label.tolist()) == [0, 1, 2, 3] and float(found.inertia[-1]) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("spherical", [False, True])
def test_fewer_distinct_points_than_clusters(spherical):
    x = torch.eye(3).repeat(10, 1)
    found = kmeans(x, 5, spherical=spherical)
    assert found.centre.isfinite().all() and float(found.inertia[-1]) == pytest.approx(0, abs=1e-5)
    assert all(len(found.label[n::3].unique()) == 1 for n in range(3)) and len(found.label.unique()) == 3
    same = kmeans(torch.ones(7, 2), 7, spherical=spherical)
    assert len(same.label.unique()) == 1 and float(same.inertia[-1]) == pytest.approx(0, abs=1e-5)
    alone, _ = some(12, 4)
    assert sorted(kmeans(alone, 12).label.tolist()) == list(range(12))
    assert kmeans(alone, 1).centre[0].tolist() == pytest.approx(alone.mean(0).tolist())


def test_far_from_the_origin_nothing_is_lost():
    x, _ = some(200, 8, 10, 0.3, dtype=torch.float32)
    far = x + 3000
    found = kmeans(far, 10)
    assert torch.equal(found.label, kmeans(far.double() - 3000, 10).label)
    torch.testing.assert_close(found.centre.double(), kmeans(far.double(), 10).centre, rtol=1e-6, atol=0)


def test_spherical_goes_by_direction():
    x, _ = some(200, 8, 10, 0.4)
    length = torch.rand(200, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    found = kmeans(length * x, 10, spherical=True)
    unit = torch.nn.functional.normalize(x, dim=1)
    torch.testing.assert_close(found.centre.norm(dim=1), torch.ones(10, dtype=torch.float64))
    assert torch.equal(found.label, (unit @ found.centre.T).argmax(1))
    for number in range(10):
        total = unit[found.label == number].sum(0)
        torch.testing.assert_close(found.centre[number], total / total.norm(), rtol=1e-6, atol=1e-6)
    assert float(found.inertia[-1]) == pytest.approx(float((2 - 2 * (unit @ found.centre.T).amax(1)).sum()))
    again = kmeans(x, 10, spherical=True, init=7 * found.centre, iterations=0)
    assert torch.equal(again.label, found.label) and torch.allclose(again.centre, found.centre)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_are_float32_or_more_whatever_the_caller_computes_in(dtype):
    x = some(100, 4, 5, 0.1)[0].to(dtype).requires_grad_()
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        found = kmeans(x, 5)
    plain = kmeans(x.detach().to(wide), 5)
    assert found.centre.dtype == wide and found.label.dtype == torch.int64 and not found.centre.requires_grad
    assert torch.equal(found.centre, plain.centre) and torch.equal(found.label, plain.label)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"k": 0}, "k must lie between 1 and the number of points, got k=0 for 9"),
        ({"k": 10}, "got k=10 for 9; lower k"),
        ({"init": torch.full((3, 2), math.nan)}, "init must be finite, .*3 of 3 rows"),
        ({"x": torch.tensor([[1.0, 2], [math.nan, 1], [1, 1], [math.inf, 0]])}, "2 of 4 rows are not .first: row 1"),
        ({"x": torch.full((4, 2), 1e200, dtype=torch.float64)}, "and so must its squares, but 4 of 4"),
    ],
)
def test_bad_input_is_named(settings, says):
    settings = {"x": torch.rand(9, 2), "k": 3, **settings}
    with pytest.raises(LikewiseError, match=f"kmeans: .*{says}"):
        kmeans(settings.pop("x"), settings.pop("k"), **settings)
