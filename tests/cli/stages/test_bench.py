from likewise.config import Bench

from likewise.cli.stages.bench import bench
from likewise.core.render.tables import Table


def test_what_would_be_trained_is_a_table(features, tmp_path):
    (tmp_path / "grid.toml").write_text(f'[settings]\ndata = "{features}"\nsteps = 2\n[axes]\nseed = [0, 1]\n')
    found = bench(Bench(str(tmp_path / "grid.toml"), out=str(tmp_path / "out"), list=True, device="cpu"))
    assert isinstance(found, Table) and len(found.lines) == 2 and not (tmp_path / "out").exists()
