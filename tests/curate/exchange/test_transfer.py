"""`send` and `receive`: the registry of tools, and what --into and --columns accept."""

import typing

import pytest
from exchange_rows import write_audit, write_vectors
from likewise.errors import LikewiseError

import likewise
from likewise.core.settings.exchange import ToolName
from likewise.curate.exchange import TOOL_BY_NAME
from likewise.curate.exchange.transfer import module_of


def test_the_config_names_the_tools_of_the_registry():
    assert typing.get_args(ToolName) == tuple(TOOL_BY_NAME)
    for name in TOOL_BY_NAME:
        module = module_of(name)
        assert callable(module.send) and callable(module.receive)


def test_results_show_themselves(tmp_path):
    sent = likewise.send(write_vectors(tmp_path, n=5), "csv", tmp_path / "t.csv")
    assert "<td" in sent._repr_html_() and "vectors are not in a CSV table" in str(sent)
    assert "labels" in likewise.receive(tmp_path / "t.csv", "csv", tmp_path / "u.csv")._repr_html_()


def test_bad_settings(tmp_path, unchecked):
    audit = write_audit(tmp_path, n=5)
    with pytest.raises(LikewiseError, match="send: to must be"):
        likewise.send(audit, "excel", tmp_path / "t")
    with pytest.raises(LikewiseError, match="send: --columns must be used with csv, got cvat"):
        likewise.send(audit, "cvat", tmp_path / "t", columns="label=class")
    likewise.send(audit, "csv", tmp_path / "t.csv")
    for into, reason in (
        ("t.parquet", "--into must be an audit folder, a .npz file for vectors or a .csv file for labels"),
        ("none/t.csv", "the folder of --into .* does not exist"),
        ("t.npz", "a .npz file must get vectors, but csv returned none; choose --into labels.csv"),
    ):
        with pytest.raises(LikewiseError, match=f"receive: {reason}"):
            likewise.receive(tmp_path / "t.csv", "csv", tmp_path / into)
