"""A package that is not there is missed in plain words."""

import pytest
from likewise.types import LikewiseError

from likewise.learn.loggers.extras import require_package


def test_a_missing_package_is_said_with_its_extra():
    require_package("json", "Somebody")
    with pytest.raises(
        LikewiseError, match=r"^WandB: it needs the package no_such,.*pip install 'likewise\[no_such\]'"
    ):
        require_package("no_such", "WandB")
