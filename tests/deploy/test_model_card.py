"""The model card: only what the run says, and nothing where it says nothing."""

import dataclasses

import pytest

from likewise.deploy.model_card import Card, write_card

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


def test_what_the_card_says(card, subtests):
    def check(*there, gone=(), **changes):
        text = write_card(dataclasses.replace(card, **changes))
        with subtests.test(there[0]):
            assert [part for part in there if part not in text] == [] == [part for part in gone if part in text]

    check("| R@1 | 50.0 % | 40.0 % to 60.0 % | 45.0 % |", "10 queries of the test split, cosine similarity.")
    check("Intervals over classes: they hold for other classes.", "2 more queries have no relevant gallery row")
    check("Train and test share no class.", "Choose a licence before you share", gone=["look wrong", "| choice |"])
    check("No interval for R@1: few.", scores=SCORES | {"interval": {}, "no_interval": {"R@1": "few"}})
    check("| NMI | 25.0 % |  |  |", scores=SCORES | {"metrics": {"R@1": 0.5, "NMI": 0.25}})
    check("About 33 of 597 test labels look wrong", scores=SCORES | {"wrong_labels": {"count": 33, "of": 597}})
    check("coarsest level first: level1 2 groups.", scores=SCORES | {"tree": {"levels": {"level1": 2}, "height": 2}})
    corrected = {"source": "audit", "metrics": {"R@1": [0.7, 0.6, 0.8]}, "unknown": {"NMI": "it is no mean"}}
    head = "| | mean | 95 % interval | mean over classes | under true labels |\n|---|---:|---:|---:|---:|\n"
    line = "| 45.0 % | 70.0 % (60.0 to 80.0) |"
    check(head, line, "Unknown NMI: it is no mean.", scores=SCORES | {"corrected": corrected})
    check("This network was not scored.", "training was not finished", gone=["R@1"], scores=None, finished=False)

    check("short side has 256 pixels, and the middle 224 x 224 cut out")
    whole = SEES | {"short_side": None, "shrink_first": 300}
    check("resized to 224 x 224", "short side of 300", "cropped to the boxes", preprocess=whole, boxed=True)
    vectors = CONFIG | {"backbone": "features"}
    check("float vectors", gone=["jpg", "Pillow"], preprocess=None, config=vectors)
    check("from example import embed")
    check('likewise.load("folder")', gone=["onnx"], to="safetensors", folder="folder")

    check("that was best on validation")
    check("last network of its training", checkpoint="last")
    check("that its training ended with", checkpoint="only")
    check("of the last checkpoint", checkpoint="only", finished=False)
    before = "It is untrained: `resnet50` as it was before the first step, from published weights of resnet50."
    gone = ["## Labels", "## Training", "not finished", "\n\n\n"]
    check(before, gone=gone, checkpoint="untrained", scores=None, finished=False)
    check("| starts from | published weights of resnet50 |", "of the initial weights")
    check("| starts from | the file w.pth |", gone=["/home/me"], config=CONFIG | {"weights": "/home/me/w.pth"})
    check("| starts from | the folder R50 |", gone=["/home/me"], config=CONFIG | {"weights": "/home/me/R50"})
    check("| starts from | random weights |", gone=["initial weights"], config=CONFIG | {"pretrained": False})
    check("| choice | no backbone was named |", choice="no backbone was named")


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
