"""Serve: a search by image over HTTP, for people (a page) and for programs (JSON).

With a run of your own: likewise search runs/mine --serve
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from task_data import BAD, GOOD, draw_rows, parse, start, write_glyphs

import likewise


def main(folder: str, quick: bool = False) -> dict:
    home = Path(folder)
    photos = write_glyphs(home / "photos", classes=12 if quick else 40, per_class=12)
    run = likewise.train(
        photos, backbone="conv_small", size=40, lr=2e-3, epochs=3 if quick else 12, out=home / "run", quiet=True,
        sampler="SamplesPerClass(batch=24, per_class=4)", protocol="UnseenClasses(train=1)",
    )  # fmt: skip

    server, address, token = serve(run.path)
    try:
        query = sorted(photos.glob("*/*.png"))[0]
        request = urllib.request.Request(
            f"{address}api/search?k=7", query.read_bytes(), {"Authorization": f"Bearer {token}"}
        )
        answer = json.load(urllib.request.urlopen(request, timeout=600))
    finally:
        server.send_signal(signal.SIGINT)  # Ctrl-C
        code = server.wait(600)

    text = f"{len(answer['found'])} rows; the nearest: {answer['found'][0]['class']}, {answer['found'][0]['similarity']:.3f}"
    return {"query": query, "answer": answer, "photos": photos, "code": code, "text": text}


def serve(run: Path) -> tuple[subprocess.Popen, str, str]:
    """Start `likewise search RUN --serve` on a free port; return the process, its address and its token."""
    words = f"-P -m likewise search {shlex.quote(str(run))} --serve --port 0 --no-browser --quiet"
    command = [sys.executable, *shlex.split(words)]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    for line in server.stdout or ():
        if "http://" in line:
            address, _, token = line.split()[1].partition("?token=")
            return server, address, token
    raise SystemExit(f"serve: the server ended with code {server.wait()}")


def draw(result: dict, picture: str) -> None:
    name = result["query"].parent.name
    row = [(result["query"], f"POST\n{name}", "#22262e")]
    for one in result["answer"]["found"]:
        file, text = result["photos"] / one["class"] / one["name"], f"{one['class']}\n{one['similarity']:.2f}"
        row.append((file, text, GOOD if one["class"] == name else BAD))
    draw_rows(picture, [row], "The image that was sent, and the rows of the answer", height=1.7)


if __name__ == "__main__":
    start(main, draw, parse())
