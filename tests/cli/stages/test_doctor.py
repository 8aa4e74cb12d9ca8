"""The command prints what is installed, as a table or as JSON."""

import json

import pytest
from likewise.config import Doctor

from likewise._version import __version__
from likewise.cli.main import main
from likewise.cli.stages.doctor import doctor
from likewise.runs import environment as machine


@pytest.fixture(autouse=True)
def without_a_hub(monkeypatch):
    monkeypatch.setattr(machine, "hub_answers", lambda: False)


def test_the_table_has_the_facts(capsys):
    found = doctor(Doctor())
    main(["doctor"])
    out = " ".join(capsys.readouterr().out.split())
    for part in ("likewise doctor", __version__, found["versions"]["torch"], "not reachable", "default backbone"):
        assert part in out


def test_json(capsys):
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["versions"] == doctor(Doctor())["versions"]
