"""log.jsonl: one JSON object a line, in the order of training steps."""

from __future__ import annotations

PEEK = "peek at test "
"""Prefix of a metric of the test part that training measured on the way (`peek_every`)."""
