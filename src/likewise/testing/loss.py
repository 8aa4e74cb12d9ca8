"""Contract checks for losses."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from likewise.core.contracts import Loss, Relevance
from likewise.core.settings.spec import build, spec
from likewise.core.supervision import RelevanceInput
from likewise.core.types import LikewiseError, Ref, Tuples

CHECK_CLASSES, CHECK_DIM = 5, 8


def check_loss(make: Callable[[], Loss]) -> None:
    """Check a loss: one finite value each, finite gradients, no side effects, exact spec and state; with a relevance too."""
    for check in (
        _one_number_each, _gradient_where_samples_coincide, _gradient_on_a_proxy, _order_does_not_matter,
        _nothing_to_learn, _leaves_inputs_alone, _sixteen_bit, _spec_and_state, _batch_as_reference, _large_labels,
        _second_derivative, _forward_mode_and_vmap, _compiles, _never_syncs,
    ):  # fmt: skip
        check(make)
    _check_with_relevance(make)


def _check_with_relevance(make: Callable[[], Loss]) -> None:
    """Check the loss with a relevance, or that it refuses one if it declares no `relevance_inputs`."""
    equal = torch.eye(CHECK_CLASSES)
    if not _fresh(make).relevance_inputs:
        try:
            _fresh(make).with_relevance(ClassRelevance(equal))
        except LikewiseError:
            return
        raise AssertionError("accepts a relevance, but declares no relevance_inputs")
    _equal_labels_as_relevance(make, equal)
    _unknown_pairs(make, equal)
    if "triplets" in _fresh(make).relevance_inputs:
        _judged_triplets(make)
    for check in (
        _one_number_each, _gradient_where_samples_coincide, _order_does_not_matter, _nothing_to_learn,
        _leaves_inputs_alone, _sixteen_bit, _batch_as_reference, _second_derivative, _forward_mode_and_vmap, _compiles,
        _never_syncs,
    ):  # fmt: skip
        try:
            check(lambda: make().with_relevance(ClassRelevance(graded_classes())))
        except AssertionError as error:
            raise AssertionError(f"with a graded relevance: {error}") from None


class ClassRelevance(Relevance):
    """Relevance of classes by a matrix, which also gives targets: the relevance to every class; for checks."""

    gives: tuple[RelevanceInput, ...] = ("pairs", "targets")
    values: Tensor

    def __init__(self, values: Tensor):
        super().__init__()
        self.ids = len(values)
        self.register_buffer("values", values, persistent=False)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.values[a[:, None], b[None, :]]

    def targets(self, y: Tensor) -> Tensor:
        return self.values[y]

    @property
    def width(self) -> int:
        return self.ids


class JudgedBatch(Relevance):
    """Triplets among samples by their ids, for checks: a sample, the next one, and the one after that."""

    by = "sample"
    gives: tuple[RelevanceInput, ...] = ("triplets",)

    def __init__(self, ids: int):
        super().__init__()
        self.ids = ids

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.full((len(a), len(b)), torch.nan)

    def triplets(self, y: Tensor) -> Tuples:
        a = torch.arange(len(y), device=y.device)
        valid = torch.full_like(y, len(y) > 2, dtype=torch.bool)
        return Tuples(a, (a + 1) % len(y), (a + 2) % len(y), valid, torch.ones_like(valid))


def graded_classes() -> Tensor:
    """Return a relevance of the classes with 1 on the diagonal, 0 and values between beside it."""
    values = torch.rand(CHECK_CLASSES, CHECK_CLASSES, generator=torch.Generator().manual_seed(3))
    return ((values + values.T) / 2 * (values + values.T > 0.7)).fill_diagonal_(1)


def _equal_labels_as_relevance(make, equal: Tensor) -> None:
    z, y = batch()
    loss = _fresh(make).double()
    other = _fresh(make).double().with_relevance(ClassRelevance(equal))
    with_labels, with_relevance = (_value(one, z, y) for one in (loss, other))
    assert torch.allclose(with_labels, with_relevance), "a relevance of 1 for equal labels gives other values"


def _unknown_pairs(make, equal: Tensor) -> None:
    """Check that samples whose relevance is not known affect no other sample."""
    if "pairs" not in _fresh(make).relevance_inputs:
        return
    values = equal.clone()
    values[-1], values[:, -1] = torch.nan, torch.nan
    z, y = batch()
    moved = torch.where((y == CHECK_CLASSES - 1)[:, None], z.flip(1), z)
    loss = _fresh(make).double().with_relevance(ClassRelevance(values))
    first, second = (_value(loss, one, y)[y < CHECK_CLASSES - 1] for one in (z, moved))
    assert torch.allclose(first, second), "samples of unknown relevance change the values of others"


def _judged_triplets(make) -> None:
    z, y = batch()
    try:
        loss = _fresh(make).double().with_relevance(JudgedBatch(len(y)))
    except LikewiseError:
        return  # it depends on the arguments of the loss
    ids = torch.arange(len(y))
    _check_gradient(loss, z, ids, "with judged triplets")
    try:
        _value(loss, z, ids, Ref(z, ids, ids))
    except LikewiseError:
        return
    raise AssertionError("judged triplets are among the samples of the batch, but a reference was accepted")


def batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return twelve unit embeddings of five classes, and their labels."""
    g = torch.Generator().manual_seed(0)
    y = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4])
    return F.normalize(torch.randn(len(y), CHECK_DIM, generator=g, dtype=torch.float64), dim=1).to(dtype), y


