"""Compute features of images with a pretrained network, as data for `likewise train`: a head trains on them in seconds on a CPU.

python benchmarks/features.py cub.csv --out cub224.npz
likewise bench examples/robust-features.toml --jobs 2
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from measure import parse_with_quick

from likewise.data import load
from likewise.data.augment import Plain
from likewise.models.embedder import Embedder
from likewise.runs.embed import embed_rows


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a folder or table of images, with a split")
    parser.add_argument("--out", required=True, help=".npz with x, label and split")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--pool", default="avg+max")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parse_with_quick(parser, words, backbone="conv_small", size=16, device="cpu")


def main(words: Sequence[str] | None = None) -> None:
    config = parse(words)
    items, device = load(config.data), torch.device(config.device)
    how = {"pool": config.pool, "size": config.size, "pretrained": not config.quick}
    network = Embedder(config.backbone, 1, **how).to(device)
    rows = np.arange(len(items))
    found = embed_rows(network, items, rows, Plain(config.size), device=device, workers=-1, features=True)
    columns = {"x": found.f.numpy(), "label": np.asarray(items.class_name)[items.y]}
    np.savez(config.out, **columns, **({} if items.split is None else {"split": items.split}))
    print(f"{config.out}: {len(items)} samples of {columns['x'].shape[1]} numbers")


if __name__ == "__main__":
    main()
