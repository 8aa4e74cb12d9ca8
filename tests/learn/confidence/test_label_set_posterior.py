"""LabelSetPosterior: labels that are surely missing or wrong are changed, to a label set that exists."""

import numpy as np
import pytest
import torch
from likewise.confidence import LabelSetPosterior
from likewise.config import Train
from likewise.types import Embedded, LikewiseError
from made_label_sets import features_of, items_of, label_matrix, noisy_matrix

from likewise.learn.confidence.label_set_posterior import nearest_sets
from likewise.learn.training.defaults import chosen_confidence


def test_nearest_sets_by_hand():
    """Wanted sets: one exists; one does not, and {0, 1} is nearer than the own set; one is no nearer to any other set."""
    sets = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1]]).bool()
    wanted = torch.tensor([[1, 1, 0], [0, 1, 0], [1, 0, 1], [1, 0, 0]]).bool()
    assert nearest_sets(wanted, sets, torch.tensor([0, 2, 0, 0])).tolist() == [1, 1, 0, 0]


def test_sure_errors_are_repaired_and_the_rest_stays():
    true = label_matrix(400)
    noisy, x = noisy_matrix(true), features_of(true)
    items = items_of(noisy)
    assert items.label_sets is not None
    part = LabelSetPosterior(items.y, items.label_sets, folds=5)
    given = torch.tensor(items.y)
    found = part.relabel(Embedded(torch.tensor(x), given, torch.arange(400)))
    after, before = (part.sets[y].numpy() for y in (found.y, given))
    assert (before != true).sum() > 3 * (after != true).sum()
    changed = after != before
    assert changed.sum() > 0 and (after == true)[changed].mean() > 0.9
    assert bool((found.w == 1).all()) and 0.05 < found.facts["missing labels"] < 0.2
    assert part(torch.tensor(x[:3]), given[:3], torch.arange(3), None).w.tolist() == [1, 1, 1]
    again = part.relabel(Embedded(torch.tensor(x), given, torch.arange(400)))
    assert (again.y == found.y).float().mean() > 0.98


def test_robust_chooses_it_for_several_labels():
    items = items_of(label_matrix(20))
    default = "LabelPosterior()"
    from likewise.core.settings.spec import canonical

    assert chosen_confidence(canonical(default), items).startswith("LabelSetPosterior(")
    with pytest.raises(LikewiseError, match="needs one label per sample, and 'clothes' has several; use --confidence"):
        chosen_confidence(canonical("LabelPosterior(least=0.9)"), items)
    assert chosen_confidence(canonical("SuperLoss()"), items) == canonical("SuperLoss()")


def test_a_robust_training(tmp_path):
    """A training on features with several labels runs, relabels before its first step, and logs the shares."""
    import likewise

    run = likewise.train(
        "made_label_sets.clothes()", root=str(tmp_path), recipe="robust", loss="MultiSimilarity()", epochs=2, dim=8,
        allow_imports=True, out=str(tmp_path / "run"), device="cpu", quiet=True, batch_size=16, protocol="SeenClasses()",
    )  # fmt: skip
    assert Train and "LabelSetPosterior" in (run.path / "config.json").read_text()
    assert "missing labels" in (run.path / "log.jsonl").read_text()


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="least in"):
        LabelSetPosterior(np.zeros(3, int), [(0,)], least=0.2)
    part = LabelSetPosterior(np.zeros(3, int), [(0,)])
    with pytest.raises(LikewiseError, match="features must be finite"):
        part.relabel(Embedded(torch.full((3, 2), torch.nan), torch.zeros(3, dtype=torch.long), torch.arange(3)))