def _value(loss: Callable[..., Tensor], z: Tensor, y: Tensor, ref: Ref | None = None) -> Tensor:
    torch.manual_seed(7)  # miners draw from torch's generator
    return loss(z, y, ref)


def _fresh(make: Callable[[], Loss]) -> Loss:
    torch.manual_seed(5)
    return make()


def _one_number_each(make) -> None:
    for size in (12, 2, 1):
        z, y = (t[:size] for t in batch())
        each = _value(_fresh(make).double(), z, y)
        assert each.shape == (size,), f"{size} samples must give {size} values, got shape {tuple(each.shape)}"
        assert torch.isfinite(each).all(), f"not finite for a batch of {size}"


def _check_gradient(loss: Loss, z: Tensor, y: Tensor, where: str) -> None:
    z = z.clone().requires_grad_()
    _value(loss, z, y).mean().backward()
    assert z.grad is not None and torch.isfinite(z.grad).all(), f"gradient not finite {where}"
    for name, p in loss.named_parameters():
        assert p.grad is None or torch.isfinite(p.grad).all(), f"gradient of {name} not finite {where}"


def _gradient_where_samples_coincide(make) -> None:
    for dtype in (torch.float32, torch.float64):
        z, y = batch(dtype)
        twins = z[[0, 0, 0, 3, 3, 5, 6, 7, 0, 9, 10, 10]]
        _check_gradient(_fresh(make).to(dtype), twins, y, "where samples coincide")
        _check_gradient(_fresh(make).to(dtype), z[:1].expand(12, -1), y, "where all samples coincide")
        _check_gradient(_fresh(make).to(dtype), torch.cat([z[:6], -z[:6]]), y, "for antipodal samples")


def _gradient_on_a_proxy(make) -> None:
    loss = _fresh(make)
    for p in loss.parameters():
        if p.dim() == 2 and p.shape[1] == CHECK_DIM:
            on = F.normalize(p.detach(), dim=1)[:CHECK_CLASSES]
            _check_gradient(loss, on, torch.arange(len(on)), "on the proxies")


def _order_does_not_matter(make) -> None:
    z, y = batch()
    loss = _fresh(make).double()
    first, second = _value(loss, z, y), _value(loss, z, y)
    torch.manual_seed(8)
    if not torch.equal(first, second) or not torch.equal(first, loss(z, y)):
        return  # a random miner: its choices depend on the order of the samples
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(_value(loss, z[order], y[order]), first[order]), "the order of samples matters"


def _nothing_to_learn(make) -> None:
    """Check batches with one class, or without positives: finite values with a graph and finite gradients."""
    z, _ = batch()
    for y, what in (
        (torch.zeros(12, dtype=torch.int64), "with one class"),
        (torch.arange(CHECK_CLASSES), "without class mates"),
    ):
        _check_gradient(_fresh(make).double(), z[: len(y)], y, what)


def _leaves_inputs_alone(make) -> None:
    z, y = batch(torch.float32)
    before, labels = z.clone(), y.clone()
    loss = _fresh(make)
    dtypes = {k: v.dtype for k, v in loss.state_dict().items()}
    _value(loss, z, y)
    assert torch.equal(z, before) and torch.equal(y, labels), "inputs were changed"
    assert {k: v.dtype for k, v in loss.state_dict().items()} == dtypes, "parameters changed their type"


def _sixteen_bit(make) -> None:
    z, y = batch(torch.float32)
    loss = _fresh(make)
    with torch.autocast("cpu", torch.bfloat16):
        each = _value(loss, z.bfloat16(), y)
    assert each.dtype == torch.float32 and torch.isfinite(each).all(), "under bfloat16 autocast: not finite float32"


def _spec_and_state(make) -> None:
    loss = _fresh(make)
    text = spec(loss)
    again = build(text, Loss, allow_imports=True)
    assert spec(again) == text, f"the spec does not come back: {text} became {spec(again)}"
    again.load_state_dict(loss.state_dict())
    z, y = batch(torch.float32)
    assert torch.equal(_value(again, z, y), _value(copy.deepcopy(loss), z, y)), "a loss restored from its state differs"


