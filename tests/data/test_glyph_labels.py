"""The glyphs with several labels: the same images, labels that follow from character and font, splits without a common set."""

import numpy as np
import pytest

from likewise.data import load
from likewise.data.glyphs import characters, draw, face_of, font_files, glyph_labels, glyphs, labels_of_font


def test_labels_follow_from_character_and_font(tmp_path):
    items, plain = (
        glyph_labels(tmp_path, size=16, per_class=3, classes=40),
        glyphs(tmp_path, size=16, per_class=3, classes=40),
    )
    assert items.path == plain.path and items.split.tolist() == plain.split.tolist() and items.taxonomy is None
    table = characters()[:40]
    for row in range(0, len(items), 7):
        code, script, kind, _ = table[row // 3]
        names = {items.label_name[label] for label in items.label_sets[items.y[row]]}
        assert {script, kind} <= names and (chr(code) in names or chr(code).lower() in names)
        assert len(names & {"sans", "serif", "monospaced"}) == 1
        assert (
            "|".join(items.label_name[label] for label in items.label_sets[items.y[row]])
            == items.class_name[items.y[row]]
        )
    assert not set(items.y[items.split == "train"]) & set(items.y[items.split == "test"])


def test_the_font_is_the_one_that_is_drawn():
    """Both take the first random number of the image: with one font at a time, only the right one draws the same image."""
    faces = font_files([65])[65]
    face = face_of(0, 65, 4, faces)
    assert faces.count(face) == 1
    rng = np.random.default_rng((0, 65, 4))
    assert face == faces[int(rng.random() * len(faces))]
    whole, alone = (np.asarray(draw(0, 65, 4, 24, some)) for some in (faces, (face,)))
    assert (whole == alone).all()


@pytest.mark.parametrize(
    ("font", "labels"),
    [("DejaVuSans-BoldOblique", ("sans", "bold", "italic")), ("DejaVuSansMono", ("monospaced",)),
     ("STIXGeneralBolIta", ("serif", "bold", "italic")), ("cmb10", ("serif", "bold")), ("cmti10", ("serif", "italic")),
     ("cmtt10", ("monospaced",)), ("cmss10", ("sans",))],
)  # fmt: skip
def test_labels_of_fonts(font, labels):
    assert labels_of_font(font) == labels


def test_it_is_a_named_data_set(tmp_path):
    items = load("glyph_labels(size=16, per_class=2, classes=4)", str(tmp_path))
    assert (items.name, len(items)) == ("glyph_labels", 8)
