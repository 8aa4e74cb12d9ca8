"""Settings by name: values as Train has them, and arguments inside specs."""

import pytest
from likewise.config import Train
from likewise.contracts import Loss, Term
from likewise.errors import LikewiseError

from likewise.core.settings.overrides import (
    fill,
    find_argument,
    has_argument,
    plain,
    read_change,
    settings_of,
    with_argument,
)
from likewise.core.settings.spec import build

BASE = Train(
    data="glyphs", loss="MultiSimilarity(miner=HardPairs(eps=0.3))",
    terms=("SelfDistillation(weight=5)", "LanguageGuidance(weight=2)"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("size=160", "size", 160),
        ("lr = 1e-3", "lr", 1e-3),
        ("steps=40", "steps", 40),
        ("freeze_bn=true", "freeze_bn", True),
        ("backbone=efficientnet_lite0", "backbone", "efficientnet_lite0"),
        ("loss=Triplet(margin=0.1)", "loss", "Triplet(margin=0.1)"),
        ("noise=none", "noise", None),
        ("crop_scale=[0.2, 1.0]", "crop_scale", (0.2, 1.0)),
        ("terms=[]", "terms", ()),
        ("terms.encoder=models/minilm", "terms.encoder", "models/minilm"),
        ("loss.miner.eps=0.2", "loss.miner.eps", 0.2),
        ("data=2020-01-01", "data", "2020-01-01"),
        (f"data={'9' * 5000}", "data", "9" * 5000),
        (f"data={'[' * 5000}", "data", "[" * 5000),
    ],
)
def test_a_change_as_it_stands_on_the_command_line(word, key, value):
    assert read_change(word) == (key, value)
    assert type(read_change(word)[1]) is type(value)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("size", "a change must be written setting=value, got 'size'"),
        ("=3", "a change must be written setting=value"),
        ("sise=3", "no setting 'sise'; did you mean 'size'?"),
        ("out=x", "'out' cannot be set in a file"),
        (
            "losses.margin=3",
            "only loss, relevance, sampler, protocol, confidence, terms, noise, head have arguments, got 'losses.margin'",
        ),
        ("lr.x=3", "have arguments, got 'lr.x'"),
    ],
)
def test_wrong_changes_are_named(word, words):
    with pytest.raises(LikewiseError) as error:
        read_change(word)
    assert words in str(error.value)


def test_an_argument_is_found_and_changed_at_any_depth_and_all_others_stay():
    assert find_argument(BASE, "loss.miner.eps").value == 0.3
    assert find_argument(BASE, "loss.alpha").value == 2.0  # a default
    changed = with_argument(BASE, "loss.miner.eps", 0.2)
    loss = build(changed.loss, Loss)
    assert (loss.miner.eps, loss.alpha, loss.beta) == (0.2, 2.0, 40.0)
    assert changed.terms == BASE.terms


def test_of_several_terms_those_that_have_it_change():
    changed = with_argument(BASE, "terms.encoder", "models/minilm")
    assert has_argument(BASE, "terms.encoder") and not has_argument(BASE, "terms.coder")
    assert build(changed.terms[1], Term).encoder == "models/minilm"
    assert "SelfDistillation(weight=5" in changed.terms[0] and "encoder" not in changed.terms[0]
    both = with_argument(BASE, "terms.weight", 3)
    assert all("weight=3" in term for term in both.terms)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.2, "miner=0.2"), (-1, "miner=-1"), (True, "miner=True"), ((1, 2), "miner=(1, 2)"), ("none", "miner=None"),
        ("SemiHard()", "miner=SemiHard()"), ("0.5", "miner=0.5"), ("'5e'", "miner='5e'"), ("5e", "miner='5e'"),
        ("a word", "miner='a word'"), ("word", "miner='word'"), ("a/b", "miner='a/b'"),
    ],
)  # fmt: skip
def test_a_value_in_a_spec_is_a_number_a_part_or_a_text(value, text):
    assert text in with_argument(BASE, "loss.miner", value).loss


def test_what_has_no_argument_is_named():
    with pytest.raises(LikewiseError, match="tune: loss.apha: .*did you mean 'alpha'"):
        with_argument(BASE, "loss.apha", 1, "tune")
    with pytest.raises(LikewiseError, match="grid: noise is not set, .*; set it"):
        find_argument(BASE, "noise.share")
    assert not has_argument(BASE, "noise.share")


def test_names_in_braces_are_filled_in_specs_alone():
    let = {"share": "0.1", "n": "3"}
    assert fill("confidence", "PRISM(share={share})", let) == "PRISM(share=0.1)"
    assert fill("terms", ("A(x={n})", "B()"), let) == ("A(x=3)", "B()")
    assert fill("confidence.share", "{share}", let) == "0.1"
    assert fill("data", "a{b}", let) == "a{b}"
    assert fill("loss", "A(prompt='a {} of')", let) == "A(prompt='a {} of')"
    with pytest.raises(LikewiseError, match=r"loss has \{shar\}.*did you mean 'share'"):
        fill("loss", "A(x={shar})", let)


def test_a_whole_number_is_a_number_with_a_point_where_train_has_that():
    assert repr(plain("loss_weight", 1)) == "1.0" and repr(plain("backbone_lr", 1)) == "1.0"
    assert repr(plain("dim", 64)) == "64" and plain("warmup", 5) == "5" and plain("freeze_bn", True) is True


def test_values_are_as_train_has_them():
    assert plain("augment", "none") == "none"  # a word of that setting
    assert plain("loss.dims", [1, 2]) == (1, 2)
    assert settings_of(Train(data="x", lr=0.5, out="y", device="cpu")) == {"data": "x", "lr": 0.5}
