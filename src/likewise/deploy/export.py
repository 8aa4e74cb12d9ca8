"""export: a run -> its network for use elsewhere, compared with the original, and described in a model card."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image
from torch import Tensor

from likewise._notebook import table, view
from likewise._version import __version__
from likewise.config import Evaluate, Export, Train, check, to_dict
from likewise.data.images import file_of, image_of
from likewise.deploy.model import Model, load, open_model, settings_to_rebuild
from likewise.deploy.model_card import Card, code, fill, write_card
from likewise.deploy.onnx import must_have_onnx, preprocessing, write_onnx
from likewise.evaluation.evaluate import find_data, must_be_its_data
from likewise.io.files import FULL, load_arrays, write_json
from likewise.io.progress import bar
from likewise.pretrained.weights import brief
from likewise.retrieval.ranking import nearest
from likewise.runs.folder import Run
from likewise.runs.open import make_protocol, read_config, spoil
from likewise.runs.usage import cost
from likewise.types import Items, LikewiseError

TOLERANCE = 1e-4
"""Largest difference of an embedding's numbers, as a share of the longest embedding, up to which two count as the same. Other
orders of summing float32 make some 1e-6."""

MADE_UP = 16
"""Pictures that are made up where none of the data are to be had."""

FILES = {
    "onnx": ("model.onnx", "preprocess.json", "README.md", "example.py"),
    "safetensors": ("model.safetensors", "config.json", "README.md", "example.py"),
}

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Parity:
    """How far embeddings of the export are those of the run: of `samples` things, `of` what kind.

    `difference` is the largest there is, as a share of the longest embedding; `cosine` the smallest one of the two embeddings
    of a sample; `neighbours` the share of samples with the same nearest neighbour, None for one alone.
    """

    samples: int
    of: str
    difference: float
    cosine: float
    neighbours: float | None

    def __str__(self) -> str:
        near = "" if self.neighbours is None else f", the same nearest neighbour for {self.neighbours:.1%}"
        apart = f"differ by {self.difference:.1e} at most" if self.difference else "are equal to the bit"
        return (
            f"{self.samples} {self.of}: embeddings {apart} (up to {TOLERANCE:g} is allowed), "
            f"cosine {self.cosine:.6f} at least{near}"
        )


@dataclass(frozen=True)
class Exported:
    """The folder of an export, its files, and how they compare with the run's network."""

    folder: Path
    files: tuple[str, ...]
    parity: Parity

    def __fspath__(self) -> str:
        """The folder, so that an export can stand wherever a path can."""
        return str(self.folder)

    @view
    def _repr_html_(self) -> str:
        lines = [("folder", self.folder), ("files", ", ".join(self.files)), ("checked on", self.parity)]
        return table("exported network", (), lines)


def export(config: Export, say=print) -> Exported:
    """Write the folder. What does not give the run's embeddings is an error, and nothing is left of it."""
    check(config)
    if config.to == "onnx":
        must_have_onnx()
    run = Run(config.run)
    out = Path(config.out).expanduser().absolute() if config.out else run.path / f"export-{config.to}"
    settings, items = open_data(run, config, say)
    check_out(out)
    model = open_model(run, settings, config.which, CPU)
    given, of = samples(model, settings, items, config.samples)
    with folder_aside(out) as aside, bar("write and compare", 2, quiet=config.quiet) as progress:
        embed = (write_onnx if config.to == "onnx" else write_safetensors)(aside, model, run, settings)
        progress.advance()
        parity = compare(model, embed, given, of)
        card = describe(run, config, settings, items, model, parity, out)
        (aside / "README.md").write_text(write_card(card), "utf-8")
        progress.advance()
    return Exported(out, FILES[config.to], parity)


def open_data(run: Run, config: Export, say) -> tuple[Train, Items | None]:
    """The run's settings and its data, known to be the same; None where none of it is to be looked at."""
    settings = read_config(run, allow_imports=config.allow_imports)
    if not config.samples:
        return settings, None
    where = {"data": config.data, "root": config.root, "allow_imports": config.allow_imports, "quiet": config.quiet}
    try:
        settings, items = find_data(run, Evaluate(target=config.run, workers=0, **where), False, say)
        must_be_its_data(run, items, settings.data)
    except LikewiseError as error:
        raise LikewiseError(f"{error}; or compare on made-up samples: --samples 0") from None
    return settings, items


