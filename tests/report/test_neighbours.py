"""The nearest answers of every sample: those that were kept, and ranked anew where more are wanted."""

import numpy as np
import torch
from likewise.config import Report
from torch.nn import functional as F

from likewise.report.neighbours import as_tensor, neighbours
from likewise.report.targets import open_target


def test_neighbours_are_ranked_anew_where_more_are_wanted_than_were_kept(finished):
    one = open_target(str(finished.path), "me", Report(quiet=True, device="cpu", workers=0), {}, print)
    z = F.normalize(torch.as_tensor(one.items.x), dim=1)
    kept, _ = neighbours(one, z, 5, True)
    near, sim = neighbours(one, z, 15, True)
    by_hand = (z @ z.T - 2 * torch.eye(len(z))).sort(descending=True)
    assert (near[:, :5] == kept).all() and np.allclose(sim, by_hand.values[:, :15], atol=1e-5)
    short, _ = neighbours(one, None, 15, True)  # without embeddings: what was kept
    assert (short[:, :10] == near[:, :10]).all() and (short[:, 10:] == -1).all()


def test_embeddings_are_normalised_for_cosine_alone():
    x = np.array([[3.0, 4.0]], np.float32)
    x.flags.writeable = False
    assert np.allclose(as_tensor(x, "cosine"), [[0.6, 0.8]]) and np.allclose(as_tensor(x, "euclidean"), x)
