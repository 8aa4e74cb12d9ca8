"""export: a run -> its network for use elsewhere, compared with the original, and described in a model card."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from likewise._version import __version__
from likewise.core.errors import print_text
from likewise.core.files import DISK_FULL_ERRNOS, write_json
from likewise.core.notebook import table, view
from likewise.core.progress import bar
from likewise.core.settings import Export, Train, check, to_dict
from likewise.core.types import Items, LikewiseError
from likewise.deploy.model import Model, load, model_of, settings_to_rebuild
from likewise.deploy.model_card import DECISION_FILES, GALLERY_FILE, Card, code, fill, write_card
from likewise.deploy.onnx import check_onnx_packages, preprocessing, write_onnx
from likewise.deploy.parity import Parity, compare, parity_inputs
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.sample_weights import read_sample_weights
from likewise.runs.usage import cost

EXPORT_FILES = {
    "onnx": ("model.onnx", "preprocess.json", "README.md", "example.py"),
    "safetensors": ("model.safetensors", "config.json", "README.md", "example.py"),
}

CPU_DEVICE = torch.device("cpu")


@dataclass(frozen=True)
class Exported:
    """The folder of an export, its files, and how they compare with the run's network."""

    folder: Path
    files: tuple[str, ...]
    parity: Parity

    def __fspath__(self) -> str:
        """Return the folder, so that an export can be used as a path."""
        return str(self.folder)

    @view
    def _repr_html_(self) -> str:
        lines = [("folder", self.folder), ("files", ", ".join(self.files)), ("checked on", self.parity)]
        return table("exported network", (), lines)


def export(config: Export, say=print) -> Exported:
    """Export the network of a run into a folder. If its embeddings differ from the run's, raises and deletes the folder."""
    from likewise.deploy.identify import write_identification

    check(config)
    if config.to == "onnx":
        check_onnx_packages()
    run = Run(config.run)
    out = Path(config.out).expanduser().absolute() if config.out else run.path / f"export-{config.to}"
    opened = OpenRun(
        run, checkpoint=config.checkpoint, device=CPU_DEVICE, data=config.data if config.parity_samples else None,
        root=config.root if config.parity_samples else None, allow_imports=config.allow_imports,
        workers=0, quiet=config.quiet, say=say,
    )  # fmt: skip
    items = data_of(opened) if config.parity_samples else None
    check_output_path(out)
    model = model_of(opened)
    given, of = parity_inputs(model, opened.protocol, items, config.parity_samples)
    with folder_aside(out) as aside, bar("write and compare", 2, quiet=config.quiet) as progress:
        calibration = write_identification(aside, run, config.checkpoint, config.gallery, say)
        embed = (write_onnx if config.to == "onnx" else write_safetensors)(aside, model, run, opened.settings)
        progress.advance()
        parity = compare(model, embed, given, of)
        card = replace(describe(opened, config, items, model, parity, out), calibration=calibration)
        (aside / "README.md").write_text(write_card(card), "utf-8")
        progress.advance()
        files = *EXPORT_FILES[config.to], *(name for name in DECISION_FILES if (aside / name).exists())
    return Exported(out, files, parity)


def data_of(opened: OpenRun) -> Items:
    """Return the data of the run; if it cannot be loaded, the error names the option that needs no data."""
    try:
        return opened.items
    except LikewiseError as error:
        raise LikewiseError(f"{error}; or compare on synthetic samples: --parity-samples 0") from None


def write_safetensors(folder: Path, model: Model, run: Run, config: Train) -> Callable:
    """Write the weights of the network and its settings, and return a function that embeds with them."""
    about = {"identity": run.about["identity"], "likewise": __version__, **settings_to_rebuild(config, model)}
    write_json(folder / "config.json", about)
    Run(folder).save_tensors("model.safetensors", model.merged_embedder().state_dict())
    facts = {"pictures": model.transform is not None, "gallery": (folder / GALLERY_FILE).exists()}
    (folder / "example.py").write_text(fill("example_load.txt", facts), "utf-8")
    return load(folder, device="cpu", allow_imports=config.allow_imports)


def check_output_path(out: Path) -> None:
    """Raise unless the folder is new, empty, or an earlier export, whose files will be replaced."""
    if not out.exists():
        return
    there = {p.name for p in out.iterdir()} - {"__pycache__"} if out.is_dir() else {out.name}
    if there and not (out.is_dir() and is_export(out, there)):
        known = {*EXPORT_FILES["onnx"], *EXPORT_FILES["safetensors"]}
        first = min(there, key=lambda name: (name in known, name))
        raise LikewiseError(
            f"export: --out must be a new folder or an earlier export, got '{out}', which holds {first}; give another folder"
        )


