"""The examples of docs/exchange.md run, each with its real package; one without its package is skipped."""

import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from exchange_rows import LABELS, write_audit

import likewise
from likewise.curate.exchange import TOOL_BY_NAME

PAGE = (Path(__file__).parents[3] / "docs" / "exchange.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n+```python\n(.*?)^```", PAGE, re.M | re.S))
PACKAGES = {
    "Hugging Face datasets": ("datasets",), "faiss": ("faiss",), "Qdrant": ("qdrant_client",), "LanceDB": ("lancedb",),
    "pgvector": ("psycopg", "pgvector"),
}  # fmt: skip
"""Example -> the packages that it needs."""
ADDRESS = "postgresql://ann@localhost/birds"
"""Address in the example of pgvector."""


@pytest.fixture
def playground(tmp_path, monkeypatch):
    """A folder with what the examples name: an audit of a run, embeddings, and exports of people's work."""
    audit = write_audit(tmp_path / "runs" / "mine", n=40, images=True)
    np.savez(tmp_path / "z.npz", x=np.eye(40, dtype=np.float32), label=[LABELS[i % len(LABELS)] for i in range(40)])
    line = {"row": 3, "label": LABELS[3], "choice": "remove", "annotator": "ann@b.example", "id": 1}
    (tmp_path / "export.json").write_text(json.dumps([line]))
    likewise.send(audit, "cvat", tmp_path / "sent")
    tree = ET.parse(tmp_path / "sent" / "annotations.xml")
    tree.find("image/tag/attribute").text = "remove"
    tree.write(tmp_path / "annotations.xml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_tool_has_a_short_example():
    assert len(EXAMPLES) == len(TOOL_BY_NAME) + 4  # vector stores that read Parquet
    for code in EXAMPLES.values():  # and the imports
        assert len([line for line in code.splitlines() if line.strip() and "import" not in line]) <= 5


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, playground, capsys):
    for package in PACKAGES.get(name, ()):
        pytest.importorskip(package, reason=f"the example of {name} needs it")
    exec(EXAMPLES[name].replace(ADDRESS, os.environ.get("LIKEWISE_POSTGRESQL", skipped(name))), {})
    printed = capsys.readouterr().out
    tool = name.lower().replace(" datasets", "").replace(" ", "-")
    assert (f"received from {tool}" if tool in TOOL_BY_NAME else "40") in printed


def skipped(name):
    """Skip the example of pgvector without the address of a server for it."""
    if name == "pgvector" and "LIKEWISE_POSTGRESQL" not in os.environ:
        pytest.skip("needs a PostgreSQL server with pgvector, at the address LIKEWISE_POSTGRESQL")
    return ADDRESS
