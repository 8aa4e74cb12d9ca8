"""`likewise bench`: train every cell of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.render.tables import Table
    from likewise.core.settings import Bench
    from likewise.papers.benchmark_table import BenchmarkTable


def bench(config: Bench, say=print) -> BenchmarkTable | Table:
    """Return the table of all cells, or, with `list` or `slurm`, the table of the cells that would be trained."""
    from likewise.papers.bench import bench as work

    return work(config, say)
