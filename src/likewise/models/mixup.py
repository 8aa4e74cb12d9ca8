"""Manifold mixup: training on mixtures of two samples, mixed at the input or inside the backbone."""

from __future__ import annotations

import operator
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from likewise.core.argument_checks import CheckedArguments, Positive
from likewise.core.types import LikewiseError, Output
from likewise.models.embedder import Embedder

BACKBONE_STAGES = {
    "ResNet and its kin": (("layer1",), ("layer2",), ("layer3",)),
    "ConvNeXt": (("stages.0",), ("stages.1",), ("stages.2",)),
    "RegNet": (("s1",), ("s2",), ("s3",)),
    "EfficientNet and MobileNet": (("blocks.1",), ("blocks.2",), ("blocks.3",)),
    "googlenet": (("conv2",), ("inception3a",), ("inception4a",)),
    # All branches of a block must be hooked. The pooling branch is mixed after its average pooling, which is linear.
    "bn_inception": (
        ("conv2_3x3_reduce",),
        tuple(f"inception_3a_{branch}" for branch in ("1x1", "3x3_reduce", "double_3x3_reduce", "pool_proj")),
        tuple(f"inception_4a_{branch}" for branch in ("1x1", "3x3_reduce", "double_3x3_reduce", "pool_proj")),
    ),
    "conv_small": (("block2",), ("block3",), ("block4",)),
}
"""Architecture -> names of the modules that receive the input of stages 1, 2 and 3.

In these networks the stages return maps with a quarter, an eighth and a sixteenth of the image side.
"""


class Mixup(CheckedArguments):
    """Manifold mixup of a batch: returns the output for mixed samples, and the two labellings of every row.

    Paper: Verma et al., Manifold Mixup, ICML 2019; as in Roth et al., Revisiting Training Strategies, ICML 2020, app. H.
    Formula: h <- lam h + (1 - lam) h[perm] at one place; loss = lam l(z, y) + (1 - lam) l(z, y[perm])
    Differs: nothing. One place, one lam and one permutation per batch, as in the study's code. The place is the input, or just
        before residual stage 1, 2 or 3 (never before the last). With a ranking loss, the miner runs once per labelling.
    Needs: for `at="any"` a backbone listed in `BACKBONE_STAGES`.

    Its hooks exist only during its call, so that other calls of the embedder, as in evaluation, mix nothing. Random numbers are
    from torch's default generator on the CPU.

    Args:
        embedder: the network to train.
        alpha: lam ~ Beta(alpha, alpha). Study: 2.
        at: "any" of the four places with equal probability, or "input" only.
    """

    def __init__(self, embedder: Embedder, alpha: Positive, at: Literal["any", "input"] = "any"):
        self.embedder = embedder
        self.alpha = alpha
        self.at = at
        # Images are mixed after they are normalised; with precomputed features the backbone is never called.
        first = embedder if embedder.backbone_name == "features" else embedder.backbone
        self.places: list[tuple[nn.Module, ...]] = [(first,)]
        if at == "any":
            self.places += find_stages(embedder)

    def __call__(self, x: Shaped[Tensor, "B ..."]) -> tuple[Output, list[tuple[Int[Tensor, "B"], float]]]:
        """Return the output of the mixed batch, and two pairs (rows whose labels apply, their weight); the weights sum to 1."""
        place = int(torch.randint(len(self.places), ()))
        alpha = torch.tensor(self.alpha, dtype=torch.float64)
        lam = float(torch.distributions.Beta(alpha, alpha).sample())
        perm = torch.randperm(len(x)).to(x.device)
        return self.mix(x, place, lam, perm), [(torch.arange(len(x), device=x.device), lam), (perm, 1 - lam)]

    def mix(self, x: Shaped[Tensor, "B ..."], place: int, lam: float, perm: Int[Tensor, "B"]) -> Output:
        """Return the output of the batch mixed at one place: 0 is the input, 1 to 3 are before that stage."""

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
    """Return the modules that receive the input of stages 1, 2 and 3 of the backbone."""
    net = getattr(embedder.backbone, "net", None)
    for stages in BACKBONE_STAGES.values():
        modules = [tuple(stage_module(net, name) for name in names) for names in stages]
        if all(module is not None for stage in modules for module in stage):
            return modules  # pyright: ignore[reportReturnType]
    raise LikewiseError(
        f"Mixup: the stages of the backbone must be known, got '{embedder.backbone_name}'; mix only at the input "
        f"(mixup_at='input'), or use one of: {', '.join(BACKBONE_STAGES)}"
    )


def stage_module(net: nn.Module | None, name: str) -> nn.Module | None:
    """Return the stage of this name, or None. Entries of a list of single layers, as in a transformer, are no stages."""
    try:
        module = operator.attrgetter(name)(net)
    except AttributeError:
        return None
    return module if "." not in name or isinstance(module, nn.Sequential) or hasattr(module, "blocks") else None
