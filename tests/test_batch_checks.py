"""What people pass to a loss by mistake, and what they are told."""

import pytest
import torch
from likewise.losses import Margin, MultiSimilarity, NormSoftmax, NPair
from likewise.types import LikewiseError, Ref
from torch.nn import functional as F

Z = F.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), dim=1)
Y = torch.tensor([0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize(
    ("z", "y", "says"),
    [
        (Z[0], Y, r"z must be a floating-point matrix with one embedding per row, got shape \(4,\), float32"),
        (Z[:0], Y[:0], r"z must be a floating-point matrix.*got shape \(0, 4\)"),
        (Z.long(), Y, "z must be a floating-point matrix.*int64"),
        (Z, Y[:5], "y must have one label per embedding, got 6 embeddings and 5 labels"),
        (Z, Y.float(), r"y must be a vector of integers, one label per sample.*float32; try y.long\(\)"),
        (Z, Y[:, None], r"y must be a vector of integers, one label per sample.*shape \(6, 1\)"),
        (Z, Y > 0, "y must be a vector of integers, one label per sample.*bool"),
        (2 * Z, Y, r"z must be unit vectors, but row 0 has length 2; pass torch.nn.functional.normalize\(z, dim=1\)"),
        (Z * torch.tensor([1, 1, 0, 1, 1, 1])[:, None], Y, "row 2 has length 0"),
    ],
)
def test_wrong_batches(unchecked, z, y, says):
    with pytest.raises(LikewiseError, match=f"MultiSimilarity: .*{says}"):
        MultiSimilarity()(z, y)


def test_losses_with_classes(unchecked):
    loss = NormSoftmax(classes=3, dim=4)
    with pytest.raises(LikewiseError, match="labels must be 0 to 2 .*, but row 4 has 3"):
        loss(Z, torch.tensor([0, 0, 1, 1, 3, 2]))
    with pytest.raises(LikewiseError, match="row 1 has -1"):
        loss(Z, torch.tensor([0, -1, 1, 1, 2, 2]))
    with pytest.raises(LikewiseError, match="z must have dim=4 columns, got 3 columns; build the loss with dim=3"):
        loss(F.normalize(Z[:, :3], dim=1), Y)


def test_references(unchecked):
    for ref, says in (
        (Ref(Z, Y, torch.arange(3)), r"ref.own must have one row number per sample \(6\), got shape \(3,\)"),
        (
            Ref(Z, Y, torch.arange(6) + 3),
            "ref.own must hold rows 0 to 5 of the reference, or -1 for none, got 3 to 8",
        ),
        (
            Ref(Z, Y, used=torch.ones(3, dtype=torch.bool)),
            r"ref.used must have one boolean per row of the reference \(6\)",
        ),
        (Ref(Z[:0], Y[:0]), "ref must have at least one row, got an empty reference"),
        (Ref(Z[:, :3], Y), r"ref must have embeddings with 4 columns.*\(6, 3\)"),
        (Ref(Z, Y[:5]), r"ref must have embeddings.*y shape \(5,\)"),
    ):
        with pytest.raises(LikewiseError, match=says):
            MultiSimilarity()(Z, Y, ref)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("make", [lambda: NormSoftmax(classes=3, dim=4), lambda: Margin(classes=3), MultiSimilarity])
def test_labels_of_fewer_bits(unchecked, make, dtype):
    torch.manual_seed(0)
    loss = make()
    torch.manual_seed(1)
    expected = loss(Z, Y)
    torch.manual_seed(1)
    assert torch.equal(loss(Z, Y.to(dtype)), expected)


def test_raw_embeddings_may_have_any_length():
    assert torch.isfinite(NPair()(3 * Z, Y)).all()


def test_sixteen_bit_unit_vectors_are_unit_enough():
    assert torch.isfinite(MultiSimilarity()(Z.bfloat16(), Y)).all()


def test_a_diverged_network_is_not_blamed_on_the_norm():
    z = Z.clone()
    z[0] = torch.nan
    assert MultiSimilarity()(z, Y).isnan().tolist() == [True] + [False] * 5


def test_where_looking_would_mean_waiting_wrong_samples_become_nan():
    """Under a transform no value may be looked at, as on an accelerator."""
    z = Z * torch.tensor([1, 1, 3, 1, 1, 1])[:, None]
    numbers = torch.func.vmap(lambda z: MultiSimilarity()(z, Y))(z[None])[0]
    assert numbers.isnan().tolist() == [False, False, True, False, False, False]
    far = torch.func.vmap(lambda z: NormSoftmax(classes=3, dim=4)(z, Y + 1), randomness="same")(Z[None])[0]
    assert far.isnan().tolist() == [False] * 4 + [True] * 2
