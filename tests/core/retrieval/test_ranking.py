"""Exact ranking against plain Python, with planted duplicates, groups and budgets that force every path."""

import math

import numpy as np
import pytest
import torch
from likewise.types import LikewiseError
from torch.nn import functional as F

from likewise.core.retrieval import integer_scores as exact
from likewise.core.retrieval.ranking import nearest, rank


def data(n=200, d=16, classes=20, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    z = F.normalize(torch.randn(classes, d, generator=g)[y] + torch.randn(n, d, generator=g), dim=1)
    for i in (50, 120, 199):  # planted duplicates, of whatever class
        if i < n:
            z[i] = z[3]
    z[10:30] = z[10].clone()
    return z, y


def by_hand(z, y, gallery, gallery_y, own, group=None, gallery_group=None, euclidean=False):
    """Order of the gallery for every query by whole-number arithmetic, one pair at a time."""
    bits = 25 if euclidean else 26
    if euclidean:
        longest = max(math.sqrt(float((t.double() ** 2).sum(1).max())) for t in (z, gallery))
        scale = 2.0 ** (bits - math.ceil(math.log2(longest)))
    orders = []

    def whole(v):
        v = v.double().numpy()
        v = v * scale if euclidean else v / np.linalg.norm(v) * 2.0**bits
        return [int(x) for x in np.round(v)]

    g = [whole(v) for v in gallery]
    for i, q in enumerate(map(whole, z)):
        keys = []
        for j, v in enumerate(g):
            if j == int(own[i]) or (group is not None and group[i] >= 0 and group[i] == gallery_group[j]):
                continue
            gap = sum((a - b) ** 2 for a, b in zip(q, v, strict=True))
            keys.append((gap if euclidean else -sum(a * b for a, b in zip(q, v, strict=True)), j))
        orders.append([j for _, j in sorted(keys)])
    return orders


def assert_same(found, orders, y, gallery_y):
    for i, order in enumerate(orders):
        k = found.row.shape[1]
        want = (order + [-1] * k)[:k]
        assert found.row[i].tolist() == want, f"query {i}"
        assert found.relevant[i] == sum(int(gallery_y[j] == y[i]) for j in order)
        ranks = [r + 1 for r, j in enumerate(order) if gallery_y[j] == y[i] and r < found.depth[i]]
        assert found.hit_rank[found.start[i] : found.start[i + 1]].tolist() == ranks


@pytest.mark.parametrize("k", [1, 7, 60])
@pytest.mark.parametrize("budget", [2**29, 40_000, 1])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_leave_one_out_equals_plain_python(k, budget, similarity):
    z, y = data(120)
    if similarity == "euclidean":
        z = z * torch.linspace(0.5, 3, len(z))[:, None]
        z[100:110] = z[100]
    orders = by_hand(z, y, z, y, range(len(z)), euclidean=similarity == "euclidean")
    assert_same(rank(z, y, k=k, similarity=similarity, budget=budget), orders, y, y)


def test_the_symmetric_path_equals_the_plain_one():
    """A set large enough to be proposed by blocks, some queries of which need the exhaustive path."""
    z, y = data(1500, classes=300)
    z[600:700] = z[600]  # more equals than the slack holds
    block = rank(z, y, k=5)
    plain = rank(z, y, z, y, k=5, own=torch.arange(len(z)), budget=2**20)
    for name in ("row", "hit_rank", "start", "relevant", "depth"):
        assert torch.equal(getattr(block, name), getattr(plain, name)), name
    assert block.row[650].tolist() == [600, 601, 602, 603, 604]


@pytest.mark.parametrize("budget", [2**29, 30_000])
def test_query_gallery_with_groups(budget):
    z, y = data(150)
    g = torch.Generator().manual_seed(1)
    q, gal = torch.arange(0, 60), torch.arange(40, 150)
    group = torch.randint(-1, 12, (150,), generator=g)
    own = torch.where(q >= 40, q - 40, -1)
    found = rank(z[q], y[q], z[gal], y[gal], k=9, own=own, group=group[q], gallery_group=group[gal], budget=budget)
    orders = by_hand(z[q], y[q], z[gal], y[gal], own, group[q], group[gal])
    assert_same(found, orders, y[q], y[gal])


@pytest.mark.parametrize("all_hits", [False, True])
def test_several_kinds_of_groups(all_hits):
    """A gallery row is excluded if it shares a group of any kind with the query."""
    z, y = data(150)
    g = torch.Generator().manual_seed(2)
    q, gal = torch.arange(0, 60), torch.arange(40, 150)
    kinds = torch.stack([torch.randint(-1, most, (150,), generator=g) for most in (4, 9, 2)], 1)
    own = torch.where(q >= 40, q - 40, -1)
    how = {"k": 9, "own": own, "all_hits": all_hits, "exclude": torch.tensor([[3, 20], [50, 2], [50, 40]])}
    found = rank(z[q], y[q], z[gal], y[gal], group=kinds[q], gallery_group=kinds[gal], **how)
    orders = by_hand(z[q], y[q], z[gal], y[gal], own)
    for i, order in enumerate(orders):
        shared = {j for j in order if any(a == b >= 0 for a, b in zip(kinds[q[i]].tolist(), kinds[gal[j]].tolist()))}
        shared |= {row for query, row in how["exclude"].tolist() if query == i}
        order[:] = [j for j in order if j not in shared]
    assert_same(found, orders, y[q], y[gal])


def test_planted_duplicates_rank_by_row_whatever_the_chunks():
    z, y = data()
    first = rank(z, y, k=25)
    for budget in (1, 10_000, 10**6):
        again = rank(z, y, k=25, budget=budget)
        assert torch.equal(again.row, first.row) and torch.equal(again.sim.nan_to_num(), first.sim.nan_to_num())
    assert first.row[3, :3].tolist() == [50, 120, 199]
    assert first.row[199, :3].tolist() == [3, 50, 120]
    collapsed = rank(torch.ones(300, 8), torch.arange(300) % 3, k=4)
    assert collapsed.row[0].tolist() == [1, 2, 3, 4] and collapsed.row[2].tolist() == [0, 1, 3, 4]


def test_values_are_cosines_and_distances():
    z = data(50)[0] * 3
    row, sim = nearest(z[:5], z, 4)
    want = F.cosine_similarity(z[:5, None].double(), z[row].double(), dim=2)
    assert torch.allclose(sim, want, atol=1e-7)
    row, sim = nearest(z[:5], z, 4, similarity="euclidean")
    assert torch.allclose(sim, -(z[:5, None].double() - z[row].double()).norm(dim=2), atol=1e-6)


def test_labels_above_2_to_the_24_stay_apart():
    z = torch.tensor([[1.0, 0], [1, 0.1], [0, 1]])
    found = rank(z, torch.tensor([2**53, 2**53 + 1, 2**53]), k=2)
    assert found.relevant.tolist() == [1, 0, 1]
    assert found.match.tolist() == [[False, True], [False, False], [False, True]]


def test_fewer_answers_than_k_leave_blanks():
    z = F.normalize(torch.randn(3, 4), dim=1)
    found = rank(z, torch.tensor([0, 0, 1]), k=10)
    assert found.row.shape == (3, 3) and (found.row[:, 2] == -1).all() and found.sim[:, 2].isnan().all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_an_error(bad):
    z, y = data(20)
    z[7, 2] = bad
    with pytest.raises(LikewiseError, match="finite.*1 query rows .first: row 7"):
        rank(z, y)


def test_bad_arguments(unchecked):
    z, y = data(20)
    with pytest.raises(LikewiseError, match="20 queries with 19 labels"):
        rank(z, y[:19])
    with pytest.raises(LikewiseError, match="same number of columns"):
        rank(z, y, z[:, :3], y)
    with pytest.raises(LikewiseError, match="cosine, euclidean, got 'dot'"):
        rank(z, y, similarity="dot")
    for half in ({"gallery_y": None}, {"group": y}, {"gallery_group": y}):
        with pytest.raises(LikewiseError, match="both or neither of group and gallery_group"):
            rank(z, y, z, **{"gallery_y": y, **half})
    with pytest.raises(LikewiseError, match="k must be 0 or more"):
        rank(z, y, k=-1)
    with pytest.raises(LikewiseError, match=r"below 20 for every query.*own up to 20"):
        rank(z, y, z, y, own=torch.arange(20) + 1)
    with pytest.raises(LikewiseError, match="nothing to rank"):
        rank(z[:0], y[:0])


def test_a_zero_vector_is_far_from_all_and_breaks_nothing():
    z, y = data(40)
    z[5] = 0
    found = rank(z, y, k=3)
    assert found.row[5].tolist() == [0, 1, 2] and (found.sim[5] == 0).all()


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_all_hits_are_found_however_deep(similarity):
    z, y = data(150, classes=40)
    g = torch.Generator().manual_seed(3)
    group = torch.randint(-1, 60, (150,), generator=g)
    orders = by_hand(z, y, z, y, range(150), group, group, euclidean=similarity == "euclidean")
    for budget in (2**29, 40_000, 1):
        found = rank(z, y, k=2, all_hits=True, group=group, budget=budget, similarity=similarity)
        assert_same(found, orders, y, y)
        assert torch.equal(found.start.diff(), found.relevant) and (found.depth == 150).all()
        assert found.hit_rank.max() > 100


def test_hits_are_known_one_deeper_than_there_are_and_as_deep_as_asked():
    z, y = data(150, classes=40)
    plain, deep = rank(z, y, k=2), rank(z, y, k=2, depth=70)
    assert (plain.depth >= plain.relevant + 1).all() and (plain.depth < 150).any()
    assert (deep.depth >= 70).all() and deep.row.shape == (150, 2)
    assert_same(deep, by_hand(z, y, z, y, range(150)), y, y)


def test_large_classes_are_known_to_their_last_hit():
    """40 of 120 to find: deeper than an eighth of the gallery."""
    z, y = data(120, classes=3)
    orders = by_hand(z, y, z, y, range(120))
    for budget in (2**29, 40_000, 1):
        found = rank(z, y, k=3, budget=budget)
        assert_same(found, orders, y, y)
        assert (found.start.diff() == found.relevant).all()


def by_hand_without(z, y, pairs):
    """The order without these answers, both ways."""
    gone = {*pairs, *((b, a) for a, b in pairs)}
    return [[j for j in order if (i, j) not in gone] for i, order in enumerate(by_hand(z, y, z, y, range(len(z))))]


@pytest.mark.parametrize("all_hits", [False, True])
def test_excluded_pairs_are_no_answers_and_nobody_misses_them(all_hits):
    z, y = data(90)
    pairs = [(3, 50), (50, 3), (0, 0), (10, 11), (12, 10), (7, 80), (7, 81)]
    found = rank(z, y, k=6, exclude=torch.tensor(pairs), all_hits=all_hits)
    assert_same(found, by_hand_without(z, y, pairs), y, y)
    q = torch.arange(20)
    one_way = rank(z[q], y[q], z, y, own=q, k=6, exclude=torch.tensor(pairs)[[3, 5]])
    assert 11 not in one_way.row[10].tolist() and (one_way.row[11] == 10).any()
    with pytest.raises(LikewiseError, match="row below 90, got pairs from 1 up to .1, 90."):
        rank(z, y, exclude=torch.tensor([[1, 90]]))


def test_embeddings_on_disk_and_of_other_kinds_rank_the_same(tmp_path):
    z, y = data(130)
    np.save(tmp_path / "z.npy", z.numpy())
    mapped = torch.as_tensor(np.load(tmp_path / "z.npy", mmap_mode="c"))
    here = rank(z, y, k=5)
    for other in (mapped, z.double()):
        before = other.clone()
        there = rank(other, y, k=5, budget=50_000)
        assert torch.equal(there.row, here.row) and torch.equal(there.hit_rank, here.hit_rank)
        assert torch.equal(other, before)
    half = z.half()
    short, long = rank(half, y, k=5), rank(half.float(), y, k=5)
    assert torch.equal(short.row, long.row) and torch.equal(short.sim, long.sim)


@pytest.mark.parametrize(("kind", "power"), [(torch.float32, -145), (torch.float64, 200), (torch.float64, -200)])
def test_lengths_beyond_float32_miss_nobody(kind, power):
    """The last rows point where others do, but 1 / length or the numbers themselves overflow a float32."""
    z, y = data(3000, classes=300)
    z[2990:] = (z[:10] * 2.0**8).round()  # few bits, so that the smallest float32 hold them too
    short = z.to(kind)
    short[2990:] *= 2.0**power
    assert torch.equal(rank(short, y, k=3, budget=2**20).row, rank(z.to(kind), y, k=3).row)


def test_one_scale_for_all_distances():
    z, y = data(60)
    far = rank(z, y, k=4, similarity="euclidean")
    assert torch.equal(rank(z * 2.0**-100, y, k=4, similarity="euclidean").row, far.row)
    long = torch.cat([z[:20], z[20:40] * 1000])  # a share without the long ones would round less
    alone = rank(long, y[:40], z, y, k=4, similarity="euclidean")
    scale = exact.euclidean_scale(long, z)
    for some in (slice(0, 20), slice(20, 40)):
        share = rank(long[some], y[some], z, y, k=4, similarity="euclidean", scale=scale)
        assert torch.equal(share.row, alone.row[some]) and torch.equal(share.sim, alone.sim[some])
    z[7] *= 1e6
    with pytest.raises(LikewiseError, match="longer than 32768 times the median length, got length 1e.06"):
        rank(z, y, similarity="euclidean")


def test_a_gradient_is_nobody_s_business():
    z, y = data(40)
    found = rank(z.requires_grad_(), y, similarity="euclidean")
    assert not found.sim.requires_grad and z.grad is None


def test_float16_that_overflowed_is_an_error():
    z, y = data(20)
    z = (z * 1e6).half()
    with pytest.raises(LikewiseError, match="overflow of float16"):
        rank(z, y)


@pytest.mark.gpu
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_a_gpu_ranks_every_row_as_the_cpu_does(similarity):
    z, y = data(1500, classes=300)
    z[600:700] = z[600].clone()
    for all_hits in (False, True):
        here = rank(z, y, k=8, similarity=similarity, all_hits=all_hits)
        for budget in (2**29, 2**20):
            for source in (z.cuda(), z):
                there = rank(source, y, k=8, similarity=similarity, budget=budget, device="cuda", all_hits=all_hits)
                for name in ("row", "hit_rank", "start", "relevant", "depth"):
                    assert torch.equal(getattr(here, name), getattr(there, name).cpu()), name
