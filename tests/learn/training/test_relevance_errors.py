"""A relevance that the data or the other settings do not fit is refused before training, with what to do."""

import dataclasses

import pytest
from learn.training.labelled_work import labelled
from learn.training.small_training import built
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.learn.training.fit import train

USUAL = {"data": "x", "dim": 8, "steps": 2, "quiet": True, "device": "cpu", "evaluate": False}
TREE = r"TreeDepth: it needs a class tree, but the data has none; name one: tree='cub200', a .json or .csv file"


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
        (
            {"relevance": "SharedLabels()"},
            r"train: SharedLabels needs data with several labels per sample, and this data has one; drop --relevance, or give a "
            "table with a column `labels`",
        ),
        ({"relevance": "TreeDepth()"}, TREE),
        ({"relevance": "JudgedPairs(file='none.csv')"}, r"JudgedPairs: there is no file 'none.csv'; check the path"),
        (
            {"relevance": "ListedPairs(file='none.txt')"},
            r"ListedPairs: file must be a .csv or .parquet table, got 'none.txt'",
        ),
        ({"relevance": "SharedLabel()"}, "did you mean .*SharedLabels"),
    ],
    ids=lambda value: value["relevance"] if isinstance(value, dict) else "",
)
def test_data_without_what_a_relevance_needs(single, more, says):
    with pytest.raises(LikewiseError, match=says):
        built(Train(**USUAL | {"loss": "MultiSimilarity()"} | more), single)


def test_judged_triplets_go_to_losses_of_triplets(single, judged):
    for loss, uses in (("MultiSimilarity()", "pairs"), ("ProxyAnchor()", "targets"), ("SmoothAP()", "pairs")):
        says = rf"{loss[:-2]}: JudgedTriplets gives triplets, but this loss uses {uses}; see the table .* docs/relevance.md"
        with pytest.raises(LikewiseError, match=says):
            built(Train(**USUAL | {"loss": loss, "relevance": judged}), single)
    assert (
        built(Train(**USUAL | {"loss": "Triplet()", "relevance": judged}), single).components.loss.relevance is not None
    )


def test_names_that_are_not_in_the_data(single, tmp_path):
    (tmp_path / "pairs.csv").write_text("a,b,same\n0,1,1\n2,9999,0\n")
    settings = USUAL | {"loss": "SupCon()", "relevance": f"JudgedPairs(file={str(tmp_path / 'pairs.csv')!r})"}
    with pytest.raises(
        LikewiseError, match=r"JudgedPairs: the data has no sample '9999', which .*pairs.csv.*row number"
    ):
        built(Train(**settings), single)


@pytest.mark.parametrize(
    ("confidence", "says"),
    [
        (
            "CoTeachingPlus(share=0.2)",
            r"CoTeachingPlus\(.*labels of samples as classes, which SharedLabels\(.*drop one",
        ),
        (
            "LabelPosterior(tau=0.3)",
            r"LabelPosterior\(.*needs one label per sample.*\"LabelSetPosterior\(least=0.9\)\"",
        ),
    ],
)
def test_confidences_that_predict_classes_need_single_labels(confidence, says):
    with pytest.raises(LikewiseError, match=says):
        built(Train(**USUAL | {"loss": "NormSoftmax()", "confidence": confidence}), labelled())


@pytest.mark.parametrize(
    "sampler",
    ["SamplesPerClass(batch=16, per_class=2, lonely='skip')", "DistanceMatching(batch=16)", "Clustered(batch=16)"],
)
def test_samplers_of_classes_go_with_label_sets(sampler, tmp_path):
    """Their classes are then the distinct sets of labels."""
    settings = USUAL | {"data": "learn.training.labelled_work.labelled()", "allow_imports": True, "sampler": sampler}
    assert train(Train(**settings, out=str(tmp_path / "run"))).done
