"""Numbers of the device on their way into the log: in order, nothing lost, and nobody waits for them."""

import math

import pytest
import torch

from likewise.learn.training import async_scalars as module
from likewise.learn.training.async_scalars import AsyncScalars


def test_on_the_cpu_numbers_are_written_at_once_and_in_order():
    journal, written = AsyncScalars(), []
    for step in range(3):
        values = {"loss": torch.tensor(step + 0.5, requires_grad=True), "share": torch.tensor([0.0, 1.0, step])}
        journal.add(values, written.append)
        assert len(written) == step + 1 and not journal.pending
    assert written == [{"loss": step + 0.5, "share": pytest.approx((1 + step) / 3)} for step in range(3)]
    journal.flush()
    journal.flush(wait=True)
    assert len(written) == 3


def test_whole_numbers_and_truths_are_numbers_too():
    written = []
    values = {"loss": torch.tensor(1.0), "filled": torch.tensor(7), "on": torch.tensor([True, False])}
    AsyncScalars().add(values, written.append)
    assert written == [{"loss": 1.0, "filled": 7.0, "on": 0.5}]


def test_what_is_not_a_number_reaches_the_writer():
    """Who decides what to do about it, and may raise."""
    written = []
    AsyncScalars().add({"loss": torch.tensor(torch.nan), "lr": torch.tensor(torch.inf)}, written.append)
    assert math.isnan(written[0]["loss"]) and written[0]["lr"] == math.inf

    def refuse(numbers):
        raise ArithmeticError(numbers)

    with pytest.raises(ArithmeticError):
        AsyncScalars().add({"loss": torch.tensor(torch.nan)}, refuse)


class Came:
    """An event of a device, which happens when it is told to."""

    def __init__(self):
        self.there, self.waited = False, 0

    def query(self):
        return self.there

    def synchronize(self):
        self.waited += not self.there
        self.there = True


def late(journal, count, written, write=None):
    """Entries as a device leaves them behind, none of them there yet."""
    events = [Came() for _ in range(count)]
    for number, came in enumerate(events):
        journal.pending.append(entry(number, came, write or written.append))
    return events


def entry(number, came, write):
    made = object.__new__(module.PendingScalars)  # without a look at its kinds: the event is a stand-in
    vars(made).update(names=("n",), values=torch.tensor([float(number)]), copied=came, write=write)
    return made


def test_what_has_not_come_holds_up_what_came_after_it_and_nothing_is_waited_for():
    journal, written = AsyncScalars(), []
    first, second, third, fourth = late(journal, 4, written)
    journal.flush()
    assert written == []
    second.there = third.there = True
    journal.flush()
    assert written == []
    first.there = True
    journal.flush()
    assert [line["n"] for line in written] == [0, 1, 2] and not any(e.waited for e in (first, second, third, fourth))


def test_asked_to_wait_it_writes_all_there_is():
    journal, written = AsyncScalars(), []
    events = late(journal, 3, written)
    journal.flush(wait=True)
    assert [line["n"] for line in written] == [0, 1, 2] and [e.waited for e in events] == [1, 1, 1]
    assert not journal.pending


def test_a_line_that_is_refused_is_not_written_twice():
    journal, written = AsyncScalars(), []

    def refuse_the_first(numbers):
        if numbers["n"] == 0:
            raise ArithmeticError
        written.append(numbers)

    late(journal, 2, written, refuse_the_first)
    with pytest.raises(ArithmeticError):
        journal.flush(wait=True)
    journal.flush(wait=True)
    assert [line["n"] for line in written] == [1]


@pytest.mark.gpu
def test_on_a_gpu_nothing_is_written_before_it_has_come():
    journal, written = AsyncScalars(), []
    # Pinning new memory and loading a kernel wait for the device, so there is memory in torch's cache, and kernels are loaded.
    pinned = [torch.empty(4, pin_memory=True) for _ in range(16)]
    del pinned
    journal.add({"loss": torch.full((), 1.0, device="cuda"), "host": torch.tensor(5)}, lambda numbers: None)
    torch.cuda._sleep(1)
    journal.flush(wait=True)
    torch.cuda._sleep(10**9)  # the device is busy for about half a second
    for step in range(3):
        journal.add({"loss": torch.full((), float(step), device="cuda"), "host": torch.tensor(5)}, written.append)
    assert written == [] and len(journal.pending) == 3
    torch.cuda.synchronize()
    journal.flush()
    assert written == [{"loss": float(step), "host": 5.0} for step in range(3)] and not journal.pending


@pytest.mark.gpu
def test_on_a_gpu_what_is_not_a_number_reaches_the_writer():
    journal, written = AsyncScalars(), []
    journal.add({"loss": torch.full((), torch.nan, device="cuda")}, written.append)
    journal.flush(wait=True)
    assert math.isnan(written[0]["loss"])
