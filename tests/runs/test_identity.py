import dataclasses

import pytest
import torch
from likewise.config import SETTINGS_OUTSIDE_IDENTITY, Train
from likewise.errors import RunBusy
from likewise.types import LikewiseError

from likewise.data import load
from likewise.learn.training.defaults import resolve
from likewise.runs.identity import cleared_after_failure, find_run, identity_of, prepare_folder


@pytest.fixture
def claim(settings):
    """Claims for these settings with changes."""
    items = load(settings["data"])
    return lambda **changes: find_run(resolve(Train(**settings | changes), items), items)


def test_identity_changes_with_what_is_learned_and_with_nothing_else(claim, settings):
    base = claim().about["identity"]
    for name in (
        "root",
        "device",
        "workers",
        "log_every",
        "checkpoint_every",
        "restart",
        "metrics",
        "quiet",
        "evaluate",
    ):
        assert name in SETTINGS_OUTSIDE_IDENTITY
    same = {"workers": 3, "log_every": 7, "quiet": False, "metrics": ("R@1",), "record_losses": True}
    assert claim(**same, loss="MultiSimilarity( )").about["identity"] == base
    for change in ({"lr": 1e-5}, {"seed": 1}, {"loss": "Triplet()"}, {"steps": 41}, {"noise": "Uniform(share=0.1)"}):
        assert claim(**change).about["identity"] != base


def test_every_field_is_either_learned_or_kept_out():
    names = {f.name for f in dataclasses.fields(Train)}
    assert set(SETTINGS_OUTSIDE_IDENTITY) < names


def test_the_content_of_a_weight_file_counts_and_not_its_name(claim, tmp_path):
    file, other = tmp_path / "a.pt", tmp_path / "b.pt"
    file.write_bytes(b"one")
    other.write_bytes(b"one")
    first = claim(weights=str(file)).about["identity"]
    assert claim(weights=str(other)).about["identity"] == first
    file.write_bytes(b"two")
    assert claim(weights=str(file)).about["identity"] != first
    with pytest.raises(LikewiseError, match="--weights '.*none.pt' cannot be read"):
        claim(weights=str(tmp_path / "none.pt"))


def test_taking_a_folder_up_again_drops_results_of_an_earlier_state(claim, settings):
    found = claim()
    config = Train(**settings)
    with found.run.owned():
        prepare_folder(found, config, torch.device("cpu"))
        found.run.write_json("scores.json", {"old": 1})
        (found.run.path / "state.pt").write_text("x")
        prepare_folder(claim(), config, torch.device("cpu"))
        assert found.run.scores is None and (found.run.path / "state.pt").exists()
        (found.run.path / "done").touch()
        prepare_folder(claim(), dataclasses.replace(config, restart=True), torch.device("cpu"))
        assert {p.name for p in found.run.path.iterdir()} == {"lock", "config.json", "environment.json"}


@pytest.mark.parametrize("name", ["ListedPairs", "JudgedPairs", "JudgedTriplets"])
def test_a_file_of_pairs_or_triplets_counts_by_its_content(tmp_path, monkeypatch, name):
    (tmp_path / "pairs.csv").write_text("a,b,value\n0,1,1\n")
    monkeypatch.chdir(tmp_path)
    keys = set()
    for place in ("pairs.csv", str(tmp_path / "pairs.csv")):
        config = Train(data="glyphs", protocol="UnseenClasses()", relevance=f"{name}(file={place!r})")
        keys.add(identity_of(config, "data"))
    assert len(keys) == 2  # the spec is part of the settings
    (tmp_path / "pairs.csv").write_text("a,b,value\n0,1,0\n")
    assert identity_of(config, "data") not in keys


def test_a_file_that_a_spec_names_counts_by_its_content(tmp_path):
    file = tmp_path / "t.npy"
    file.write_bytes(b"one")
    items = load("glyphs(classes=4, per_class=4, size=16)")
    config = Train(data="glyphs", protocol="UnseenClasses()", loss=f"ForwardCorrection(transition={str(file)!r})")
    first = find_run(config, items).about["identity"]
    assert find_run(config, items).about["identity"] == first
    file.write_bytes(b"two")
    assert find_run(config, items).about["identity"] != first
    folder = tmp_path / "encoder"
    folder.mkdir()
    config = Train(data="glyphs", protocol="UnseenClasses()", terms=(f"LanguageGuidance(encoder={str(folder)!r})",))
    empty = find_run(config, items).about["identity"]
    (folder / "config.json").write_bytes(b"three")
    assert find_run(config, items).about["identity"] != empty


def test_a_folder_in_which_nothing_was_learned_is_free(claim, settings, tmp_path):
    """Settings that failed late leave a folder; the corrected command may have it."""
    out = str(tmp_path / "run")
    first, second = claim(out=out), claim(out=out, lr=0.5)
    first.run.path.mkdir()
    prepare_folder(first, Train(**settings), torch.device("cpu"))
    assert claim(out=out, lr=0.5).about["identity"] == second.about["identity"]
    prepare_folder(second, Train(**settings), torch.device("cpu"))
    assert first.run.about["identity"] == second.about["identity"]
    (first.run.path / "state.pt").touch()
    with pytest.raises(LikewiseError, match="holds another run"):
        claim(out=out)


def test_where_pictures_are_kept_is_no_part_of_a_run(claim, settings, tmp_path, monkeypatch):
    base = claim().about["identity"]
    for keep in ("auto", "files", "disk", "host", "device"):
        assert claim(cache=keep, cache_memory="1GB").about["identity"] == base
    for change in ({"short_side": 30}, {"color_jitter": (0.1, 0.0, 0.0)}):
        assert claim(**change).about["identity"] != base


def test_published_records_keep_their_identity():
    """Records in docs/results are adopted by identity: a new setting must be neutral (NEUTRAL_VALUES), or they are lost."""
    config = resolve(Train("glyphs", average=0.0), load("glyphs(size=32, classes=10)"))
    assert identity_of(config, "x").startswith("bdfc60668dc2bf33")
    assert identity_of(dataclasses.replace(config, lora=4, freeze_backbone=True), "x") != identity_of(config, "x")


@pytest.mark.parametrize(
    ("kept", "error"),
    [
        ((), LikewiseError),
        (("mine.txt",), LikewiseError),
        (("state.pt",), LikewiseError),
        ((), KeyError),
        ((), RunBusy),
    ],
)
def test_a_failed_start_leaves_no_run_folder(claim, settings, kept, error):
    found = claim()
    with pytest.raises(error), cleared_after_failure(found.run), found.run.owned():
        prepare_folder(found, Train(**settings), torch.device("cpu"))
        for name in kept:
            (found.run.path / name).touch()
        raise error("it failed")
    is_cleared = error is LikewiseError and "state.pt" not in kept
    assert (found.run.path / "config.json").exists() != is_cleared
    assert found.run.path.exists() == (bool(kept) or not is_cleared)
