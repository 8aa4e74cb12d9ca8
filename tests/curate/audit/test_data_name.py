"""The name of the data on pages."""

import json

import pytest

from likewise.curate.audit.data_name import data_name
from likewise.curate.audit.read import read_findings


@pytest.mark.parametrize(
    ("root", "paths", "name"),
    [
        ("/home/ann/photos", ["wren/0.png", "tit/1.png"], "photos"),
        ("/home/ann", ["/home/ann/photos/wren/0.png", "/home/ann/photos/tit/1.png"], "photos"),
        ("/data/cub", ["images/wren/0.png", "images/tit/1.png"], "cub"),  # "images" says nothing
        ("/data/photos", ["0.png", "1.png"], "photos"),
        ("", ["wren/0.png", "tit/1.png"], "z.npz"),  # unknown place
        ("/", ["/a/0.png", "/b/1.png"], "z.npz"),
    ],
)
def test_the_folder_with_all_images(tmp_path, root, paths, name):
    lines = [f"{n},{path},wren,0.9,,,,," for n, path in enumerate(paths)]
    head = "row,path,label,score,suggested,confidence,margin,reason,split"
    (tmp_path / "audit.csv").write_text("\n".join([head, *lines]))
    for pictures, wanted in ((True, name), (False, "z.npz")):
        about = {"root": root, "title": "z.npz", "rows": 2, "pictures": pictures}
        (tmp_path / "audit.json").write_text(json.dumps(about))
        assert data_name(read_findings(tmp_path)) == wanted
