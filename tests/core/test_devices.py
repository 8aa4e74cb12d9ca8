"""Devices and amounts of memory."""

import pytest
import torch
from likewise.types import LikewiseError

from likewise.core import devices
from likewise.core.devices import bytes_of, choose_device, start_device, use_libraries


def test_devices_that_are_not_there():
    assert choose_device("cpu").type == "cpu"
    for name in ("cuda:77", "toaster"):
        with pytest.raises(LikewiseError, match=f"device: '{name}' cannot be used on this machine"):
            choose_device(name)


def test_a_cpu_is_not_started_early():
    assert start_device("cpu", False) is None


def test_a_gpu_is_started_in_a_thread_and_errors_are_left_to_the_training(monkeypatch):
    used = []
    monkeypatch.setattr(devices, "use_libraries", lambda *given: used.append(given))
    monkeypatch.setattr(devices, "choose_device", torch.device)
    for name, bf16 in (("cuda", True), ("cuda:1", False), ("cuda:no", False)):
        start_device(name, bf16).join()
    assert used == [(torch.device("cuda"), True), (torch.device("cuda:1"), False)]
    monkeypatch.setattr(devices, "choose_device", lambda name: torch.device("cpu"))
    start_device(None, False).join()
    assert len(used) == 2


@pytest.mark.parametrize("bf16", [False, True])
def test_the_early_work_draws_no_random_numbers(bf16):
    state = torch.get_rng_state()
    use_libraries(torch.device("cpu"), bf16)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.gpu
def test_the_early_work_runs_on_a_gpu():
    start_device("cuda", True).join()
    use_libraries(torch.device("cuda"), True)  # raises what the thread would hide


def test_amounts_of_memory():
    assert [bytes_of(text) for text in ("512MB", "0.5 gb", "3KiB", "2G")] == [2**29, 2**29, 3 * 2**10, 2**31]
    for text in ("", "12", "0GB", "many"):
        with pytest.raises(LikewiseError, match="memory: must be an amount such as"):
            bytes_of(text)
