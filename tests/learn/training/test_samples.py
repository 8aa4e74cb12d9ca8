"""The samples of a training: rows, classes and true labels, numbered from 0."""

import dataclasses

import numpy as np


def test_samples_and_classes_are_numbered_from_0(items, make):
    state = make(items, noise="Uniform(share=0.3)")
    assert state.samples.rows.tolist() == list(range(144, 288)) and state.samples.position[144:].tolist() == list(
        range(144)
    )
    assert (state.samples.position[:144] == -1).all()
    assert state.samples.class_names == tuple(items.class_name[12:]) and state.components.facts["classes"] == 12
    assert (state.samples.labels + 12).tolist() == state.samples.items.y[144:].tolist()
    assert (state.samples.clean + 12).tolist() == items.y[144:].tolist()
    assert (
        state.monitor.noisy.numpy() == (state.samples.items.y != items.y)[144:]
    ).all() and state.monitor.noisy.sum() == 43
    assert np.array_equal(state.samples.loaded.y, items.y) and np.array_equal(
        state.samples.items.y[:144], items.y[:144]
    )


def test_a_class_that_no_label_names_has_no_number(items, make):
    """How many classes there are must not tell of true labels."""
    y = np.where(items.y == 15, 16, items.y)
    state = make(dataclasses.replace(items, y=y, y_clean=items.y))
    assert state.components.facts["classes"] == 11 and "15" not in state.samples.class_names
    assert (state.samples.clean == -1).sum() == 12 and state.monitor.noisy.sum() == 12
