import numpy as np
from likewise.types import Items
from PIL import Image

from likewise.core.render.gallery import CAPTION_PIXELS, EDGE_PIXELS, GAP_PIXELS, TILE_PIXELS
from likewise.report.random_gallery import draw_random_gallery, is_right


def test_the_picture_has_a_line_for_every_query_and_is_the_same_again(finished_pictures, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        draw_random_gallery(
            finished_pictures.path / "embeddings.npz", tmp_path / f"{name}.png", "title", seed=seed, queries=3, k=2
        )
    page = Image.open(tmp_path / "a.png")
    assert page.size == (
        2 * EDGE_PIXELS + 3 * (TILE_PIXELS + GAP_PIXELS) + GAP_PIXELS,
        74 + 3 * (TILE_PIXELS + CAPTION_PIXELS + GAP_PIXELS) + EDGE_PIXELS,
    )
    a, b, c = ((tmp_path / f"{name}.png").read_bytes() for name in "abc")
    assert a == b != c


def test_a_shared_label_is_right():
    plain = Items("t", np.array([0, 1, 0]), ("a|b", "b|c"))
    assert [is_right(plain, 0, row) for row in (1, 2)] == [False, True]
    assert is_right(
        Items("t", plain.y, plain.class_name, label_name=("a", "b", "c"), label_sets=((0, 1), (1, 2))), 0, 1
    )
