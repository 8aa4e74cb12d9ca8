"""`likewise apply` prints what it would do, does it, and names the command that reverses it."""

import pytest

from likewise.cli.main import main


@pytest.fixture
def table(tmp_path):
    for path in ("photos/a/1.jpg", "photos/b/2.jpg"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(path)
    file = tmp_path / "corrected.csv"
    file.write_text(f"path,label\n{tmp_path}/photos/a/1.jpg,b\n{tmp_path}/photos/b/2.jpg,b\n")
    return file


def test_the_plan_is_printed_first(table, tmp_path, capsys):
    main(["apply", str(table), "--root", str(tmp_path / "photos")])
    printed = capsys.readouterr().out
    assert "would change" in printed and "1 images relabelled" in printed and "add --to FOLDER" in printed
    assert (tmp_path / "photos/a/1.jpg").exists()


def test_moves_and_the_command_that_reverses_them(table, tmp_path, capsys):
    main(["apply", str(table), "--root", str(tmp_path / "photos"), "--in-place"])
    assert (tmp_path / "photos/b/1.jpg").exists() and f"undo: likewise apply {table} --undo" in capsys.readouterr().out
    main(["apply", str(table), "--undo"])
    assert (tmp_path / "photos/a/1.jpg").exists()


def test_a_missing_table_ends_with_two(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["apply", str(tmp_path / "nothing.csv")])
    assert end.value.code == 2 and "give the corrected.csv of a review" in capsys.readouterr().err
