"""What a page shows of one run: settings, scores, notes, facts and neighbours."""

import csv
import dataclasses
import re
import shutil

import numpy as np
import pytest
import torch
from likewise.config import Audit, Report, Train
from torch.nn import functional as F

from likewise.curate.audit.audit import audit
from likewise.learn.training.fit import train
from likewise.report.report_target import open_target
from likewise.report.run_analysis import (
    analyse_run,
    as_tensor,
    baseline_notes,
    facts_of,
    neighbours,
    places_to_rank,
    scores_of,
    seconds_as_text,
    shown_settings,
    suspects_of,
)
from likewise.report.write_report import collect_facts, make_pool
from likewise.runs.folder import Run

WAY = {"quiet": True, "device": "cpu", "workers": 0}


@pytest.fixture
def one(finished):
    return open_target(str(finished.path), "me", Report(**WAY), {}, print)


def test_scores_are_written_as_the_terminal_writes_them():
    scores = {
        "metrics": {"R@1": 0.496, "rho": 0.25, "RP": 0.5}, "interval": {"R@1": [0.469, 0.522]},
        "no_interval": {"RP": "too few"},
        "galleries": {"b": {"metrics": {"R@1": None}}},
        "cameras": {"c1": {"metrics": {"R@1": 0.25}, "interval": {"R@1": [0.2, 0.3]}}},
        "other_cameras": {"metrics": {"R@1": 0.5}},
    }  # fmt: skip
    found = scores_of(scores)
    assert found["R@1"] == (0.496, 0.469, 0.522, "49.6 % (46.9 to 52.2)", "", "") and found["rho"].text == "0.2500"
    assert found["R@1, camera c1"].text == "25.0 % (20.0 to 30.0)" and found["R@1, other cameras only"].text == "50.0 %"
    assert found["rho"].low is None and np.isnan(found["R@1, b"].mean) and scores_of({}) == {}
    assert found["RP"] == (0.5, None, None, "50.0 %", "too few", "")


def test_a_training_of_no_steps_is_not_called_trained(settings):
    run = train(Train(**settings | {"steps": 0})).path
    assert facts_of(open_target(str(run), "me", Report(**WAY), {}, print))[0].startswith("not trained (0 steps)")


def test_settings_are_those_that_matter(one):
    found = shown_settings(one.settings)
    assert list(found)[:2] == ["data", "loss"] and found["loss"] == "MultiSimilarity()"
    assert found["protocol"] == "UnseenClasses(val=0.3)" and found["validate_every"] == "20"
    assert "out" not in found and "quiet" not in found and "noise" not in found
    noisy = dataclasses.replace(one.settings, noise="Uniform(share=0.3, exact=True)")
    assert shown_settings(noisy)["noise"] == "Uniform(share=0.3, exact=True)", (
        "a rate is shown even if it is the default"
    )


def test_when_and_how_long_it_trained(one):
    trained, scored = facts_of(one)
    assert re.fullmatch(r"trained on \d+ \w+ 20\d\d: 60 steps in \d+ s on .+", trained)
    assert scored == f"scored on {len(one.queries.row):,} queries of {len(np.unique(one.queries.label))} classes"
    assert [seconds_as_text(s) for s in (40.4, 300, 9000)] == ["40 s", "5 min", "2.5 h"]


def test_labels_that_an_audit_flagged(one, tmp_path):
    assert suspects_of(one) == {}
    run = Run(shutil.copytree(one.run.path, tmp_path / "run"))
    audit(Audit((str(run.path),), device="cpu", workers=0, quiet=True), lambda line: None)
    file = run.path / "audit" / "audit.csv"
    lines = list(csv.DictReader(file.open(encoding="utf-8")))
    row = int(one.row[3])
    for line in lines:
        line["state"] = "flagged" if int(line["row"]) == row else "ok" if line["state"] == "flagged" else line["state"]
        line["suggested"] = "wren" if int(line["row"]) == row else ""
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    assert suspects_of(dataclasses.replace(one, run=run)) == {3: "wren"}


def test_samples_that_only_answer_have_neighbours_too(tmp_path):
    y = np.arange(24) % 3
    x = (np.eye(3)[y] + 0.3 * np.random.default_rng(0).normal(size=(24, 3))).astype(np.float32)
    asks = np.arange(24) < 6
    np.savez(tmp_path / "two.npz", x=x, label=y, query=asks, gallery=~asks)
    one = open_target(str(tmp_path / "two.npz"), "two", Report(**WAY), {}, print)
    found = analyse_run(one, 0, make_pool(one), Report(**WAY, map="none", k=4))
    unit = F.normalize(torch.as_tensor(x), dim=1)
    sim = (unit @ unit.T - 2 * torch.eye(24))[:, 6:]
    assert (found.near == 6 + sim.sort(descending=True).indices[:, :4].numpy()).all()
    assert {asked.place for some in found.found["galleries"].values() for asked in some} <= set(range(6))


