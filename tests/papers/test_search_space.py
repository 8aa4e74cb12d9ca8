"""Ranges: their texts, the values they set, and the built-in ones against the losses they are for."""

import math

import pytest
import torch
from likewise.config import Train
from likewise.contracts import Loss
from likewise.errors import LikewiseError

from likewise.core.settings.spec import build, find, usage
from likewise.papers.search_space import apply_values, built_in, read_entries, read_range, read_ranges

BASE = Train(data="glyphs", loss="MultiSimilarity()", sampler="SamplesPerClass(batch=24, per_class=4)")


def ends(text, name="lr"):
    r = read_range(name, text, BASE)
    return r.low, r.high, r.log, r.whole, r.unit


def test_texts_of_ranges():
    assert ends("1e-5..1e-2 log") == (1e-5, 1e-2, True, False, "")
    assert ends(" 0 .. 1 ", "loss.base") == (0, 1, False, False, "")  # a float argument, whatever the ends look like
    assert ends("-1.5..2.") == (-1.5, 2, False, False, "")
    assert ends("8..64 log", "dim") == (8, 64, True, True, "")
    assert ends("16..64", "sampler.batch") == (16, 64, False, True, "")
    assert ends("100..500", "warmup") == (100, 500, False, True, "")
    assert ends("10e..40e", "warmup") == (10, 40, False, True, "e")
    assert read_range("dim", "64| 128 |256", BASE).choices == ("64", "128", "256")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("lr", "1..0", "range lr must have low < high, got '1..0'"),
        ("lr", "0..1 log", "range lr must have 0 < low < high"),
        ("lr", "a..b", "range lr must lie between two numbers"),
        ("lr", "0...5", "range lr must lie between two numbers"),
        ("lr", "0..inf", "range lr must have low < high"),
        ("dim", "1.5..8", "dim is a whole number"),
        ("dim", "1..99999999999999999999", "dim is a whole number up to 2**53"),
        ("dim", "64||128", "choices separated by |"),
        ("dim", "64|64", "choices separated by |"),
        ("dims", "1..8", "no setting 'dims'; did you mean 'dim'?"),
        ("loss.alhpa", "1..8", "MultiSimilarity has no argument 'alhpa'; did you mean 'alpha'?"),
        ("loss.miner.epss", "0..1", "HardPairs has no argument 'epss'; did you mean 'eps'?"),
        ("loss.alpha.x", "0..1", "2.0 has no argument 'x'"),
        ("losses.alpha", "0..1", "only loss, relevance, sampler, protocol, confidence, terms, noise, head have arguments, got"),
        ("noise.share", "0..1", "noise is not set"),
    ],
)  # fmt: skip
def test_wrong_ranges_are_named(name, text, words):
    with pytest.raises(LikewiseError) as error:
        read_range(name, text, BASE)
    assert words in str(error.value)


def test_ranges_are_tried_at_both_ends_before_anything_runs(unchecked):
    with pytest.raises(LikewiseError, match="lr must be 0 or more"):
        read_ranges({"lr": "-1..1"}, BASE)
    with pytest.raises(LikewiseError, match="dim must be a whole number, got 'many'"):
        read_ranges({"lr": "0..1", "dim": "8|many|16"}, BASE)
    with pytest.raises(LikewiseError, match="there must be a range to search"):
        read_ranges({}, BASE)
    with pytest.raises(LikewiseError, match="a range must be name=low..high"):
        read_entries(["lr"], BASE.loss)


def test_values_reach_settings_and_arguments():
    entries = read_entries(
        [
            "lr=1e-5..1e-2 log",
            "dim=8|16",
            "epochs=1..9",
            "loss.miner.eps=0..0.5",
            "loss.base=0..1",
            "noise=none|Uniform()",
        ],
        BASE.loss,
    )
    ranges = read_ranges(entries, BASE)
    values = {"lr": 0.001, "dim": "16", "epochs": 4, "loss.miner.eps": 0.25, "loss.base": 0.5, "noise": "none"}
    config = apply_values(BASE, ranges, values)
    assert (config.lr, config.dim, config.epochs, config.noise) == (0.001, 16, 4, None)
    loss = build(config.loss, Loss)
    assert (loss.miner.eps, loss.base, loss.alpha) == (0.25, 0.5, 2.0)
    assert config.sampler == BASE.sampler


def test_a_choice_may_be_a_part_and_a_searched_part_may_have_searched_arguments():
    base = Train(data="glyphs", loss="Triplet()")
    ranges = read_ranges(
        {"loss.margin": "0..1", "loss": "Triplet()|Margin()", "loss.miner": "SemiHard()|DistanceWeighted()"}, base
    )
    config = apply_values(base, ranges, {"loss.margin": 0.25, "loss": "Margin()", "loss.miner": "SemiHard()"})
    loss = build(config.loss, Loss, classes=3)
    assert type(loss).__name__ == "Margin"
    assert loss.margin == 0.25
    assert type(loss.miner).__name__ == "SemiHard"


