"""Mutual information and pair F1 one pair at a time, expected information over all shuffles, and scikit-learn's numbers."""

import itertools
import math
from collections import Counter

import pytest
import torch
from likewise.metrics import clustering as module
from likewise.types import LikewiseError

from likewise import metrics
from likewise.score.metrics.clustering import ami, knows, measure, nmi, nmi_geometric, pair_f1

ALL = (nmi, nmi_geometric, ami, pair_f1)


def some(rows=60, a=6, b=4, seed=0):
    """Two uneven groupings that have something to do with one another."""
    g = torch.Generator().manual_seed(seed)
    first = (torch.rand(rows, generator=g) ** 2 * a).long()
    return first * 10 - 7, (first + (torch.rand(rows, generator=g) < 0.3)) % b


def entropy_by_hand(label):
    return -sum(n / len(label) * math.log(n / len(label)) for n in Counter(label).values())


def information_by_hand(a, b):
    in_a, in_b, total = Counter(a), Counter(b), len(a)
    return sum(
        n / total * math.log(n * total / (in_a[p] * in_b[q])) for (p, q), n in Counter(zip(a, b, strict=True)).items()
    )


def f1_by_hand(a, b):
    true = false = missed = 0
    for i, j in itertools.combinations(range(len(a)), 2):
        true += a[i] == a[j] and b[i] == b[j]
        false += a[i] != a[j] and b[i] == b[j]
        missed += a[i] == a[j] and b[i] != b[j]
    return 2 * true / (2 * true + false + missed)


@pytest.mark.parametrize("seed", range(3))
def test_by_hand(seed):
    a, b = some(seed=seed)
    first, second = a.tolist(), b.tolist()
    information, entropies = information_by_hand(first, second), (entropy_by_hand(first), entropy_by_hand(second))
    assert nmi(a, b) == pytest.approx(2 * information / sum(entropies), rel=1e-12)
    assert nmi_geometric(a, b) == pytest.approx(information / math.sqrt(math.prod(entropies)), rel=1e-12)
    assert pair_f1(a, b) == pytest.approx(f1_by_hand(first, second), rel=1e-12)


@pytest.mark.parametrize(
    ("a", "b"), [("aabbb", "xxyyz"), ("aaaab", "xxxxy"), ("aabbcc", "xxxyyy"), ("abcde", "xxyyy"), ("aaaaa", "xxyyz")]
)
def test_chance_is_the_mean_over_all_shuffles(a, b):
    shuffles = list(itertools.permutations(b))
    chance = sum(information_by_hand(a, shuffle) for shuffle in shuffles) / len(shuffles)
    mean = (entropy_by_hand(a) + entropy_by_hand(b)) / 2
    expected = (information_by_hand(a, b) - chance) / (mean - chance)
    found = ami(*(torch.tensor([ord(letter) for letter in label]) for label in (a, b)))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parity
@pytest.mark.parametrize(("rows", "a", "b"), [(60, 6, 4), (500, 100, 120), (3000, 7, 400), (2000, 2, 3), (40, 1, 5)])
def test_scikit_learn_means_the_same(rows, a, b):
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
    from sklearn.metrics.cluster import pair_confusion_matrix

    for seed in range(2):
        x, y = some(rows, a, b, seed)
        assert nmi(x, y) == pytest.approx(normalized_mutual_info_score(x, y), abs=1e-9)
        assert ami(x, y) == pytest.approx(adjusted_mutual_info_score(x, y), abs=1e-9)
        if a > 1:
            geometric = normalized_mutual_info_score(x, y, average_method="geometric")
            assert nmi_geometric(x, y) == pytest.approx(geometric, abs=1e-9)
        (_, false), (missed, true) = pair_confusion_matrix(x, y).tolist()
        assert pair_f1(x, y) == pytest.approx(2 * true / (2 * true + false + missed), rel=1e-12)


@pytest.mark.parametrize("score", ALL)
def test_symmetric_blind_to_names_and_order_and_1_for_the_same_groups(score):
    a, b = some()
    value, order = score(a, b), torch.randperm(len(a), generator=torch.Generator().manual_seed(1))
    assert isinstance(value, float) and 0 < value < 1
    assert score(b, a) == pytest.approx(value, rel=1e-12)
    assert score(a[order], -3 * b[order].int()) == pytest.approx(value, rel=1e-12)
    assert score(a, 5 - a) == pytest.approx(1, rel=1e-12)


def test_many_groups_need_no_table_of_all_pairs():
    """100,000 x 100,000 groups as a dense table would be 80 GB."""
    a = torch.arange(300_000) // 3
    b = (torch.arange(300_000) + 1) // 3
    assert 0.9 < nmi(a, b) < 1 and 0 < ami(a, b) < nmi(a, b) and 0.3 < pair_f1(a, b) < 0.4


