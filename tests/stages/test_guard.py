import os
import signal
import threading

import pytest
import torch

from likewise.stages.guard import leave_cores_for, stop_on_signal


def test_readers_get_their_cores_and_the_network_gets_them_back():
    torch.set_num_threads(3)
    with leave_cores_for(2, torch.device("cpu")):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with leave_cores_for(9, torch.device("cpu")):
        assert torch.get_num_threads() == 1  # never none
    with leave_cores_for(2, torch.device("cuda")):
        assert torch.get_num_threads() == 3  # the CPU is not what computes there


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_request_is_noted_and_the_second_stops(number):
    before = signal.getsignal(number)
    with stop_on_signal() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(5)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            threading.Event().wait(5)
    assert signal.getsignal(number) is before


def test_only_the_main_thread_may_listen():
    seen = []

    def elsewhere():
        with stop_on_signal() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [False]
