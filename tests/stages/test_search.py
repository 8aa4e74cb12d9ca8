"""`likewise search`: settings that cannot work are refused first."""

import pytest

from likewise.config import Search
from likewise.stages.search import search
from likewise.types import LikewiseError


def look(target, query, **settings):
    return search(Search(target=str(target), query=str(query), device="cpu", workers=0, quiet=True, **settings))


def test_settings_that_cannot_work(picture_run, run, tmp_path):
    for settings, says in [
        ({"k": 0}, "k must be 1 or more, got 0"),
        ({"out": str(tmp_path / "no" / "x.png")}, "search: the folder of --out '.*' does not exist"),
        ({"out": str(tmp_path / "x.jpg")}, "search: --out must end in .png"),
        ({"model": str(run.path)}, "is a run and has its own network"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            look(picture_run.path, 0, **settings)
    with pytest.raises(LikewiseError, match=r"search: there is no '.*nothing'; give a run folder"):
        look(tmp_path / "nothing", 0)
    with pytest.raises(LikewiseError, match="is not a run folder"):
        look(tmp_path, 0)
