"""Names that are read from source files are those that the registries have after import."""

from likewise import data, metrics
from likewise.core.settings.known_names import component_names, data_names, metric_names
from likewise.core.settings.spec import REGISTRIES, find


def test_components_are_those_of_the_registries(subtests):
    for registry in REGISTRIES:
        with subtests.test(registry):
            assert sorted(component_names(registry)) == sorted(find(registry))


def test_metrics_and_data_sets():
    assert metric_names() == (*metrics.NAMES, *metrics.SET_NAMES)
    assert data_names() == tuple(data.NAMES)
