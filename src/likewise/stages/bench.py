"""`likewise bench`: train every cell of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.config import Bench
    from likewise.render.benchmark_table import BenchmarkTable
    from likewise.render.tables import Table


def bench(config: Bench, say=print) -> BenchmarkTable | Table:
    """Return the table of all cells, or, with `list` or `slurm`, the table of the cells that would be trained."""
    from likewise.experiments.bench import bench as work

    return work(config, say)