LOSSES = [
    "Contrastive", "Triplet", "SupCon", "ProxyNCA", "Margin", "NormSoftmax", "CosFace", "ArcFace", "FastAP",
    "SNRContrastive", "MultiSimilarity", "SoftTriple", "ProxyAnchor",
]  # fmt: skip
LEVELS = "Hierarchical(loss=ProxyAnchor(), coarse=4, coarse_loss=ProxyNCA())"


@pytest.mark.parametrize("spec", [*(f"{name}()" for name in LOSSES), LEVELS])
def test_the_built_in_ranges_are_allowed_at_both_ends_and_mark_who_learns(spec):
    base = Train(data="glyphs", loss=spec)
    ranges = read_ranges(built_in(base.loss), base)
    for at in (0, 1):
        values = {r.name: round((r.low, r.high)[at]) if r.whole else (r.low, r.high)[at] for r in ranges}
        loss = build(apply_values(base, ranges, values).loss, Loss, classes=60, dim=4)
        assert torch.isfinite(loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))).all()
    assert ("loss_lr" in {r.name for r in ranges}) == bool(list(loss.parameters()))


def test_built_in_ranges_are_the_papers_in_our_units():
    assert built_in("ArcFace(scale=64)")["loss.margin"] == f"0..{math.radians(90)}"
    assert built_in("ArcFace()")["loss_lr"] == "1e-6..1 log"
    low, high = map(float, built_in("ProxyNCA()")["loss.scale"].split(".."))
    assert (low**2, high**2) == pytest.approx((0.01, 100))  # the paper's scale multiplies squared distances
    assert "loss.miner.eps" in built_in("MultiSimilarity()")
    assert "loss.miner.eps" not in built_in("MultiSimilarity(miner=None)")
    assert read_entries(["reality-check", "loss.margin=0..1", "lr=0..1"], "Triplet()") == {
        "loss.margin": "0..1",
        "lr": "0..1",
    }


def test_built_in_ranges_reach_the_loss_of_every_level():
    """What Yang et al. search: rate of the proxies, groups, interval, and scale and margin of each level."""
    names = set(built_in(LEVELS))
    assert names == {
        "loss_lr", "loss.coarse", "loss.every", "loss.loss.alpha", "loss.loss.margin", "loss.coarse_loss.scale",
    }  # fmt: skip
    shared, known = (built_in(f"Hierarchical(loss=ProxyNCA(){more})") for more in ("", ", depth=1"))
    assert set(shared) == {"loss_lr", "loss.coarse", "loss.every", "loss.loss.scale"}
    assert set(known) == {"loss_lr", "loss.loss.scale"}  # groups of a tree are not clustered
    base = Train(data="glyphs", loss=LEVELS)
    ranges = read_ranges(built_in(LEVELS), base)
    values = {
        "loss_lr": 0.01, "loss.coarse": 7, "loss.every": 30, "loss.loss.alpha": 5.0, "loss.loss.margin": 0.25,
        "loss.coarse_loss.scale": 2.0,
    }  # fmt: skip
    config = apply_values(base, ranges, values)
    loss = build(config.loss, Loss, classes=60, dim=4)
    assert (loss.loss.alpha, loss.loss.margin, loss.coarse_loss.scale) == (5.0, 0.25, 2.0)
    assert (loss.plan[0].size, loss.every, loss.plan[0].loss.scale, config.loss_lr) == (7, 30, 2.0, 0.01)
    with pytest.raises(LikewiseError, match="no ranges for Quadruplet; it has ranges for Contrastive"):
        built_in("Hierarchical(loss=Quadruplet())")


def test_ranges_of_a_file_override_the_built_in_ones_and_arguments_override_both():
    entries = read_entries(["reality-check", "loss.every=5..9"], LEVELS, {"loss.coarse": "2..8", "loss.every": "1..2"})
    assert (entries["loss.coarse"], entries["loss.every"], entries["loss.loss.margin"]) == ("2..8", "5..9", "0..1")


def test_losses_without_a_counterpart_are_named():
    with pytest.raises(LikewiseError, match="no ranges for SNR; it has ranges for Contrastive, Triplet"):
        built_in("SNR()")
    known = {name for name in find("losses") if name in LOSSES}
    assert known == set(LOSSES)
    assert "miner=HardPairs()" in usage(find("losses")["MultiSimilarity"])
