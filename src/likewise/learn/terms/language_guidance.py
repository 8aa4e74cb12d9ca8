from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from likewise.core.argument_checks import Count, CountOrZero, Positive, Rule
from likewise.core.contracts import Term
from likewise.core.progress import bar
from likewise.core.similarity import full_precision
from likewise.core.types import Batch, LikewiseError, Output, TrainingSetInfo
from likewise.learn.terms.self_distillation import kl_rows, similarities
from likewise.models.pretrained.encoders import (
    PretrainedNetwork,
    content_of,
    load_classifier,
    load_image_encoder,
    text_encoder,
    words_of_synset,
)

GUIDANCE_FILE = "guidance.safetensors"

CODE_NAME = re.compile(r"(?:.*/)?(?:(?:class|cls|id|item|label|n|no|person|pid|product)[\s#.-]*)?\d*", re.IGNORECASE)
"""Names that are no words: nothing, a number, or a number after such a word or below a folder: 11319, id 80, Aves/1234."""

Prompt = Annotated[
    str, Rule("contain {} once, in place of the name, as in 'a photo of a {}'", lambda text: str(text).count("{}") == 1)
]


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
        k: Count = 5,
        encoder: str = "openai/clip-vit-base-patch32",
        classifier: str = "resnet50.tv_in1k",
        image_encoder: str = "vit_base_patch32_clip_quickgelu_224.openai",
        weights: str | None = None,
        prompt: Prompt = "a photo of a {}",
        mask_same_label: bool = True,
        gamma: float = 1.0,
        temperature: Positive = 1.0,
        direction: Literal["visual", "language"] = "visual",
        delay: CountOrZero = 0,
        weighted: bool = False,
    ):
        super().__init__()
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
        # The k unit vectors in a row: a product of two such rows is the sum over the ranks.
        e = self.table[chosen].flatten(1)
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


class Guidance(NamedTuple):
    """Distinct target embeddings, and for each class or sample the rows of its k embeddings, best first."""

    table: Float[Tensor, "M d"]  # unit rows
    index: Int[Tensor, "S k"]


def from_classifier(
    given: TrainingSetInfo,
    classifier: str,
    weights: str | None,
    level: Literal["class", "sample"],
    k: int,
    prompt: str,
    encoder: str,
) -> Guidance:
    """Return embeddings of the k most likely ImageNet names: of each class by its mean logits, or of each sample."""
    encode = text_encoder(encoder, given.device)  # first, because it may fail, and classifying all images takes long
    looker, names = load_classifier(classifier, weights)
    if k > len(names):
        raise LikewiseError(
            f"LanguageGuidance: k must be at most {len(names)}, the number of classes of the classifier, got {k}; lower k"
        )
    labels = torch.as_tensor(given.labels, device=given.device)
    total = torch.zeros(len(given.class_names), len(names), device=given.device)
    best = torch.zeros(len(labels), k, dtype=torch.int64)
    for logits, place in outputs_on_training_set(given, looker):
        if level == "class":
            total.index_add_(0, labels[place], logits)
        else:
            best[place.cpu()] = logits.topk(k).indices.cpu()
    if level == "class":
        count = labels.bincount(minlength=len(total)).clamp_min(1)
        best = (total / count[:, None]).topk(k).indices.cpu()
    return encode_names(names, best, prompt, encode)


def from_names(given: TrainingSetInfo, prompt: str, encoder: str) -> Guidance:
    """Return embeddings of the words of the data set's class names."""
    names = tuple(class_words(name, given.class_words or {}) for name in given.class_names)
    return encode_names(names, torch.arange(len(names))[:, None], prompt, text_encoder(encoder, given.device))


def class_words(name: str, known: Mapping[str, str]) -> str:
    """Return a class name as words: "001.Black_footed_Albatross" as "Black footed Albatross", "n01440764" as "tench".

    Raises for a number or a code, which a text encoder cannot read.

    Args:
        known: class name -> its words, for data whose names are numbers.
    """
    words = known.get(name) or (words_of_synset(name) if re.fullmatch(r"n\d{8}", name) else None) or name
    words = re.sub(r"^\d+\.", "", words).replace("_", " ").strip()
    if CODE_NAME.fullmatch(words):
        raise LikewiseError(
            f"LanguageGuidance: by='names' needs class names that are words, got {name!r}; rename the classes, or use "
            "by='classifier' (iNaturalist has the names of its species in categories.json: put it beside the images)"
        )
    return words


def from_images(given: TrainingSetInfo, image_encoder: str, weights: str | None) -> Guidance:
    """Return another network's embedding of every training image."""
    network = load_image_encoder(image_encoder, weights)
    outputs = [(e.cpu(), place.cpu()) for e, place in outputs_on_training_set(given, network)]
    e, place = (torch.cat(tensors) for tensors in zip(*outputs))
    table = F.normalize(e[place.argsort()], dim=1)
    return Guidance(table, torch.arange(len(table))[:, None])


def outputs_on_training_set(
    given: TrainingSetInfo, looker: PretrainedNetwork
) -> Iterator[tuple[Float[Tensor, "B M"], Int[Tensor, "B"]]]:
    """Yield batches of (network outputs, positions of their samples in the training set)."""
    looker = looker.to(given.device)
    with bar("embed images for LanguageGuidance", len(given.labels), quiet=given.quiet) as progress:
        for x, place in given.pictures(looker.transform()):
            if x.ndim != 4:
                raise LikewiseError(
                    f"LanguageGuidance: the data must be images, got features of shape {tuple(x.shape)}; use by='names'"
                )
            with torch.no_grad():
                yield looker(x).float(), place
            progress.advance(len(place))


def encode_names(
    names: tuple[str, ...], chosen: Int[Tensor, "S k"], prompt: str, encode: Callable[[list[str]], Tensor]
) -> Guidance:
    """Return embeddings of the chosen names; every distinct name is encoded once.

    Args:
        names: all names.
        chosen: numbers of the k names of each class or sample.
        prompt: text around a name, with {} in place of the name.
        encode: texts -> embeddings.
    """
    used = sorted({names[i] for i in chosen.unique().tolist()})
    number = {name: i for i, name in enumerate(used)}
    place = torch.tensor([number.get(name, -1) for name in names])
    table = F.normalize(encode([prompt.replace("{}", name) for name in used]), dim=1)
    return Guidance(table, place[chosen])


def save_guidance(guidance: Guidance, file: Path, fingerprint: str) -> None:
    """Write the targets and the fingerprint of their inputs to a file, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}.part")
    tensors = {"table": guidance.table, "index": guidance.index.int()}
    save_file({k: v.contiguous() for k, v in tensors.items()}, aside, {"fingerprint": fingerprint})
    os.replace(aside, file)


def load_guidance(file: Path, fingerprint: str) -> Guidance | None:
    """Return the targets in a file; None if the file is missing or damaged, or its fingerprint differs."""
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as found:
            if (found.metadata() or {}).get("fingerprint") != fingerprint:
                return None
            return Guidance(found.get_tensor("table"), found.get_tensor("index").long())
    except SafetensorError:
        return None
