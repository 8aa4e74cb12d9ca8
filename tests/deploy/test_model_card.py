"""The model card: only what the run says, and nothing where it says nothing."""

import dataclasses

import pytest

from likewise.deploy.model_card import Card, score_lines, write_card

SEES = {"size": 224, "short_side": 256, "shrink_first": None}
CONFIG = {
    "backbone": "resnet50",
    "pretrained": True,
    "loss": "Triplet(margin=0.1)",
    "terms": [],
    "protocol": "UnseenClasses()",
}
SCORES = {
    "metrics": {"R@1": 0.5}, "interval": {"R@1": [0.4, 0.6]}, "interval_over": "classes", "class_mean": {"R@1": 0.45},
    "queries": 10, "unscored": 2, "similarity": "cosine", "split": "test", "leaks": "train and test share no class",
}  # fmt: skip


@pytest.fixture
def card():
    return Card(
        name="birds", folder="export-onnx", to="onnx", checkpoint="best", dim=128, similarity="cosine", preprocess=SEES,
        boxed=False, config=CONFIG, data={"name": "cub | 200", "classes": "200"}, labels=("All labels were used.",),
        scores=SCORES,
        checked="Compared on 64 pictures.", made={"hardware": "a card"}, finished=True,
    )  # fmt: skip


def test_scores_stand_with_their_intervals_and_what_they_are_of(card):
    text = write_card(card)
    assert "| R@1 | 50.0 % | 40.0 % to 60.0 % | 45.0 % |" in text
    assert "10 queries of the test split, cosine similarity." in text
    assert "Intervals over classes: they hold for other classes." in text
    none = dataclasses.replace(
        card, scores=SCORES | {"interval": {}, "no_interval": {"R@1": "all classes have the same mean"}}
    )
    assert "No interval for R@1: all classes have the same mean." in write_card(none)
    assert "2 more queries have no relevant gallery row" in text and "Train and test share no class." in text


def test_wrong_test_labels_are_mentioned(card):
    noisy = dataclasses.replace(card, scores=SCORES | {"wrong_labels": {"count": 33, "of": 597}})
    assert "About 33 of 597 test labels look wrong, which lowers the scores" in write_card(noisy)
    assert "look wrong" not in write_card(card)


def test_the_class_tree_of_scores_is_named(card):
    tree = {"levels": {"level1": 2}, "height": 2}
    text = write_card(dataclasses.replace(card, scores=SCORES | {"tree": tree}))
    assert "Class tree of height 2, coarsest level first: level1 2 groups." in text


def test_tables_are_tables(card):
    text = write_card(card)
    assert "| name | cub \\| 200 |\n| classes | 200 |" in text
    assert "| loss | Triplet(margin=0.1) |" in text and "| terms" not in text and "None" not in text
    assert "\n\n\n" not in text and text.startswith("# birds\n")


def test_names_are_shown_as_they_are_and_not_as_markup(card):
    bad = "<img src=x onerror=alert(1)>\n# ![a](http://evil.example) `b` & \\"
    shown = "&lt;img src=x onerror=alert(1)&gt; # !\\[a](http://evil.example) \\`b\\` &amp; \\\\"
    spoilt = {
        "name": bad, "data": {"name": bad}, "scores": SCORES | {"leaks": f"1 class ({bad})", "split": bad},
        "made": {"run": bad}, "config": CONFIG | {"weights": bad, "loss": bad, "protocol": bad},
        "folder": 'a"); f("', "to": "safetensors",
    }  # fmt: skip
    text = write_card(dataclasses.replace(card, **spoilt))
    assert f"# {shown}\n" in text and text.count(shown) == 7 and 'likewise.load("a\\"); f(\\"")' in text
    text = text.replace(
        "`<img src=x onerror=alert(1)> # ![a](http://evil.example) 'b' & \\`", ""
    )  # code shows all signs
    assert "<img" not in text and "![a]" not in text and "\n# !" not in text


def test_how_a_picture_comes_in(card):
    assert "short side has 256 pixels, and the middle 224 x 224 cut out" in write_card(card)
    whole = dataclasses.replace(card, preprocess=SEES | {"short_side": None, "shrink_first": 300}, boxed=True)
    text = write_card(whole)
    assert "resized to 224 x 224" in text and "short side of 300" in text and "cropped to the boxes" in text
    vectors = write_card(dataclasses.replace(card, preprocess=None, config=CONFIG | {"backbone": "features"}))
    assert "float vectors" in vectors and "jpg" not in vectors and "Pillow" not in vectors


def test_nothing_is_claimed_that_was_not_measured(card):
    text = write_card(dataclasses.replace(card, scores=None, finished=False))
    assert "This network was not scored." in text and "R@1" not in text and "training was not finished" in text


def test_which_network_it_is(card):
    assert "that was best on validation" in write_card(card)
    assert "last network of its training" in write_card(dataclasses.replace(card, checkpoint="last"))
    assert "that its training ended with" in write_card(dataclasses.replace(card, checkpoint="only"))
    assert "of the last checkpoint" in write_card(dataclasses.replace(card, checkpoint="only", finished=False))
    text = write_card(dataclasses.replace(card, checkpoint="untrained", scores=None, finished=False))
    assert "It is untrained: `resnet50` as it was before the first step, from published weights of resnet50." in text
    assert "## Labels" not in text and "## Training" not in text and "not finished" not in text and "\n\n\n" not in text


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "published weights of resnet50"),
        ({"weights": "/home/me/w.pth"}, "the file w.pth"),
        ({"weights": "/home/me/ResNet50"}, "the folder ResNet50"),
        ({"pretrained": False}, "random weights"),
    ],
)
def test_what_it_started_from(card, config, said):
    text = write_card(dataclasses.replace(card, config=CONFIG | config))
    assert f"| starts from | {said} |" in text and "/home/me" not in text
    assert ("of the initial weights" in text) == (said != "random weights")


def test_a_backbone_that_stands_in_for_the_default_is_named(card):
    note = "No backbone was named, so one was chosen: efficientnet_lite0"
    assert f"| choice | {note} |" in write_card(dataclasses.replace(card, choice=note))
    assert "| choice |" not in write_card(card)


def test_the_licence_is_left_to_the_user(card):
    assert "Not stated. Choose a licence before you share" in write_card(card)


def test_loading_is_shown_for_what_was_written(card):
    assert "from example import embed" in write_card(card)
    other = write_card(dataclasses.replace(card, to="safetensors", folder="export-safetensors"))
    assert 'likewise.load("export-safetensors")' in other and "onnx" not in other


def test_a_score_without_an_interval_has_none():
    assert score_lines({"metrics": {"NMI": 0.25}}) == [["NMI", "25.0 %", "", ""]]


def test_scores_under_true_labels_stand_beside_the_plain_ones(card):
    corrected = {
        "source": "audit",
        "metrics": {"R@1": [0.7, 0.6, 0.8]},
        "unknown": {"NMI": "it is no mean over queries"},
    }
    text = write_card(dataclasses.replace(card, scores=SCORES | {"corrected": corrected}))
    assert "| | mean | 95 % interval | mean over classes | under true labels |\n|---|---:|---:|---:|---:|\n" in text
    assert "| 45.0 % | 70.0 % (60.0 to 80.0) |" in text and "Unknown NMI: it is no mean over queries." in text
