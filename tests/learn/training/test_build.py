"""Building a training: the seed decides every start, and every part is trained once."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from learn.training.small_training import built, same
from likewise.config import Train
from likewise.losses import Triplet
from likewise.types import LikewiseError

from likewise.data import load
from likewise.learn.training.fit import train


@pytest.mark.parametrize("confidence", ["ProcSim()", "LabelPosterior()", "PRISM(share=0.2)"])
def test_doubting_labels_changes_no_other_start(items, make, confidence):
    """Of the network, the loss, the terms, and of the random numbers to come."""
    both = {"loss": "ProxyAnchor()", "terms": ("S2SD(dims=(6, 7))",)}
    plain = make(items, **both)
    state = torch.get_rng_state()
    doubting = make(items, **both, confidence=confidence)
    assert torch.equal(state, torch.get_rng_state())
    assert all(same(plain, doubting, part) for part in ("embedder.", "loss.", "term_0."))
    assert plain.tensors("term_0") and doubting.sampler.epoch_batches(0) == plain.sampler.epoch_batches(0)


def test_two_networks_start_apart_and_are_trained_and_stored_both(items, make):
    state = make(items, confidence="CoTeaching(share=0.2)", loss="NormSoftmax()")
    assert len(state.components.embedders) == len(state.components.losses) == 2
    assert list(state.components.modules()) == ["embedder", "loss", "embedder_2", "loss_2", "confidence"]
    first, second = (dict(embedder.named_parameters()) for embedder in state.components.embedders)
    assert not any(torch.equal(first[k], second[k]) for k in first if k.endswith("weight"))
    assert not torch.equal(state.components.losses[0].proxies, state.components.losses[1].proxies)
    trained = {id(p) for group in state.optimizer.param_groups for p in group["params"]}
    for module in (*state.components.embedders, *state.components.losses):
        assert all(id(p) in trained for p in module.parameters())
    alone = make(items, loss="NormSoftmax()")
    assert same(alone, state, "embedder.") and same(
        alone, state, "loss."
    )  # the first is who it would be without the other


def test_every_miner_that_wants_a_teacher_gets_to_see_it(items, make):
    """Those of a second network's loss and of a term's copies too."""
    loss = "Contrastive(miner=TSINT(share=0.2))"
    two = make(items, loss=loss, confidence="CoTeaching(share=0.2)")
    assert (
        two.components.taught_miners == [own.miner for own in two.components.losses]
        and len(two.components.taught_miners) == 2
    )
    one = make(items, loss=loss, terms=("S2SD(dims=(6,))",))
    assert (
        one.components.taught_miners == [own.miner for own in (one.components.loss, *one.components.terms[0].losses)]
        and len(one.components.taught_miners) == 2
    )


def test_a_network_is_trained_once_though_terms_know_it(items, make):
    state = make(items, terms=("SelfDistillation()", "S2SD(dims=(6,))"))
    everyone = [p for group in state.optimizer.param_groups for p in group["params"]]
    assert len({id(p) for p in everyone}) == len(everyone)
    names = [group["name"] for group in state.optimizer.param_groups]
    assert "terms" in names and not any(p.requires_grad for p in state.components.terms[0].parameters())


def test_without_training_rows_it_says_so(items, make):
    with pytest.raises(LikewiseError, match="the train split of .* must not be empty"):
        make(dataclasses.replace(items, split=np.full(288, "test")), sampler="Shuffled(batch=4)")


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