def samples(model: Model, settings: Train, items: Items | None, count: int) -> tuple[Sequence | np.ndarray, str]:
    """What both are compared on, and what that is in words: spread over the test part, or made up."""
    if items is None:
        rng, kind = np.random.default_rng(0), "pictures" if model.transform else "vectors"
        if model.transform is None:
            made = rng.normal(size=(MADE_UP, model.embedder.feature_dim)).astype(np.float32)
        else:
            made = [made_up(rng) for _ in range(MADE_UP)]
        return made, f"made-up {kind} (none of the data)"
    rows = make_protocol(settings).rows(items, "test")
    part, rows = ("test part", rows) if len(rows) else ("data", np.arange(len(items)))
    rows = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]
    if items.x is not None:
        return items.x[rows].astype(np.float32), f"vectors of the {part}"
    whole = items.box is None
    return [file_of(items, r) if whole else image_of(items, r) for r in rows.tolist()], f"pictures of the {part}"


def made_up(rng: np.random.Generator) -> Image.Image:
    """Soft colours of a random shape."""
    coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    return coarse.resize(tuple(rng.integers(40, 400, 2).tolist()), Image.Resampling.BICUBIC)


def compare(model: Model, embed: Callable, given: Sequence | Shaped[np.ndarray, "N F"], of: str) -> Parity:
    """Embeddings of the same samples by the run's network and by the export's own way; an error where they differ."""
    own = model(given)
    try:
        other = np.concatenate([embed(given[start : start + 32]) for start in range(0, len(given), 32)])
    except Exception as error:  # onnxruntime has families of its own
        raise LikewiseError(f"export: example.py fails on the data ({brief(error)}); nothing was written") from error
    if other.shape != own.shape:
        raise LikewiseError(
            f"export: embeddings must have the shape {own.shape}, got {other.shape}; nothing was written"
        )
    length = [np.linalg.norm(z.astype(np.float64), axis=1) for z in (own, other)]
    difference = float(np.abs(own - other).max() / max(length[0].max(), 1e-12))
    if not difference <= TOLERANCE:  # NaN is no match either
        raise LikewiseError(
            f"export: embeddings must be the run's up to {TOLERANCE:g}, got a difference of {difference:.2g} on {len(given)} "
            f"{of}; nothing was written. Please report it with the versions of torch and onnxruntime"
        )
    cosine = (own.astype(np.float64) * other).sum(1) / np.maximum(length[0] * length[1], 1e-12)
    near = [first_neighbour(z, model.similarity) for z in (own, other)] if len(own) > 1 else None
    same = None if near is None else float((near[0] == near[1]).float().mean())
    return Parity(len(given), of, difference, float(cosine.min()), same)


def first_neighbour(z: Float[np.ndarray, "N D"], similarity: str) -> Tensor:
    table = torch.as_tensor(z)
    return nearest(table, table, 1, own=torch.arange(len(table)), similarity=similarity)[0]


def write_safetensors(folder: Path, model: Model, run: Run, config: Train) -> Callable:
    """Weights of the network alone, and what it is built from; the way to embed with them."""
    about = {"identity": run.about["identity"], "likewise": __version__, **settings_to_rebuild(config, model)}
    write_json(folder / "config.json", about)
    Run(folder).save_tensors("model.safetensors", model.embedder.state_dict())
    (folder / "example.py").write_text(fill("example_load.txt", {"pictures": model.transform is not None}), "utf-8")
    return load(folder, device="cpu", allow_imports=config.allow_imports)


def check_out(out: Path) -> None:
    """A new or empty folder, or one of an earlier export, whose files go."""
    if not out.exists():
        return
    there = {p.name for p in out.iterdir()} - {"__pycache__"} if out.is_dir() else {out.name}
    if there and not (out.is_dir() and is_export(out, there)):
        known = {*FILES["onnx"], *FILES["safetensors"]}
        first = min(there, key=lambda name: (name in known, name))
        raise LikewiseError(
            f"export: --out must be a new folder or an earlier export, got '{out}', which holds {first}; name another"
        )


def is_export(folder: Path, there: set[str]) -> bool:
    """Whether these are the files of an export and no others."""
    if there == set(FILES["onnx"]):
        return True
    try:
        return there == set(FILES["safetensors"]) and "export" in Run(folder).read_json("config.json")
    except LikewiseError:
        return False


