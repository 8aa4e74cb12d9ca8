"""Trainings with several labels per sample, and with a relevance between samples: as exact as with single labels."""

import dataclasses

import numpy as np
import pytest
import torch
from learn.training.labelled_work import labelled
from learn.training.small_training import CPU, SMALL, assert_resumes_exactly, built, pictures
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.learn.training.fit import train
from likewise.runs.network import open_embedder, open_loss
from likewise.runs.open import read_config

WORK = "learn.training.labelled_work"
USUAL = {
    "data": f"{WORK}.labelled()", "dim": 8, "steps": 8, "lr": 0.01, "checkpoint_every": "3", "quiet": True, "device": "cpu",
    "evaluate": False, "allow_imports": True,
}  # fmt: skip


def test_the_defaults(tmp_path):
    run = train(Train(**USUAL, out=str(tmp_path / "run")))
    config = read_config(run)
    assert config.relevance.startswith("SharedLabels(") and config.sampler.startswith("SamplesPerLabel(batch=60")
    run = train(Train(**USUAL | {"relevance": f"{WORK}.Near()", "loss": "SupCon()"}, out=str(tmp_path / "near")))
    assert read_config(run).sampler.startswith("RelatedSamples(batch=60")


@pytest.mark.parametrize(
    "more",
    [
        {"loss": "MultiSimilarity()", "confidence": "SuperLoss()"},
        {"loss": "ProxyAnchor()", "chunk_size": 7},
        {"loss": "CrossBatchMemory(loss=Triplet(), size=40)", "sampler": "SamplesPerLabel(batch=20)"},
        {"loss": "SmoothAP()", "relevance": f"{WORK}.Near()"},
        {"loss": "Triplet()", "relevance": f"{WORK}.Judged()"},
        {"loss": "ArcFace()", "terms": ("S2SD(dims=(12,), delay=2)",)},
    ],
    ids=lambda more: more["loss"],
)
def test_resumes_exactly(tmp_path, stop_at, more):
    assert_resumes_exactly(USUAL | more, tmp_path, stop_at)


def test_pictures_in_chunks_resume_exactly(tmp_path, stop_at):
    settings = SMALL | {
        "data": f"{WORK}.pictured()", "root": str(pictures(tmp_path / "pictures", each=8)), "allow_imports": True,
        "sampler": "SamplesPerLabel(batch=12)", "loss": "MultiSimilarity()", "steps": 4, "evaluate": False, "freeze_bn": True,
        "augment": "affine", "workers": 0, "chunk_size": 5,
    }  # fmt: skip
    assert_resumes_exactly(settings, tmp_path, stop_at)


def test_the_loss_of_a_run_comes_back(tmp_path):
    """With a proxy for each label, not for each set of labels."""
    run = train(Train(**USUAL | {"loss": "NormSoftmax()"}, out=str(tmp_path / "run")))
    config, data = read_config(run), labelled()
    rows = np.flatnonzero(data.split == "train")
    loss = open_loss(run, config, data, rows, open_embedder(run, config, "last", CPU), "last", CPU)
    assert loss.proxies.shape == (6, 8) and loss.relevance.width == 6
    assert torch.equal(loss.proxies, run.load_tensors(run.network("last"))["loss.proxies"])


@pytest.mark.parametrize("loss", ["MultiSimilarity()", "ProxyAnchor()", "NormSoftmax()", "SupCon()", "Triplet()"])
def test_sets_of_one_label_are_single_labels(loss):
    """Values of the first step in float32: sums of other order differ by 1e-6 of the largest term."""
    data = dataclasses.replace(labelled(), label_sets=None, label_name=None)
    sets = dataclasses.replace(data, label_sets=tuple((c,) for c in range(data.classes)), label_name=data.class_name)
    settings = USUAL | {"loss": loss, "sampler": "SamplesPerClass(batch=16, per_class=2, lonely='skip')"}
    z = torch.nn.functional.normalize(torch.randn(120, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    found = []
    for items in (data, sets):
        state = built(Train(**settings), items)
        torch.manual_seed(0)
        found.append(state.components.loss(z, state.y))
    assert state.components.loss.relevance.width == len(np.unique(data.y[data.split == "train"]))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.fixture
def single():
    """The data with one label per sample and no class tree: a set of labels is a class."""
    return dataclasses.replace(labelled(), label_sets=None, label_name=None)


@pytest.fixture
def judged(tmp_path):
    """A file of triplets of training samples."""
    file = tmp_path / "triplets.csv"
    file.write_text("anchor,nearer,farther\n" + "".join(f"{i},{i + 1},{i + 9}\n" for i in range(40)))
    return f"JudgedTriplets(file={str(file)!r})"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"relevance": "SharedLabels()"}, "needs data with several labels per sample, and this data has one; drop"),
        ({"relevance": "TreeDepth()"}, "TreeDepth: it needs a class tree, but the data has none; name one: tree="),
        ({"relevance": "JudgedPairs(file='none.csv')"}, "JudgedPairs: there is no file 'none.csv'"),
        ({"relevance": "ListedPairs(file='none.txt')"}, "must be a .csv or .parquet table, got 'none.txt'"),
        ({"relevance": "SharedLabel()"}, "did you mean .*SharedLabels"),
    ],
)
def test_data_without_what_a_relevance_needs(single, more, says):
    with pytest.raises(LikewiseError, match=says):
        built(Train(**USUAL | {"loss": "MultiSimilarity()"} | more), single)


