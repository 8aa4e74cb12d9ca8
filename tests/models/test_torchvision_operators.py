"""The import of torchvision beside a torch that its compiled part does not load with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = """
import torch
for name in ("nms", "qnms"):
    torch.library.register_fake(f"torchvision::{name}")(lambda dets, scores, iou_threshold: dets.new_empty(0))
"""
"""What `import torchvision` does when its compiled part did not load."""


@pytest.mark.process
@pytest.mark.parametrize("prepared", [True, False])
def test_torchvision_of_another_build_can_be_imported(tmp_path, prepared):
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "_C.so").write_bytes(b"no library")
    words = "from likewise.models.torchvision_operators import prepare_torchvision as p; " + "p(); " * 2 * prepared
    path = os.pathsep.join([str(tmp_path), str(SOURCE)])
    done = subprocess.run(
        [sys.executable, "-P", "-c", words + "import torchvision"], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) is prepared, done.stderr
    assert prepared or "operator torchvision::nms does not exist" in done.stderr
