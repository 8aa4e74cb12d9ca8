"""A mode in which no operation of PyTorch may return a large tensor, to test that no table of samples x classes is made."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class NoLargeTensor(TorchDispatchMode):
    """Raises if an operation returns a tensor of more than `most` values."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, torch.Tensor) and one.untyped_storage().nbytes() > self.most * one.element_size():
                raise AssertionError(f"{func} returned {tuple(one.shape)}, more than {self.most} values")
        return found