def test_judged_triplets_go_to_losses_of_triplets(single, judged):
    for loss, uses in (("MultiSimilarity()", "pairs"), ("ProxyAnchor()", "targets"), ("SmoothAP()", "pairs")):
        with pytest.raises(LikewiseError, match=rf"{loss[:-2]}: .* gives triplets, but this loss uses {uses}"):
            built(Train(**USUAL | {"loss": loss, "relevance": judged}), single)
    loss = built(Train(**USUAL | {"loss": "Triplet()", "relevance": judged}), single).components.loss
    assert loss.relevance is not None


def test_names_that_are_not_in_the_data(single, tmp_path):
    (tmp_path / "pairs.csv").write_text("a,b,same\n0,1,1\n2,9999,0\n")
    settings = USUAL | {"loss": "SupCon()", "relevance": f"JudgedPairs(file={str(tmp_path / 'pairs.csv')!r})"}
    with pytest.raises(LikewiseError, match="no sample '9999', which .*pairs.csv.*row number"):
        built(Train(**settings), single)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"confidence": "LabelPosterior(every='3e')"}, r"LabelPosterior\(.*needs one label per sample"),
        ({"confidence": "ProcSim()"}, r"ProcSim\(.*as classes, which SharedLabels\(.*does not have; drop one"),
        ({"confidence": "SuperLoss(tau='log_classes')"}, r"SuperLoss\(.*as classes"),
        ({"confidence": "PRISM(share=0.2)"}, r"PRISM\(.*as classes"),
        (
            {"loss": "NormSoftmax()", "confidence": "CoTeachingPlus(share=0.2)"},
            r"CoTeachingPlus\(.*as classes, .*drop one",
        ),
        ({"terms": ("IntraBatch()",)}, r"IntraBatch\(.*as classes"),
        ({"loss": "NormSoftmax()", "shard_proxies": True}, r"--shard-proxies supports one class per sample"),
        (
            {"loss": "ForwardCorrection()"},
            r"ForwardCorrection: SharedLabels gives pairs, targets, but this loss needs single",
        ),
        ({"loss": "HierarchicalTriplet()"}, r"HierarchicalTriplet: .*this loss needs single labels"),
        ({"loss": "Margin()"}, r"Margin: a boundary per class needs one class per sample"),
        ({"loss": "ProxyAnchor()", "relevance": f"{WORK}.Near()"}, r"Near gives pairs, but this loss uses targets"),
        (
            {"loss": "MultiSimilarity()", "relevance": f"{WORK}.Judged()"},
            r"Judged gives triplets, but this loss uses pairs",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(more, says):
    with pytest.raises(LikewiseError, match=says):
        built(Train(**USUAL | more), labelled())


@pytest.mark.parametrize(
    "more",
    [{"confidence": "SuperLoss()"}, {"confidence": "CoTeaching(share=0.2)"}, {"mixup": 2.0, "mixup_at": "input"}],
)
def test_what_uses_losses_only_goes_with_a_relevance(tmp_path, more):
    for number, relevance in enumerate(("SharedLabels()", f"{WORK}.Near()")):
        given = USUAL | more | {"relevance": relevance, "loss": "MultiSimilarity()", "steps": 2}
        assert train(Train(**given, out=str(tmp_path / str(number)))).done


@pytest.mark.parametrize(
    "sampler",
    ["SamplesPerClass(batch=16, per_class=2, lonely='skip')", "DistanceMatching(batch=16)", "Clustered(batch=16)"],
)
def test_samplers_of_classes_go_with_label_sets(sampler, tmp_path):
    """Their classes are then the distinct sets of labels."""
    settings = USUAL | {"loss": "MultiSimilarity()", "steps": 2, "sampler": sampler}
    assert train(Train(**settings, out=str(tmp_path / "run"))).done
