import pytest
from likewise.config import Published
from likewise.errors import LikewiseError

from likewise.cli.stages.published import published


def test_chosen_numbers_are_tables_and_all_numbers_an_overview(tmp_path):
    chosen = published(Published(paper="procsim", table="5", csv=str(tmp_path / "n.csv")))
    assert chosen.is_chosen and {(n.paper, n.table) for n in chosen} == {("procsim", "5")}
    assert len((tmp_path / "n.csv").read_text().splitlines()) == len(chosen) + 1
    assert "procsim, table 5" in chosen._repr_html_() and chosen[0].about[0][:20] in chosen._repr_html_()
    every = published(Published())
    assert not every.is_chosen and len(every) > len(chosen) and f"{len(every):,} numbers" in every._repr_html_()


def test_a_file_of_another_kind_is_refused_first(tmp_path):
    with pytest.raises(LikewiseError, match=r"--csv must end in \.csv"):
        published(Published(paper="procsim", csv=str(tmp_path / "n.txt")))
