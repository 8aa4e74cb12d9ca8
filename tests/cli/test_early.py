"""Names and paths are checked before torch is imported, with the names that the registries have after import."""

import subprocess
import sys

import pytest
from likewise.config import Train
from likewise.errors import LikewiseError

from likewise import data, metrics
from likewise.cli.early import (
    INPUT_PATHS,
    OUTPUT_SUFFIXES,
    SPEC_KINDS,
    check_early,
    component_names,
    data_names,
    metric_names,
    near_path,
)
from likewise.cli.main import config_class, parse
from likewise.core.settings.field_types import spec_fields
from likewise.core.settings.spec import REGISTRIES, find


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("photos", "runs/birds"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


MISTAKES = {
    "train photos --loss ProxyAncor": "train: --loss must name a loss, got 'ProxyAncor'; did you mean 'ProxyAnchor'?",
    "train photos --loss triplet": "got 'triplet'; did you mean 'Triplet'? `likewise list losses` shows all",
    "train photos --loss CrossBatchMemory(loss=Contrastiv())": "got 'Contrastiv' in",
    "train photos --loss SamplesPerClass()": "must name a loss, got 'SamplesPerClass', which is a batch sampler",
    "train photos --confidence Robust": "got 'Robust'; write --robust alone",
    "train photos --protocol UnseenClass": "did you mean 'UnseenClasses'?",
    "train photos --sampler SamplePerClass": "did you mean 'SamplesPerClass'?",
    "train photos --terms LanguageGuidence": "did you mean 'LanguageGuidance'?",
    "train photos --head Linera": "did you mean 'Linear'? `likewise list heads`",
    "train photos --loggers Tensorbord": "did you mean 'TensorBoard'?",
    "train photos --metrics R@1 MAPR": "--metrics must name known metrics, got 'MAPR'; did you mean 'MAP@R'?",
    "train photos --metrics recall@5": "got 'recall@5'; did you mean 'R@5'?",
    "train photos --select r@1": "--select must name known metrics, got 'r@1'; did you mean 'R@1'?",
    "train photos --device cdua": "--device must be cpu, cuda, cuda:1 or mps, got 'cdua'; did you mean 'cuda'?",
    "train photso": "there is no data 'photso'; did you mean 'photos'? Give a folder",
    "train cub20": "there is no data 'cub20'; did you mean 'cub200'?",
    "evaluate runs/bird": "there is no 'runs/bird'; did you mean 'runs/birds'? Give a run folder",
    "evaluate runs/birds --metrics MAPR": "did you mean 'MAP@R'?",
    "evaluate runs/birds --exclude x.csv": "there is no 'x.csv' for --exclude",
    "report runs/birds runs/none": "report: there is no 'runs/none'",
    "compare runs/birds runs/none": "compare: there is no 'runs/none'; give a run folder, or the per_query.parquet",
    "noise photos --model Unifor --out t.csv": "--model must name a noise model, got 'Unifor'; did you mean 'Uniform'?",
    "bench procsim-tabel5": "there is no 'procsim-tabel5'; did you mean 'procsim-table5'? Give a table",
}
"""Command -> a part of its error."""


def test_mistakes_are_found(subtests):
    for words, says in MISTAKES.items():
        with subtests.test(words):
            name, *rest = words.split()
            with pytest.raises(LikewiseError) as caught:
                check_early(name, parse(name, rest))
            assert says in str(caught.value)


RIGHT = [
    "train photos --loss my_lab.losses.Mine(k=3) --allow-imports",
    "train photos --loss MultiSimilarity(miner=HardPairs(eps=0.1)) --metrics R@1 TAR@FAR=0.001 NMI R@1:level1 my.Own mAP",
    "train glyphs(classes=20) --device cuda:1",
    "train hf:food101",
    "train my_lab.readers.boats()",
    "evaluate runs/birds --taxonomy cub200",
    "search runs/birds --query 17",
    "embed resnet50 photos --out z.npz",
    "bench procsim-table5 --data cub200",
    "bench procsim-table1:print --list",
    "bench --list",
    "demo",
    "list",
]


def test_what_may_be_right_is_left_to_the_command(subtests):
    for words in RIGHT:
        with subtests.test(words):
            name, *rest = words.split()
            check_early(name, parse(name, rest))


def test_the_tables_name_settings_that_exist():
    for command, fields in INPUT_PATHS.items():
        assert set(fields) <= {*config_class(command).__dataclass_fields__}
    assert all("out" in config_class(command).__dataclass_fields__ for command in OUTPUT_SUFFIXES)
    assert set(spec_fields(Train)) | set(spec_fields(config_class("noise"))) == set(SPEC_KINDS)


def test_a_similar_path_is_named_with_its_folder():
    assert near_path("runs/birsd/", "check it") == "; did you mean 'runs/birds'? Check it"
    assert near_path("none/x", "check it") == near_path("runs/zzz", "check it") == "; check it"


def test_only_similar_names_are_suggested(here):
    for name in ("shots", "a.csv"):
        (here / name).touch()
    assert near_path("phots", "check it") == "; did you mean 'photos'? Check it"
    assert near_path("b.csv", "check it") == near_path("pictures", "check it") == "; check it"
    (here / "photos").rmdir()
    assert near_path("photos", "check it") == "; check it"  # not shots
    with pytest.raises(LikewiseError, match="there is no data 'data/glyph'; give a folder"):
        check_early("train", parse("train", ["data/glyph"]))
    with pytest.raises(LikewiseError, match="there is no data 'sop.csv'; give a folder"):
        check_early("train", parse("train", ["sop.csv"]))


@pytest.mark.process
def test_a_mistake_is_reported_without_torch(here):
    code = "import sys; from likewise.cli.main import main\ntry: main(sys.argv[1:])\nfinally: assert 'torch' not in sys.modules"
    words = ["train", "photos", "--loss", "ProxyAncor"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=600, check=False
    )
    assert (
        done.returncode == 2
        and done.stderr.startswith("likewise: train: --loss")
        and not list(here.glob("runs/photos*"))
    )


def test_components_are_those_of_the_registries(subtests):
    for registry in REGISTRIES:
        with subtests.test(registry):
            assert sorted(component_names(registry)) == sorted(find(registry))


def test_metrics_and_data_sets():
    assert metric_names() == (*metrics.NAMES, *metrics.SET_NAMES)
    assert data_names() == tuple(data.NAMES)
