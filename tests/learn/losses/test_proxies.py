"""What all losses with learned vectors share: precision and gradients of every order."""

import pytest
import torch
from bare_work import LOSSES, check_spec
from likewise.contracts import Loss
from torch.nn import functional as F

from likewise.core.settings.spec import build

CLASSES, DIM = 7, 6


def made(name):
    torch.manual_seed(0)
    return build(name, Loss, classes=CLASSES, dim=DIM)


NAMES = [n for n in LOSSES if any(p.dim() == 2 and p.shape[1] in (DIM, DIM + 1) for p in made(n).parameters())]


@pytest.fixture
def batch():
    z = torch.randn(9, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return F.normalize(z, dim=1), torch.tensor([0, 0, 1, 1, 2, 6, 6, 3, 3])


def test_the_proxy_losses_are_among_them():
    assert {"ArcFace", "CosFace", "NormSoftmax", "ProxyAnchor", "ProxyNCA", "SoftTriple", "Softmax"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("of_loss", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("of_z", [torch.float64, torch.float32, torch.bfloat16])
def test_parameters_keep_their_precision_whatever_comes_in(name, of_loss, of_z, batch):
    z, y = batch
    loss = made(name).to(of_loss)
    with torch.autocast("cpu", torch.bfloat16, enabled=of_z == torch.bfloat16):
        each = loss(z.to(of_z), y)
    each.mean().backward()
    assert each.dtype == (torch.float64 if of_z == torch.float64 else torch.float32)
    assert all(p.dtype == p.grad.dtype == of_loss and torch.isfinite(p.grad).all() for p in loss.parameters())
    if torch.bfloat16 not in (of_loss, of_z):
        torch.testing.assert_close(each.double(), made(name).double()(z, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "text", ["ProxyNCA(positive_in_denominator=True)", "SoftTriple(per_class=1)", "ArcFace(scale=64.0, margin=0.0)"]
)
def test_other_settings_keep_the_contract(text, bare):
    bare(check_spec, text)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n.startswith("SoftTriple") else n for n in NAMES]
)
def test_first_and_second_derivatives(name, batch):
    z, y = batch
    loss = made(name).double()
    parameters = {k: p.detach().clone().requires_grad_() for k, p in loss.named_parameters()}

    def value(z, *own):
        return torch.func.functional_call(loss, dict(zip(parameters, own)), (F.normalize(z, dim=1), y)).mean()

    given = (z.clone().requires_grad_(), *parameters.values())
    assert torch.autograd.gradcheck(value, given)
    assert torch.autograd.gradgradcheck(value, given)


@pytest.mark.parametrize("name", ["ArcFace", "CosFace", "NormSoftmax"])
def test_one_class_alone_costs_nothing(name):
    loss = build(name, Loss, classes=1, dim=DIM)
    assert (loss(F.normalize(torch.randn(3, DIM), dim=1), torch.zeros(3, dtype=torch.int64)) == 0).all()
