from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative, ShareAboveZero
from likewise.core.contracts import Relevance
from likewise.core.types import LikewiseError
from likewise.data.relevance._named_samples import look_up, pair_keys, positions, read_named, related_ids
from likewise.data.schema import number, text


class ListedPairs(Relevance):
    """Relevance of pairs of samples from a file with the columns a, b and value: two names, and a number from 0 to 1.

    A sample is named by its path in the table of the data, or by its row number if the data has no paths. The order of a pair
    does not matter. Lines with samples that do not train are ignored. Memory grows with the number of lines, not of all pairs.

    Args:
        file: .csv or .parquet file with the columns a, b, value.
        sample_names: names of the training samples; the run fills them in.
        threshold: a pair of this relevance or more is positive.
        unlisted: relevance of a pair that is not in the file; None: not known, so that the pair is neither positive nor negative.
        other_names: names of the other samples of the data; the run fills them in.
    """

    by: Literal["class", "sample"] = "sample"
    keys: Int[Tensor, "P"]
    values: Float[Tensor, "P"]

    def __init__(
        self,
        file: str,
        sample_names: Sequence[str],
        threshold: ShareAboveZero = 0.5,
        unlisted: NotNegative | None = 0.0,
        other_names: Sequence[str] = (),
    ):
        super().__init__()
        if unlisted is not None and unlisted >= threshold:
            raise LikewiseError(
                f"ListedPairs: unlisted must be below the threshold of {threshold:g}, or nearly all pairs would be positive, got "
                f"{unlisted:g}"
            )
        self.file = file
        self.sample_names = sample_names
        self.threshold = threshold
        self.unlisted = unlisted
        self.other_names = other_names
        self.ids = len(sample_names)
        sheet = read_named("ListedPairs", file)
        pairs, rows, self.note = positions(sheet, ("a", "b"), sample_names, other_names)
        cells = sheet.need("value")
        value = np.array([number(sheet, row, "value", text(cells[row])) for row in rows.tolist()])
        if not ((value >= 0) & (value <= 1)).all():  # NaN too
            bad = int(np.flatnonzero(~((value >= 0) & (value <= 1)))[0])
            raise LikewiseError(
                f"ListedPairs: value must be from 0 to 1, got {value[bad]:g} in {sheet.at(int(rows[bad]))}; scale the values"
            )
        keys, first, place = np.unique(pair_keys(pairs, self.ids), return_index=True, return_inverse=True)
        if (value != value[first][place]).any():
            bad = int(np.flatnonzero(value != value[first][place])[0])
            raise LikewiseError(
                f"ListedPairs: a pair must have one value, but {sheet.at(int(rows[first[place[bad]]]))} and {sheet.unit} "
                f"{sheet.line[int(rows[bad])]} differ; keep one of them"
            )
        self.register_buffer("keys", torch.as_tensor(keys), persistent=False)
        self.register_buffer("values", torch.as_tensor(value[first], dtype=torch.get_default_dtype()), persistent=False)

    def forward(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Float[Tensor, "B R"]:
        return look_up(self.keys, self.values, a, b, self.ids, math.nan if self.unlisted is None else self.unlisted)

    def related(self) -> tuple[Int[np.ndarray, "I1"], Int[np.ndarray, "M"]]:
        """Return the ids that are relevant to each id: those of id i are `found[start[i] : start[i + 1]]`."""
        return related_ids(self.keys, self.values >= self.threshold, self.ids)