@contextmanager
def folder_aside(out: Path) -> Iterator[Path]:
    """A folder to fill, whose files take their place when all has gone well; otherwise they are gone."""
    aside = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        aside.mkdir(parents=True)
        yield aside
        shutil.rmtree(aside / "__pycache__", ignore_errors=True)
        out.mkdir(exist_ok=True)  # one that is there stays: somebody may stand in it
        for old in out.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        for new in aside.iterdir():
            new.rename(out / new.name)
    except OSError as error:
        hint = "free some space" if error.errno in FULL else "name another place with --out"
        raise LikewiseError(f"export: '{out}' cannot be written ({error.strerror or error}); {hint}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def describe(
    run: Run, config: Export, settings: Train, items: Items | None, model: Model, parity: Parity, out: Path
) -> Card:
    """The facts of the model card, from what the run's folder says."""
    which = "only" if config.which != "untrained" and run.network("best") == run.network("last") else config.which
    data = {"name": items.name if items else Path(settings.data).name}
    if items:
        parts = {part: len(make_protocol(settings).rows(items, part)) for part in ("train", "val", "test")}
        data |= {"samples": f"{len(items)} ({', '.join(f'{n} {part}' for part, n in parts.items() if n)})"}
        data |= {"classes": str(items.classes)}
    return Card(
        name=run.path.resolve().name,
        folder=out.name,
        to=config.to,
        which=which,
        dim=model.dim,
        similarity=model.similarity,
        preprocess=preprocessing(model.transform) or None,
        boxed=items is not None and items.box is not None,
        config=to_dict(settings),
        data=data | {"fingerprint": run.about["data"]},
        labels=labels(run, settings, items),
        scores=run.scores if run.done and which in ("best", "only") else None,
        checked=f"Compared with the run's own network, on the CPU in float32, on {parity}.",
        made=made(run, which != "untrained"),
        finished=run.done,
    )


def labels(run: Run, settings: Train, items: Items | None) -> tuple[str, ...]:
    """What was done about wrong labels, and what came of it."""
    noise = f"Noise put in on purpose: {code(settings.noise)}." if settings.noise else "This training put in no noise."
    said = [noise, *known_wrong(settings, items)]
    if not settings.confidence:
        return (*said, "All labels were believed in training.")
    said.append(f"Labels were judged in training by {code(settings.confidence)}.")
    file = run.path / "trust.npz"
    if file.exists():
        trust = load_arrays(file, "export", "--again trains the run anew", ("weight", "label", "given"))
        weight, changed = trust["weight"], trust["label"] != trust["given"]
        out, kept = weight == 0, weight[weight > 0]
        said.append(
            f"In the end, of {len(out)} training samples {int(out.sum())} were left out ({out.mean():.1%}) and "
            f"{int((changed & ~out).sum())} relabelled."
        )
        if len(kept) and kept.min() < kept.max():
            said.append(f"Those that were not left out had weights from {kept.min():.3g} to {kept.max():.3g}.")
    return tuple(said)


def known_wrong(settings: Train, items: Items | None) -> Iterator[str]:
    """How many training labels are wrong, where the truth is known."""
    if items is None:
        return
    protocol = make_protocol(settings)
    given = spoil(items, protocol, settings.noise, settings.seed, settings.allow_imports)
    rows = protocol.rows(given, "train")
    if given.y_clean is not None and len(rows):
        wrong = (given.y != given.y_clean)[rows]
        yield f"{wrong.mean():.1%} of {len(rows)} training labels are wrong: for these data the true ones are known."


def made(run: Run, trained: bool) -> dict[str, str]:
    """Versions, and of a trained network hardware, time and energy, where the run has kept them."""
    took = cost(run)
    versions = run.environment.get("versions", {})
    energy, others = sum((took["energy_joules"] or {}).values()), ", with all that ran there" * bool(took["shared"])
    found = {
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "commit of likewise": took["commit"],
        "hardware": trained and took["device"],
        "training": trained and took["train_seconds"] and f"{took['train_seconds']:.0f} s",
        "energy": trained and energy and f"{energy / 3.6e6:.3g} kWh, as far as the hardware counts" + others,
        "run": run.about["identity"],
    }
    return {name: str(value) for name, value in found.items() if value}
