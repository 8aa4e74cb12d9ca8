"""A Ray cluster of two nodes on this machine, for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from likewise.core.ray_cluster import in_root_folder


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """The address of a cluster of two nodes with a core each. It takes some seconds to start."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    before = {name: os.environ.get(name) for name in ("RAY_ADDRESS", "RAY_USAGE_STATS_ENABLED")}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    size = {"num_cpus": 1, "object_store_memory": 200 * 2**20}
    with in_root_folder():
        cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
        cluster.add_node(**size)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ |= {name: value} if value is not None else {}
