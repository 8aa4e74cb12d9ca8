"""What figures share: names that are cut, and files that are written without warnings."""

from matplotlib.figure import Figure
from PIL import Image

from likewise.render.figures import save_figure, shorten


def test_a_long_name_is_cut_to_the_given_length():
    assert (
        shorten("sparrow", 7) == "sparrow" and shorten("sparrows", 7) == "sparro…" and len(shorten("x" * 99, 26)) == 26
    )


def test_a_figure_is_saved_as_png_and_missing_letters_give_no_warning(tmp_path, recwarn):
    figure = Figure(figsize=(2, 1))
    figure.suptitle("猫")
    save_figure(figure, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as page:
        assert page.size == (300, 150)
    assert not [w for w in recwarn if "Glyph" in str(w.message)]
