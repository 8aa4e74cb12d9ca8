"""Test errors and their causes: pairs one at a time, what is planted is found, and causes that are tested by training."""

from itertools import product

import numpy as np
import pytest
import torch
from likewise.config import Audit, Train
from likewise.errors import LikewiseError
from likewise.losses import Triplet
from likewise.metrics import metric
from likewise.types import Embedded
from scipy.special import stdtr
from torch.nn import functional as F

from likewise import losses
from likewise.core.retrieval.ranking import rank
from likewise.core.settings.spec import build
from likewise.curate.audit import error_causes as causes
from likewise.curate.audit import influence as inf
from likewise.curate.audit.error_causes import (
    INFLUENCE_METHODS,
    choose_errors,
    describe_lissa,
    explain,
    find_pairs,
    influences,
    one_thread,
    worst_classes,
)
from likewise.curate.audit.records import Errors, WrongPairs, to_device
from likewise.curate.audit.source import open_subject
from likewise.learn.training.fit import train as train_run


def some(rows=70, classes=9, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (rows,), generator=g) ** 2
    y[5] = 100  # alone
    z = torch.randn(rows, 4, generator=g)
    z[11] = 2 * z[10]  # equal directions, to the last bit
    z[13] = z[10]
    return z, y


def by_hand(z, y, group=None):
    """Every failing query as (query, nearest other, nearest mate or -1, both squared distances)."""
    z = F.normalize(z.double(), dim=1)
    found = []
    for i in range(len(z)):
        away = [(round(float((z[i] - z[j]).square().sum()), 9), j) for j in range(len(z)) if j != i]
        if group is not None:
            away = [
                (d, j) for d, j in away if not any(a == b >= 0 for a, b in zip(group[i].tolist(), group[j].tolist()))
            ]
        d, wrong = min(away)
        if y[wrong] != y[i]:
            near, mate = min([(d, j) for d, j in away if y[j] == y[i]], default=(None, -1))
            found.append((i, wrong, mate, d, near))
    return found


@pytest.mark.parametrize("chunk", [2**24, 1, 300])
@pytest.mark.parametrize("seed", [0, 1])
def test_both_kinds_by_hand(seed, chunk, monkeypatch):
    monkeypatch.setattr(causes, "SIMILARITY_BLOCK_SIZE", chunk)
    z, y = some(seed=seed)
    expected = by_hand(z, y)
    confusion, mis_similar = find_pairs(z, y)
    assert {(q, w, m) for q, w, m, _, _ in expected} == set(
        zip(confusion.query.tolist(), confusion.wrong.tolist(), confusion.mate.tolist())
    )
    assert confusion.partner.tolist() == confusion.wrong.tolist()
    assert confusion.distance.tolist() == pytest.approx(sorted(d for *_, d, _ in expected), abs=1e-6)
    with_mate = [e for e in expected if e[2] >= 0]
    assert len(with_mate) == len(expected) - 1
    assert {(q, m, w) for q, w, m, _, _ in with_mate} == set(
        zip(mis_similar.query.tolist(), mis_similar.partner.tolist(), mis_similar.wrong.tolist())
    )
    assert mis_similar.distance.tolist() == pytest.approx(sorted((e[4] for e in with_mate), reverse=True), abs=1e-6)


def test_samples_that_share_a_group_are_not_compared():
    z, y = some(rows=90)
    g = torch.Generator().manual_seed(1)
    group = torch.randint(-1, 5, (90, 2), generator=g)
    expected = by_hand(z, y, group)
    assert expected != by_hand(z, y)
    confusion = find_pairs(z, y, group).confusion
    assert {(q, w, m) for q, w, m, _, _ in expected} == set(
        zip(confusion.query.tolist(), confusion.wrong.tolist(), confusion.mate.tolist())
    )


def test_confusion_pairs_are_the_failures_of_recall_at_1():
    z, y = some(rows=200)
    recall = metric("R@1")(rank(z, y))
    query = find_pairs(z, y).confusion.query
    failed = (recall == 0).nonzero()[:, 0].tolist()
    assert sorted(set(query.tolist()) - {5}) == failed  # 5 is alone: recall is not defined there


