"""A package that is not there is missed in plain words."""

import pytest

from likewise.loggers.extras import must_have
from likewise.types import LikewiseError


def test_a_missing_package_is_said_with_its_extra():
    must_have("json", "Somebody")
    with pytest.raises(
        LikewiseError, match=r"^WandB: it needs the package no_such,.*pip install 'likewise\[no_such\]'"
    ):
        must_have("no_such", "WandB")
