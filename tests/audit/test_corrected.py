"""The corrected table of a run, and the protocol that goes by it."""

from likewise.audit.corrected import by_its_split
from likewise.protocols import ClassFolds, QueryGallery, SeenClasses, UnseenClasses


def test_protocols_that_go_by_the_split():
    assert isinstance(by_its_split(ClassFolds(fold=2)), UnseenClasses)
    assert by_its_split(UnseenClasses(train=0.7, val=0.1)).train == 0.5
    assert by_its_split(QueryGallery(val=0.1, gallery="shop")).gallery == "shop"
    seen = by_its_split(SeenClasses(test=0.3, gallery="train", seed=4))
    assert seen.own_split and seen.gallery == "train"
