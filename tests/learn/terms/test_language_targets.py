"""Names chosen by hand from logits, encoded once each; files that are only used again for what they were made from."""

import dataclasses

import pytest
import torch
from likewise.terms import _language_targets as guidance
from likewise.types import LikewiseError
from torch.nn import functional as F

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
    with pytest.raises(LikewiseError, match=rf"by='names' needs class names that are words, got '{name}'; rename"):
        guidance.from_names(dataclasses.replace(given, class_names=("Crow", name, "Gull")), "a photo of a {}", "enc")


def test_images_stand_for_themselves(given, stand_ins):
    pictures = given.pictures
    backwards = dataclasses.replace(given, pictures=lambda transform: reversed(list(pictures(transform))))
    for one in (given, backwards):
        found = guidance.from_images(one, "net", None)
        torch.testing.assert_close(found.table[found.index[:, 0]], F.normalize(stand_ins.logits, dim=1))


def test_features_and_too_many_names_are_refused(given, stand_ins):
    flat = dataclasses.replace(given, pictures=lambda transform: iter([(torch.zeros(6, 5), torch.arange(6))]))
    with pytest.raises(LikewiseError, match=r"must be images, got features of shape \(6, 5\); use by='names'"):
        guidance.from_images(flat, "net", None)
    with pytest.raises(LikewiseError, match="k must be at most 6, the number of classes of the classifier, got 7"):
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
