import pytest
from likewise.errors import LikewiseError
from likewise.losses import Triplet

from likewise.core.settings.imports import import_dotted


def test_a_dotted_name_is_imported_with_permission_alone():
    assert import_dotted("likewise.learn.losses.triplet.Triplet", "spec", True) is Triplet
    with pytest.raises(
        LikewiseError, match=r"^spec: 'a\.b' would be imported.*--allow-imports \(Python: allow_imports=True"
    ):
        import_dotted("a.b", "spec", False)


@pytest.mark.parametrize("name", ["no_such_lab.Mine", "likewise.losses.NoSuchLoss"])
def test_what_is_not_there_is_named(name):
    with pytest.raises(LikewiseError, match=f"'{name}' cannot be imported"):
        import_dotted(name, "spec", True)
