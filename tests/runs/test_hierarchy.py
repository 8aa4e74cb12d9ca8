"""hierarchy.json and hierarchy.csv come back as they were written."""

import pytest
from likewise.types import LikewiseError

from likewise.runs.hierarchy import read_hierarchy, write_hierarchy


def test_clusters_come_back(tmp_path):
    assert read_hierarchy(tmp_path) is None
    classes = {"wren": ["level 2 cluster 0", "level 1 cluster 3"], "tit": ["level 2 cluster 1", "level 1 cluster 0"]}
    write_hierarchy(tmp_path, {"how": "by hand"}, classes)
    assert read_hierarchy(tmp_path) == classes
    lines = (tmp_path / "hierarchy.csv").read_text().splitlines()
    assert lines[:2] == ["class_name,level_2,level_1", "wren,level 2 cluster 0,level 1 cluster 3"]
    classes = ("[]", "{}", '{"a": "b"}', '{"a": ["b"], "c": []}')
    for damaged in ("{", "{}", *(f'{{"classes": {one}}}' for one in classes)):
        (tmp_path / "hierarchy.json").write_text(damaged)
        with pytest.raises(LikewiseError, match="hierarchy.json is damaged"):
            read_hierarchy(tmp_path)