def is_export(folder: Path, there: set[str]) -> bool:
    """Return whether the folder has the files of an export and no others."""
    there = there - {*DECISION_FILES}
    if there == set(EXPORT_FILES["onnx"]):
        return True
    try:
        return there == set(EXPORT_FILES["safetensors"]) and "export" in Run(folder).read_json("config.json")
    except LikewiseError:
        return False


@contextmanager
def folder_aside(out: Path) -> Iterator[Path]:
    """Yield a temporary folder; its files replace those in `out` on success, and are deleted on an error."""
    aside = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        aside.mkdir(parents=True)
        yield aside
        shutil.rmtree(aside / "__pycache__", ignore_errors=True)
        out.mkdir(exist_ok=True)  # an existing folder is not replaced: it may be the working directory of a process
        for old in out.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        for new in aside.iterdir():
            new.rename(out / new.name)
    except OSError as error:
        hint = "free some space" if error.errno in DISK_FULL_ERRNOS else "give another folder with --out"
        raise LikewiseError(f"export: '{out}' cannot be written ({error.strerror or error}); {hint}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def describe(opened: OpenRun, config: Export, items: Items | None, model: Model, parity: Parity, out: Path) -> Card:
    """Return the facts of the model card, from the run folder."""
    run, settings = opened.run, opened.settings
    checkpoint = (
        "only" if config.checkpoint != "untrained" and run.network("best") == run.network("last") else config.checkpoint
    )
    data = {"name": items.name if items else Path(settings.data).name}
    if items:
        sizes = {split: len(opened.protocol.rows(items, split)) for split in ("train", "val", "test")}
        data |= {"samples": f"{len(items)} ({', '.join(f'{n} {split}' for split, n in sizes.items() if n)})"}
        data |= {"classes": str(items.classes)}
    return Card(
        name=run.path.resolve().name,
        folder=out.name,
        to=config.to,
        checkpoint=checkpoint,
        dim=model.dim,
        similarity=model.similarity,
        preprocess=preprocessing(model.transform) or None,
        boxed=items is not None and items.box is not None,
        config=to_dict(settings),
        data=data | {"fingerprint": run.about["data"]},
        labels=labels(opened, items),
        scores=run.scores if run.done and checkpoint in ("best", "only") else None,
        checked=f"Compared with the run's own network, on the CPU in float32, on {parity}.",
        made=made(run, checkpoint != "untrained"),
        finished=run.done,
        choice=run.backbone_note,
        has_gallery=config.gallery is not None,
    )


def labels(opened: OpenRun, items: Items | None) -> tuple[str, ...]:
    """Return sentences about injected noise, wrong labels, and the samples that were dropped or relabelled."""
    settings = opened.settings
    noise = f"Label noise injected: {code(settings.noise)}." if settings.noise else "No label noise was injected."
    lines = [noise, *([] if items is None else known_wrong(opened))]
    if not settings.confidence:
        return (*lines, "All labels were used in training.")
    lines.append(f"Sample weights were computed during training by {code(settings.confidence)}.")
    final = read_sample_weights(opened.run.path, "export")
    if final is not None:
        out, kept = final.dropped, final.weight[final.weight > 0]
        lines.append(
            f"At the end, {int(out.sum())} of {len(out)} training samples were dropped ({out.mean():.1%}) and "
            f"{int(final.relabelled.sum())} relabelled."
        )
        if len(kept) and kept.min() < kept.max():
            lines.append(f"The other samples had weights from {kept.min():.3g} to {kept.max():.3g}.")
    return tuple(lines)


def known_wrong(opened: OpenRun) -> Iterator[str]:
    """Yield a sentence with the share of wrong training labels, if the true labels are known."""
    given = opened.noisy_items
    rows = opened.protocol.rows(given, "train")
    if given.y_clean is not None and len(rows):
        wrong = (given.y != given.y_clean)[rows]
        yield f"{wrong.mean():.1%} of {len(rows)} training labels are wrong, by the true labels of this data."


def made(run: Run, trained: bool) -> dict[str, str]:
    """Return versions, and for a trained network also hardware, time and energy, as far as the run has recorded them."""
    took = cost(run)
    versions = run.environment.get("versions", {})
    energy, others = (
        sum((took["energy_joules"] or {}).values()),
        ", including other processes on this machine" * bool(took["shared"]),
    )
    found = {
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "commit of likewise": took["commit"],
        "hardware": trained and took["device"],
        "training": trained and took["train_seconds"] and f"{took['train_seconds']:.0f} s",
        "energy": trained and energy and f"{energy / 3.6e6:.3g} kWh, by hardware counters" + others,
        "run": run.about["identity"],
    }
    return {name: str(value) for name, value in found.items() if value}


def show_exported(found: Exported, config: Export) -> None:
    """Print the folder, its files, and how the exported network was checked."""
    print_text(f"export: {found.folder} ({', '.join(found.files)})\nchecked on {found.parity}")
