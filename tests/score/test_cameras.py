"""Re-identification: the rule of Market-1501 against a plain loop, with junk, distractors and people of a single camera."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from likewise.config import Evaluate
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.types import Embedded, Items, LikewiseError

from likewise.runs.scores import read_per_query
from likewise.score.evaluate import evaluate
from likewise.score.retrieve import Scoring, count_relevant_rows, hidden_groups
from likewise.score.scoring import score

NAMES = ("R@1", "R@5", "R@10", "mAP")
TOLERANCE = 1e-9  # means of some hundred values between 0 and 1, added in another order


def world(people=15, cameras=4, seed=0):
    """Images of people by cameras: person 0 are distractors, person -1 is junk, and the last two people have one camera each."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(-1, people), 8)
    camera = rng.integers(0, cameras, len(person))
    camera[person >= people - 2] = 1
    looks, light = rng.normal(size=(people + 1, 6)), rng.normal(size=(cameras, 6))
    x = (looks[person + 1] + light[camera] + 0.7 * rng.normal(size=(len(person), 6))).astype(np.float32)
    query = (person > 0) & (rng.random(len(person)) < 0.4)
    return x, person, np.array([f"c{number}" for number in camera]), query


def market_rule(x, person, camera, query, *, own_camera=False, only=None):
    """CMC at 1, 5, 10 and mAP by the rule of Market-1501, one pair at a time. `own_camera`: hide strangers of the camera too."""
    x, rank, precision, nothing = x.astype(np.float64), [], [], 0
    for q in np.flatnonzero(query):
        if only is not None and camera[q] != only:
            continue
        order = []
        for g in np.flatnonzero(~query):
            same_camera = camera[g] == camera[q]
            if person[g] == -1 or (same_camera and (own_camera or person[g] == person[q])):
                continue
            dot = sum(a * b for a, b in zip(x[q], x[g], strict=True))
            order.append((-dot / math.sqrt(sum(a * a for a in x[q]) * sum(b * b for b in x[g])), g))
        hits = [place for place, (_, g) in enumerate(sorted(order), 1) if person[g] == person[q]]
        if not hits:
            nothing += 1
            continue
        rank.append(hits[0])
        precision.append(sum(n / place for n, place in enumerate(hits, 1)) / len(hits))
    cmc = {f"R@{k}": sum(first <= k for first in rank) / len(rank) for k in (1, 5, 10)} if rank else {}
    return cmc | ({"mAP": sum(precision) / len(precision)} if rank else {}), nothing


def save(tmp_path, x, person, camera, query):
    """Write embeddings, and their labels with camera and junk in a table."""
    np.savez(tmp_path / "z.npz", x=x)
    lines = [f"{p},{c},{int(q)},{int(not q)},{int(p == -1)}" for p, c, q in zip(person, camera, query, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join(["label,camera,query,gallery,junk", *lines]) + "\n")
    return {"target": str(tmp_path / "z.npz"), "labels": str(tmp_path / "labels.csv"), "metrics": NAMES, "quiet": True}


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_the_rule_by_hand(tmp_path, seed):
    data = world(seed=seed)
    _, person, camera, query = data
    found = evaluate(Evaluate(**save(tmp_path, *data), device="cpu", per_query=str(tmp_path / "each.parquet")))
    expected, nothing = market_rule(*data)
    assert found["metrics"] == pytest.approx(expected, abs=TOLERANCE)
    assert found["unscored"] == nothing > 0  # people of a single camera
    others, _ = market_rule(*data, own_camera=True)
    assert found["other_cameras"]["metrics"] == pytest.approx(others, abs=TOLERANCE)
    assert others != expected  # strangers of the query's camera count in one of them
    for name, alone in found["cameras"].items():
        expected, nothing = market_rule(*data, only=name)
        assert alone["metrics"] == pytest.approx(expected, abs=TOLERANCE) and alone["unscored"] == nothing
    assert list(found["cameras"]) == sorted(set(camera[query]))
    assert sum(alone["queries"] for alone in found["cameras"].values()) == found["queries"]
    stored = read_per_query(tmp_path / "each.parquet", "test")
    assert not np.isin(stored.nearest, np.flatnonzero(person == -1)).any()
    assert np.isin(stored.nearest, np.flatnonzero(person == 0)).any()  # distractors are found, and are wrong


def test_strangers_of_the_camera_stay():
    """Row 1 shows the person of row 0 from the same camera, row 2 a stranger from that camera, row 3 the person from another."""
    items = Items(
        "toy", np.array([0, 0, 1, 0, 1]), ("a", "b"), x=np.eye(5, 2, dtype=np.float32),
        camera=np.array(["c1", "c1", "c1", "c2", ""]),
    )  # fmt: skip
    z = torch.nn.functional.normalize(torch.tensor([[1, 0], [1, 0.1], [1, 0.2], [1, 0.3], [1, 0.4]]), dim=1)
    e = Embedded(z, torch.as_tensor(items.y), torch.arange(5))
    how = Scoring(items, UnseenClasses(), ["R@1", "R@2"], quiet=True)
    scores, found = score(e, how)
    assert found.row[0].tolist()[:4] == [2, 3, 4, -1] and scores.each["R@1"][0] == 0 and scores.each["R@2"][0] == 1
    _, found = score(e, dataclasses.replace(how, other_cameras=True))
    assert found.row[0].tolist()[:3] == [3, 4, -1]
    # an unknown camera hides nothing
    assert sorted(found.row[4].tolist()[:4]) == [0, 1, 2, 3]
    assert count_relevant_rows(items, UnseenClasses(), np.arange(5)).tolist() == [1, 1, 1, 2, 1]


def test_group_and_camera_work_together():
    """Relevant rows by a loop over all pairs: not of the group, and not of class and camera."""
    rng = np.random.default_rng(0)
    y, group, camera = rng.integers(0, 4, 60), rng.integers(-1, 6, 60), rng.integers(0, 3, 60)
    words = np.where(camera == 0, "", camera.astype(str))
    query = np.arange(60) < 40
    items = Items("toy", y, tuple("abcd"), group=group, camera=words, query=query, gallery=np.arange(60) > 20)
    expected = []
    for q in np.flatnonzero(query):
        mates = [g for g in range(21, 60) if g != q and y[g] == y[q]]
        mates = [g for g in mates if not (group[g] == group[q] and group[q] >= 0)]
        expected.append(sum(not (camera[g] == camera[q] and camera[q] > 0) for g in mates))
    assert count_relevant_rows(items, QueryGallery(), np.arange(60)).tolist() == expected
    x = rng.normal(size=(60, 3)).astype(np.float32)
    e = Embedded(torch.as_tensor(x), torch.as_tensor(y), torch.arange(60))
    _, found = score(e, Scoring(items, QueryGallery(), ["mAP"], quiet=True))
    assert found.relevant.tolist() == expected and found.start.diff().tolist() == expected
    assert hidden_groups(items).shape == (60, 2)
    assert hidden_groups(Items("toy", y, tuple("abcd"))) is None


def test_one_camera_leaves_nothing_to_find(tmp_path):
    x, person, _, query = world()
    settings = save(tmp_path, x, person, np.full(len(person), "c1"), query)
    with pytest.raises(LikewiseError, match="same class and `camera`"):
        evaluate(Evaluate(**settings, device="cpu"))


def test_many_cameras_have_no_scores_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr("likewise.score.scoring.MAX_SCORED_CAMERAS", 3)
    found = evaluate(Evaluate(**save(tmp_path, *world()), device="cpu"))
    assert "cameras" not in found and found["other_cameras"]["metrics"]
