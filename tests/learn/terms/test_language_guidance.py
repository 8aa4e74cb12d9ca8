"""Rows by hand in loops: both directions, both levels, with and without the mask; what is kept between runs."""

import dataclasses

import pytest
import torch
from likewise.terms import LanguageGuidance
from likewise.types import Batch, LikewiseError, Output
from torch.nn import functional as F

from likewise.core.settings.spec import build, spec


@pytest.fixture
def batch():
    return Batch(torch.zeros(5, 1), torch.tensor([0, 1, 0, 2, 2]), torch.tensor([5, 1, 2, 3, 3]))


@pytest.fixture
def out():
    e = torch.randn(5, 8, generator=torch.Generator().manual_seed(2))
    return Output(F.normalize(e, dim=1), e, e)


def rows_by_hand(term, out, batch, kl_by_hand):
    """As published: g on the whole language side, both sides 1 + g at same labels; without the mask nothing is set."""
    size = len(batch.y)
    names = term.index[batch.row if term.by == "images" or term.level == "sample" else batch.y]
    visual, language = torch.zeros(size, size), torch.zeros(size, size)
    for i in range(size):
        for j in range(size):
            ranks = [
                F.cosine_similarity(term.table[names[i, r]], term.table[names[j, r]], dim=0)
                for r in range(names.shape[1])
            ]
            visual[i, j] = out.z[i] @ out.z[j]
            language[i, j] = sum(ranks) / len(ranks) + term.gamma
            if term.mask_same_label and batch.y[i] == batch.y[j]:
                visual[i, j] = language[i, j] = 1 + term.gamma
    sides = (visual, language) if term.direction == "visual" else (language, visual)
    return kl_by_hand(*sides, term.temperature)


SETTINGS = [
    {},
    {"level": "sample", "k": 3},
    {"direction": "language", "temperature": 0.5},
    {"mask_same_label": False, "level": "sample"},
    {"by": "names", "gamma": 0.3},
    {"by": "images", "direction": "language", "mask_same_label": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_by_hand(given, stand_ins, out, batch, kl_by_hand, settings):
    term = LanguageGuidance(**settings)
    term.prepare(given)
    found = term(out, batch)
    torch.testing.assert_close(found, rows_by_hand(term, out, batch, kl_by_hand), rtol=1e-4, atol=1e-6)
    assert found.min() > 0


def test_gamma_matters_with_the_mask_alone(given, stand_ins, out, batch):
    def rows(**settings):
        term = LanguageGuidance(**settings)
        term.prepare(given)
        return term(out, batch)

    assert torch.equal(rows(mask_same_label=False), rows(mask_same_label=False, gamma=5.0))
    assert not torch.allclose(rows(), rows(gamma=5.0))


@pytest.mark.parametrize("direction", ["visual", "language"])
def test_no_gradient_passes_between_samples_of_a_label(given, stand_ins, out, batch, direction):
    term = LanguageGuidance(direction=direction)
    term.prepare(given)
    z = out.z.clone().requires_grad_()
    alone = batch._replace(y=torch.zeros(5, dtype=torch.int64))
    (grad,) = torch.autograd.grad(term(out._replace(z=z), alone).sum(), z)
    assert not grad.any(), "one label: nothing is left to learn"
    (grad,) = torch.autograd.grad(term(out._replace(z=z), batch)[0], z)
    assert not grad[2].any() and grad[1].any(), "row 0 asks nothing of its class mate"


@pytest.mark.parametrize("mask", [True, False])
def test_an_embedding_with_the_similarities_of_the_names_has_nothing_to_learn(given, stand_ins, out, batch, mask):
    term = LanguageGuidance(k=2, gamma=0.0, mask_same_label=mask)
    term.prepare(given)
    z = term.table[term.index[batch.y]].flatten(1) / 2**0.5
    torch.testing.assert_close(term(out._replace(z=z), batch), torch.zeros(5))


def test_it_begins_after_the_delay_and_its_state_says_so(given, stand_ins, out, batch):
    term, other = LanguageGuidance(delay=2), LanguageGuidance(delay=2)
    for one in (term, other):
        one.prepare(given)
    assert not term(out, batch).any()
    term.after_step(1)
    assert not term(out, batch).any()
    term.after_step(2)
    assert term(out, batch).all()
    other.load_state_dict(term.state_dict())
    assert torch.equal(other(out, batch), term(out, batch))
    assert set(term.state_dict()) == {"begun"} and not list(term.parameters()), "guidance is kept in its own file"


def test_a_second_run_asks_nobody_and_a_changed_one_asks_again(given, stand_ins, out, batch):
    first = LanguageGuidance(k=2)
    first.prepare(given)
    seen = len(stand_ins.asked)
    again = LanguageGuidance(k=2, weight=3.0, gamma=0.5, mask_same_label=False)
    again.prepare(given)
    assert len(stand_ins.asked) == seen, "weights and masks change nothing that is kept"
    assert torch.equal(again.table, first.table) and torch.equal(again.index, first.index)
    changed = [
        (LanguageGuidance(k=3), given),
        (LanguageGuidance(k=2, prompt="{}"), given),
        (LanguageGuidance(k=2, encoder="other"), given),
        (LanguageGuidance(k=2), dataclasses.replace(given, labels=given.labels[::-1].copy())),
        (LanguageGuidance(k=2), dataclasses.replace(given, class_names=("a", "b", "c"))),
    ]
    for term, data in changed:
        seen = len(stand_ins.asked)
        term.prepare(data)
        assert len(stand_ins.asked) > seen


def test_a_local_encoder_that_changed_is_asked_again(given, stand_ins, tmp_path):
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "config.json").write_text("1")
    marks = []
    for text in ("1", "1", "2"):
        (folder / "config.json").write_text(text)
        marks.append(LanguageGuidance(encoder=str(folder)).fingerprint(given))
    assert marks[0] == marks[1] != marks[2]


def test_bfloat16_autocast(given, stand_ins, out, batch):
    term = LanguageGuidance()
    term.prepare(given)
    with torch.autocast("cpu", torch.bfloat16):
        found = term(out, batch)
    assert torch.equal(found, term(out, batch)) and found.dtype == torch.float32


def test_no_value_is_looked_at(given, stand_ins, out, batch):
    term = LanguageGuidance(delay=1)
    term.prepare(given)
    term.to("meta")  # there are no values there: whoever looks fails
    found = term(Output(*(t.to("meta") for t in out[:3])), Batch(*(t.to("meta") for t in batch[:3])))
    term.after_step(1)
    assert found.shape == (5,)


def test_spec_and_bad_arguments(out, batch):
    text = "LanguageGuidance(weight=5.5, by='names')"
    assert spec(build(text)) == text
    with pytest.raises(LikewiseError, match=r"prepare\(given\) must be called before the first step"):
        LanguageGuidance()(out, batch)
    with pytest.raises(LikewiseError, match=r"prompt must contain \{\} once, in place of the name, got 'bird'"):
        LanguageGuidance(prompt="bird")
    with pytest.raises(LikewiseError, match="must have level='class', got level='sample'"):
        LanguageGuidance(by="names", level="sample")
    with pytest.raises(LikewiseError, match="k >= 1, delay >= 0 and temperature > 0 must hold, got k=0"):
        LanguageGuidance(k=0)
    with pytest.raises(LikewiseError, match="by must be"):
        build("LanguageGuidance(by='name')")