@pytest.fixture
def many(tmp_path, monkeypatch):
    """Sixty embeddings of four classes: more than the nine that a page of so many ranks."""
    y = np.arange(60) % 4
    x = (np.eye(4)[y] + 0.6 * np.random.default_rng(0).normal(size=(60, 4))).astype(np.float32)
    np.savez(tmp_path / "many.npz", x=x, label=y)
    for module in ("report_target", "run_analysis", "sections.map"):
        monkeypatch.setattr(f"likewise.report.{module}.USUAL_QUERY_COUNT", 9)
    unit = F.normalize(torch.as_tensor(x), dim=1)
    nearest = (unit @ unit.T - 2 * torch.eye(60)).sort(descending=True).indices[:, :4].numpy()
    return open_target(str(tmp_path / "many.npz"), "many", Report(**WAY), {}, print), nearest


def test_neighbours_of_many_samples_are_those_of_the_drawn_queries(many):
    one, nearest = many
    found = analyse_run(one, 0, make_pool(one), Report(**WAY, map="pca", k=4, top=40))
    ranked = np.flatnonzero((found.near >= 0).any(1))
    assert ranked.tolist() == one.queries.row.tolist() and len(ranked) == 9
    assert (found.near[ranked] == nearest[ranked]).all() and np.isnan(np.delete(found.near_sim, ranked, 0)).all()
    assert {asked.place for some in found.found["galleries"].values() for asked in some} <= set(ranked.tolist())
    assert sum(pair.count for pair in found.found["confusion"].pairs) == (nearest[ranked, 0] % 4 != ranked % 4).sum()
    assert found.drawn == "9 random queries of 60" and any("sample of 9 of 60 queries" in line for line in found.sample)
    assert "the map has the neighbours of 9 random samples of 60" in found.notes
    assert any("a random sample of 60 queries" in fact for fact in found.facts)


def test_samples_that_were_no_queries_are_drawn_too(many):
    one, nearest = many
    apart = dataclasses.replace(one, queries=None, scores={})  # nothing was ranked before
    near, sim = neighbours(apart, as_tensor(one.items.x, "cosine"), 4, True)
    ranked = np.flatnonzero((near >= 0).all(1))
    assert len(ranked) == 9 and set(np.bincount(one.items.y[ranked]).tolist()) == {2, 3}, "each class alike"
    assert (near[ranked] == nearest[ranked]).all() and (sim[ranked] > -1).all()
    few = dataclasses.replace(one.queries, sample={"queries": 9, "of": 60, "seed": 0})
    assert not len(places_to_rank(dataclasses.replace(one, queries=few), np.ones(60, bool)))


def test_two_files_are_compared_on_the_same_drawn_queries(many, tmp_path):
    one = many[0]
    noise = np.random.default_rng(1).normal(size=one.items.x.shape).astype(np.float32)
    np.savez(tmp_path / "worse.npz", x=one.items.x + noise, label=one.items.y)
    both = str(tmp_path / "many.npz"), str(tmp_path / "worse.npz")
    facts = collect_facts(Report(both, **WAY, map="pca"), print)
    (compared,) = facts.found["compared"]
    assert len(facts.pools) == 1 and compared.metric == "MAP@R" and compared.queries
    assert {asked.place for pair in compared.queries for asked in pair} <= set(one.queries.row.tolist())
    assert all(len(asked.neighbours) == 8 for pair in compared.queries for asked in pair)


def test_a_query_with_nothing_to_find_is_not_confused(tmp_path):
    x = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 0.3]], np.float32)  # the last is alone in its class
    np.savez(tmp_path / "lone.npz", x=x, label=[0, 0, 1, 1, 2], similarity="euclidean")
    one = open_target(str(tmp_path / "lone.npz"), "lone", Report(**WAY), {}, print)
    found = analyse_run(one, 0, make_pool(one), Report(**WAY, map="none"))
    assert found.near[4, 0] == 1 and "confusion" not in found.found and found.similarity == "euclidean"


def test_a_run_that_was_not_scored_has_its_curves(one):
    found = analyse_run(one, -1, None, Report(**WAY))
    assert found.found["curves"] and "map" not in found.found and found.near is None and found.pool == -1


def test_what_the_network_was_before_training_is_noted():
    assert baseline_notes({"metrics": {"R@1": 0.5}}) == []
    scores = {"metrics": {"R@1": 0.5}, "before": {"metrics": {"R@1": 0.75}}}
    assert baseline_notes(scores) == ["before training: R@1 75.0 %"]
    scores["before"]["change"] = {"metric": "R@1", "low": -0.3, "high": -0.2, "over": "classes"}
    assert "training made it worse: R@1 75.0 % -> 50.0 %" in baseline_notes(scores)[1]


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
