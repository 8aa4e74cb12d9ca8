"""Names of metrics, how deep they look, and metrics of one's own by dotted name."""

import math

import pytest
import torch
from likewise.contracts import QueryMetric, SetMetric
from likewise.metrics import (
    NAMES,
    RankingDepth,
    as_text,
    import_metrics,
    is_set_metric,
    knows,
    measure_set,
    metric,
    reach,
)
from likewise.types import LikewiseError

OWN = '''
from likewise.contracts import QueryMetric, SetMetric
from likewise.score.metrics.ranking import precision_at


class Early(QueryMetric):
    """Precision among the first k answers."""

    def __init__(self, k: int = 5):
        self.k = self.depth = k

    def __call__(self, found):
        return precision_at(found, self.k)


class Spread(SetMetric):
    """Length of the mean embedding."""

    def __call__(self, z, y):
        return float(z.mean(0).norm())


class Neither:
    pass
'''


@pytest.fixture
def own(tmp_path, monkeypatch, request):
    """A module with metrics of somebody's own, under a name that no other test uses."""
    name = f"lab_{request.node.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_names():
    for name in (n.replace("@k", "@3") for n in NAMES):
        assert knows(name) and metric(name)
    for name in (
        "R@0", "R@k", "R", "RP@3", "P@5/R", "mAP@k/R", "mAP@3/", "mAP@3/N", "mAP@R", "MAP", "R@1\n", "R@1.5", "mrr",
        "rho", "",
    ):  # fmt: skip
        assert not knows(name), name
    with pytest.raises(LikewiseError, match="there is no 'R'.*R@k, P@k, RP, MAP@R"):
        metric("R")
    for name in ("R@0", "R@k", "R@-1", "R@1.5"):
        with pytest.raises(LikewiseError, match=f"in R@k k must be an integer.*got '{name}'"):
            metric(name)
    for name in ("TAR@FAR=2", "TAR@FAR=x", "TAR@FAR="):
        with pytest.raises(LikewiseError, match=f"in TAR@FAR=x x must be a share.*got '{name}'"):
            metric(name)
    with pytest.raises(LikewiseError, match="'R@1,R@10'.*separate names by spaces"):
        metric("R@1,R@10")
    with pytest.raises(LikewiseError, match="'mAP@R'; did you mean 'MAP@R'"):
        metric("mAP@R")
    with pytest.raises(LikewiseError, match="'rho' is one value for a whole set"):
        metric("rho")


@pytest.mark.parametrize("name", ["mAP@10", "MAP@10"])
def test_a_bare_map_at_k_is_refused_with_its_meanings(name):
    with pytest.raises(
        LikewiseError,
        match=r"is ambiguous.*mAP@10/R \(pytorch-metric-learning\), mAP@10/min \(.*\), mAP@10/hits \(OML.*\), "
        r"mAP@10/C \(Roth",
    ):
        metric(name)


def test_how_deep_to_rank():
    assert reach(["R@1", "P@8", "MAP@R", "rho@20"]) == RankingDepth(8, False)
    assert reach([]) == reach(["RP", "mAP@C"]) == (1, False)
    assert reach(["mAP@1000/C", "NDCG@10"]) == (1000, False)
    for name in ("MRR", "mAP", "mAP/C"):
        assert reach(["MRR@5", name]) == (5, True)


def test_a_dotted_metric_is_imported_only_with_permission(own):
    early, spread = f"{own}.Early(k=3)", f"{own}.Spread"
    for name in (early, spread):
        with pytest.raises(LikewiseError, match="runs its code; add --allow-imports"):
            import_metrics(["R@1", name], allow_imports=False)
        with pytest.raises(LikewiseError, match="must be imported first.*--allow-imports"):
            metric(name)
    import_metrics(["R@1", early, spread], allow_imports=True)
    assert isinstance(metric(early), QueryMetric) and metric(early).k == 3 and not is_set_metric(early)
    assert reach(["R@1", early]) == (3, False) and is_set_metric(spread)
    z = torch.tensor([[3.0, 4.0], [0.6, -0.8]])  # of unit length: (0.6, 0.8) and (0.6, -0.8)
    assert measure_set(["rho@1", spread], z, torch.tensor([0, 1]))[spread] == pytest.approx(0.6, abs=1e-6)
    with pytest.raises(LikewiseError, match="one value for a whole set"):
        metric(spread)
    assert as_text(early, 0.5) == as_text("R@1", 0.5) == as_text("unknown.Mine", 0.5) == "50.0 %"
    assert as_text(spread, 0.5) == "0.5000" and as_text("unknown.Mine", 96.0) == "96.0000"
    assert as_text("R@1", math.nan) == as_text(spread, math.nan) == "nan"


def test_what_is_imported_must_be_a_metric(own):
    with pytest.raises(LikewiseError, match="QueryMetric or .* got a Neither"):
        import_metrics([f"{own}.Neither"], allow_imports=True)
    with pytest.raises(LikewiseError, match="cannot be imported.*PYTHONPATH"):
        import_metrics(["no_such_lab.metrics.Mine"], allow_imports=True)


def test_the_contracts_are_abstract():
    for contract in (QueryMetric, SetMetric):
        with pytest.raises(TypeError, match="abstract"):
            contract()
