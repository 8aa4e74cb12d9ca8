"""Load test of `likewise search`: many clients at a real server, and indices of many rows.

    python benchmarks/serve.py load TARGET IMAGES [--requests 1000] [--at-once 16]
    python benchmarks/serve.py index [--rows 1000000] [--dim 128] [--kinds exact hnsw ivfpq]

Prints one JSON object per line. `load` starts `likewise search TARGET --serve` and sends random images of a folder; every request
is answered or counted as lost. `index` fills an index with vectors in clusters of 50 around random centres, as embeddings are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

import numpy as np
from measure import memory, parse_with_quick

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}


def load(target: str, pictures: str, requests: int, at_once: int) -> dict:
    files = sorted(file for file in Path(pictures).rglob("*") if file.suffix.lower() in SUFFIXES)
    chosen = random.Random(0).choices(files, k=requests)
    command = [sys.executable, "-P", "-m", "likewise", "search", target, "--serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            printed = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
            address = urlsplit(printed)
            asyncio.run(ask_all(address, chosen[:at_once], at_once))  # the first requests warm it up
            begin = time.perf_counter()
            told = asyncio.run(ask_all(address, chosen, at_once))
            wall = time.perf_counter() - begin
            peak = memory("VmHWM", server.pid) >> 20
        finally:
            server.send_signal(signal.SIGINT)
    took = np.asarray([seconds for status, seconds in told if status == 200]) * 1000
    return {
        "requests": requests, "at_once": at_once, "answers": dict(Counter(str(status) for status, _ in told)),
        "lost": requests - len(told), "per_second": round(requests / wall, 1),
        **{f"p{share}_ms": round(float(np.percentile(took, share)), 1) for share in (50, 95, 99)},
        "peak_memory_mb": peak, "ended": server.returncode,
    }  # fmt: skip


async def ask_all(address: SplitResult, files: list[Path], at_once: int) -> list[tuple[int | str, float]]:
    import httpx

    told, waiting = [], list(reversed(files))
    headers = {"Authorization": f"Bearer {dict(parse_qsl(address.query))['token']}"}
    async with httpx.AsyncClient(base_url=f"http://{address.netloc}", headers=headers, timeout=120) as client:

        async def one_client() -> None:
            while waiting:
                body, begin = waiting.pop().read_bytes(), time.perf_counter()
                try:
                    status = (await client.post("/api/search", content=body)).status_code
                except httpx.HTTPError as error:
                    status = type(error).__name__
                told.append((status, time.perf_counter() - begin))

        await asyncio.gather(*(one_client() for _ in range(at_once)))
    return told


def index(rows: int, dim: int, kinds: list[str]) -> None:
    from likewise.index.index import Index
    from likewise.index.snapshot import Rows, pack

    rng = np.random.default_rng(0)
    centre = rng.normal(size=(max(1, rows // 50), dim)).astype(np.float32)
    vectors = np.empty((rows, dim), np.float32)
    for first in range(0, rows, 2**16):
        some = slice(first, min(rows, first + 2**16))
        label = np.arange(some.start, some.stop) % len(centre)
        vectors[some] = centre[label] + 0.8 * rng.normal(size=(len(label), dim)).astype(np.float32)
        vectors[some] /= np.linalg.norm(vectors[some], axis=1, keepdims=True)
    table, text = pack(np.arange(rows), np.arange(rows) % len(centre), [f"{row}.jpg" for row in range(rows)])
    whole = Rows(vectors, table, text, tuple(map(str, range(len(centre)))), np.ones(rows, bool), "cosine")
    queries = vectors[rng.integers(0, rows, 200)] + 0.02 * rng.normal(size=(200, dim)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            made, begin = Index(whole), time.perf_counter()
            said = made.approximate(kind, 5, quiet=False)
            built = time.perf_counter() - begin
            made.save(Path(folder) / kind)
            begin = time.perf_counter()
            opened = Index.open(Path(folder) / kind)
            open_s = time.perf_counter() - begin
            opened.find(queries[:1], 5)
            took = []
            for query in queries:
                begin = time.perf_counter()
                opened.find(query[None], 5)
                took.append(1000 * (time.perf_counter() - begin))
            size = sum(file.stat().st_size for file in Path(folder, kind).glob("*.faiss")) / 2**20
            facts = {
                "kind": kind, "rows": rows, "dim": dim, "build_s": round(built, 1), "recall": said, "graph_mb": round(size),
                "open_s": round(open_s, 3), "peak_memory_mb": memory("VmHWM") >> 20,
            }  # fmt: skip
            facts |= {f"p{share}_ms": round(float(np.percentile(took, share)), 2) for share in (50, 95, 99)}
            print(json.dumps(facts), flush=True)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("load")
    one.add_argument("target")
    one.add_argument("pictures")
    one.add_argument("--requests", type=int, default=1000)
    one.add_argument("--at-once", type=int, default=16)
    other = commands.add_parser("index")
    other.add_argument("--rows", type=int, default=10**6)
    other.add_argument("--dim", type=int, default=128)
    other.add_argument("--kinds", nargs="+", default=["exact", "hnsw", "ivfpq"])
    return parse_with_quick(parser, words, (one, other), requests=4, at_once=2, rows=1000, dim=16)


def main(words: Sequence[str] | None = None) -> None:
    given = parse(words)
    if given.command == "load":
        print(json.dumps(load(given.target, given.pictures, given.requests, given.at_once)))
    else:
        index(given.rows, given.dim, given.kinds)


if __name__ == "__main__":
    main()
