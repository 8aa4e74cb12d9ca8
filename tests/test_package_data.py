"""What setuptools installs beside the code: every other file of the package, by the patterns in pyproject.toml."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / "src" / "likewise"
PATTERNS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]["likewise"]


def test_every_file_of_the_package_is_installed_and_every_pattern_finds_one():
    found = {pattern: {file for file in HOME.glob(pattern) if file.is_file()} for pattern in PATTERNS}
    assert [pattern for pattern, files in found.items() if not files] == []
    files = (file for file in HOME.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    left_out = {file for file in files if file.suffix != ".py"} - set().union(*found.values())
    assert sorted(str(file.relative_to(HOME)) for file in left_out) == []


def test_every_folder_with_code_is_a_package():
    without = {file.parent for file in HOME.rglob("*.py") if not (file.parent / "__init__.py").exists()}
    assert sorted(str(folder.relative_to(HOME)) for folder in without) == []
