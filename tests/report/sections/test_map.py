"""The map: maps that were asked for, places on one scale, and the neighbours of every sample as far as there is room."""

import base64
import json
from dataclasses import replace

import numpy as np
import torch
from report.made_facts import made_facts

from likewise.config import Report
from likewise.report import projection
from likewise.report.payload import first_blocks, many_blocks
from likewise.report.sections import map as section
from likewise.report.sections.map import near_shown, quantised, unfold, wanted

WAY = {"quiet": True, "device": "cpu", "workers": 0}


def read(block, kind):
    return np.frombuffer(base64.b64decode(block.text), kind)


def test_maps_that_were_asked_for(monkeypatch):
    z, called = torch.randn(30, 4), []

    def fake(z, similarity, *, most=None, seed=0, progress=None):
        called.append((most, similarity))
        return np.zeros((len(z), 2), np.float32)

    monkeypatch.setattr(projection, "tsne", fake)
    monkeypatch.setattr(section, "MAPPED", 20)
    monkeypatch.setattr(projection, "is_installed", lambda name: True)
    assert wanted(30, Report(**WAY, map="pca")) == wanted(30, Report(**WAY, map="none")) == ("", [])
    assert wanted(30, Report(**WAY, map="tsne")) == ("t-SNE", []) and wanted(3, Report(**WAY)) == ("t-SNE", [])
    assert wanted(30, Report(**WAY, map="umap")) == ("UMAP", [])
    way, (note,) = wanted(30, Report(**WAY))
    assert way == "t-SNE" and "maps 20 of the 30 samples" in note
    assert unfold(z, "a", "euclidean", way, Report(**WAY)).shape == (30, 2)
    unfold(z, "a", "cosine", way, Report(**WAY, map="tsne"))
    assert called == [(20, "euclidean"), (None, "cosine")]
    monkeypatch.setattr(section, "HUGE", 29)
    assert wanted(30, Report(**WAY))[0] == "" and "left out" in wanted(30, Report(**WAY))[1][0]
    monkeypatch.setattr(projection, "is_installed", lambda name: False)
    assert wanted(30, Report(**WAY))[0] == "" and "likewise[map]" in wanted(30, Report(**WAY))[1][0]


def test_places_are_kept_to_one_scale():
    place = np.array([[0.0, 5.0], [10.0, 7.5], [5.0, 6.0], [np.nan, 5.0]], np.float32)
    kept = quantised(place)
    by_hand = [[0, 0], [65535, 16384], [32768, 6554], [32768, 0]]
    assert kept.dtype == np.uint16 and np.abs(kept.astype(int) - by_hand).max() <= 1
    assert quantised(np.zeros((3, 2), np.float32)).tolist() == [[0, 0]] * 3


def test_neighbours_and_labels_come_back():
    facts = made_facts(300, 10, 20)
    found = {block.name: block for block in many_blocks(facts)}
    pool, run = facts.pools[0], facts.runs[1]
    assert (read(found["label-0"], "<u2") == pool.label).all() and (read(found["row-0"], "<i4") == pool.row).all()
    assert json.loads(found["caption-0"].text) == list(pool.caption)
    assert (read(found["near-1"], "<u2").reshape(300, -1) == run.near).all()
    told = json.loads(next(first_blocks(facts)).text)["runs"][1]["map"]["near"]
    sim = told["low"] + read(found["similarity-1"], "u1") / 255 * (told["high"] - told["low"])
    assert np.abs(sim.reshape(300, -1) - run.near_sim).max() < 0.002
    assert set(found) >= {f"map-{i}-{name}" for i in (0, 1) for name in ("PCA", "t-SNE")}


def test_nobody_is_the_largest_number():
    facts = made_facts(50, 5, 0)
    near = facts.runs[0].near.copy()
    near[3, 2] = -1
    facts = replace(facts, runs=(replace(facts.runs[0], near=near),))
    found = {block.name: block for block in many_blocks(facts)}
    assert read(found["near-0"], "<u2").reshape(50, -1)[3, 2] == 65535


def test_neighbours_are_fewer_where_there_is_no_room(monkeypatch):
    facts = made_facts(300, 10, 20)
    assert near_shown(facts, facts.runs[0]) == 8
    monkeypatch.setattr(section, "NEAR_ROOM", 600 * 3 * 5)
    assert near_shown(facts, facts.runs[0]) == 5
    monkeypatch.setattr(section, "NEAR_ROOM", 10)
    assert near_shown(facts, facts.runs[0]) == 0 and not [b for b in many_blocks(facts) if b.name.startswith("near")]
