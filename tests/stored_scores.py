"""Evidence about labels with scores that are given, for tests of the noise models and of what uses them."""

from dataclasses import dataclass

from torch import Tensor

from likewise.labels.label_noise import row_blocks


@dataclass(frozen=True, eq=False)
class StoredScores:
    """Scores that are computed already, such as log probabilities."""

    table: Tensor

    @property
    def classes(self) -> int:
        return self.table.shape[2]

    def blocks(self):
        return row_blocks(self.table.shape[1], self.classes, self.table.device)

    def columns(self, rows: Tensor) -> None:
        return None

    def scores(self, rows: Tensor) -> Tensor:
        return self.table[:, rows]
