import pytest
from likewise.errors import LikewiseError

from likewise.curate.audit.read_votes import VoteLine, read_consensus, read_votes, read_workers


def test_lines(tmp_path):
    (tmp_path / "annotators.csv").write_text("h,,,,,,,,\nanna,7,0.9,0.8,0.95,,cat,dog,2\nben,5,0.5,0.2,0.8,0.4,,,0\n")
    anna, ben = read_workers(tmp_path)
    assert anna.disagreement is None and anna.confusion == "cat as dog, 2 times" and ben.confusion == ""
    (tmp_path / "consensus.csv").write_text("h,,,,,,,,,\n3,a.png,cat,dog,0.1,other label,0.05,3,2,dog x 2|cat x 1\n")
    [one] = read_consensus(tmp_path)
    assert one.row == 3 and one.consensus == "dog" and one.for_consensus == 2
    (tmp_path / "annotator_votes.csv").write_text('row,worker,label\n3,anna,"dog|cat"\n3,,dog\n')
    assert read_votes(tmp_path) == [VoteLine(3, "anna", "dog|cat"), VoteLine(3, "", "dog")]


def test_missing_and_damaged_files(tmp_path):
    assert read_workers(tmp_path) == read_votes(tmp_path) == [] and read_consensus(tmp_path) == []
    (tmp_path / "annotators.csv").write_text("a,b\n1,2\n")
    with pytest.raises(LikewiseError, match="must have 9 columns"):
        read_workers(tmp_path)
