"""The gallery: frames where they belong, in the colour that says what is true."""

import numpy as np
import pytest
from PIL import Image, ImageColor

from likewise.core.render.gallery import (
    CAPTION_PIXELS,
    EDGE_PIXELS,
    FRAME_PIXELS,
    GAP_PIXELS,
    INK_COLOUR,
    NEUTRAL_COLOUR,
    PAPER_COLOUR,
    RIGHT_COLOUR,
    TILE_PIXELS,
    WRONG_COLOUR,
    Tile,
    draw_gallery,
    fit,
    font_of,
    one_line,
)

HEAD = 74


def corner(line, place):
    """Upper left of a tile; place 0 is the query."""
    left = EDGE_PIXELS if place == 0 else EDGE_PIXELS + (TILE_PIXELS + GAP_PIXELS) * place + GAP_PIXELS
    return left, HEAD + line * (TILE_PIXELS + CAPTION_PIXELS + GAP_PIXELS)


def edges(page, line, place):
    """Pixels in the middle of the four sides of a frame."""
    left, top = corner(line, place)
    middle, far = TILE_PIXELS // 2, TILE_PIXELS - 1 - FRAME_PIXELS // 2
    near = FRAME_PIXELS // 2
    return [
        page.getpixel((left + x, top + y)) for x, y in [(middle, near), (near, middle), (far, middle), (middle, far)]
    ]


def blank(colour="#808080", size=(30, 20)):
    return Image.new("RGB", size, colour)


def test_frames_say_right_wrong_or_not_judged():
    judged = [[True, False, True], [False, None, False]]
    lines = [(Tile(blank(), "q"), [Tile(blank(), "a", "0.5", right) for right in row]) for row in judged]
    page = draw_gallery(lines, "title", "subtitle")
    colours = {True: RIGHT_COLOUR, False: WRONG_COLOUR, None: NEUTRAL_COLOUR}
    for line, row in enumerate(judged):
        for place, right in enumerate([None, *row]):
            assert set(edges(page, line, place)) == {ImageColor.getrgb(colours[right])}, (line, place)
    assert len({RIGHT_COLOUR, WRONG_COLOUR, NEUTRAL_COLOUR, PAPER_COLOUR}) == 4


def test_pictures_stand_inside_their_frames_in_order():
    colours = ["#ff0000", "#00ff00", "#0000ff"]
    page = draw_gallery([(Tile(blank("#123456"), "q"), [Tile(blank(c), "", "", True) for c in colours])], "t", "s")
    for place, colour in enumerate(["#123456", *colours]):
        left, top = corner(0, place)
        for x, y in [
            (FRAME_PIXELS, FRAME_PIXELS),
            (TILE_PIXELS // 2, TILE_PIXELS // 2),
            (TILE_PIXELS - FRAME_PIXELS - 1, TILE_PIXELS - FRAME_PIXELS - 1),
        ]:
            assert page.getpixel((left + x, top + y)) == ImageColor.getrgb(colour)


@pytest.mark.parametrize("size", [(1, 1), (3000, 20), (20, 3000), (8, 200), (900, 700)])
def test_any_shape_of_picture_fills_its_tile_from_the_middle(size):
    image = blank("#00ff00", size)
    page = draw_gallery([(Tile(image, "q"), [Tile(image, "a", right=True)])], "t", "s")
    left, top = corner(0, 0)
    inside = np.asarray(page)[
        top + FRAME_PIXELS : top + TILE_PIXELS - FRAME_PIXELS, left + FRAME_PIXELS : left + TILE_PIXELS - FRAME_PIXELS
    ]
    assert (inside == (0, 255, 0)).all()
    assert set(edges(page, 0, 0)) == {ImageColor.getrgb(NEUTRAL_COLOUR)}


def test_the_middle_of_a_wide_picture_is_shown():
    wide = blank("#ff0000", (300, 100))
    wide.paste((0, 0, 255), (100, 0, 200, 100))
    page = draw_gallery([(Tile(wide, "q"), [])], "t", "s")
    left, top = corner(0, 0)
    assert page.getpixel((left + TILE_PIXELS // 2, top + TILE_PIXELS // 2)) == (0, 0, 255)
    assert page.getpixel((left + FRAME_PIXELS + 3, top + TILE_PIXELS // 2)) == (0, 0, 255)


def test_the_page_has_room_for_the_longest_line():
    lines = [(Tile(blank(), "q"), [Tile(blank(), "a")] * n) for n in (1, 4, 2)]
    page = draw_gallery(lines, "t", "s")
    assert page.size == (
        2 * EDGE_PIXELS + 5 * (TILE_PIXELS + GAP_PIXELS) + GAP_PIXELS,
        HEAD + 3 * (TILE_PIXELS + CAPTION_PIXELS + GAP_PIXELS) + EDGE_PIXELS,
    )
    left, top = corner(0, 3)
    assert page.getpixel((left + TILE_PIXELS // 2, top + TILE_PIXELS // 2)) == ImageColor.getrgb(
        PAPER_COLOUR
    )  # nothing is drawn where nothing is


def test_captions_are_written_and_cut_to_their_tile():
    long = "a very long class name that could never fit " * 5
    page = draw_gallery([(Tile(blank(), long), [Tile(blank(), "")])], long, long)
    seen = np.asarray(page).astype(int)
    dark = np.abs(seen - ImageColor.getrgb(INK_COLOUR)).max(2) < 40
    top = HEAD + TILE_PIXELS + 2
    assert dark[top : top + 16, EDGE_PIXELS : EDGE_PIXELS + TILE_PIXELS].any()
    left = corner(0, 1)[0]
    assert not dark[
        top : top + 16, EDGE_PIXELS + TILE_PIXELS + 3 : left + TILE_PIXELS
    ].any()  # it does not run into its neighbour
    assert not dark[:, page.width - EDGE_PIXELS + 1 :].any()


def test_names_with_line_breaks_are_drawn_on_one_line():
    assert fit("a\nb\u2029c", font_of(12), 500) == "a b c"
    assert font_of(12).getlength(fit("a\nb" * 99, font_of(12), 60)) <= 60


def test_undecodable_bytes_are_escaped_so_that_names_differ():
    assert one_line("caf\udce9\n\x1b[2J\u202e.png") == "caf\\udce9  [2J .png"
