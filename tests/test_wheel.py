"""The wheel: built from the source distribution, installed without its dependencies, and used from an empty folder."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.process]

ROOT = Path(__file__).parent.parent
SOURCES = (
    "src",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "SECURITY.md",
    "MANIFEST.in",
    "pyproject.toml",
)
STEPS = """
import os, sys
import likewise
assert likewise.__file__.startswith(sys.argv[1]), likewise.__file__
from likewise.cli.main import main
for words in (
    ["demo", "--data", "glyphs(classes=12, per_class=6)", "--epochs", "2", "--out", "demo", "--quiet"],
    ["audit", "demo/robust"],
    ["report", "demo/robust", "--map", "pca"],
    ["search", "demo/robust", "--query", "0"],
    ["recipe", "proxy-anchor"],
    ["list", "tables"],
    ["export", "demo/robust", "--to", "safetensors", "--out", "exported"],
):
    print("step:", *words, flush=True)
    main(words)
"""
"""One process, because each start imports torch."""


def call(*words, **options) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def package_files() -> set[str]:
    """Return the paths of the package's files in the checkout, from the folder `src`."""
    found = (file for file in (ROOT / "src" / "likewise").rglob("*") if file.is_file())
    return {file.relative_to(ROOT / "src").as_posix() for file in found if "__pycache__" not in file.parts}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source distribution. The build is offline and leaves the checkout as it is."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, source / name)
    call(sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", out, source, cwd=out)
    return out


def test_the_distributions_have_every_file_of_the_package(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        about = Parser().parsestr(wheel.read(next(n for n in names if n.endswith("/METADATA"))).decode())
        commands = wheel.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()
    assert {name for name in names if name.startswith("likewise/")} == package_files() > {"likewise/py.typed"}
    assert about["Name"] == "likewise" and about["License-Expression"] == "MIT"
    assert "Typing :: Typed" in about.get_all("Classifier") and "likewise = likewise.cli.main:main" in commands
    assert f"\nversion: {about['Version']}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {f"src/{name}" for name in package_files()} | {"LICENSE", "CITATION.cff"} <= names
    assert not any(name.startswith("tests") for name in names)


def test_the_installed_wheel_works_in_an_empty_folder(built, tmp_path):
    site, folder = tmp_path / "site", tmp_path / "empty"
    folder.mkdir()
    pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site]
    call(*pip, next(built.glob("*.whl")), cwd=folder)
    variables = {**os.environ, "PYTHONPATH": str(site)}
    shown = call(sys.executable, "-P", "-c", STEPS, site, cwd=folder, env=variables)
    assert shown.count("step:") == 7 and "ProxyAnchor" in shown and "procsim-table5" in shown
    for name in ("gallery.png", "per_query.parquet", "audit/audit.html", "report.html"):
        assert (folder / "demo" / "robust" / name).stat().st_size > 1000, name
    assert (folder / "exported" / "model.safetensors").exists()
    version = call(site / "bin" / "likewise", "--version", cwd=folder, env=variables)
    assert version.startswith("likewise 0.")
