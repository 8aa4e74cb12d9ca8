"""The glyphs with several labels per image: letter, script, kind (such as uppercase), font, and bold or italic strokes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from likewise.core.types import Items
from likewise.data.glyphs import characters, face_of, font_files, glyphs
from likewise.data.label_sets import join_labels, with_label_sets

FONT_FAMILIES = {
    "DejaVuSansMono": "monospaced", "DejaVuSerif": "serif", "DejaVuSans": "sans", "STIXGeneral": "serif", "cmss": "sans",
    "cmtt": "monospaced", "cm": "serif",
}  # fmt: skip
"""Start of the name of a font file -> label of its family; the first that fits."""


def glyph_labels(
    root: str | Path | None = None, *, size: int = 40, per_class: int = 24, classes: int | None = None, seed: int = 0
) -> Items:
    """Return the images of `glyphs` with several labels each. A class is a distinct set of labels.

    Labels of an image: the letter without its case ("a" for A and a; another character is its own label), the script ("Common"
    for digits and signs), the kind ("uppercase", "digit"), the family of its font, and "bold" and "italic" if they apply. Splits
    are those of `glyphs`: a letter can be in training as uppercase and in testing as lowercase, but no set of labels is in both.

    Args:
        root: as for `glyphs`.
        size: as for `glyphs`.
        per_class: images per character.
        classes: use only the first characters. Default: all.
        seed: seed of the drawing.
    """
    items = glyphs(root, size=size, per_class=per_class, classes=classes, seed=seed)
    table = characters()[: items.classes]
    faces = font_files([code for code, *_ in table])
    names = []
    for code, script, kind, _ in table:
        letter = chr(code).lower() if kind == "uppercase" else chr(code)
        of_character = letter, script, kind
        drawn = (face_of(seed, code, number, faces[code]) for number in range(per_class))
        names += [join_labels(sorted((*of_character, *labels_of_font(Path(face).stem)))) for face in drawn]
    class_name, y = np.unique(names, return_inverse=True)
    sets = replace(items, name="glyph_labels", y=y, class_name=tuple(class_name.tolist()), taxonomy=None)
    return with_label_sets(sets)


def labels_of_font(name: str) -> tuple[str, ...]:
    """Return the family of a font, and whether it is bold or italic, from the name of its file."""
    family = next(label for start, label in FONT_FAMILIES.items() if name.startswith(start))
    bold = ("bold",) if "Bol" in name or name == "cmb10" else ()
    italic = ("italic",) if "Ita" in name or "Oblique" in name or name == "cmti10" else ()
    return (family, *bold, *italic)
