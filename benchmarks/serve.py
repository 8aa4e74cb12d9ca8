"""Load test of `likewise review` and `likewise search`: many clients at a real server, and indices of many rows.

    python benchmarks/serve.py review [--rows 3000] [--clients 1 64] [--requests 1000 9000] [--think 0]
    python benchmarks/serve.py load TARGET IMAGES [--clients 1 16] [--requests 200 1000]
    python benchmarks/serve.py index [--rows 1000000] [--dim 128] [--kinds exact hnsw ivfpq]
    python benchmarks/serve.py pages [--rows 1000000] [--dim 128] [--pages search review audit] [--repeats 3]

Prints one JSON object per line. `review` writes images and an audit of their features, starts `likewise review`, and sends
random requests: each client is a reviewer and waits for the answer to one request before the next, without a pause unless
`--think` gives its mean in seconds. At the end the acknowledged decisions are compared with the store. `load` starts `likewise
search TARGET --serve` and sends random images of a folder; every request is answered or counted as lost. Both measure as many
clients at a bare uvicorn, which answers `{}`: `ratio` is the median of a kind of request to the median there. `server_cpu_ms` is
the CPU time of the server per request, which other load on the machine changes less. Clients and server share the cores. `index`
fills an index with vectors in clusters of 50 around random centres, as embeddings are.

`pages` opens the search page, the review page and the page of an audit in chromium, each in a new process with made rows, 50 per
class: `server_s` until the server has printed its address, `first_s` from there until the page shows its first rows or images,
`results_s` from a click on a row until its nearest rows are shown, `words_s` from there until the results are marked as same,
similar or weak, and `mb` is what the browser has loaded by then. `server_cpu_s` is the CPU time of the server until it shows
its first rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

import numpy as np
from measure import draw, memory, parse_with_quick

from likewise.curate.audit.read import read_findings

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}


@dataclass
class Client:
    """One connection to a server that is kept open, and the latencies of its requests."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: str
    took: list[tuple[str, int, float]]  # kind of request, status, milliseconds

    async def ask(
        self, kind: str, method: str, path: str, body: bytes = b"", content: str = "application/json"
    ) -> bytes:
        """Send a request, note its latency, and return the body of the response."""
        size = f"Content-Type: {content}\r\nContent-Length: {len(body)}\r\n" if method == "POST" else ""
        begin = time.perf_counter()
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{self.head}{size}\r\n".encode() + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        at = head.index(b"content-length:") + 15
        found = await self.reader.readexactly(int(head[at : head.index(b"\r", at)]))
        self.took.append((kind, int(head[9:12]), 1000 * (time.perf_counter() - begin)))
        return found


Work = Callable[[Client, int], Awaitable[None]]
"""What a client does until its requests are used up: (client, its number)."""


async def run_clients(address: SplitResult, clients: int, work: Work) -> tuple[list[tuple[str, int, float]], float]:
    """Return the latencies of all clients that work at the same time, and the seconds that they took."""
    token = dict(parse_qsl(address.query)).get("token", "")
    head = f"Host: {address.netloc}\r\nAuthorization: Bearer {token}\r\n"
    took: list[tuple[str, int, float]] = []
    opened = [
        Client(*await asyncio.open_connection(address.hostname, address.port, limit=2**24), head, took)
        for _ in range(clients)
    ]
    begin = time.perf_counter()
    try:
        await asyncio.gather(*(work(client, number) for number, client in enumerate(opened)))
    finally:
        [client.writer.close() for client in opened]
    return took, time.perf_counter() - begin


