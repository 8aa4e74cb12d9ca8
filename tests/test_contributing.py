"""The worked example of CONTRIBUTING.md: the loss keeps its contract, and its test by hand passes."""

import re
from pathlib import Path

from bare_work import run_block

PAGE = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text("utf-8")


def test_the_example_is_a_loss_and_a_test(bare, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    bare(run_block, "\n".join([*blocks, "test_by_hand()"]), str(tmp_path))