def test_without_errors_there_are_no_pairs():
    z, y = torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)
    found = find_pairs(z, y)
    assert not len(found.confusion.query) and not len(found.mis_similar.query)
    assert worst_classes(found.confusion, y, 10) == []


def grouped():
    """Class 1 fails 5 times: thrice into 2, once into 3, once into 4; class 2 fails twice, all of it."""
    y = torch.tensor([1] * 10 + [2, 2, 3, 3, 4, 4])
    query = torch.tensor([0, 10, 1, 2, 11, 3, 4])
    wrong = torch.tensor([12, 0, 10, 11, 1, 10, 14])
    return WrongPairs(query, wrong, wrong, torch.full_like(wrong, -1), torch.linspace(0, 1, 7)), y


def test_the_worst_classes_go_by_count_or_by_rate():
    pairs, y = grouped()
    by_count = worst_classes(pairs, y, 10)
    assert [(label, member.tolist()) for label, member in by_count] == [(1, [0, 2, 3, 5, 6]), (2, [1, 4])]
    assert [label for label, _ in worst_classes(pairs, y, 10, by="rate")] == [2, 1]
    assert [label for label, _ in worst_classes(pairs, y, 1)] == [1]


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: find_pairs(torch.randn(3, 2), torch.randn(3)), "find_pairs: .*integer per row"),
        (lambda: find_pairs(torch.full((3, 2), torch.inf), torch.arange(3)), "first: row 0"),
    ],
)
def test_bad_input_is_named(work, message, unchecked):
    with pytest.raises(LikewiseError, match=message):
        work()


PLANTED = range(44, 48)


