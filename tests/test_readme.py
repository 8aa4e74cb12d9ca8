"""Every Python block in README and docs runs, and every `likewise` command shown there parses."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from bare_work import run_block
from PIL import Image

from likewise.cli import main as cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(kind: str):
    for page in PAGES:
        if page.name in ("exchange.md", "gallery.md") and kind == "python":
            continue  # run by tests/curate/exchange/test_docs.py, each with the package of its tool, and by tests/test_gallery.py
        for number, found in enumerate(re.finditer(rf"^```{kind}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S), 1):
            if "tune/mine" in found[1]:
                continue  # needs a search of its own: run by tests/papers/test_tune.py
            yield pytest.param(found[1], id=f"{page.name}-{number}")


def commands():
    for page in PAGES:
        for block in re.findall(r"^```(?:bash|sh)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words and words[0] in ("likewise", "./likewise"):
                    yield words[1:]


@pytest.fixture
def playground(tmp_path, monkeypatch):
    """A folder with what the examples speak of: birds/, one sub-folder per class."""
    rng = np.random.default_rng(0)
    for c in range(6):
        for i in range(4):
            file = tmp_path / "birds" / f"species {c}" / f"{i}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, playground, bare):
    bare(run_block, code, str(playground))


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 110


def test_commands_parse(subtests):
    for words in commands():
        with subtests.test(" ".join(words)):
            if words[0].startswith("-"):
                continue
            assert cli.parse(words[0], words[1:])
