"""Maps that take minutes: which a run lacks, and that it is added from the embeddings in the file."""

import numpy as np
from likewise.config import Report

from likewise.report import slow_maps
from likewise.report.records import RunView


def test_the_missing_map_is_added_to_those_that_are_there(tmp_path, monkeypatch):
    x = np.arange(8, dtype=np.float32).reshape(4, 2) + 1
    np.savez(tmp_path / "some.npz", x=x, label=np.arange(4) % 2, similarity="euclidean")
    seen = RunView("me", 0, "", {}, {}, "", {"map": {"PCA": x}, "tree": 1})
    monkeypatch.setattr(slow_maps, "draw_slow_map", lambda z, name, similarity, way, config: -z.numpy())
    found = slow_maps.add_slow_map(str(tmp_path / "some.npz"), seen, Report(map="umap")).found
    assert list(found["map"]) == ["PCA", "UMAP"] and (found["map"]["UMAP"] == -x).all() and found["tree"] == 1
    assert slow_maps.add_slow_map("nowhere", seen, Report(map="pca")) is seen
    assert slow_maps.slow_map(RunView("me", -1, "", {}, {}, ""), Report(map="tsne")) == ""