def settings(run, **changes):
    return Audit(targets=(str(run.path),), device="cpu", workers=0, quiet=True, **{"max_classes": 2, "k": 8} | changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Test class 7 looks like training class 3, and four training samples of class 3 look like test class 6."""
    rng, y = np.random.default_rng(2), np.repeat(np.arange(8), 12)
    centre = rng.normal(size=(8, 10)) * 1.6
    centre[7] = centre[3] + rng.normal(size=10) * 0.3
    centre[6] = centre[3] + rng.normal(size=10) * 2.0
    look = y.copy()
    look[list(PLANTED)] = 6
    x = centre[look] + rng.normal(size=(96, 10)) * 0.9
    file = tmp_path_factory.mktemp("planted") / "planted.npz"
    np.savez(file, x=x, label=y, split=np.where(y < 6, "train", "test"))
    return train_run(Train(
        data=str(file), out=str(file.parent / "run"), loss="NormSoftmax()", dim=6, steps=200, lr=3e-3, quiet=True,
        sampler="SamplesPerClass(batch=24, per_class=4)", device="cpu", evaluate=False,
    ))  # fmt: skip


@pytest.fixture(scope="module")
def subject(run):
    return open_subject(settings(run), print)


def test_samples_that_were_planted_are_found(run, subject):
    found = explain(subject, settings(run))
    groups = [place for place, (_, kind) in enumerate(found.errors.name) if kind == "group"]
    assert {found.errors.name[place][0] for place in groups} == {"6", "7"}
    for place in groups:  # by chance, two of the four would be among the first three of 72 once in 130 times
        assert len(set(found.causes.harmful_row[place, :3].tolist()) & set(PLANTED)) >= 2
        assert not set(found.causes.helpful_row[place, :3].tolist()) & set(PLANTED)
    assert found.pull.shape == (72,) and found.pull.min() > 0


def test_a_pass_of_lissa_over_few_samples_is_noted(run):
    alone = open_subject(settings(run), print)
    explain(alone, settings(run, influence="lissa"))
    assert [note for note in alone.notes if note.startswith("lissa: one pass of 72 steps")]
    pairs = describe_lissa(Triplet(), alone.splits["train"].e)
    assert pairs[0].startswith("lissa: Triplet compares samples, so one step takes a batch of about 32 samples")
    assert pairs[1].startswith("lissa: one pass of 2 steps")
    plain = open_subject(settings(run), print)
    explain(plain, settings(run))
    assert not any("lissa" in note for note in plain.notes)


def test_errors_are_the_worst_of_each_kind_and_whole_classes(run, subject):
    found = explain(subject, settings(run, max_errors=0, max_classes=0))
    assert found.errors.name == [] and found.causes is None and found.pull is None
    confusion, apart = found.pairs
    errors = choose_errors(found.pairs, subject, settings(run, max_errors=2))
    rows = subject.test.e.row
    for at, pairs, kind, sign in ((0, confusion, "confusion", 1), (2, apart, "mis-similar", -1)):
        for place in range(2):
            query, other = int(pairs.query[place]), int(pairs.partner[place])
            assert errors.pair[at + place].tolist() == [query, other] and errors.sign[at + place] == sign
            assert errors.name[at + place] == (f"{rows[query]}-{rows[other]}", kind)
    y = subject.test.e.y
    for error, (name, kind) in list(enumerate(errors.name))[4:]:
        mine = errors.pair[errors.error == error].tolist()
        label = subject.test.names.index(name)
        assert kind == "group" and mine == [
            [q, p] for q, p in zip(confusion.query.tolist(), confusion.partner.tolist()) if y[q] == label
        ]
    some = errors.some(1, 3)
    assert isinstance(some, Errors) and some.error.tolist() == [0, 1] and some.name == errors.name[1:3]


@pytest.mark.parametrize("way", INFLUENCE_METHODS)
def test_some_errors_at_a_time_give_the_same(run, subject, way, monkeypatch):
    config = settings(run, influence=way, max_errors=2)
    whole = explain(subject, config)
    monkeypatch.setattr(causes, "INFLUENCE_BLOCK_SIZE", 2 * len(subject.splits["train"].e.y))
    pieces = explain(subject, config)
    assert torch.equal(whole.causes.harmful_row, pieces.causes.harmful_row)
    torch.testing.assert_close(whole.pull, pieces.pull)
    g = whole.g
    assert [low for low, _ in influences(subject, whole.errors, way, g, config)] == [0, 2, 4]


def test_threads_come_back():
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="x"), one_thread():
        assert torch.get_num_threads() == 1
        raise ValueError("x")
    assert torch.get_num_threads() == before


def test_acting_without_errors_says_so(run, subject):
    found = explain(subject, settings(run, max_errors=1, max_classes=0, verify=True))
    assert found.verified["pairs"] == 2 and found.verified["rows"]
    g = found.g
    nothing = causes.verify_causes(subject, found.errors.some(0, 1), g, torch.zeros(1, len(g)), settings(run))
    assert nothing == {"pairs": 1, "rows": [], "summary": "there are too few errors for this measurement"}


DIM, FEATURES, CLASSES, N = 5, 7, 4, 48
PAIR = torch.tensor([[0, 1], [2, 3], [0, 4], [5, 6]])
SIGN = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
GROUP = torch.tensor([1, 0, 1, 1])
SMALL, SMALLER = causes.HeadTuning(lr=0.01), causes.HeadTuning(lr=1e-3)


def head():
    torch.manual_seed(7)
    return torch.nn.Linear(FEATURES, DIM, dtype=torch.float64)


def embedded(n, seed):
    draw = torch.Generator().manual_seed(seed)
    f, y = torch.randn(n, FEATURES, generator=draw, dtype=torch.float64), torch.arange(n) % CLASSES
    e = head()(f).detach()
    return Embedded(F.normalize(e, dim=1), y, torch.arange(n), e, f)


def loss_named(name, y):
    torch.manual_seed(3)
    needs = {"CrossBatchMemory": "CrossBatchMemory(size=4)", "Hierarchical": "Hierarchical(loss=ProxyNCA(), coarse=2)"}
    facts = {"classes": CLASSES, "dim": DIM, "seed": 0, "steps": 10, "labels": y.numpy()}
    return build(needs.get(name, f"{name}()"), **facts).double()


def weights(lines, seed=5):
    return torch.randint(0, 3, (lines, N), generator=torch.Generator().manual_seed(seed)).double()


def moved_by_hand(loss, train, test, w, members, batches, lr, clip):
    """One head, its own optimiser, one batch after another; then the pairs, one at a time."""
    layer, loss = head(), loss.eval()
    layer.bias.requires_grad_(False)
    adam = torch.optim.Adam(layer.parameters(), lr=lr)

    def distance():
        with torch.no_grad():
            e = layer(test.f)
            z = F.normalize(e, dim=1) if loss.input == "unit" else e
            return sum(SIGN[p] * (z[PAIR[p, 0]] - z[PAIR[p, 1]]).square().sum() for p in members) / len(members)

    before = distance()
    torch.manual_seed(0)
    for rows in batches:
        e = layer(train.f[rows])
        each = loss(F.normalize(e, dim=1) if loss.input == "unit" else e, train.y[rows])
        (gradient,) = torch.autograd.grad(sum(w[n] * own for n, own in zip(rows, each)) / len(rows), layer.weight)
        layer.weight.grad = gradient.clamp(-clip, clip)
        adam.step()
    return distance() - before


@pytest.mark.parametrize("name", losses.__all__)
def test_heads_that_learn_at_once_learn_as_if_alone(name):
    train, test = embedded(N, 0), embedded(9, 4)
    loss = loss_named(name, train.y)
    state = {k: v.clone() for k, v in loss.state_dict().items()}
    w, batches = weights(2), inf.balanced_batches(train.y, 16, 4)
    found = causes.gains(loss, train, test, PAIR, SIGN, w, GROUP, tuning=SMALL._replace(clip=0.02), batches=batches)
    assert all(torch.equal(v, state[k]) for k, v in loss.state_dict().items())
    for q, members in enumerate([[1], [0, 2, 3]]):
        want = moved_by_hand(loss, train, test, w[q], members, batches, 0.01, 0.02)
        torch.testing.assert_close(found[q], want, rtol=1e-6, atol=1e-9)


def test_blocks_of_heads_and_one_line_for_all_change_nothing():
    train, test = embedded(N, 0), embedded(9, 4)
    loss, w = loss_named("ProxyNCA", train.y), weights(4)
    whole = causes.gains(loss, train, test, PAIR, SIGN, w, tuning=SMALL)
    blocks = causes.gains(loss, train, test, PAIR, SIGN, w, tuning=SMALL._replace(budget=2500))
    torch.testing.assert_close(blocks, whole)
    assert len(set(whole.tolist())) == 4
    one = causes.gains(loss, train, test, PAIR, SIGN, w[:1], tuning=SMALL)
    torch.testing.assert_close(one, causes.gains(loss, train, test, PAIR, SIGN, w[:1].expand(4, -1), tuning=SMALL))
    torch.testing.assert_close(one[0], whole[0])


def test_miners_draw_the_same_and_leave_the_callers_draws_alone():
    train, test = embedded(N, 0), embedded(9, 4)
    loss = loss_named("Triplet", train.y)
    torch.manual_seed(11)
    first = causes.gains(loss, train, test, PAIR, SIGN, weights(4), tuning=SMALL)
    drawn = torch.rand(1)
    assert torch.equal(first, causes.gains(loss, train, test, PAIR, SIGN, weights(4), tuning=SMALL))
    torch.manual_seed(11)
    assert torch.equal(drawn, torch.rand(1))


def test_acting_on_influence_repairs_more_than_chance():
    train, test = embedded(N, 0), embedded(40, 4)
    loss = loss_named("ProxyNCA", train.y)
    pair = torch.arange(40).reshape(20, 2)
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(10)
    score = inf.along(inf.repairs(test, pair, sign), inf.embedding_gradients(loss, train), train.f)
    ways = {"first order": score, "its reverse": -score}
    found = causes.verify(loss, train, test, pair, sign, ways, tuning=SMALLER)
    assert list(found) == ["first order", "its reverse", causes.RANDOM_SIGNS, causes.NO_WEIGHTS]
    assert (found["first order"] > found["its reverse"]).all()
    for other in (causes.RANDOM_SIGNS, causes.NO_WEIGHTS):
        assert causes.paired(found["first order"], found[other]).p < 1e-3
    again = causes.verify(loss, train, test, pair, sign, ways, tuning=SMALLER, seed=1)
    assert not np.array_equal(again[causes.RANDOM_SIGNS], found[causes.RANDOM_SIGNS])
    plain = causes.gains(loss, train, test, pair, sign, torch.ones(1, N), tuning=SMALLER)
    np.testing.assert_allclose(found[causes.NO_WEIGHTS], plain, rtol=1e-9)


def test_weights_are_two_for_helpful_none_for_harmful_and_random_ones_are_as_many(monkeypatch):
    seen = []

    def watch(loss, train, test, pair, sign, weight, *rest, **how):
        seen.append(weight)
        return torch.zeros(4)

    monkeypatch.setattr(causes, "gains", watch)
    train, test = embedded(N, 0), embedded(9, 4)
    score = torch.randn(4, N, generator=torch.Generator().manual_seed(2))
    score[:, 0] = 0
    causes.verify(loss_named("ProxyNCA", train.y), train, test, PAIR, SIGN, {"a": score})
    for n in range(N):
        assert all(seen[0][q, n] == (1 if n == 0 else 2 if score[q, n] < 0 else 0) for q in range(4))
    assert torch.equal(seen[1].sort(1).values, seen[0].sort(1).values) and not torch.equal(seen[1], seen[0])
    assert torch.equal(seen[2], torch.ones(1, N))


def test_the_tests_by_hand():
    ours, other = np.asarray([1.0, 2.5, 3.0, 4.5, 0.5]), np.asarray([0.5, 1.0, 3.25, 2.0, 0.25])
    gap = ours - other
    gain = causes.paired(ours, other)
    t = gap.mean() / (gap.std(ddof=1) / 5**0.5)
    assert gain.mean == pytest.approx(gap.mean()) and gain.p == pytest.approx(1 - stdtr(4, t))
    assert gain.low < gain.mean < gain.high
    gap = np.asarray([0.5, 1.5, -0.25, 2.5, 0.75])
    rank = np.abs(gap).argsort().argsort() + 1
    real = sum(r for r, g in zip(rank, gap) if g > 0)  # how often do random signs have so high a sum of ranks?
    sums = [sum(r for r, s in zip(rank, signs) if s) for signs in product((0, 1), repeat=5)]
    assert causes.paired(gap, np.zeros(5), grouped=True).p == pytest.approx(np.mean([s >= real for s in sums]))
    assert causes.paired(ours, ours).p is None and causes.paired(ours[:1], other[:1]).p is None


def test_what_is_told():
    changes = {"first order": np.asarray([0.2, 0.4, 0.3]), "random signs": np.asarray([0.0, 0.1, 0.3])}
    found = causes.describe_repairs(changes)
    assert found["pairs"] == 3 and [r["method"] for r in found["rows"]] == list(changes)
    first, second = found["rows"]
    assert first["mean"] == pytest.approx(0.3) and first["p"] is None and first["low"] < 0.3 < first["high"]
    assert second["p"] == causes.paired(*changes.values()).p
    assert "of 3 pairs improved by +0.3000" in found["summary"]
    assert "+0.1667 compared with random signs" in found["summary"]
    single = causes.describe_repairs({way: change[:1] for way, change in changes.items()}, grouped=True)
    assert single["rows"][1]["p"] is None and single["rows"][0]["low"] is None and "1 groups" in single["summary"]


def test_bad_weights():
    train, test = embedded(N, 0), embedded(9, 4)
    loss = loss_named("ProxyNCA", train.y)
    with pytest.raises(LikewiseError, match="diverged with lr=inf; lower lr"):
        causes.gains(loss, train, test, PAIR, SIGN, weights(4), tuning=causes.HeadTuning(float("inf")))


def test_some_errors_are_numbered_anew():
    pair = torch.arange(8).reshape(4, 2)
    errors = Errors(pair, torch.ones(4), torch.tensor([0, 1, 1, 2]), [("a", "x"), ("b", "y"), ("c", "group")])
    some = errors.some(1, 3)
    assert some.pair.tolist() == pair[1:].tolist() and some.error.tolist() == [0, 0, 1]
    assert some.name == [("b", "y"), ("c", "group")] and len(some.sign) == 3


def test_what_is_missing_stays_missing_on_another_device():
    e = Embedded(torch.eye(2), torch.tensor([0, 1]), torch.tensor([4, 5]), f=torch.ones(2, 3))
    there = to_device(e, torch.device("meta"))
    assert there.z.is_meta and there.f.is_meta and there.e is None
