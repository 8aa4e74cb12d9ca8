"""Filters by label: what they mean, how they are written, and that the ranking inside a filter is exact."""

import numpy as np
import pytest
from likewise.errors import LikewiseError
from make_index import make_index, vectors

from likewise.deploy.index.row_labels import LabelFilter, allowed_rows, label_of_term, parse_filter, split_terms
from likewise.deploy.index.stored_rows import Rows, pack

SETS = (("dress", "red"), ("dress", "red", "striped"), ("blue", "dress"), ("red", "shirt"))


def rows_with_labels(count=40, similarity="cosine"):
    label = np.arange(count) % len(SETS)
    table, text = pack(np.arange(count), label, [f"{row}.png" for row in range(count)])
    names = tuple("|".join(own) for own in SETS)
    return Rows(vectors(count, similarity=similarity), table, text, names, np.ones(count, bool), similarity, SETS)


def test_filters_are_read(subtests):
    read = {
        "red": LabelFilter(("red",)),
        " red & !striped ": LabelFilter(("red",), ("striped",)),
        "!a&b c&!d e": LabelFilter(("b c",), ("a", "d e")),
        '"R & B" & ! "!x" & "say ""hi"""': LabelFilter(("R & B", 'say "hi"'), ("!x",)),
        "wow! & wow!": LabelFilter(("wow!",)),
        "<b>": LabelFilter(("<b>",)),
    }
    for text, wanted in read.items():
        with subtests.test(text):
            assert parse_filter(text) == wanted
    assert split_terms('a & "b & c"') == ["a ", ' "b & c"']
    assert (label_of_term('"a"'), label_of_term('"a"b"'), label_of_term('a"')) == ("a", "", "")


@pytest.mark.parametrize("text", ["", " ", "red &", "& red", "!", "!!red", 'a "b"', '"a', "x" * 5000])
def test_a_filter_that_cannot_be_read_is_an_error(text):
    with pytest.raises(LikewiseError, match="a filter must be labels joined by &"):
        parse_filter(text)


def test_a_label_with_and_without_is_an_error():
    with pytest.raises(LikewiseError, match="with and without !, got 'red'"):
        parse_filter("red & !red")


def test_rows_pass_by_their_labels():
    rows = rows_with_labels(8)
    assert np.flatnonzero(allowed_rows(rows, parse_filter("red & !striped"))).tolist() == [0, 3, 4, 7]
    assert np.flatnonzero(allowed_rows(rows, parse_filter("!red"))).tolist() == [2, 6]
    assert not allowed_rows(rows, parse_filter("blue & striped")).any()
    with pytest.raises(LikewiseError, match="got 'stripes'; did you mean 'striped'"):
        allowed_rows(rows, parse_filter("stripes"))
    assert rows.labels_of(1) == ("dress", "red", "striped")


def test_with_one_label_per_row_the_class_is_the_label():
    index = make_index(9)  # wren, robin, "tit, blue" in turn
    assert np.flatnonzero(allowed_rows(index.rows, parse_filter("!wren & !robin"))).tolist() == [2, 5, 8]
    assert index.rows.labels_of(1) == ("robin",) and index.rows.label_names == ("robin", "tit, blue", "wren")


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_the_ranking_inside_a_filter_is_exact_and_complete(similarity):
    from likewise.deploy.index.vector_index import Index

    index = Index(rows_with_labels(200, similarity))
    z, wanted = index.rows.vectors[:5], parse_filter("dress & !striped")
    inside = [hit.place for hits in index.find(z, 200, but=list(range(5))) for hit in hits]
    every = np.asarray(inside).reshape(5, 199)
    for query, hits in enumerate(index.find(z, 150, but=list(range(5)), wanted=wanted)):
        passing = [place for place in every[query].tolist() if place % 4 in (0, 2)]
        assert [hit.place for hit in hits] == passing  # all that pass, in the order of the whole ranking
    assert [len(hits) for hits in index.find(z, 7, wanted=wanted)] == [7] * 5
