"""The map: maps that were asked for, places on one scale, and the neighbours of every sample as far as there is room."""

import base64
import json
from dataclasses import replace

import numpy as np
import torch
from likewise.config import Report
from report.made_facts import made_facts

from likewise.report import projection
from likewise.report.sections import map as section
from likewise.report.sections.map import choose_slow_map, draw_slow_map, quantise, shown_neighbours
from likewise.report.write_report import large_blocks, pack_page

WAY = {"quiet": True, "device": "cpu", "workers": 0}


def read(block, kind):
    return np.frombuffer(base64.b64decode(block.text), kind)


def test_maps_that_were_asked_for(monkeypatch):
    z, called = torch.randn(30, 4), []

    def fake(z, similarity, *, most=None, seed=0, progress=None):
        called.append((most, similarity))
        return np.zeros((len(z), 2), np.float32)

    monkeypatch.setattr(projection, "tsne", fake)
    monkeypatch.setattr(section, "MAX_MAPPED_SAMPLES", 20)
    monkeypatch.setattr(projection, "is_installed", lambda name: True)
    assert choose_slow_map(30, Report(**WAY, map="pca")) == choose_slow_map(30, Report(**WAY, map="none")) == ("", [])
    assert choose_slow_map(30, Report(**WAY, map="tsne")) == ("t-SNE", []) and choose_slow_map(3, Report(**WAY)) == (
        "t-SNE",
        [],
    )
    assert choose_slow_map(30, Report(**WAY, map="umap")) == ("UMAP", [])
    way, (note,) = choose_slow_map(30, Report(**WAY))
    assert way == "t-SNE" and "maps 20 of the 30 samples" in note
    assert draw_slow_map(z, "a", "euclidean", way, Report(**WAY)).shape == (30, 2)
    draw_slow_map(z, "a", "cosine", way, Report(**WAY, map="tsne"))
    assert called == [(20, "euclidean"), (None, "cosine")]
    monkeypatch.setattr(section, "MAX_TSNE_SAMPLES", 29)
    assert choose_slow_map(30, Report(**WAY))[0] == "" and "skipped" in choose_slow_map(30, Report(**WAY))[1][0]
    monkeypatch.setattr(projection, "is_installed", lambda name: False)
    assert choose_slow_map(30, Report(**WAY))[0] == "" and "likewise[map]" in choose_slow_map(30, Report(**WAY))[1][0]


def test_places_are_kept_to_one_scale():
    place = np.array([[0.0, 5.0], [10.0, 7.5], [5.0, 6.0], [np.nan, 5.0]], np.float32)
    kept = quantise(place)
    by_hand = [[0, 0], [65535, 16384], [32768, 6554], [32768, 0]]
    assert kept.dtype == np.uint16 and np.abs(kept.astype(int) - by_hand).max() <= 1
    assert quantise(np.zeros((3, 2), np.float32)).tolist() == [[0, 0]] * 3


def test_neighbours_and_labels_come_back():
    facts = made_facts(300, 10, 20)
    found = {block.name: block for block in large_blocks(facts)}
    pool, run = facts.pools[0], facts.runs[1]
    assert (read(found["label-0"], "<u2") == pool.label).all() and (read(found["row-0"], "<i4") == pool.row).all()
    assert json.loads(found["caption-0"].text) == list(pool.caption)
    assert (read(found["near-1"], "<u2").reshape(300, -1) == run.near).all()
    told = json.loads(pack_page(facts)[0][0].text)["runs"][1]["map"]["near"]
    sim = told["low"] + read(found["similarity-1"], "u1") / 255 * (told["high"] - told["low"])
    assert np.abs(sim.reshape(300, -1) - run.near_sim).max() < 0.002
    assert set(found) >= {f"map-{i}-{name}" for i in (0, 1) for name in ("PCA", "t-SNE")}


def test_nobody_is_the_largest_number():
    facts = made_facts(50, 5, 0)
    near = facts.runs[0].near.copy()
    near[3, 2] = -1
    facts = replace(facts, runs=(replace(facts.runs[0], near=near),))
    found = {block.name: block for block in large_blocks(facts)}
    assert read(found["near-0"], "<u2").reshape(50, -1)[3, 2] == 65535


def test_neighbours_of_some_samples_come_with_their_places(monkeypatch):
    facts = made_facts(300, 10, 20)
    near, sim = facts.runs[0].near.copy(), facts.runs[0].near_sim.copy()
    places = np.array([4, 17, 250])
    near[np.delete(np.arange(300), places)] = -1
    sim[near < 0] = np.nan
    facts = replace(facts, runs=(replace(facts.runs[0], near=near, near_sim=sim),))
    assert "ranked-0" not in {block.name for block in large_blocks(facts)}, "a small set lists all of its samples"
    monkeypatch.setattr(section, "USUAL_QUERY_COUNT", 299)
    found = {block.name: block for block in large_blocks(facts)}
    assert read(found["ranked-0"], "<u2").tolist() == places.tolist()
    assert (read(found["near-0"], "<u2").reshape(3, -1) == near[places]).all()
    assert len(read(found["similarity-0"], "u1")) == near[places].size
    told = json.loads(pack_page(facts)[0][0].text)["runs"][0]["map"]["near"]
    assert told["ranked"] == 3 and told["k"] == near.shape[1]
    monkeypatch.setattr(section, "MAX_NEIGHBOUR_BYTES", 3 * 3 * 8)
    assert shown_neighbours(facts, facts.runs[0]) == 8, "only ranked samples take room"


def test_neighbours_are_fewer_where_there_is_no_room(monkeypatch):
    facts = made_facts(300, 10, 20)
    assert shown_neighbours(facts, facts.runs[0]) == 8
    monkeypatch.setattr(section, "MAX_NEIGHBOUR_BYTES", 600 * 3 * 5)
    assert shown_neighbours(facts, facts.runs[0]) == 5
    monkeypatch.setattr(section, "MAX_NEIGHBOUR_BYTES", 10)
    assert shown_neighbours(facts, facts.runs[0]) == 0 and not [
        b for b in large_blocks(facts) if b.name.startswith("near")
    ]
