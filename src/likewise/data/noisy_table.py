"""noise: write data with injected label noise as a table, with figures of the changed labels."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from likewise.core.contracts import Protocol
from likewise.core.files import check_output_path
from likewise.core.settings import Noise, check
from likewise.core.settings.spec import build
from likewise.core.types import Items, LikewiseError
from likewise.data.dataset import default_protocol, inject_noise, load_items
from likewise.data.noise_view import NoisyItems, draw_noise
from likewise.data.protocols.splits import split_by
from likewise.data.table import write_noisy
from likewise.data.taxonomies import taxonomy


def noise(config: Noise, say=print) -> NoisyItems:
    """Inject label noise into the train and val splits together, and write the table and figures of the changed labels."""
    check(config)
    suffix = Path(config.out).suffix.lower()
    out = check_output_path(config.out, suffix if suffix == ".parquet" else ".csv", "noise")
    if out.resolve() == Path(config.data).expanduser().resolve():
        raise LikewiseError(
            f"noise: --out must not be the data itself, got '{config.out}' for both; choose another --out"
        )
    items = read_clean(config, say)
    text = config.protocol or default_protocol(items)
    protocol = build(text, Protocol, allow_imports=config.allow_imports)
    split = split_by(protocol, items)
    rows = np.flatnonzero((split == "train") | (split == "val"))
    items = dataclasses.replace(
        inject_noise(items, protocol, config.model, config.seed, config.allow_imports), split=split
    )
    write_noisy(items, out, drop_wrong=config.drop_wrong)
    return NoisyItems(items, rows, out, draw_noise(items, rows, out))


def read_clean(config: Noise, say) -> Items:
    """Return the data with the taxonomy of the config. Raise if the data already has injected noise."""
    items = load_items(
        config.data, config.root, strict=config.strict, quiet=config.quiet, say=say, allow_imports=config.allow_imports
    )
    if items.y_clean is not None:
        raise LikewiseError(
            f"noise: the labels of '{config.data}' must be without injected noise, got a table with `label_clean`; "
            "start from the clean data"
        )
    if not config.taxonomy:
        return items
    return dataclasses.replace(items, taxonomy=taxonomy(config.taxonomy, items.class_name))
