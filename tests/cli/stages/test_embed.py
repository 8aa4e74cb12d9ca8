import torch
from likewise.config import Embed

import likewise
from likewise.cli.stages.embed import embed


def test_a_file_is_written_where_one_is_named(finished, features, tmp_path):
    found = embed(Embed(run=str(finished.path), data=features, out=str(tmp_path / "z.npz"), device="cpu", quiet=True))
    alone = likewise.embed(finished, features, device="cpu", quiet=True)
    assert (tmp_path / "z.npz").exists() and torch.equal(found.z, alone.z) and len(found.z) == 288
