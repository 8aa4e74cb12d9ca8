from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import ShareAboveZero
from likewise.core.contracts import Relevance
from likewise.data.relevance._named_samples import look_up, pair_keys, positions, read_named, related_ids
from likewise.data.schema import words_of

SAME_VALUES = {"1": 1.0, "true": 1.0, "yes": 1.0, "0": 0.0, "false": 0.0, "no": 0.0}
"""Words of the column same -> value."""


class JudgedPairs(Relevance):
    """Judged pairs, the same or not, from a file with the columns a, b and same; no other pair is known.

    Names and the order of a pair are as in `ListedPairs`. `same` is 1, true or yes, or 0, false or no. A pair with
    several lines has the mean of their values, so that the threshold decides by the majority. A pair without a line is neither
    positive nor negative.

    Args:
        file: .csv or .parquet file with the columns a, b, same.
        sample_names: names of the training samples; the run fills them in.
        threshold: a pair with at least this share of lines with "same" is positive.
        other_names: names of the other samples of the data; the run fills them in.
    """

    by: Literal["class", "sample"] = "sample"
    keys: Int[Tensor, "P"]
    values: Float[Tensor, "P"]

    def __init__(
        self, file: str, sample_names: Sequence[str], threshold: ShareAboveZero = 0.5, other_names: Sequence[str] = ()
    ):
        super().__init__()
        self.file = file
        self.sample_names = sample_names
        self.threshold = threshold
        self.other_names = other_names
        self.ids = len(sample_names)
        sheet = read_named("JudgedPairs", file)
        pairs, rows, self.note = positions(sheet, ("a", "b"), sample_names, other_names)
        words = [word.casefold() for word in words_of(sheet, "same")]
        for row in rows.tolist():
            if words[row] not in SAME_VALUES:
                raise sheet.wrong(row, "same must be 1, true, yes, 0, false or no", words[row], "correct it")
        judged = np.array([SAME_VALUES[words[row]] for row in rows.tolist()])
        keys, place = np.unique(pair_keys(pairs, self.ids), return_inverse=True)
        mean = np.bincount(place, weights=judged) / np.bincount(place)
        self.register_buffer("keys", torch.as_tensor(keys), persistent=False)
        self.register_buffer("values", torch.as_tensor(mean, dtype=torch.get_default_dtype()), persistent=False)

    def forward(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Float[Tensor, "B R"]:
        return look_up(self.keys, self.values, a, b, self.ids, math.nan)

    def related(self) -> tuple[Int[np.ndarray, "I1"], Int[np.ndarray, "M"]]:
        """Return the ids that are relevant to each id: those of id i are `found[start[i] : start[i + 1]]`."""
        return related_ids(self.keys, self.values >= self.threshold, self.ids)
