"""Settings that do not go together are refused before anything is written."""

from pathlib import Path

import pytest
from learn.training.small_training import built
from likewise.config import Train
from likewise.losses import Triplet
from likewise.types import LikewiseError

from likewise.data import load
from likewise.learn.training.fit import train


def test_a_budget_that_is_none_is_told_before_anything_is_done(pictures, small):
    given = load(str(pictures))
    with pytest.raises(LikewiseError, match="an amount such as '512MB' or '4GB', got 'much'"):
        built(Train(data=str(pictures), cache_memory="much", **small), given)


@pytest.mark.parametrize(("inner", "views"), [(2, 1), (3, 2)])
def test_a_loss_and_its_batches_agree_on_views(items, make, inner, views):
    """Else it would take other pictures for views of one."""
    for loss in (f"AdaptiveHierarchical(views={inner})", f"CrossBatchMemory(loss=AdaptiveHierarchical(views={inner}))"):
        with pytest.raises(LikewiseError, match=f"has views={inner}, but a batch has {views} views of every image"):
            make(items, loss=loss, views=views)
    assert make(items, loss=f"AdaptiveHierarchical(views={views})", views=views).components.loss.views == views


def test_terms_go_with_one_network(items, make):
    with pytest.raises(LikewiseError, match=r"CoTeaching\(.*trains 2 networks, but SelfDistillation\(.*supports one"):
        make(items, loss="NormSoftmax()", confidence="CoTeaching(share=0.2)", terms=("SelfDistillation()",))


def test_co_teaching_plus_wants_a_loss_with_classes(items, make):
    with pytest.raises(
        LikewiseError, match=r"CoTeachingPlus\(.*needs a loss that predicts classes.*use --loss NormSoftmax"
    ):
        make(items, loss="MultiSimilarity()", confidence="CoTeachingPlus(share=0.2)")


@pytest.mark.parametrize("more", [{"chunk_size": 4}, {"recompute": True}])
def test_mixup_goes_with_nothing_that_cuts_or_repeats(items, make, more):
    with pytest.raises(LikewiseError, match=r"train: --mixup .*; drop --mixup or --"):
        make(items, mixup=2.0, mixup_at="input", **more)


@pytest.mark.parametrize(
    "parts", [{"confidence": "ProcSim()"}, {"terms": ("SelfDistillation()",)}, {"confidence": "LabelPosterior()"}]
)
def test_mixtures_cannot_be_judged(settings, parts):
    with pytest.raises(
        LikewiseError, match=r"(ProcSim|SelfDist|LabelPost).* needs single samples, but --mixup .*drop one"
    ):
        train(Train(**settings | parts, mixup=2.0))
    assert not Path(settings["out"]).exists()


@pytest.mark.parametrize("loss", ["CrossBatchMemory(size=64)", "Hierarchical(loss=ProxyAnchor(), by='means')"])
def test_mixtures_are_not_remembered(settings, loss):
    with pytest.raises(LikewiseError, match="would store embeddings of mixtures"):
        train(Train(**settings | {"loss": loss}, mixup=2.0))


def test_a_mixture_has_no_loss_of_its_own(settings):
    with pytest.raises(
        LikewiseError, match="--mixup leaves no loss of a single sample.*drop --mixup or --record-losses"
    ):
        train(Train(**settings, record_losses=True, mixup=2.0))
    assert not Path(settings["out"]).exists()


def test_a_loss_that_hides_its_input_is_refused(items, make, monkeypatch):
    """Evaluation reads from the spec whether embeddings are compared at unit length."""
    made = Triplet.__init__

    def hide(self, *arguments, **settings):
        made(self, *arguments, **settings)
        self.input = "raw"

    monkeypatch.setattr(Triplet, "__init__", hide)
    with pytest.raises(LikewiseError, match="takes raw embeddings, but its class declares unit; make `input` a class"):
        make(items, loss="Triplet()")
