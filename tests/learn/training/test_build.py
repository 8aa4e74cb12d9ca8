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
    # The first is who it would be without the other.
    assert same(alone, state, "embedder.") and same(alone, state, "loss.")


def test_every_miner_that_wants_a_teacher_gets_to_see_it(items, make):
    """Those of a second network's loss and of a term's copies too."""
    loss = "Contrastive(miner=TSINT(share=0.2))"
    two = make(items, loss=loss, confidence="CoTeaching(share=0.2)")
    assert two.components.taught_miners == [own.miner for own in two.components.losses]
    assert len(two.components.taught_miners) == 2
    one = make(items, loss=loss, terms=("S2SD(dims=(6,))",))
    losses = (one.components.loss, *one.components.terms[0].losses)
    assert one.components.taught_miners == [own.miner for own in losses] and len(losses) == 2


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
        with pytest.raises(LikewiseError, match=f"has views={inner}, but a batch has {views} views"):
            make(items, loss=loss, views=views)
    assert make(items, loss=f"AdaptiveHierarchical(views={views})", views=views).components.loss.views == views


CONFLICTS = [
    (
        {"loss": "NormSoftmax()", "confidence": "CoTeaching(share=0.2)", "terms": ("SelfDistillation()",)},
        r"CoTeaching\(.*trains 2 networks, but SelfDistillation\(.*supports one",
    ),
    ({"confidence": "CoTeachingPlus(share=0.2)"}, r"CoTeachingPlus\(.*predicts classes.*use --loss NormSoftmax"),
    ({"mixup": 2.0, "mixup_at": "input", "chunk_size": 4}, "drop --mixup or --chunk-size"),
    ({"mixup": 2.0, "mixup_at": "input", "recompute": True}, "drop --mixup or --recompute"),
    ({"mixup": 2.0, "record_losses": True}, "drop --mixup or --record-losses"),
    ({"mixup": 2.0, "confidence": "ProcSim()"}, "ProcSim.* needs single samples, but --mixup"),
    ({"mixup": 2.0, "confidence": "LabelPosterior()"}, "LabelPosterior.* needs single samples, but --mixup"),
    ({"mixup": 2.0, "terms": ("SelfDistillation()",)}, "SelfDist.* needs single samples, but --mixup"),
    ({"mixup": 2.0, "loss": "Hierarchical(loss=ProxyAnchor(), by='means')"}, "would store embeddings of mixtures"),
]


@pytest.mark.parametrize(("parts", "says"), CONFLICTS)
def test_what_does_not_go_together_is_refused_before_there_is_a_folder(settings, parts, says):
    with pytest.raises(LikewiseError, match=says):
        train(Train(**settings | parts))
    assert not Path(settings["out"]).exists()


def test_a_loss_that_hides_its_input_is_refused(items, make, monkeypatch):
    """Evaluation reads from the spec whether embeddings are compared at unit length."""
    made = Triplet.__init__

    def hide(self, *arguments, **settings):
        made(self, *arguments, **settings)
        self.input = "raw"

    monkeypatch.setattr(Triplet, "__init__", hide)
    with pytest.raises(LikewiseError, match="takes raw embeddings, but its class declares unit"):
        make(items, loss="Triplet()")
