"""Manifold mixup: train on mixtures of two samples, mixed at the input or inside of the backbone."""

from __future__ import annotations

import operator
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from likewise.models.embedder import Embedder
from likewise.types import LikewiseError, Output

STAGES = {
    "ResNet and its kin": (("layer1",), ("layer2",), ("layer3",)),
    "ConvNeXt": (("stages.0",), ("stages.1",), ("stages.2",)),
    "RegNet": (("s1",), ("s2",), ("s3",)),
    "EfficientNet and MobileNet": (("blocks.1",), ("blocks.2",), ("blocks.3",)),
    "googlenet": (("conv2",), ("inception3a",), ("inception4a",)),
    # Every branch of a block takes the map itself, one of them its local mean, which mixing may as well follow.
    "bn_inception": (
        ("conv2_3x3_reduce",),
        tuple(f"inception_3a_{branch}" for branch in ("1x1", "3x3_reduce", "double_3x3_reduce", "pool_proj")),
        tuple(f"inception_4a_{branch}" for branch in ("1x1", "3x3_reduce", "double_3x3_reduce", "pool_proj")),
    ),
    "conv_small": (("block2",), ("block3",), ("block4",)),
}
"""Which modules take in what stages 1, 2 and 3 begin with, found by their names.

In the networks named here these stages give maps of a quarter, an eighth and a sixteenth of the picture's side.
"""


class Mixup:
    """The output of a batch whose samples are mixed in pairs, and whose labels each row of it carries.

    Paper: Verma et al., Manifold Mixup, ICML 2019; as in Roth et al., Revisiting Training Strategies, ICML 2020, app. H.
    Formula: h <- lam h + (1 - lam) h[perm] at one place; loss = lam l(z, y) + (1 - lam) l(z, y[perm])
    Differs: nothing. One place, one lam and one permutation per batch, as in the study's code: the input, or just before
        residual stage 1, 2 or 3 (never before the last). With a ranking loss, the miner works twice, once on each labelling.
    Needs: for `at="any"` a backbone whose stages are known here.

    It calls the embedder and leaves nothing in it, so who calls the embedder itself, as evaluation does, sees no mixture.
    All draws are from torch's default generator on the CPU.

    Args:
        embedder: the network to train.
        alpha: lam ~ Beta(alpha, alpha). Study: 2.
        at: "any" of the four places, each as likely as another, or the "input" alone.
    """

    def __init__(self, embedder: Embedder, alpha: float, at: Literal["any", "input"] = "any"):
        if not alpha > 0:
            raise LikewiseError(f"Mixup: alpha must be above 0, got {alpha}")
        self.embedder = embedder
        self.alpha = alpha
        self.at = at
        # Pictures are mixed once they are scaled; ready features have no backbone that anybody calls.
        first = embedder if embedder.backbone_name == "features" else embedder.backbone
        self.places: list[tuple[nn.Module, ...]] = [(first,)]
        if at == "any":
            self.places += find_stages(embedder)

    def __call__(self, x: Shaped[Tensor, "B ..."]) -> tuple[Output, list[tuple[Int[Tensor, "B"], float]]]:
        """The mixed batch, and (whose labels, with which weight) for both of its parts; the weights sum to 1."""
        place = int(torch.randint(len(self.places), ()))
        alpha = torch.tensor(self.alpha, dtype=torch.float64)
        lam = float(torch.distributions.Beta(alpha, alpha).sample())
        perm = torch.randperm(len(x)).to(x.device)
        return self.mix(x, place, lam, perm), [(torch.arange(len(x), device=x.device), lam), (perm, 1 - lam)]

    def mix(self, x: Shaped[Tensor, "B ..."], place: int, lam: float, perm: Int[Tensor, "B"]) -> Output:
        """The batch mixed at one place: 0 the input, 1 to 3 before that stage."""

        def before(module: nn.Module, given: tuple[Float[Tensor, "B ..."], ...]) -> tuple[Float[Tensor, "B ..."], ...]:
            h, *rest = given
            return lam * h + (1 - lam) * h[perm], *rest

        handles = [module.register_forward_pre_hook(before) for module in self.places[place]]
        try:
            return self.embedder(x)
        finally:
            for handle in handles:
                handle.remove()


def find_stages(embedder: Embedder) -> list[tuple[nn.Module, ...]]:
    """The modules that take in what stages 1, 2 and 3 of the backbone begin with."""
    net = getattr(embedder.backbone, "net", None)
    for stages in STAGES.values():
        found = [tuple(part_of(net, name) for name in names) for names in stages]
        if all(part is not None for parts in found for part in parts):
            return found  # pyright: ignore[reportReturnType]
    raise LikewiseError(
        f"Mixup: the stages of the backbone '{embedder.backbone_name}' are not known; mix at the input alone "
        f"(mixup_at='input'), or take one of: {', '.join(STAGES)}"
    )


def part_of(net: nn.Module | None, name: str) -> nn.Module | None:
    """The stage of this name. A list of single layers, such as a transformer's, is no list of stages."""
    try:
        part = operator.attrgetter(name)(net)
    except AttributeError:
        return None
    return part if "." not in name or isinstance(part, nn.Sequential) or hasattr(part, "blocks") else None
