"""Micro-batcher: a thread takes the waiting inputs of all clients, up to a batch, and runs the network once for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np
from jaxtyping import Float
from torch import Tensor

Embed = Callable[[list[Tensor]], Float[np.ndarray, "n D"]]
"""Inputs of the network -> their embeddings."""


class MicroBatcher:
    """Accepts inputs of the network, and returns a future of each embedding. The thread ends with the process."""

    def __init__(self, embed: Embed, most: int = 16):
        self.embed, self.most = embed, most
        self.waiting: queue.SimpleQueue[tuple[Tensor, Future]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def submit(self, x: Tensor) -> Future:
        promise: Future = Future()
        self.waiting.put((x, promise))
        return promise

    def _work(self) -> None:
        while True:
            batch = [self.waiting.get()]
            while len(batch) < self.most and not self.waiting.empty():
                batch.append(self.waiting.get())
            batch = [one for one in batch if one[1].set_running_or_notify_cancel()]  # without cancelled requests
            if not batch:
                continue
            try:
                found = self.embed([x for x, _ in batch])
            except Exception as error:  # passed on to the waiting clients; the thread must continue
                for _, promise in batch:
                    promise.set_exception(error)
            else:
                for (_, promise), z in zip(batch, found, strict=True):
                    promise.set_result(z)
