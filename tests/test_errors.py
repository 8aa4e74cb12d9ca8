"""What can be found out about an error, without torch where that is not loaded."""

import sys
from importlib import machinery

import numpy as np
import pytest
import torch
from likewise.errors import LikewiseError, OutOfMemory, causes, is_out_of_memory, memory_errors, pip_install


def fail_twice():
    try:
        raise OSError(28, "No space left on device")
    except OSError:
        raise RuntimeError("unexpected pos 64 vs 0")  # noqa: B904


def test_the_errors_behind_an_error_newest_first():
    with pytest.raises(RuntimeError) as caught:
        fail_twice()
    assert [type(error) for error in causes(caught.value)] == [RuntimeError, OSError]
    circle = ValueError()
    circle.__context__ = KeyError()
    circle.__context__.__context__ = circle
    assert [type(error) for error in causes(circle)] == [ValueError, KeyError]


def raised(act) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        act()
    return caught.value


def test_exhausted_memory_in_all_its_forms_is_one_sentence():
    real = [
        raised(lambda: torch.empty(2**55, dtype=torch.uint8)),  # of torch on the host
        raised(lambda: torch.empty(2**40, 2**40)),  # more than an address can say
        raised(lambda: np.empty(2**55, np.uint8)),
        raised(lambda: bytearray(2**62)),
    ]
    gpu = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 8 GiB")
    others = [gpu, RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
              RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)")]  # fmt: skip
    for error in real + others:
        assert is_out_of_memory(error), error
        with (
            pytest.raises(OutOfMemory, match=r"^train: memory is exhausted.*; give --chunk-size$"),
            memory_errors("train", "give --chunk-size"),
        ):
            raise error
    with pytest.raises(OutOfMemory, match="an allocation of 20.00 GiB failed"), memory_errors("train", "x"):
        raise gpu
    with pytest.raises(OutOfMemory, match=f"an allocation of {2**55} bytes failed"), memory_errors("train", "x"):
        raise real[0]


def test_other_errors_stay_what_they_are():
    for error in (RuntimeError("shapes do not match"), LikewiseError("out of memory"), KeyError("x")):
        assert not is_out_of_memory(error)
        with pytest.raises(type(error)) as caught, memory_errors("train", "x"):
            raise error
        assert caught.value is error


def test_packages_are_installed_for_this_python(tmp_path, monkeypatch):
    """By its own pip: the pip on the PATH may be that of another Python, and an environment may have none."""
    (tmp_path / "pip").write_text("#!/bin/sh\n")
    (tmp_path / "pip").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert pip_install("likewise[map]") == "pip install 'likewise[map]'"
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    assert pip_install("--no-deps", "a") == "'/my env/bin/python' -m pip install --no-deps a"
    monkeypatch.setattr(machinery.PathFinder, "find_spec", lambda name: None)
    assert pip_install("a") == "uv pip install --python '/my env/bin/python' a"
