"""MicroBatcher: all who wait go together, everybody gets their own, and an error is theirs alone."""

import threading

import numpy as np
import pytest
import torch

from likewise.deploy.search.search_page import MicroBatcher


def test_those_who_wait_go_together_and_each_gets_their_own():
    sizes, go_on = [], threading.Event()

    def embed(seen):
        go_on.wait(600)
        sizes.append(len(seen))
        return np.stack([2 * x.numpy() for x in seen])

    batching = MicroBatcher(embed, most=4)
    promises = [batching.submit(torch.full((3,), float(i))) for i in range(10)]
    assert promises[9].cancel()  # a client that went away
    go_on.set()
    assert [float(p.result(10)[0]) for p in promises[:9]] == [2.0 * i for i in range(9)]
    assert sum(sizes) == 9 and max(sizes) == 4 and len(sizes) < 6


def test_an_error_reaches_those_who_waited_and_the_next_are_served():
    def embed(seen):
        if any(x.isnan().any() for x in seen):
            raise ValueError("no such picture")
        return np.stack([x.numpy() for x in seen])

    batching = MicroBatcher(embed)
    with pytest.raises(ValueError, match="no such picture"):
        batching.submit(torch.tensor([torch.nan])).result(10)
    assert batching.submit(torch.ones(1)).result(10) == 1