def test_what_is_not_defined_is_nan():
    one, each, some_ = torch.zeros(6, dtype=torch.int64), torch.arange(6), torch.arange(6) // 2
    assert math.isnan(nmi(one, one)) and nmi(one, some_) == 0 and nmi(each, each) == 1
    assert math.isnan(nmi_geometric(one, one)) and math.isnan(nmi_geometric(one, some_))
    assert math.isnan(ami(one, one)) and math.isnan(ami(each, each)) and ami(one, some_) == 0
    assert ami(each, some_) == pytest.approx(0, abs=1e-12)
    assert math.isnan(pair_f1(each, each)) and pair_f1(each, some_) == 0


def apart(rows=120, classes=12, spread=0.05):
    g = torch.Generator().manual_seed(0)
    y = torch.arange(rows) % classes
    z = torch.randn(classes, 8, generator=g)[y] + spread * torch.randn(rows, 8, generator=g)
    return z * (torch.rand(rows, 1, generator=g) + 0.5), y * 3 + 100


def test_classes_that_stand_apart_score_1_and_direction_is_all_that_counts():
    z, y = apart()
    assert measure(module.NAMES, z, y) == pytest.approx(dict.fromkeys(module.NAMES, 1))
    collapsed = measure(["NMI", "F1"], torch.ones(120, 8), y)
    assert collapsed == pytest.approx({"NMI": 0, "F1": 2 * 10 * 9 * 12 / (10 * 9 * 12 + 120 * 119)})


def test_one_run_of_kmeans_serves_all_names(monkeypatch):
    calls, real = [], module.kmeans

    def counted(x, k, **settings):
        calls.append((k, settings))
        return real(x, k, **settings)

    monkeypatch.setattr(module, "kmeans", counted)
    z, y = apart(spread=0.8)
    found = measure(["F1", "AMI", "NMI"], z, y)
    label = real(torch.nn.functional.normalize(z, dim=1), 12, iterations=20, seed=0).label
    assert found == {"F1": pair_f1(y, label), "AMI": ami(y, label), "NMI": nmi(y, label)} and next(iter(found)) == "F1"
    assert calls == [(12, {"iterations": 20})] and 0.2 < found["AMI"] < found["NMI"] < 1


def test_bad_embeddings_are_named():
    z, y = apart()
    z[3, 1] = math.nan
    with pytest.raises(LikewiseError, match="clustering: .* finite, but 1 of 120"):
        measure(["NMI"], z, y)


def test_names():
    assert [n for n in ("NMI", "AMI", "F1", "NMI_geometric", "nmi", "F1@1", "rho") if knows(n)] == [
        "NMI", "AMI", "F1", "NMI_geometric",
    ]  # fmt: skip


# From here on, all families together.


def test_sets_are_measured_in_the_order_asked_for_each_family_once(monkeypatch):
    z, y = apart(spread=0.8)
    names, calls = ["NMI", "rho@1", "AUROC", "pi_ratio", "F1"], []
    for family in metrics.SET_METRIC_FAMILIES:
        real = family.measure
        monkeypatch.setattr(family, "measure", lambda own, z, y, real=real: calls.append(own) or real(own, z, y))
    found = metrics.measure_set(names, z, y)
    assert list(found) == names and calls == [["rho@1", "pi_ratio"], ["NMI", "F1"], ["AUROC"]]
    assert found["NMI"] == measure(["NMI"], z, y)["NMI"]
    assert metrics.measure_set(iter(["pi_ratio"]), z, y) == {"pi_ratio": found["pi_ratio"]}
    assert metrics.measure_set([], z, y) == {}
    assert all(metrics.is_set_metric(name) for name in names) and not metrics.is_set_metric("R@1")
    assert set(metrics.SET_NAMES) == {name for family in metrics.SET_METRIC_FAMILIES for name in family.NAMES}
    for ask in (lambda: metrics.measure_set(["NMI", "R@1"], z, y), lambda: metrics.measure_set(["R@1"], z, y)):
        with pytest.raises(LikewiseError, match="set metric .* got 'R@1'; .*NMI.*AUROC"):
            ask()


def test_values_are_shown_as_their_kind():
    shares = {"R@1", "MAP@R", "NMI", "AMI", "F1", "AUROC", "EER", "TAR@FAR=1e-3", "TAR@P=0.99"}
    assert {metrics.as_text(name, 0.5384) for name in shares} == {"53.8 %"}
    plain = {"rho", "rho@1", "pi_intra", "threshold@P=0.99"}
    assert {metrics.as_text(name, 1.23451) for name in plain} == {"1.2345"}
    assert metrics.as_text("NMI", math.nan) == metrics.as_text("rho", math.nan) == "nan"
