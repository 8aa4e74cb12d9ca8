"""`likewise send` as a command: it prints a line, or ends with 2 and a reason."""

import pytest
from exchange_rows import write_audit

from likewise.cli import main as cli


def test_the_command_prints_rows_place_and_notes(tmp_path, capsys):
    audit = write_audit(tmp_path, n=5)
    words = ["send", str(audit), "--to", "csv", "--out", f"{tmp_path}/t.csv", "--columns", "label=class", "path=image"]
    cli.main(words)
    assert capsys.readouterr().out == f"5 rows sent to csv: {tmp_path}/t.csv\n"
    assert (tmp_path / "t.csv").read_text("utf-8").startswith("image,class,split,score")
    cli.main([*words, "--quiet", "--replace"])
    assert capsys.readouterr() == ("", "")
    before = (tmp_path / "t.csv").read_bytes()
    with pytest.raises(SystemExit):
        cli.main([*words, "--top", "1"])
    assert (
        "must be a new file, but it exists; choose another name, or replace it with --replace"
        in capsys.readouterr().err
    )
    assert (tmp_path / "t.csv").read_bytes() == before


def test_a_bad_target_ends_with_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["send", f"{tmp_path}/none", "--to", "csv", "--out", f"{tmp_path}/t.csv"])
    assert end.value.code == 2 and "is neither a known name nor an existing path" in capsys.readouterr().err