def _batch_as_reference(make) -> None:
    z, y = batch()
    loss = _fresh(make).double()
    own = Ref(z, y, torch.arange(len(y)))
    assert torch.allclose(_value(loss, z, y, own), _value(loss, z, y)), "the batch as reference gives another result"


def _large_labels(make) -> None:
    """Check that labels stay integers: 2^24 and 2^24 + 1 are two classes. (Losses with a number of classes accept 0..C-1.)"""
    loss = _fresh(make).double()
    if hasattr(loss, "classes"):
        return
    z, y = batch()
    assert torch.equal(_value(loss, z, y + 2**24), _value(loss, z, y)), "labels above 2^24 are confused"


def _second_derivative(make) -> None:
    """Check that reverse-over-reverse equals forward-over-reverse: a custom backward may shortcut only the first."""
    loss, (z, y) = _fresh(make).double(), batch()
    along = torch.randn(z.shape, generator=torch.Generator().manual_seed(2), dtype=z.dtype)

    def mean(z: Tensor) -> Tensor:
        return _value(loss, F.normalize(z, dim=1), y).mean()

    z = z.requires_grad_()
    (slope,) = torch.autograd.grad(mean(z), z)
    (recorded,) = torch.autograd.grad(mean(z), z, create_graph=True)
    assert torch.allclose(slope, recorded), "the gradient differs with create_graph=True"
    if not recorded.requires_grad:  # the gradient is constant
        return
    (curve,) = torch.autograd.grad(recorded, z, along, allow_unused=True, materialize_grads=True)
    still = z.detach()
    forward, open_curve = torch.func.jvp(torch.func.grad(mean), (still,), (along,))  # pyright: ignore[reportAssignmentType]
    assert torch.allclose(slope, forward), "torch.func.grad gives another gradient"
    assert torch.allclose(curve, open_curve), "the second derivative differs from forward-over-reverse"


def _forward_mode_and_vmap(make) -> None:
    loss, (z, y) = _fresh(make).double(), batch()
    along = torch.randn(z.shape, generator=torch.Generator().manual_seed(2), dtype=z.dtype)

    def each(z: Tensor) -> Tensor:
        return _value(loss, F.normalize(z, dim=1), y)

    _, tangent = torch.func.jvp(each, (z,), (along,))  # pyright: ignore[reportAssignmentType]
    (slope,) = torch.autograd.grad(each(z.requires_grad_()).mean(), z)
    assert torch.allclose(tangent.mean(), (slope * along).sum()), "forward mode gives another derivative"
    z = z.detach()
    torch.manual_seed(7)
    many = torch.func.vmap(lambda z: loss(F.normalize(z, dim=1), y), randomness="same")(torch.stack([z, z.flip(0)]))
    assert torch.allclose(many[0], each(z)) and torch.allclose(many[1], each(z.flip(0))), "vmap gives other values"


ONE_GRAPH = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 11)
"""Whether a loss must compile as one graph: older versions of torch split graphs that newer versions do not."""


def _compiles(make) -> None:
    """Check that it compiles as one graph with equal values and gradients. (`aot_eager` compiles without code generation.)"""
    loss, (z, y) = _fresh(make).double(), batch()
    z = z.requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=ONE_GRAPH, backend="aot_eager")
    try:
        each = _value(compiled, z, y)
    except torch._dynamo.exc.TorchDynamoException as error:  # pyright: ignore[reportAttributeAccessIssue]
        raise AssertionError(f"does not compile as one graph: {str(error).splitlines()[0]}") from None
    expected = _value(loss, z, y)
    assert torch.allclose(each, expected), "compiled, it gives other values"
    slope, wanted = (torch.autograd.grad(v.mean(), z)[0] for v in (each, expected))
    assert torch.allclose(slope, wanted), "compiled, it gives another gradient"


def _never_syncs(make) -> None:
    """Check on meta tensors, which have no data, that no tensor value is read: on an accelerator this is a device sync."""
    loss = _fresh(make).to("meta")
    z, y = (t.to("meta") for t in batch(torch.float32))
    with no_device_sync():
        _value(loss, z.requires_grad_(), y).mean().backward()


@contextmanager
def no_device_sync() -> Iterator[None]:
    """Raise an AssertionError if the block, which computes with meta tensors, reads a value of a tensor."""
    try:
        yield
    except (NotImplementedError, RuntimeError) as error:
        raise AssertionError(f"reads tensor values, which is a device sync: {str(error).splitlines()[0]}") from None


def stored(state: dict) -> dict:
    """Return the state after saving and loading it with weights_only=True."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    try:
        return torch.load(file, weights_only=True)
    except Exception as error:  # torch raises many exception types
        reason = str(error).splitlines()[0]
        raise AssertionError(f"a state must hold tensors and plain values only ({reason})") from None
