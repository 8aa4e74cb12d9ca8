"""Blocks by this process and by a Ray of two nodes: the same results in the same order, also if processes are killed."""

import dataclasses

import numpy as np
import pytest
import torch
from block_work import broken, deadly, refusing, row_sums, slow_first, threads_and_arguments
from likewise.errors import LikewiseError

from likewise.core.block_executors import (
    BLOCKS_PER_SLOT,
    LocalBlocks,
    RayBlocks,
    current_executor,
    executing,
    is_distributed,
    map_blocks,
    pack,
    rows_of,
    unpack,
    using,
)
from likewise.core.ray_cluster import MAX_RAY_TRIES
from likewise.core.retrieval.integer_scores import row_slices


@dataclasses.dataclass(frozen=True)
class Record:
    x: torch.Tensor
    name: str


@pytest.fixture(scope="module")
def ray(two_nodes):
    with executing("test", "ray") as executor:
        assert isinstance(executor, RayBlocks)
        yield executor


def test_blocks_here_are_lazy_and_in_order():
    x, seen = torch.arange(20.0).view(10, 2), []
    found = map_blocks(row_sums, {"x": x, "factor": 2}, row_slices(10, 4), seen.append)
    assert not seen and next(found).tolist() == [2.0, 10.0, 18.0, 26.0] and not seen
    assert torch.equal(torch.cat(list(found)), 2 * x[4:].sum(1)) and seen == [1 / 3, 2 / 3, 1.0]
    assert list(map_blocks(row_sums, {}, [])) == []


def test_the_executor_is_that_of_the_innermost_block():
    own = LocalBlocks()
    assert not is_distributed()
    with using(own):
        assert current_executor() is own
        with executing("audit", None) as executor:
            assert executor is own
    assert current_executor() is not own


def test_records_are_packed_with_their_tensors_outside():
    x = torch.arange(6.0).view(2, 3)
    whole = {
        "a": Record(x, "one"),
        "b": [x.T, np.arange(3)],
        "c": torch.tensor(2),
        "d": torch.ones(2).bfloat16(),
        "e": x,
    }
    packed = pack(whole)
    assert len(packed.arrays) == 3  # x is stored once, a tensor of a type without arrays not at all
    found = unpack(packed)
    assert found["a"].name == "one" and found["a"].x is not x and torch.equal(found["a"].x, x)
    assert torch.equal(found["b"][0], x.T) and found["b"][0].stride() == (1, 3) and found["b"][1].tolist() == [0, 1, 2]
    assert found["c"].dim() == 0 and int(found["c"]) == 2 and torch.equal(found["d"], whole["d"])
    large = torch.randn(300, 400)
    packed = pack((large, large[:10], large[:, :250]))
    assert [len(one) for one in packed.arrays] == [
        120000,
        4000,
    ]  # a small part is sent alone, a large one shares memory
    packed.arrays[0].flags.writeable = False  # as from the object store
    whole, few, part = unpack(packed)
    assert whole.data_ptr() == large.data_ptr() == part.data_ptr()  # without a copy
    assert torch.equal(few, large[:10]) and torch.equal(part, large[:, :250]) and part.stride() == (400, 1)
    copied = unpack(packed, copy=True)[0].zero_()
    assert float(large.abs().sum()) > 0 == float(copied.abs().sum())


def test_rows_of_a_block_in_words():
    assert rows_of(slice(3, 9)) == " (rows 3 to 8)" and rows_of(torch.tensor([4, 7, 12])) == " (rows 4 to 12)"
    assert rows_of((1, 2)) == "" and rows_of(torch.zeros(0)) == ""


def test_an_executor_is_a_ray():
    with (
        pytest.raises(LikewiseError, match='evaluate: --executor must be "ray" or "ray://HOST:PORT", got "dask"'),
        executing("evaluate", "dask"),
    ):
        pass


@pytest.mark.slow
@pytest.mark.process
def test_two_nodes_return_what_one_process_returns(ray):
    assert ray.slots == 2 and len({node["NodeID"] for node in ray.ray.nodes() if node["Alive"]}) == 2
    x, seen = torch.randn(1000, 300, generator=torch.Generator().manual_seed(0)), []
    blocks = list(torch.arange(1000).split(37))
    shared = {"x": x, "factor": torch.tensor(3.0)}
    found = list(map_blocks(row_sums, shared, blocks, seen.append))
    here = list(LocalBlocks().map_blocks(row_sums, shared, blocks))
    assert len(found) == len(here) and all(torch.equal(a, b) for a, b in zip(found, here))
    assert seen == [n / len(blocks) for n in range(1, len(blocks) + 1)]
    found[0].zero_()  # results belong to the caller
    threads, arguments, block = next(map_blocks(threads_and_arguments, {"a": Record(x, "ü")}, [("pair", 3)]))
    assert threads == torch.get_num_threads() and block == ("pair", 3)
    assert arguments["a"].name == "ü" and torch.equal(arguments["a"].x, x)


@pytest.mark.slow
@pytest.mark.process
def test_few_blocks_are_started_before_their_turn(ray, tmp_path):
    window = BLOCKS_PER_SLOT * ray.slots
    shared = {"folder": str(tmp_path), "window": window}
    found = list(map_blocks(slow_first, shared, row_slices(30, 1)))
    assert found == [window, *range(1, 30)]


@pytest.mark.slow
@pytest.mark.process
def test_a_block_that_kills_every_process_is_named(ray, tmp_path):
    found = map_blocks(deadly, {"folder": str(tmp_path)}, row_slices(12, 2))
    assert [next(found), next(found)] == [0, 2]  # finished work is not lost
    with pytest.raises(
        LikewiseError, match=r"^test: the process that computed block 3 of 6 \(rows 4 to 5\) was lost 5 times"
    ):
        next(found)
    assert (tmp_path / "4").read_text() == "x" * MAX_RAY_TRIES
    assert {(tmp_path / name).read_text() for name in ("0", "2")} == {"x"}  # no other block is repeated
    assert list(map_blocks(deadly, {"folder": str(tmp_path)}, row_slices(4, 2))) == [0, 2]  # the cluster still works


@pytest.mark.slow
@pytest.mark.process
def test_an_error_of_the_work_comes_as_it_is(ray):
    with pytest.raises(LikewiseError, match=r"^rows must be below 4, got [04]; drop them$"):  # of any block
        list(map_blocks(refusing, {}, row_slices(8, 4)))
    with pytest.raises(LikewiseError, match=r"test: block 2 of 2 \(rows 4 to 7\) failed .*ZeroDivisionError"):
        list(map_blocks(broken, {}, row_slices(8, 4)))
