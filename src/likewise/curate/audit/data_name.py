"""Name of the audited data, for the titles of pages."""

from __future__ import annotations

import os
from pathlib import Path

from likewise.curate.audit.read import Findings

GENERIC_FOLDERS = ("image", "images", "img", "train", "data", "jpegimages")
"""Names of folders, in lower case, that no data set is known by."""


def data_name(found: Findings) -> str:
    """Return the name of the folder with all images; without images, the title of the audit."""
    root, title = found.about["root"], found.about["title"]
    folders = {os.path.dirname(os.path.join(root, one.path)) for one in found.sample.values() if one.path}
    if not found.about["pictures"] or not folders or not all(map(os.path.isabs, folders)):
        return title
    top = Path(root if len(folders) == 1 and root else os.path.commonpath(folders))
    top = top.parent if top.name.lower() in GENERIC_FOLDERS else top
    return top.name or title
