"""The corrected table of a run, and the protocol that goes by it."""

from likewise.protocols import ClassFolds, QueryGallery, SeenClasses, UnseenClasses

from likewise.curate.audit.corrected import split_column_protocol


def test_protocols_that_go_by_the_split():
    assert isinstance(split_column_protocol(ClassFolds(fold=2)), UnseenClasses)
    assert split_column_protocol(UnseenClasses(train=0.7, val=0.1)).train == 0.5
    assert split_column_protocol(QueryGallery(val=0.1, gallery="shop")).gallery == "shop"
    seen = split_column_protocol(SeenClasses(test=0.3, gallery="train", seed=4))
    assert seen.own_split and seen.gallery == "train"
