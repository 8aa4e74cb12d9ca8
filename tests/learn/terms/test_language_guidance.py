"""Rows by hand in loops: both directions, both levels, with and without the mask; what is kept between runs."""

import dataclasses

import pytest
import torch
from likewise.terms import LanguageGuidance
from likewise.terms import language_guidance as guidance
from likewise.types import Batch, LikewiseError, Output
from torch.nn import functional as F


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


def test_bad_arguments(out, batch):
    with pytest.raises(LikewiseError, match=r"prepare\(given\) must be called before the first step"):
        LanguageGuidance()(out, batch)
    with pytest.raises(LikewiseError, match=r"prompt must contain \{\} once, .*got 'bird'"):
        LanguageGuidance(prompt="bird")
    with pytest.raises(LikewiseError, match="must have level='class', got level='sample'"):
        LanguageGuidance(by="names", level="sample")


NAMES = ("tench", "goldfish", "crane", "cock", "hen", "crane")


def best(logits, k):
    """The k highest, best first, one at a time."""
    left, found = dict(enumerate(logits)), []
    for _ in range(k):
        found.append(max(left, key=left.get))
        del left[found[-1]]
    return [NAMES[i] for i in found]


def check_names(found, want, stand_ins):
    assert found.index.shape == (len(want), len(want[0]))
    for row, names in zip(found.index, want):
        for i, name in zip(row, names):
            torch.testing.assert_close(found.table[i], F.normalize(stand_ins.encode(f"a {name}!"), dim=0))


def test_names_of_a_class_come_from_its_mean_logits(given, stand_ins):
    found = guidance.from_classifier(given, "net", None, "class", 3, "a {}!", "enc")
    want = []
    for c in range(3):
        rows = [stand_ins.logits[i].tolist() for i in range(6) if given.labels[i] == c]
        want.append(best([sum(column) / len(rows) for column in zip(*rows)], 3))
    check_names(found, want, stand_ins)


def test_names_of_a_sample_come_from_its_own_logits(given, stand_ins):
    found = guidance.from_classifier(given, "net", None, "sample", 2, "a {}!", "enc")
    check_names(found, [best(row.tolist(), 2) for row in stand_ins.logits], stand_ins)


def test_every_distinct_name_is_encoded_once(given, stand_ins):
    guidance.from_classifier(given, "net", None, "sample", 6, "a {}!", "enc")
    assert sorted(stand_ins.asked) == sorted({f"a {name}!" for name in NAMES})


def test_an_encoder_that_is_missing_is_known_before_any_picture_is_looked_at(given, stand_ins, monkeypatch):
    def fail(name, device):
        raise LikewiseError("no encoder")

    monkeypatch.setattr(guidance, "text_encoder", fail)
    blind = dataclasses.replace(given, pictures=lambda transform: pytest.fail("it looked"))
    with pytest.raises(LikewiseError, match="no encoder"):
        guidance.from_classifier(blind, "net", None, "class", 2, "{}", "enc")


def test_a_class_that_lost_all_its_samples_does_no_harm(given, stand_ins):
    lost = dataclasses.replace(given, class_names=(*given.class_names, "gone"))
    found = guidance.from_classifier(lost, "net", None, "class", 2, "a {}!", "enc")
    assert found.index.shape == (4, 2) and found.table.isfinite().all()


def test_class_names_lose_their_numbers_and_underscores(given, stand_ins):
    found = guidance.from_names(given, "a photo of a {}", "enc")
    assert sorted(stand_ins.asked) == [f"a photo of a {n}" for n in ("Black footed Albatross", "Crow", "Sofa 7")]
    want = F.normalize(stand_ins.encode("a photo of a Crow"), dim=0)
    torch.testing.assert_close(found.table[found.index[1, 0]], want)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("n01440764", "tench"), ("n02086240", "Shih-Tzu"), ("11319", "coffee maker"), ("Aves/1234", "Turdus merula"),
        ("Aves/Turdus_merula", "Aves/Turdus merula"), ("A320", "A320"), ("747-400", "747-400"), ("U+0049 I", "U+0049 I"),
        ("Peugeot 208", "Peugeot 208"), ("003.Sooty_Albatross", "Sooty Albatross"),
    ],
)  # fmt: skip
def test_codes_become_the_words_that_the_data_has(name, words):
    assert guidance.class_words(name, {"11319": "coffee_maker", "Aves/1234": "Turdus merula"}) == words


@pytest.mark.parametrize(
    "name", ["11319", "Aves/1234", "n99999999", "id_00000080", "class 3", "0002", "001.", "_", "7.8"]
)
def test_names_that_are_no_words_are_refused(name, given):
    with pytest.raises(LikewiseError, match=rf"class names that are words, got '{name}'"):
        guidance.from_names(dataclasses.replace(given, class_names=("Crow", name, "Gull")), "a photo of a {}", "enc")


def test_images_stand_for_themselves(given, stand_ins):
    pictures = given.pictures
    backwards = dataclasses.replace(given, pictures=lambda transform: reversed(list(pictures(transform))))
    for one in (given, backwards):
        found = guidance.from_images(one, "net", None)
        torch.testing.assert_close(found.table[found.index[:, 0]], F.normalize(stand_ins.logits, dim=1))


def test_features_and_too_many_names_are_refused(given, stand_ins):
    flat = dataclasses.replace(given, pictures=lambda transform: iter([(torch.zeros(6, 5), torch.arange(6))]))
    with pytest.raises(LikewiseError, match=r"features of shape \(6, 5\); use by='names'"):
        guidance.from_images(flat, "net", None)
    with pytest.raises(LikewiseError, match="k must be at most 6, .*got 7"):
        guidance.from_classifier(given, "net", None, "class", 7, "{}", "enc")


def test_a_file_is_used_again_only_for_what_it_was_made_from(tmp_path):
    made = guidance.Guidance(torch.randn(4, 3), torch.tensor([[0, 3], [2, 1]]))
    file = tmp_path / "new" / "guidance.safetensors"
    assert guidance.load_guidance(file, "a") is None
    guidance.save_guidance(made, file, "a")
    found = guidance.load_guidance(file, "a")
    assert torch.equal(found.table, made.table) and torch.equal(found.index, made.index)
    assert found.index.dtype == torch.int64
    assert guidance.load_guidance(file, "b") is None
    assert [f.name for f in file.parent.iterdir()] == [file.name]
    file.write_bytes(file.read_bytes()[:50])
    assert guidance.load_guidance(file, "a") is None, "a damaged file is made anew"
