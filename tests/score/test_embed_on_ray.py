"""Embeddings by a Ray of two nodes equal those of one process, bit for bit, also if a process of the cluster is killed."""

import os

import pytest
from block_work import KillingBlocks
from likewise.config import Embed
from likewise.types import LikewiseError

from likewise.core.block_executors import executing, using
from likewise.score import embed_data
from likewise.score.embed_data import embed


def write(run, data, out, **settings):
    how = {"quiet": True, "workers": 0} | settings
    return embed(Embed(run=str(run.path), data=str(data), out=str(out), **how), say=lambda line: None)


def files_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.startswith(".")}


@pytest.mark.slow
@pytest.mark.process
def test_a_cluster_writes_the_same_shards_after_a_kill(two_nodes, picture_run, pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(pictures.parent)  # the images have relative paths
    data = os.path.relpath(pictures)
    write(picture_run, data, f"{tmp_path}/here/", shard_rows=10, device="cpu")
    with executing("embed", "ray") as ray, using(KillingBlocks(ray.ray, "embed", tmp_path)) as killing:
        write(picture_run, data, f"{tmp_path}/there/", shard_rows=10)
        assert killing.calls == ["_embed_block"]
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.process
def test_a_cluster_writes_the_same_file(two_nodes, run, features, tmp_path, monkeypatch):
    monkeypatch.setattr(embed_data, "EMBED_BLOCK_ROWS", 256)
    here = write(run, features, tmp_path / "here.npz", device="cpu")
    there = write(run, features, tmp_path / "there.npz", executor="ray")
    assert len(here.z) > 256
    for name in ("z", "y", "row", "e"):
        assert getattr(here, name).equal(getattr(there, name)), name
    assert (tmp_path / "there.npz").read_bytes() == (tmp_path / "here.npz").read_bytes()


def test_a_cluster_has_no_other_device(run, features, tmp_path):
    with pytest.raises(
        LikewiseError, match=r"embed: --executor computes on the CPU cores of the cluster, got --device cuda"
    ):
        write(run, features, tmp_path / "z.npz", executor="ray", device="cuda")
