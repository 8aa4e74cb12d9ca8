import math

import pytest
import torch
from likewise.losses import LiftedStructure
from likewise.types import Ref


def by_hand(e, y, margin):
    rows, each, count = e.tolist(), [0.0] * len(y), 0
    for i in range(len(y)):
        for j in range(len(y)):
            if i == j or y[i] != y[j]:
                continue
            count += 1
            total = 0.0
            for n in range(len(y)):
                if y[n] != y[i]:
                    total += math.exp(margin - math.dist(rows[i], rows[n])) + math.exp(
                        margin - math.dist(rows[j], rows[n])
                    )
            if total:
                each[i] += max(0.0, math.dist(rows[i], rows[j]) + math.log(total)) ** 2 / 2
    return torch.tensor([v * len(y) / max(count, 1) for v in each], dtype=torch.float64)


@pytest.mark.parametrize("margin", [1.0, 0.2])
def test_by_hand(golden, margin):
    for e in (golden.raw, 4 * golden.half):
        torch.testing.assert_close(LiftedStructure(margin=margin)(e, golden.y), by_hand(e, golden.y, margin))


def test_the_hinge(golden):
    e = golden.raw + 20 * torch.nn.functional.one_hot(golden.y, 8)  # classes far apart
    assert (LiftedStructure()(e, golden.y) == 0).all()
    torch.testing.assert_close(LiftedStructure()(e, golden.y), by_hand(e, golden.y, 1.0))


def test_with_a_reference_the_partner_brings_its_strangers_in_the_batch(golden):
    batch, others = [0, 1, 3, 4, 6], [7, 2, 5, 8]
    each = LiftedStructure()(golden.raw[batch], golden.y[batch], Ref(golden.raw[others], golden.y[others]))
    rows, total, count = golden.raw.tolist(), [0.0] * 5, 0
    for k, i in enumerate(batch):
        for j in others:
            if golden.y[i] != golden.y[j]:
                continue
            count += 1
            of_i = sum(math.exp(1 - math.dist(rows[i], rows[n])) for n in others if golden.y[n] != golden.y[i])
            of_j = sum(math.exp(1 - math.dist(rows[j], rows[n])) for n in batch if golden.y[n] != golden.y[j])
            total[k] += max(0.0, math.dist(rows[i], rows[j]) + math.log(of_i + of_j)) ** 2 / 2
    torch.testing.assert_close(each, torch.tensor(total, dtype=torch.float64) * 5 / count)


def test_the_batch_as_reference_has_the_same_gradient(golden):
    e = golden.raw.clone().requires_grad_()
    (plain,) = torch.autograd.grad(LiftedStructure()(e, golden.y).mean(), e)
    (through,) = torch.autograd.grad(LiftedStructure()(e, golden.y, Ref(e, golden.y, torch.arange(12))).mean(), e)
    torch.testing.assert_close(through, plain)


def test_without_strangers_or_class_mates_there_is_nothing_to_learn(golden):
    for y in (torch.zeros(12, dtype=torch.int64), torch.arange(12)):
        assert (LiftedStructure()(golden.raw, y) == 0).all()


def test_distant_embeddings_do_not_overflow(golden):
    e = (1000 * golden.raw).float().requires_grad_()
    each = LiftedStructure()(e, golden.y)
    each.mean().backward()
    assert torch.isfinite(each).all() and torch.isfinite(e.grad).all() and each.max() > 1e4


def test_graded_by_hand(golden, graded):
    """A positive pair counts with its relevance r, the push of a negative with 1 - r."""
    rows, each, count = golden.raw.tolist(), [0.0] * 12, 0.0
    for i in range(12):
        for j, r in graded.known(i):
            if r < 0.5:
                continue
            count += r
            total = sum(
                (1 - q) * math.exp(1 - math.dist(rows[k], rows[n]))
                for k in (i, j)
                for n, q in graded.known(k)
                if q < 0.5
            )
            if total:
                each[i] += r * max(0.0, math.dist(rows[i], rows[j]) + math.log(total)) ** 2 / 2
    found = LiftedStructure().with_relevance(graded.relevance)(golden.raw, graded.ids)
    torch.testing.assert_close(found, torch.tensor(each, dtype=torch.float64) * 12 / count)
    batch = Ref(golden.raw, graded.ids, graded.ids)
    torch.testing.assert_close(LiftedStructure().with_relevance(graded.relevance)(golden.raw, graded.ids, batch), found)
