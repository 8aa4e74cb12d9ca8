from __future__ import annotations

import hashlib
import json
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.contracts import Term
from likewise.core.similarity import full_precision
from likewise.core.types import Batch, LikewiseError, Output, TrainingSetInfo
from likewise.learn.terms._distillation import kl_rows, similarities
from likewise.learn.terms._language_targets import (
    Guidance,
    from_classifier,
    from_images,
    from_names,
    load_guidance,
    save_guidance,
)
from likewise.models.pretrained.encoders import content_of

GUIDANCE_FILE = "guidance.safetensors"


class LanguageGuidance(Term):
    """Pulls the similarities within a batch towards the similarities of class names, or of another network's embeddings.

    Paper: Roth et al., Integrating Language Guidance into Vision-based Deep Metric Learning (PLG, ELG), CVPR 2022;
        by="images": Barbany et al., ProcSim, WACV 2024, appendix C.
    Formula: l_i = T^2 KL( softmax(v_i / T) || softmax(n_i / T) ), v_ij = z_i z_j, n_ij = g + mean_r cos(e_ir, e_jr) over the
        ranks r of names; both are 1 + g where the labels of i and j are equal, and these entries have no gradient
    Differs: images are resized to 256/224 of the classifier's input size and centre-cropped; the published code pads them. Which
        level ProcSim used is not published; it calls the term label-free, which is level="sample" with mask_same_label=False:
        then only the diagonal is set, to 1 and 1 + g, and g has no effect. Resolution and network for "images" are ours.
    Needs: for names, a text encoder (see `models.pretrained.encoders` for its source), and class names that are words: SOP has
        the names of its 12 kinds of product, as published, ImageNet the names of its synsets, iNaturalist those of its species
        if categories.json is beside the images; other numbers and codes are refused. Class names and means use the training
        labels, wrong ones included.

    Args:
        weight: omega. Published: 10 on CUB200, 5.5 on Cars196, 0.5 on SOP.
        by: source of the targets. "classifier": the names that an ImageNet classifier predicts (PLG). "names": the class names of
            the data set (ELG). "images": no names, but another network's embedding of every image.
        level: for "classifier": predict names for each class (by its mean logits) or for each sample. Published code: class.
        k: names per class or sample, for "classifier". Paper: 5.
        encoder: text encoder: a folder, or a name on the hub. Published: this one, and BERT.
        classifier: a timm model. Published: ResNet-50 with the first ImageNet weights, as here.
        image_encoder: a timm model, for "images".
        weights: a local file for the classifier or the image encoder; None: the published weights.
        prompt: text around a name, with {} in place of the name.
        mask_same_label: set the similarities of samples of one class to a constant.
        gamma: g, the difference between that constant and 1. Published: 1.
        temperature: T. Published: 1.
        direction: "visual": KL(visual || language), as in all published runs. "language": KL(language || visual).
        delay: first steps, during which the term is 0. Published: 0.
        weighted: whether the sample weights of the confidence apply to this term.
    """

    level: Literal["class", "sample"]
    begun: Tensor
    table: Tensor | None
    index: Tensor | None

    def __init__(
        self,
        weight: float = 10.0,
        by: Literal["classifier", "names", "images"] = "classifier",
        level: Literal["class", "sample"] = "class",
        k: int = 5,
        encoder: str = "openai/clip-vit-base-patch32",
        classifier: str = "resnet50.tv_in1k",
        image_encoder: str = "vit_base_patch32_clip_quickgelu_224.openai",
        weights: str | None = None,
        prompt: str = "a photo of a {}",
        mask_same_label: bool = True,
        gamma: float = 1.0,
        temperature: float = 1.0,
        direction: Literal["visual", "language"] = "visual",
        delay: int = 0,
        weighted: bool = False,
    ):
        super().__init__()
        if k < 1 or delay < 0 or temperature <= 0:
            raise LikewiseError(
                "LanguageGuidance: k >= 1, delay >= 0 and temperature > 0 must hold, "
                f"got k={k}, delay={delay}, temperature={temperature}"
            )
        if prompt.count("{}") != 1:
            raise LikewiseError(
                f"LanguageGuidance: prompt must contain {{}} once, in place of the name, got {prompt!r}; "
                "write it as in 'a photo of a {}'"
            )
        if by == "names" and level == "sample":
            raise LikewiseError("LanguageGuidance: by='names' must have level='class', got level='sample'; omit level")
        self.weight = weight
        self.by = by
        self.level = level
        self.k = k
        self.encoder = encoder
        self.classifier = classifier
        self.image_encoder = image_encoder
        self.weights = weights
        self.prompt = prompt
        self.mask_same_label = mask_same_label
        self.gamma = gamma
        self.temperature = temperature
        self.direction = direction
        self.delay = delay
        self.weighted = weighted
        self.register_buffer("begun", torch.tensor(float(delay == 0)))
        self.register_buffer("table", None, persistent=False)
        self.register_buffer("index", None, persistent=False)

    def prepare(self, given: TrainingSetInfo) -> None:
        file, fingerprint = given.folder / GUIDANCE_FILE, self.fingerprint(given)
        guidance = load_guidance(file, fingerprint)
        if guidance is None:
            guidance = self.compute_guidance(given)
            save_guidance(guidance, file, fingerprint)
        self.table, self.index = (tensor.to(given.device) for tensor in guidance)

    def compute_guidance(self, given: TrainingSetInfo) -> Guidance:
        """Return the target embeddings of the classes or samples."""
        if self.by == "names":
            return from_names(given, self.prompt, self.encoder)
        if self.by == "images":
            return from_images(given, self.image_encoder, self.weights)
        return from_classifier(given, self.classifier, self.weights, self.level, self.k, self.prompt, self.encoder)

    def fingerprint(self, given: TrainingSetInfo) -> str:
        """Return a hash of everything that the targets depend on: settings, the content of local files, labels, class names."""
        settings = [self.by, self.level, self.k, self.encoder, self.classifier, self.image_encoder, self.prompt]
        files = [content_of(name) for name in (self.encoder, self.weights)]
        labels = hashlib.sha256(given.labels.astype("int64").tobytes()).hexdigest()
        text = json.dumps([settings, files, labels, given.class_names, given.class_words])
        return hashlib.sha256(text.encode()).hexdigest()

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        if self.table is None or self.index is None:
            raise LikewiseError(
                "LanguageGuidance: prepare(given) must be called before the first step, got no targets; call it first"
            )
        sample = self.by == "images" or self.level == "sample"
        chosen = self.index[batch.row if sample else batch.y]
        e = self.table[chosen].flatten(
            1
        )  # k unit vectors in a row: a product of two such rows is the sum over the ranks
        with full_precision(e):
            language = e @ e.T / chosen.shape[1]
        gamma = self.gamma if self.mask_same_label else 0.0
        y = batch.y if self.mask_same_label else torch.arange(len(batch.y), device=batch.y.device)
        same = y[:, None] == y[None, :]
        visual = similarities(out.z).masked_fill(same, 1 + gamma)
        language = language.masked_fill(same, 1)  # g is omitted from all entries: softmax does not change
        a, b = (visual, language) if self.direction == "visual" else (language, visual)
        return self.begun * kl_rows(a, b, self.temperature)

    def after_step(self, step: int) -> None:
        self.begun.fill_(step >= self.delay)
