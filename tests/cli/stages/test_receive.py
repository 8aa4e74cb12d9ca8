"""`likewise receive` as a command: `--from` is a flag, and decisions are counted."""

import pytest
from exchange_rows import write_audit

from likewise.cli import main as cli


def test_the_command_prints_what_was_received(tmp_path, capsys):
    audit = write_audit(tmp_path, n=5)
    (tmp_path / "t.csv").write_text("id,class\n2,wren\n")
    words = ["receive", f"{tmp_path}/t.csv", "--from", "csv", "--columns", "label=class", "row=id"]
    cli.main([*words, "--into", f"{tmp_path}/u.csv"])
    assert capsys.readouterr().out == f"1 labels received from csv: {tmp_path}/u.csv\n"
    cli.main([*words, "--into", str(audit), "--reviewer", "Ann"])
    assert capsys.readouterr().out == f"1 decisions received from csv: {audit}/decisions.sqlite\n"


def test_a_misspelt_flag_ends_with_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["receive", f"{tmp_path}/t.csv", "--form", "csv", "--into", f"{tmp_path}/u.csv"])
    assert end.value.code == 2 and "there is no flag '--form'; did you mean '--from'?" in capsys.readouterr().err


def test_help_shows_the_flag(capsys):
    cli.main(["receive", "--help"])
    assert "--from {label-studio," in capsys.readouterr().out
