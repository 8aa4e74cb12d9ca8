"""Devices and amounts of memory."""

import pytest

from likewise.runs.devices import bytes_of, choose_device
from likewise.types import LikewiseError


def test_devices_that_are_not_there():
    assert choose_device("cpu").type == "cpu"
    for name in ("cuda:77", "toaster"):
        with pytest.raises(LikewiseError, match=f"device: '{name}' cannot be used on this machine"):
            choose_device(name)


def test_amounts_of_memory():
    assert [bytes_of(text) for text in ("512MB", "0.5 gb", "3KiB", "2G")] == [2**29, 2**29, 3 * 2**10, 2**31]
    for text in ("", "12", "0GB", "many"):
        with pytest.raises(LikewiseError, match="memory: must be an amount such as"):
            bytes_of(text)
