from likewise.config import Hierarchy

from likewise.cli.stages.hierarchy import hierarchy


def test_the_tree_and_its_files(finished, tmp_path):
    found = hierarchy(Hierarchy(str(finished.path), clusters=3, out=str(tmp_path), device="cpu", quiet=True))
    assert len(found.levels) == 1 and len(set(found.levels[0].tolist())) == 3 and found.picture.exists()
    html = found._repr_html_()
    assert "tree of classes" in html and str(found.picture) in html
