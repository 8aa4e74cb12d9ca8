"""A missing package is an error that names the extra, for every tool that needs one, when sending and when receiving."""

import sys
import tomllib
from pathlib import Path

import pytest
from exchange_rows import write_vectors
from likewise.errors import LikewiseError

import likewise
from likewise.curate.exchange.packages import import_package

PACKAGES = {"faiss": "faiss", "qdrant": "qdrant_client", "lancedb": "lancedb", "pgvector": "psycopg"}
"""Tool -> the package that it needs."""


@pytest.mark.parametrize("tool", PACKAGES)
def test_a_missing_package_names_its_extra(tool, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGES[tool]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, PACKAGES[tool], None)
    place = {"pgvector": "postgresql://ann@/birds", "faiss": tmp_path / "i.faiss"}.get(tool, tmp_path / "place")
    reason = rf"{tool}: the package {PACKAGES[tool]} is missing .*; pip install 'likewise\[{tool}\]'"
    with pytest.raises(LikewiseError, match=reason):
        likewise.send(write_vectors(tmp_path, n=3), tool, place)
    if tool != "pgvector":
        Path(place).mkdir(exist_ok=True)
    with pytest.raises(LikewiseError, match=reason):
        likewise.receive(place, tool, tmp_path / "back.npz")


def test_the_extras_exist():
    file = Path(__file__).parents[3] / "pyproject.toml"
    assert PACKAGES.keys() <= tomllib.loads(file.read_text("utf-8"))["project"]["optional-dependencies"].keys()


def test_an_installed_package_is_returned():
    assert import_package("json.decoder", "tool").JSONDecoder