@contextmanager
def started(*command: str) -> Iterator[tuple[subprocess.Popen, SplitResult]]:
    """Start a server, and yield its process and the address that it prints; interrupt it at the end."""
    with subprocess.Popen([sys.executable, "-P", *command], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            printed = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
            yield server, urlsplit(printed)
        finally:
            server.send_signal(signal.SIGINT)


BARE = """
import contextlib, socket, uvicorn

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})

listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listener.bind(("127.0.0.1", 0))
listener.listen(128)
print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
with contextlib.suppress(KeyboardInterrupt):
    uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none")).run(sockets=[listener])
"""


def measure_bare(clients: int, requests: int) -> list[float]:
    """Return the milliseconds of requests to a bare uvicorn."""

    async def work(client: Client, number: int) -> None:
        for _ in range(requests // clients):
            await client.ask("bare", "GET", "/")

    with started("-c", BARE) as (_, address):
        asyncio.run(run_clients(address, clients, work))  # warms it up
        return [ms for _, _, ms in asyncio.run(run_clients(address, clients, work))[0]]


def latencies(took: list[float]) -> dict[str, float]:
    return {f"p{share}_ms": round(float(np.percentile(took, share)), 2) for share in (50, 95, 99)}


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(clients: int, took: list[tuple[str, int, float]], seconds: float, requests: int, cpu: float) -> None:
    """Print the latencies of every kind of request of some clients, and of a bare uvicorn with as many clients."""
    bare = measure_bare(clients, max(clients, min(requests, 2000)))
    facts = {"clients": clients}
    print(json.dumps({**facts, "kind": "bare uvicorn", "count": len(bare), **latencies(bare)}))
    for kind in dict.fromkeys(name for name, _, _ in sorted(took)):
        own = [ms for name, status, ms in took if name == kind and status == 200]
        wrong = Counter(str(status) for name, status, _ in took if name == kind and status != 200)
        found = latencies(own) if own else {}
        ratio = {"ratio": round(found["p50_ms"] / float(np.median(bare)), 1)} if own else {}
        print(json.dumps({**facts, "kind": kind, "count": len(own), **found, **ratio, "refused": dict(wrong)}))
    whole = {"per_second": round(len(took) / seconds, 1), "server_cpu_ms": round(1000 * cpu / len(took), 2)}
    print(json.dumps({**facts, **whole}), flush=True)


def write_audit(folder: Path, rows: int, image_side: int) -> Path:
    """Write images, their features with one wrong label in five, and an audit with a forecast; return the audit's folder."""
    from likewise.config import Audit

    from likewise.curate.audit.audit import audit

    rng, classes = np.random.default_rng(0), max(3, rows // 50)
    files = [folder / f"{row}.jpg" for row in range(rows)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda row: draw(files[row], (image_side, image_side), row), range(rows)))
    true = np.arange(rows) % classes
    x = 2 * rng.standard_normal((classes, 16))[true] + rng.standard_normal((rows, 16))
    wrong, label = rng.permutation(rows)[: rows // 5], true.copy()
    label[wrong] = (true[wrong] + rng.integers(1, classes, len(wrong))) % classes
    split = np.where(true % 2, "test", "train")
    np.savez(folder / "features.npz", x=x.astype(np.float32), label=label, split=split, path=list(map(str, files)))
    settings = Audit(
        (str(folder / "features.npz"),), device="cpu", workers=0, quiet=True, out=str(folder / "audit"), forecast=True
    )
    return audit(settings, say=lambda line: None).folder


class Reviewers:
    """Requests of reviewers, drawn at random, and what the server acknowledged."""

    KINDS = {"picture": 6, "item": 3, "decide": 4, "undo": 1, "plan": 1, "newest plan": 1, "queue": 1}
    """Kind of request -> its weight."""

    def __init__(self, folder: Path, think: float):
        findings = read_findings(folder)
        self.items, self.rows = [str(one.row) for one in findings.suspects], list(findings.sample)
        self.think, self.left = think, 0
        self.random: dict[int, random.Random] = {}  # of each client, for all its requests
        self.decisions: set[tuple] = set()
        self.undone: set[int] = set()

    async def work(self, client: Client, number: int) -> None:
        """Send random requests until none is left."""
        rng, who = self.random.setdefault(number, random.Random(number)), f"reviewer{number}"
        while self.left > 0:
            self.left -= 1
            [kind] = rng.choices(list(self.KINDS), list(self.KINDS.values()))
            await self.ask(client, kind, who, rng)
            if self.think:
                await asyncio.sleep(rng.expovariate(1 / self.think))

    async def ask(self, client: Client, kind: str, who: str, rng: random.Random) -> None:
        item = rng.choice(self.items)
        if kind == "decide":
            choice = rng.choice(("keep", "remove", "unsure"))
            sent = {"reviewer": who, "choices": [{"item": item, "choice": choice}]}
            found = json.loads(await client.ask(kind, "POST", "/api/decide", json.dumps(sent).encode()))
            self.decisions |= {(d["id"], d["reviewer"], d["item"], d["choice"]) for d in found["decisions"]}
        elif kind == "undo":
            found = json.loads(await client.ask(kind, "POST", f"/api/undo?reviewer={who}"))
            self.undone |= {d["id"] for d in found["undone"]}
        else:
            path = {
                "picture": f"/picture/{rng.choice(self.rows)}", "item": f"/api/item/{item}?reviewer={who}",
                "plan": f"/api/plan?reviewer={who}", "newest plan": f"/api/plan?reviewer={who}&since=0",
                "queue": f"/api/queue?reviewer={who}&kind=sample",
            }[kind]  # fmt: skip
            await client.ask(kind, "GET", path)

    def lost(self, store: Path) -> int:
        """Return the number of acknowledged decisions and undos that are not in the store."""
        with closing(sqlite3.connect(store)) as base:
            assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            stored = set(base.execute("SELECT id, reviewer, item, choice FROM decision"))
            undone = {id for (id,) in base.execute("SELECT undoes FROM decision WHERE undoes IS NOT NULL")}
        return len(self.decisions - stored) + len(self.undone - undone)


def review(rows: int, image_side: int, clients: list[int], requests: list[int], think: float) -> None:
    """Measure the review server; `requests` are those of each number of clients."""
    with tempfile.TemporaryDirectory() as name:
        folder = write_audit(Path(name), rows, image_side)
        command = ("-m", "likewise", "review", str(folder), "--port", "0", "--no-browser")
        asked, sent, answers, rss = Reviewers(folder, think), 0, Counter(), {}
        with started(*command) as (server, address):
            for count, most in zip(clients, requests, strict=True):
                asked.left = count  # warms it up
                asyncio.run(run_clients(address, count, asked.work))
                took, seconds, cpu = [], 0.0, cpu_seconds(server.pid)
                for some in (most // 2, most - most // 2):
                    asked.left = some
                    more, wall = asyncio.run(run_clients(address, count, asked.work))
                    took, seconds, sent = took + more, seconds + wall, sent + some
                    rss[sent] = memory("VmRSS", server.pid) >> 20
                answers.update(str(status) for _, status, _ in took)
                report(count, took, seconds, most, cpu_seconds(server.pid) - cpu)
        facts = {"rows": rows, "suspects": len(asked.items), "rss_mb": rss, "answers": dict(answers)}
        lost = asked.lost(folder / "decisions.sqlite")
        print(json.dumps({**facts, "acknowledged": len(asked.decisions) + len(asked.undone), "lost": lost}))


async def search_all(waiting: list[Path], client: Client, number: int) -> None:
    """Search waiting images until none is left."""
    while waiting:
        body = waiting.pop().read_bytes()
        await client.ask("search", "POST", "/api/search", body, "application/octet-stream")


def load(target: str, pictures: str, clients: list[int], requests: list[int]) -> None:
    """Measure the search server; `requests` are those of each number of clients."""
    files = sorted(file for file in Path(pictures).rglob("*") if file.suffix.lower() in SUFFIXES)
    answers = Counter()
    with started("-m", "likewise", "search", target, "--serve", "--port", "0", "--no-browser") as (server, address):
        for count, most in zip(clients, requests, strict=True):
            waiting = random.Random(0).choices(files, k=most)
            cpu = cpu_seconds(server.pid)
            took, seconds = asyncio.run(run_clients(address, count, partial(search_all, waiting)))
            answers.update(str(status) for _, status, _ in took)
            report(count, took, seconds, most, cpu_seconds(server.pid) - cpu)
        peak = memory("VmHWM", server.pid) >> 20
    lost = sum(requests) - answers.total()
    print(json.dumps({"answers": dict(answers), "lost": lost, "peak_memory_mb": peak, "ended": server.returncode}))


def made_rows(rows: int, dim: int, paths: list[str]):
    """Return the rows of an index, 50 per class, with these paths."""
    from likewise.deploy.index.stored_rows import Rows, pack

    rng = np.random.default_rng(0)
    centre = rng.normal(size=(max(1, rows // 50), dim)).astype(np.float32)
    vectors = np.empty((rows, dim), np.float32)
    for first in range(0, rows, 2**16):
        some = slice(first, min(rows, first + 2**16))
        label = np.arange(some.start, some.stop) % len(centre)
        vectors[some] = centre[label] + 0.8 * rng.normal(size=(len(label), dim)).astype(np.float32)
        vectors[some] /= np.linalg.norm(vectors[some], axis=1, keepdims=True)
    table, text = pack(np.arange(rows), np.arange(rows) % len(centre), paths)
    names = tuple(f"class {number}" for number in range(len(centre)))
    return Rows(vectors, table, text, names, np.ones(rows, bool), "cosine")


def index(rows: int, dim: int, kinds: list[str]) -> None:
    from likewise.deploy.index.vector_index import Index

    whole, rng = made_rows(rows, dim, [f"{row}.jpg" for row in range(rows)]), np.random.default_rng(1)
    vectors = whole.vectors
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


IMAGE_COUNT = 100
"""Number of image files that the made rows of `pages` share."""
SPLITS = ("train", "test")


def draw_images(folder: Path, rows: int) -> list[str]:
    """Draw some images, and return the path of the image of every row."""
    (folder / "images").mkdir(parents=True)
    files = [folder / "images" / f"{number}.jpg" for number in range(IMAGE_COUNT)]
    for number, file in enumerate(files):
        draw(file, (320, 240), number)
    return [str(files[row % IMAGE_COUNT]) for row in range(rows)]


def write_index(folder: Path, rows: int, dim: int) -> Path:
    """Write an index of made rows and return its folder."""
    from likewise.deploy.index.vector_index import Index

    Index(made_rows(rows, dim, draw_images(folder, rows))).save(folder / "shop")
    return folder / "shop"


def write_large_audit(folder: Path, rows: int) -> Path:
    """Write the files of an audit of made rows with one flagged label in ten, and return its folder."""
    from likewise.core.files import write_csv, write_json
    from likewise.curate.audit.page import write_page
    from likewise.curate.audit.read import ClassLine, Duplicate, Pair
    from likewise.curate.audit.states import STATE_DESCRIPTIONS
    from likewise.curate.audit.write import FIXED_COLUMNS
    from likewise.data.images import read_image

    rng, classes, out = np.random.default_rng(0), max(3, rows // 50), folder / "audit"
    out.mkdir(parents=True)
    paths, score, flagged = draw_images(folder, rows), rng.uniform(0.5, 1, rows), rng.random(rows) < 0.1
    score[flagged] -= 0.5
    names, label = [f"class {number}" for number in range(classes)], np.arange(rows) % classes
    suggested = (label + rng.integers(1, classes, rows)) % classes
    vote = rng.random(rows)

    def line(row: int) -> list:
        found = [
            "flagged",
            names[suggested[row]],
            0.9,
            0.4,
            "6 nearest: 5 with the suggested label, 1 with the given label",
        ]
        state = found if flagged[row] else ["ok", "", "", "", ""]
        own = [row, paths[row], names[label[row]], f"{score[row]:.6g}", *state, SPLITS[label[row] % 2], ""]
        return [*own, f"{vote[row]:.6g}", f"{1 - vote[row]:.6g}"]

    write_csv(out / "audit.csv", [*FIXED_COLUMNS, "vote", "density"], map(line, range(rows)))
    kinds = [
        (SPLITS[c % 2], names[c], 50, 5, 0.1, names[c - 2], 0.5, "individual", names[c - 2], 0.01, "distinct")
        for c in range(classes)
    ]
    write_csv(out / "classes.csv", ClassLine._fields, kinds)
    test = np.flatnonzero(label % 2)[: min(20_000, rows // 5)].tolist()
    errors = [(row, other, "confusion", 0.1, other, row) for row, other in pairwise(test)]
    write_csv(out / "pairs.csv", Pair._fields, errors)
    copies = [(row, other, 0.99, 3, "near", "test-test", 0, 0.9) for row, other in pairwise(test)]
    write_csv(out / "duplicates.csv", Duplicate._fields, copies)
    np.savez_compressed(out / "neighbours.npz", row=np.arange(rows), near=rng.integers(0, rows, (rows, 6)))
    count = [int(flagged[label % 2 == number].sum()) for number in range(2)]
    parts = {
        name: {
            "samples": rows // 2, "classes": classes // 2, "wrong": rows / 20, "flagged": own, "any": 0.1, "similar": 0.0,
            "of_all": 0.1, "of_touched": 0.1,
            "states": dict.fromkeys(STATE_DESCRIPTIONS, 0) | {"flagged": own, "ok": rows // 2 - own},
        }
        for name, own in zip(SPLITS, count)
    }  # fmt: skip
    about = {"title": "made rows", "root": "", "rows": rows, "pictures": True, "target": "made rows", "parts": parts}
    about |= {"scores": {"vote": "votes", "density": "density"}, "duplicates": {"test-test": len(copies)}}
    write_json(out / "audit.json", about)
    write_page(out, lambda row: read_image(Path(paths[row])), quiet=True)
    return out


def open_pages(rows: int, dim: int, wanted: list[str], repeats: int) -> None:
    """Open the pages of `wanted` in chromium with made rows, and print how long it takes and what is loaded."""
    from playwright.sync_api import sync_playwright

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        shop = write_index(Path(name, "s"), rows, dim) if "search" in wanted else None
        audited = write_large_audit(Path(name, "a"), rows) if {"review", "audit"} & set(wanted) else None
        for repeat in range(repeats):
            for kind in wanted:
                opened = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
                facts = {"page": kind, "rows": rows, "repeat": repeat}
                if kind == "audit":
                    facts |= watch(opened, (audited / "audit.html").as_uri(), kind)
                else:
                    words = ["search", str(shop), "--serve"] if kind == "search" else ["review", str(audited)]
                    begin = time.perf_counter()
                    with started("-m", "likewise", *words, "--port", "0", "--no-browser") as (server, address):
                        facts["server_s"] = round(time.perf_counter() - begin, 2)
                        facts |= watch(opened, address.geturl(), kind, server)
                opened.close()
                print(json.dumps(facts), flush=True)


FIRST_SHOWN = {
    "search": "[...document.querySelectorAll('#found img')].some((one) => one.complete && one.naturalWidth)",
    "review": "[...document.querySelectorAll('main img')].some((one) => one.complete && one.naturalWidth)",
    "audit": "document.readyState === 'complete' && document.body.innerText.length > 100",
}
"""Page -> expression that is true when it shows its first rows."""


def watch(browser, address: str, kind: str, server: subprocess.Popen | None = None) -> dict[str, float]:
    """Open a page and return seconds until its first rows and results, and the megabytes that it has loaded."""
    from playwright.sync_api import Error

    page, loaded = browser.new_page(viewport={"width": 1300, "height": 800}), []
    page.on("requestfinished", lambda one: loaded.append(one))  # playwright takes no method of a list

    def wait(expression: str, begin: float) -> float:
        shown = False
        while not shown:
            with suppress(Error):  # the entry page goes to another address
                shown = page.evaluate(f"() => Boolean({expression})")
            page.wait_for_timeout(10)
        return round(time.perf_counter() - begin, 2)

    begin = time.perf_counter()
    page.goto(address, wait_until="commit")
    found = {"first_s": wait(FIRST_SHOWN[kind], begin)}
    if server is not None:
        found["server_cpu_s"] = round(cpu_seconds(server.pid), 2)
    if kind == "search":
        begin = time.perf_counter()
        page.click("#found .pic")
        found["results_s"] = wait("document.querySelector('#found .fact')", begin)
        begin = time.perf_counter()
        found["words_s"] = wait("document.querySelector('#found .reading')", begin)
    size = sum(one.sizes()["responseBodySize"] for one in loaded)
    page.close()
    return found | {"mb": round(size / 1e6, 2)}


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("review")
    first.add_argument("--rows", type=int, default=3000)
    first.add_argument("--image-side", type=int, default=160)
    first.add_argument(
        "--think", type=float, default=0.0, help="mean pause of a client between two requests, in seconds"
    )
    one = commands.add_parser("load")
    one.add_argument("target")
    one.add_argument("pictures")
    for command, clients, requests in ((first, [1, 64], [1000, 9000]), (one, [1, 16], [200, 1000])):
        command.add_argument("--clients", type=int, nargs="+", default=clients)
        command.add_argument("--requests", type=int, nargs="+", default=requests, help="for each number of clients")
    other = commands.add_parser("index")
    other.add_argument("--rows", type=int, default=10**6)
    other.add_argument("--dim", type=int, default=128)
    other.add_argument("--kinds", nargs="+", default=["exact", "hnsw", "ivfpq"])
    last = commands.add_parser("pages")
    last.add_argument("--rows", type=int, default=10**6)
    last.add_argument("--dim", type=int, default=128)
    last.add_argument("--pages", nargs="+", choices=list(FIRST_SHOWN), default=list(FIRST_SHOWN))
    last.add_argument("--repeats", type=int, default=3)
    toy = {"clients": [1, 2], "requests": [10, 20], "rows": 1000, "dim": 16, "repeats": 1}
    return parse_with_quick(parser, words, (first, one, other, last), **toy)


def main(words: Sequence[str] | None = None) -> None:
    given = parse(words)
    if given.command == "review":
        review(given.rows, given.image_side, given.clients, given.requests, given.think)
    elif given.command == "load":
        load(given.target, given.pictures, given.clients, given.requests)
    elif given.command == "pages":
        open_pages(given.rows, given.dim, given.pages, given.repeats)
    else:
        index(given.rows, given.dim, given.kinds)


if __name__ == "__main__":
    main()
