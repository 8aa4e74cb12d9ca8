"""Every script of benchmarks/ and tools/ is started here at toy size, and its output checked; those of examples/ elsewhere."""

import importlib
import itertools
import json
import math
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import CHROMIUM
from likewise.config import Train

from likewise.learn.training.fit import train

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "examples", "examples/tasks", "examples/relevance", "tools")
STARTED: set[str] = set()
DRAWING = ("docs", "loss_figures", "component_pages", "component_figures", "site_hooks", "svg")
TASKS = (
    "task_data", "clean_folder", "train_folder", "match_products", "reidentify", "find_duplicates", "from_pml", "own_network",
    "audit_embeddings", "reproduce_table", "serve_search",
)  # fmt: skip
KINDS = (
    "relevance_data", "several_labels", "class_tree", "listed_pairs", "judged_pairs", "judged_triplets", "own_loop",
)  # fmt: skip
ELSEWHERE = {
    "test_environment.py": ["tools/environment.py"],
    "test_house.py": ["tools/import_graph.py"],
    "test_docs.py": [f"tools/{name}.py" for name in DRAWING],
    "test_examples.py": [
        *(f"examples/{name}.py" for name in ("toy_lines", "toy_picture", "plain_loop", "lightning_loop")),
        *(f"examples/relevance/{name}.py" for name in KINDS),
    ],
    "test_gallery.py": [f"examples/tasks/{name}.py" for name in TASKS],
}
"""Tests beside this file, and the scripts that they start."""


def starts(*files: str):
    """Mark a test as the one that starts these scripts."""
    STARTED.update(files)
    return lambda test: test


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    """Scripts can be imported during a test, and not after it: a library may import a module of the same name (coverage)."""
    before = set(sys.modules)
    for folder in FOLDERS:
        monkeypatch.syspath_prepend(ROOT / folder)
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or ROOT).parent in [ROOT / folder for folder in FOLDERS]:
            del sys.modules[name]


@pytest.fixture
def start(tmp_path, capsys):
    """`start("losses", "--quick")`: what the script printed, and the JSON file that it wrote, where it takes --out."""

    def start(name: str, *words: str) -> tuple[str, object]:
        out = tmp_path / f"{name}.json"
        importlib.import_module(name).main([*words, "--out", str(out)])
        return capsys.readouterr().out, json.loads(out.read_text("utf-8"))

    return start


def numbers(found: object) -> list[float]:
    """Return all numbers in the content of a JSON file."""
    if isinstance(found, dict | list):
        return [one for part in (found.values() if isinstance(found, dict) else found) for one in numbers(part)]
    return [found] if isinstance(found, int | float) and not isinstance(found, bool) else []


def must_be_positive(*values: float) -> None:
    assert values and all(math.isfinite(value) and value > 0 for value in values), values


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A table of 72 small pictures of 12 classes, half of them to test."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    from PIL import Image

    lines = ["path,label,split"]
    for number in range(72):
        c = number % 12
        pixels = 20 * c + rng.integers(0, 40, (16, 20, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
        lines.append(f"{number}.png,c{c},{'train' if c < 6 else 'test'}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


@pytest.fixture(scope="session")
def run(pictures, tmp_path_factory):
    """A run on these pictures with wrong labels, a few steps long."""
    return train(Train(
        str(pictures / "table.csv"), backbone="conv_small", size=16, dim=8, noise="Uniform(share=0.3)", record_losses=True,
        sampler="SamplesPerClass(batch=12, per_class=2)", steps=6, workers=0, device="cpu", quiet=True, metrics=("R@1",),
        out=str(tmp_path_factory.mktemp("runs") / "noisy"),
    ))  # fmt: skip


@starts("benchmarks/measure.py")
@pytest.mark.process
def test_work_in_a_process_of_its_own_comes_back_or_says_why_not():
    measure = importlib.import_module("measure")
    assert measure.alone(os.getpid) != os.getpid() == measure.alone(os.getpid, here=True)
    for here in (False, True):
        with pytest.raises(measure.NotMeasured, match="not installed: No module named 'no_such_peer'"):
            measure.alone(importlib.import_module, "no_such_peer", here=here)
    with pytest.raises(measure.NotMeasured, match="its process ended"):
        measure.alone(os._exit, 3)


@starts("benchmarks/clean.py")
def test_clean(start, tmp_path):
    from messy_folder import make_messy_folder

    folder = make_messy_folder(tmp_path / "photos", classes=4, per_class=8)
    said, found = start("clean", str(folder.root), "--quick", "--backbone", "efficientnet_lite0")
    one = found["folders"][str(folder.root)]
    assert 12 <= one["images"] <= 24 and len(one["plantings"]) == 2 and 0 <= one["mean"]["recall"] <= 1
    assert one["worst"]["precision"] <= one["mean"]["precision"] <= 1 and "| photos | " in said
    module = importlib.import_module("clean")
    y = np.repeat(np.arange(5) * 3, 8)
    given = module.planted(y, 0.1, 0)
    assert (given != y).sum() == 4 and set(given) <= set(y) and not np.array_equal(given, module.planted(y, 0.1, 1))


@starts(*(f"benchmarks/{name}.py" for name in ("forecast", "forecast_cells", "forecast_order", "forecast_plots")))
def test_forecast(start, tmp_path):
    said, found = start("forecast", "--quick", "--plot", str(tmp_path / "orders.png"))
    plots = importlib.import_module("forecast_plots")
    assert (tmp_path / "orders.png").stat().st_size > 5000
    assert len(plots.draw_forecasts(found["forecast"]).axes) == 2
    curve = {"decisions": [0, 5, 10], "mapr": [0.5, 0.6, 0.7]}
    cell = {
        "queue": 10,
        "gain": 0.2,
        "decisions": {"suspicion": 9.0},
        "curves": dict.fromkeys(plots.SHOWN_PLANS, curve),
    }
    drawn = plots.draw_orders({"a": cell}).axes[0].get_lines()[0].get_xydata()
    np.testing.assert_allclose(drawn[[0, 25, 100]], [[0, 0], [25, 25], [100, 100]])
    module, order = importlib.import_module("forecast"), importlib.import_module("forecast_order")
    one = found["forecast"]["simulated, uniform 0.2, 0"]
    assert one["wrong"] == round(0.2 * one["rows"]) and "| simulated | MAP@R | 1 |" in said
    for point in one["points"]:
        assert all(point[name]["low"] <= point[name]["mean"] <= point[name]["high"] for name in ("R@1", "MAP@R"))
    cells = [
        {"reason": "", "points": [{"R@1": {"low": 0.0, "mean": 0.02, "high": 0.06, "real": real}}]}
        for real in (-0.01, 0.01, 0.03, 0.06, 0.09)
    ]
    by_hand = module.covered([*cells, {"reason": "no label is suspect", "points": []}], "R@1")
    assert by_hand["cells"] == 5 and by_hand["inside"] == 3 and by_hand["large"] == 3
    assert by_hand["width_over_gain"] == pytest.approx(1.0) and by_hand["mean_error"] == pytest.approx(0.02 - 0.036)
    assert order.decisions_until(0.5, [0.0, 0.4, 0.6, 0.9], [0, 10, 20, 30], [*range(1, 31)]) == pytest.approx(15)
    assert order.decisions_until(2.0, [0.0, 0.4], [0, 2], [1, 5]) == 5


@starts("benchmarks/train_step.py")
def test_train_step(start, monkeypatch):
    module = importlib.import_module("train_step")
    said, found = start("train_step", "--quick", "--parts", *(part for part in module.PARTS if part != "start"))
    net, losses = "conv_small:16:16", ("ProxyNCA(positive_in_denominator=True)", "MultiSimilarity()")
    one = found["steps"][net]["eager"]
    told = [one["training"][loss] for loss in losses]
    must_be_positive(one["bare"]["images_per_s"], *(value for each in told for value in each.values()))
    assert told[0]["ratio"] == pytest.approx(told[0]["images_per_s"] / one["bare"]["images_per_s"], rel=0.01)
    assert f"| network, side, batch | run as | bare | training, {losses[0]} | training, {losses[1]} |" in said
    assert re.search(r"^\| conv_small, 16, 16 \| kernel by kernel \| [\d,]+ \| [\d,]+ \(\d+\.\d%\) \|", said, re.M)
    must_be_positive(*(found["embed"][net][key] for key in ("eager", "ours", "of eager")))
    must_be_positive(*found["proxies"]["1 processes"][0].values())
    must_be_positive(*(found["memory"][f"{net} chunk {chunk}"]["images_per_s"] for chunk in (8, None)))
    assert all(one["peak_gb"] >= 0 for one in found["memory"].values())
    assert found["run"]["eager"]["steps"] == 2 and 0 <= found["run"]["eager"]["R@1"] <= 1
    must_be_positive(found["run"]["eager"]["seconds"], found["seconds"])

    def missing(*_, **__):
        raise ImportError("No module named 'timm'")

    monkeypatch.setattr(module, "Embedder", missing)
    said, found = start("train_step", "--quick", "--parts", "steps", "embed")
    assert found["steps"][net] == found["embed"][net] == {"missing": "No module named 'timm'"}
    assert "conv_small:16:16: left out, No module named 'timm'" in said


@pytest.mark.process
def test_train_step_watches_the_start_of_a_training(start):
    said, found = start("train_step", "--quick", "--parts", "start")
    calls = found["start"]["conv_small:16:16"]["eager"]
    assert len(calls) == 2 and said.count("conv_small:16:16 eager {'imports':") == 2
    for call in calls:
        assert list(call) == ["imports", "data", "step 1", "step 20", "end"]
        assert 0 < call["imports"] <= call["data"] + 0.1 and list(call.values())[1:] == sorted(list(call.values())[1:])


@pytest.mark.process
def test_train_step_reports_a_start_that_failed(monkeypatch, tmp_path):
    module = importlib.import_module("train_step")
    with pytest.raises(importlib.import_module("measure").NotMeasured, match="train nowhere ended with 2"):
        module.one_start(["train", "nowhere"], tmp_path / "run")


@pytest.mark.process
@pytest.mark.slow
def test_train_step_shares_out_proxies_among_processes(start):
    _, found = start("train_step", "--quick", "--parts", "proxies", "--processes", "1", "2")
    alone, first, second = (*found["proxies"]["1 processes"], *found["proxies"]["2 processes"])
    assert alone["loss"] == pytest.approx(first["loss"], rel=1e-4) and first["loss"] == second["loss"]


def test_the_rate_of_a_run_is_that_of_its_log_by_hand():
    from types import SimpleNamespace

    log = [{"images_per_s": 1.0}, {"images_per_s": 2.0}, {"images_per_s": 100.0}, {"val": 1}, {"images_per_s": 300.0}]
    rate = importlib.import_module("measure").training_rate(SimpleNamespace(read_log=lambda: log))
    assert rate == pytest.approx(2 * 112 / (112 / 100 + 112 / 300))  # two times as many images over the whole time


@starts("benchmarks/evaluate.py")
@pytest.mark.filterwarnings("ignore")
def test_evaluate(start):
    said, found = start("evaluate", "--quick")
    assert [one["who"] for one in found] == [
        "likewise", "likewise_all_hits", "peer_best", "likewise", "peer_best", "peer_default"
    ]  # fmt: skip
    if any("values" not in one for one in found):
        assert said.count("not installed") == 3
    for one in (one for one in found if "values" in one):
        must_be_positive(one["seconds"], one["total_mb"])
        ours = next(other for other in found if other["rows"] == one["rows"])
        assert {k: v for k, v in one["values"].items() if k in ours["values"]} == pytest.approx(ours["values"])
    said, found = start("evaluate", "--quick", "--million")
    assert found[0]["rows"] == 500 and found[0]["values"].keys() == {"R@1", "R@100", "MAP@R"} and "20 queries" in said


MEASURING = [  # script, words, a part of what it prints
    ("input", (), "times_usual"), ("input", ("--glyphs",), "ratio"), ("clustering", (), "NMI 0."), ("losses", (), "products"),
    ("multi_label_losses", (), "vocabulary     12 | single labels"), ("confidence", (), "ProcSim(lam=0.1, threshold='mean')"),
    ("hierarchy", (), "with groups"), ("criteria", ("--only", "Hierarchical", "SoftTriple"), "untrained"),
]  # fmt: skip


@starts(*(f"benchmarks/{name}.py" for name, *_ in MEASURING))
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "words", "wanted"), MEASURING)
def test_a_benchmark_measures_finite_numbers(start, name, words, wanted):
    said, found = start(name, "--quick", *words)
    assert wanted in said and len(numbers(found)) > 3 and all(map(math.isfinite, numbers(found)))


def test_losses_are_compared_with_those_of_the_peer_and_settings_of_criteria_are_sound():
    losses, criteria = importlib.import_module("losses"), importlib.import_module("criteria")
    assert set(losses.peers(32)) < set(losses.SPECS)
    options = criteria.parse(["--quick"])
    assert all(criteria.settings(name, options, ROOT).loss.startswith(name) for name in options.only)


@starts("tools/check.py")
def test_all_checks_run_until_one_fails(monkeypatch, capsys):
    module, started, failing = importlib.import_module("check"), [], []
    monkeypatch.setattr(module, "ensure", lambda needs: sys.executable)
    monkeypatch.setattr(
        module.subprocess, "call", lambda words, cwd: started.append(words) or 3 * (words[3:5] in failing)
    )
    assert module.main(["--fast"]) == 0 and not any("pyright" in words for words in started)
    assert module.main([]) == 0 and any("pyright" in words for words in started)
    failing.append(["ruff", "format"])
    assert module.main([]) == 3 and started[-1][3:5] == ["ruff", "format"]
    assert module.main(["--quick"]) == 2 and "the only argument is --fast, got --quick" in capsys.readouterr().err


@starts("benchmarks/common_direction.py")
def test_common_direction(start):
    said, found = start("common_direction", "--quick")
    module = importlib.import_module("common_direction")
    assert [one["offset"] for one in found] == list(module.OFFSETS) and said.count("\n") == len(found) + 2
    first, last = found[0], found[-1]
    assert first["exact cosine"] == first["float64 cosine"] > 0.8 > 0.3 > last["exact cosine"]
    assert last["float64 cosine"] == pytest.approx(first["float64 cosine"], abs=0.2)  # the information is still there
    assert all(one["spread"] > next_one["spread"] for one, next_one in itertools.pairwise(found))


@starts("benchmarks/coverage.py", "benchmarks/coverage_worlds.py")
@pytest.mark.parametrize(
    "part", ["means", "pairs", "ranking", "features", "queries", "sampled", "rows", "seeds", "contests", "scores"]
)
def test_coverage(start, tmp_path, part):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "made.npz", x=rng.normal(size=(100, 130))[np.arange(1000) % 100] + 3 * rng.normal(size=(1000, 130)),
             y=np.arange(1000) % 100)  # fmt: skip
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- coverage begins -->\nearlier tables\n<!-- coverage ends -->\nafter\n", "utf-8")
    words = ("--quick", "--only", part, "--features", str(tmp_path / "made.npz"), "--write", str(page))
    printed, found = start("coverage", *words)
    for one in found[part]:
        assert one["runs"] == 100 and 0 <= one.get("rejects", 0) <= one.get("given", 1) <= 1
    covers = [one["covers"] for one in found[part] if one.get("given", 1) > 0.9 and "covers" in one]
    assert part == "scores" or min(covers) > 0.83  # 5 standard errors of 90 simulations: 0.115
    text = page.read_text("utf-8")
    assert (
        text.startswith("before\n")
        and text.endswith("\nafter\n")
        and printed.strip() in text
        and "earlier tables" not in text
    )


@starts("benchmarks/features.py")
def test_features(pictures, tmp_path, capsys):
    out = tmp_path / "features.npz"
    importlib.import_module("features").main([str(pictures / "table.csv"), "--out", str(out), "--quick"])
    with np.load(out) as found:
        assert found["x"].shape[0] == len(found["label"]) == len(found["split"]) == 72
        assert np.isfinite(found["x"]).all() and set(found["split"]) == {"train", "test"}
        assert capsys.readouterr().out == f"{out}: 72 samples of {found['x'].shape[1]} numbers\n"


@starts("benchmarks/frozen_features.py")
def test_frozen_features(start, pictures, tmp_path):
    from likewise.models.backbones import ConvSmall

    file = tmp_path / "small.pt"
    torch.save(ConvSmall().state_dict(), file)
    words = (str(pictures / "table.csv"), "--quick", "--backbones", "--add", f"conv_small={file}")
    said, found = start("frozen_features", *words)
    one = found["sets"]["table"]["conv_small"]
    assert 0 <= one["R@1"] <= 1 and 0 < one["AP"] <= 1
    assert found["bytes"] == {"conv_small": file.stat().st_size} and "| `conv_small` | " in said
    again, merged = start("frozen_features", str(tmp_path / "frozen_features.json"), "--quick", "--backbones")
    assert merged == found and again.strip() in said
    # The gaps of "slow" (best) to "fast" are -0.05, 0.04, 0.07: their interval holds 0. Those to "weak" are all 0.4.
    values = {"slow": (0.9, 0.9, 0.9), "fast": (0.95, 0.86, 0.83), "weak": (0.5, 0.5, 0.5)}
    module = importlib.import_module("frozen_features")
    for time, expected in (((4, 1, 0.5), ["fast", "slow", "weak"]), ((1, 4, 0.5), ["slow", "fast", "weak"])):
        sets = {
            str(n): {
                name: {"R@1": own[n] + 0.01, "AP": own[n] - 0.01, "seconds": t} for (name, own), t in zip(values.items(), time)
            } for n in range(3)
        }  # fmt: skip
        assert module.order(sets, list(values)) == expected
    assert "| `slow` | 91.0, 89.0 | 91.0, 89.0 | 91.0, 89.0 | 91.0 | 89.0 | best | 1.00 | 2 |" in module.as_text(
        sets, dict.fromkeys(values, 2_000_000)
    )


@starts("benchmarks/audit.py")
def test_audit(run, tmp_path, capsys):
    found = tmp_path / "found"
    importlib.import_module("audit").main([str(run.path), "--out", str(found), "--table", str(found), "--quick"])
    (cell,) = json.loads((found / "table.json").read_text("utf-8")).values()
    assert (
        cell["seeds"] == 1 and 0 < cell["wrong"][0] < 36 and {"score", "vote", "loss_over_time"} <= cell["mean"].keys()
    )
    assert all(0 <= one[key] <= 1 for one in cell["mean"].values() for key in ("AP", "AUROC", "recall"))
    text = (found / "table.md").read_text("utf-8")
    assert "MultiSimilarity | Uniform(share=0.3" in text and text in capsys.readouterr().out


@starts("benchmarks/coverage_contests.py", "benchmarks/score_intervals.py")
def test_coverage_contests(start):
    text, found = start("coverage_contests", "--quick")
    assert [len(found[name]) for name in ("contests", "power", "scores", "orders")] == [2, 2, 2, 3]
    rates = [one[key] for one in found["contests"] for key in ("family", "pair", "coverage")]
    rates += [one["told"] for one in found["power"]] + [
        one[m] for one in found["scores"] for m in ("AP", "AUROC", "recall")
    ]
    assert all(0 <= rate <= 1 for rate in [*rates, *found["orders"].values()])
    assert "| training noise, points |" in text and "| samples | wrong, % |" in text and "Kendall's tau" in text


@starts("benchmarks/near_copies.py")
def test_near_copies(pictures, tmp_path, capsys):
    module = importlib.import_module("near_copies")
    module.main(["--quick", "--measure", str(pictures), "--out", str(tmp_path)])
    found = dict(np.load(tmp_path / f"{pictures.name}.npz"))
    assert found["planted"].shape == (5 * len(module.COPY_WAYS), 5) and found["images"] == 60
    rng = np.random.default_rng(0)
    for name in "abc":  # measured sets in which copies agree more than different images
        pair = np.array([[f"{name}{at}", f"{name}{at + 1}"] for at in range(40)])
        evidence = [
            np.stack([rng.integers(0, 9, 40), rng.uniform(*ends, 40), np.full(40, 0.1)], 1)
            for ends in ((0.9, 0.94), (0.93, 1))
        ]
        np.savez(tmp_path / f"{name}.npz", other=evidence[0], planted=evidence[1], pair=pair, images=400)
    (tmp_path / f"{pictures.name}.npz").unlink()
    module.main(["--fit", str(tmp_path)])
    told = capsys.readouterr().out
    assert "coefficients of all sets" in told and re.search(r"^\| c \| 40 \| \d\.\d{3} \|", told, re.M)


@starts("benchmarks/merged_classes.py")
def test_merged_classes(start, tmp_path):
    said, found = start("merged_classes", "--quick", "--votes")
    one = found["overlap"]["noise 0, separation 1, 12 a class"]
    assert (
        one["merges"] == 4
        and one["found"] + one["unknown"] <= 4
        and one["pairs"] == 45 - 4
        and len(one["wrong"]) == one["false"]
    )
    assert (
        found["overlap"].keys() == found["votes"].keys()
        and "overlap: merges found in" in said
        and found["overlap settings found"] <= 6
    )
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 40)
    np.savez(tmp_path / "set.npz", x=rng.normal(size=(12, 6))[y] * 3 + rng.normal(size=(480, 6)), y=y)
    said, found = start("merged_classes", "--features", str(tmp_path), "--seeds", "1", "--noise", "0")
    (one,) = found["overlap"].values()
    assert (one["found"], one["merges"], one["false"], one["pairs"]) == (3, 3, 0, 15 * 14 // 2 - 3)
    assert re.search(r"^\| set, noise 0 \| 3 of 3 \| 0 \| 0 of 102 \(0.00\) \|", said, re.M)


@pytest.fixture(scope="session")
def feature_folder(tmp_path_factory):
    """A folder with one set of features: four separate classes, with the labels of a careless person."""
    folder, rng = tmp_path_factory.mktemp("features"), np.random.default_rng(0)
    y = np.arange(80) % 4
    x = 4 * np.eye(8)[y] + 0.5 * rng.standard_normal((80, 8))
    np.savez(folder / "toy.npz", x=x.astype(np.float32), y=y, y_careless=np.where(np.arange(80) < 12, (y + 1) % 4, y))
    return folder


@starts(*(f"benchmarks/{name}.py" for name in ("label_noise", "label_worlds", "label_tables", "rivals")))
@pytest.mark.slow
def test_label_noise(feature_folder, tmp_path, capsys):
    """Every cell is judged once; a second start has nothing to do, and the tables have every kind of noise."""
    module, out = importlib.import_module("label_noise"), tmp_path / "grid"
    words = ["--features", str(feature_folder), "--worlds", "two classes", "--out", str(out), "--quick"]
    judges = ["--judges", "accuracy", "likewise", "SelfClean"]
    module.main([*words, *judges])
    assert len(list(out.glob("likewise/*.npz"))) == len(list(out.glob("SelfClean/*.npz"))) == 3 * 8 + 6
    capsys.readouterr()
    module.main([*words, *judges, "--table", str(out)])
    said, found = capsys.readouterr().out, json.loads((out / "table.json").read_text("utf-8"))
    assert " s\n" not in said and said.strip() == (out / "table.md").read_text("utf-8").strip()
    assert found["detection"]["set"].keys() == {"toy", "two classes"} == found["detection"]["gaps"].keys()
    assert {"plain, human careless", "copies, semantic 0.2", "long tail, uniform 0.5"} <= found["detection"][
        "noise"
    ].keys()
    true = {line["noise"]: line["true"] for line in found["rates"]["lines"] if line["variant"] == "plain"}
    assert true["uniform 0.3"] == pytest.approx(0.3, abs=0.01)
    assert {tuple(line[:2]): line[3] > 0.9 for line in found["accuracy"]}["toy", "copies"]
    assert found["rates"]["summary"]["likewise"]["cells"] == 30 and len(found["reliability"]) == 30
    module.main(["--leak", "--quick"])
    leaks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["rounds"] for one in leaks] == [1, 2, 3, 5] and all(0 < one["percentile"] < 1 for one in leaks)


@starts("benchmarks/test_labels.py")
def test_test_labels(feature_folder, tmp_path, capsys):
    module, out = importlib.import_module("test_labels"), tmp_path / "cells.json"
    module.main([str(feature_folder), "--quick", "--out", str(out)])
    said, lines = capsys.readouterr().out, json.loads(out.read_text("utf-8"))
    assert len(lines) == len(module.METRIC_NAMES) * 3  # two kinds of noise, and labels of people
    assert all(line["low"] <= line["value"] <= line["high"] for line in lines)
    assert "intervals contain the score" in said.splitlines()[-1] and "| uniform 0.2 | R@1 |" in said


def test_the_score_of_selfclean_by_hand():
    z, y = np.random.default_rng(0).standard_normal((9, 3)), np.array([0, 0, 0, 0, 1, 1, 1, 1, 2])
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    found = importlib.import_module("rivals").selfclean_score(z, y)
    for i in range(9):
        far = [(1 - float(z[i] @ z[j])) / 2 for j in range(9)]
        other = [far[j] for j in range(9) if y[j] != y[i]]
        own = min((far[j] for j in range(9) if y[j] == y[i] and j != i), default=max(other))
        assert found[i] == pytest.approx(min(other) ** 2 / (own**2 + min(other) ** 2))


def test_the_weighted_precision_of_a_grid_by_hand():
    import torch

    from likewise.score.metrics.detection import detection

    weighted = importlib.import_module("label_tables").weighted_precision
    rng = np.random.default_rng(0)
    score, wrong = rng.integers(0, 8, 40) / 8, rng.random(40) < 0.3
    times = rng.integers(0, 3, (2, 40))
    for row, found in zip(times, weighted(score, wrong, times)):
        many = np.repeat(np.arange(40), row)
        assert found == pytest.approx(detection(torch.as_tensor(score[many]), torch.as_tensor(wrong[many])).AP)


def test_noise_and_variants_of_a_grid(feature_folder):
    worlds = importlib.import_module("label_worlds")
    one = worlds.read_features(feature_folder / "toy.npz")
    made = {v: worlds.prepare(one, worlds.Cell("toy", v, "semantic 0.2", 0), 60, 4) for v in worlds.VARIANTS}
    assert len(made["plain"].given) == 60 and made["plain"].wrong.sum() == 12
    sizes = np.sort(np.bincount(made["long tail"].true))
    assert sizes.tolist() == [2, 2, 5, 20]  # 20 times 50 to the power of 0, -1/3, -2/3 and -1, at least 2
    copies = made["copies"]
    for picture in np.unique(copies.base):
        rows = copies.base == picture
        assert rows.sum() <= 3 and len(set(copies.given[rows])) == 1  # copies share their label
    stranger = worlds.prepare(
        worlds.simulate_world("open set", 0), worlds.Cell("open set", "plain", "uniform 0.0", 0), 0, 0
    )
    assert (stranger.wrong == (stranger.true == worlds.NO_CLASS)).all() and stranger.wrong.sum() == 110


@pytest.fixture
def robust():
    return importlib.import_module("robust")


@starts("benchmarks/robust.py")
@pytest.mark.slow
def test_robust_heads_and_networks(robust, pictures, tmp_path, capsys):
    """Heads and a whole network train, a second call has nothing left, and the table compares them by seed."""
    rng, y = np.random.default_rng(0), np.arange(240) % 12
    x = 3 * rng.normal(size=(12, 16))[y] + rng.normal(size=(240, 16))
    np.savez(tmp_path / "blobs.npz", x=x, label=y, class_name=[f"c{c}" for c in y])
    heads = ["--features", str(tmp_path), "--quick", "--losses", "ProxyAnchor", "--noise", "clean", "semantic 20 %"]
    (tmp_path / "pictures").mkdir()
    table = (pictures / "table.csv").read_text("utf-8").replace("\n", f"\n{pictures}/").removesuffix(f"{pictures}/")
    (tmp_path / "pictures" / "squares.csv").write_text(table, "utf-8")
    images = ["--images", str(tmp_path / "pictures"), "--quick", "--losses", "MultiSimilarity", "--seeds", "0"]
    images += ["--noise", "uniform 20 %", "--epochs", "1", "--ways", "oracle", "robust"]
    records = tmp_path / "records"
    for words, count in ((heads, 10), (images, 2)):
        for left in (count, 0):
            robust.main([*words, "--out", str(records)])
            assert f"{left} cells to train, {count - left} known\n" in capsys.readouterr().out
    found = [one for file in sorted(records.glob("*.jsonl")) for one in robust.read_records(file)]
    assert len(found) == 12 and all(0 <= one[metric] <= 1 for one in found for metric in ("R@1", "MAP@R"))
    for one in found:
        assert bool(one["rounds"]) == (one["way"] == "robust")
        assert all(0 <= each["right labels touched"] <= 1 for each in one["rounds"])
    robust.main(["--table", str(records)])
    told = capsys.readouterr().out
    assert re.search(
        r"^\| head \| blobs \| ProxyAnchor \| semantic 20 % \| 2 \| [\d.]+ \| [\d.]+ \| [+-].* to .*\|$", told, re.M
    )
    assert re.search(
        r"^\| network \| both \| uniform 20 % \| 1 \| [+-][\d.]+ \| .*\| squares [+-][\d.]+ \|$", told, re.M
    )


@starts("benchmarks/small_networks.py")
def test_small_networks(tmp_path, capsys):
    """Every study trains, the table has a line for every network or set of proxies, and a finished grid trains nothing again."""
    small = importlib.import_module("small_networks")
    draw, y = np.random.default_rng(0), np.repeat(np.arange(24), 8)
    x = np.clip(120 + 40 * draw.normal(size=(24, 3, 40, 40))[y] + 10 * draw.normal(size=(192, 3, 40, 40)), 0, 255)
    np.savez(tmp_path / "glyphs.npz", x=x.astype(np.uint8), y=y, split=(y >= 12).astype(np.int8))
    files = []
    for study in ("average", "proxies", "procsim", "robust"):
        files.append(tmp_path / f"{study}.jsonl")
        words = [
            study,
            "--quick",
            "--sets",
            str(tmp_path),
            "--out",
            str(files[-1]),
            "--device",
            "cpu",
            "--batches",
            "24",
        ]
        small.main([*words, "--noise", "uniform 0.5", "semantic 0.2"])
    before = [file.read_text() for file in files]
    assert [text.count("\n") for text in before] == [12, 1, 6, 6]
    small.main(words)
    assert files[-1].read_text() == before[-1]
    small.main(["csv", *map(str, files), str(tmp_path / "all.csv")])
    table = (tmp_path / "all.csv").read_text().splitlines()
    assert len(table) == 1 + 12 * 3 + 27 + 6 + 6 * 2 and table[0].startswith("set,noise,split,loss,seed")
    records = [json.loads(line) for line in before[2].splitlines()]
    assert records[0]["procsim"] is None and all(0 <= one["AUROC"] <= 1 for one in records if one["procsim"])
    assert small.auroc(torch.tensor([0.1, 0.9, 0.5, 0.4]), torch.tensor([False, True, False, True])) == 0.75


def test_robust_differences_by_hand(robust):
    """Two seeds with gaps of 1 and 3: mean 2, and the interval is 12.706 standard errors of 1 wide to each side."""
    cell = {"trained": "head", "data": "blobs", "loss": "ProxyAnchor", "noise": "uniform 20 %", "rounds": []}
    scores = {("oracle", 0): 0.5, ("oracle", 1): 0.6, ("robust", 0): 0.51, ("robust", 1): 0.63, ("robust", 2): 0.9}
    records = [cell | {"way": way, "seed": seed, "R@1": r, "MAP@R": r} for (way, seed), r in scores.items()]
    ((key, pair),) = robust.compare(records).items()
    assert key == ("head", "blobs", "ProxyAnchor", "uniform 20 %")
    assert pair.differences("R@1") == pytest.approx([1, 3])
    assert robust.difference_text(pair.differences("R@1")) == "+2.0 (-10.7 to +14.7)"


def test_robust_counts_touched_right_labels(robust):
    """Of 6 right labels one is dropped and one relabelled; of 4 wrong ones one is repaired: 2 of 6 right labels touched."""
    facts = {"right before": 0.6, "labels used": 0.9, "right among used": 5 / 9, "wrong labels repaired": 0.25}

    class Log:
        def read_log(self):
            return [{"step": 1, "relabelling": facts}, {"step": 20, "loss": 1.0}]

    (found,) = robust.read_rounds(Log())
    assert found["step"] == 1 and found["right labels touched"] == pytest.approx(2 / 6, abs=1e-6)


def test_robust_groups_similar_classes(robust):
    """Eight classes on two axes: the groups are the classes of one axis, and every class is in one group."""
    y = np.arange(80) % 8
    x = np.zeros((80, 2))
    x[np.arange(80), (y >= 4).astype(int)] = 1 + 0.01 * y
    groups = robust.group_classes(x, y)
    assert sorted(map(sorted, groups)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@starts("benchmarks/off_topic.py")
def test_off_topic(start, tmp_path):
    rng = np.random.default_rng(0)
    for name, shift in (("birds", 3), ("signs", -3), ("blank", 0)):
        classes = 1 if name == "blank" else 8
        y = np.arange(160) % classes
        x = shift + rng.normal(size=(classes, 24))[y] + 0.3 * rng.normal(size=(160, 24))
        np.savez(tmp_path / f"{name}.npz", x=x.astype(np.float32), y=y)
    said, found = start("off_topic", str(tmp_path), "--quick", "--share", "0.05", "--skip", "birds:blank")
    assert [(one["host"], one["kind"]) for one in found] == [
        ("birds", None), ("birds", "signs"), ("signs", None), ("signs", "birds"), ("signs", "blank"),
    ]  # fmt: skip
    names = list(importlib.import_module("off_topic").RIVALS)
    assert all(list(one["AUROC"]) == ["ours", *names] for one in found if one["kind"])
    assert found[1]["AUROC"]["ours"] > 0.95 and found[0]["false"] <= 0.02 and found[1]["samples"] == 168
    assert "| noise | host | foreign | ours |" in said and "| | worst | |" in said


@starts("benchmarks/annotators.py")
def test_annotators(start, tmp_path):
    rng, y = np.random.default_rng(0), np.arange(300) % 6
    x = rng.normal(size=(6, 12))[y] + rng.normal(size=(300, 12))
    np.savez(tmp_path / "blobs.npz", x=x, label=y)
    vote = np.where(rng.random(600) < 0.7, y.repeat(2), rng.integers(0, 6, 600))
    people = {"row": np.arange(300).repeat(2), "worker": np.tile([0, 1], 300), "vote": vote}
    (tmp_path / "people").mkdir()
    np.savez(tmp_path / "people" / "two.npz", x=x, label=y, **people)
    words = ("--people", str(tmp_path / "people" / "two.npz"))
    said, found = start("annotators", str(tmp_path), "--quick", *words)
    assert [one["case"] for one in found] == ["two", "blobs mixed"]
    for one in found:
        assert one["wrong"]["ours"] < one["wrong"]["majority"] and {"Dawid-Skene"} < set(one["wrong"])
        mean, low, high = one["difference"]["majority"]
        assert low <= mean <= high
    assert 0 <= found[1]["worker_covered"] <= 1 and "| votes | seed | ours |" in said


@starts("benchmarks/vote_training.py")
def test_vote_training(start, tmp_path):
    rng, y = np.random.default_rng(0), np.arange(300) % 6
    x = rng.normal(size=(6, 12))[y] + rng.normal(size=(300, 12))
    vote = np.where(rng.random(900) < 0.7, y.repeat(3), rng.integers(0, 6, 900))
    np.savez(
        tmp_path / "three.npz", x=x, label=y, row=np.arange(300).repeat(3), worker=np.tile([0, 1, 2], 300), vote=vote
    )
    said, found = start("vote_training", str(tmp_path / "three.npz"), "--quick", "--train", "180", "--test", "90")
    wrong = {one["way"]: one["wrong"] for one in found}
    assert wrong["true"] == 0 < wrong["majority"] < wrong["one vote"] == wrong["robust, votes"]
    assert all(0 < one["MAP@R"] <= one["R@1"] <= 1 for one in found) and "| robust, votes |" in said


@starts("benchmarks/parity.py")
def test_parity(tmp_path, capsys):
    pytest.importorskip("pytorch_metric_learning")
    pytest.importorskip("faiss")
    out = tmp_path / "parity.md"
    importlib.import_module("parity").main(["--quick", "--out", str(out)])
    text = out.read_text("utf-8")
    assert re.search(r"^\| MAP@R \| (0\.\d{5}) \| \1 \| \1 \| \1 \| - \|$", text, re.M) and text.count("\n## ") == 2


@starts("benchmarks/serve.py")
def test_serve_index(capsys):
    pytest.importorskip("faiss")
    importlib.import_module("serve").main(["index", "--quick"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines] == ["exact", "hnsw", "ivfpq"]
    for line in lines:
        must_be_positive(*(line[key] for key in ("p50_ms", "p95_ms", "p99_ms", "peak_memory_mb", "rows")))


@pytest.mark.slow
@pytest.mark.process
def test_serve_load(run, pictures, capsys):
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    importlib.import_module("serve").main(["load", str(run.path), str(pictures), "--quick"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["answers"] == {"200": 30} and lines[-1]["lost"] == 0 and lines[-1]["ended"] == 0
    check_latencies(lines[:-1], {"bare uvicorn", "search"})


@pytest.mark.browser
@pytest.mark.process
def test_serve_pages(capsys):
    pytest.importorskip("fastapi")
    pytest.importorskip("playwright")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    importlib.import_module("serve").main(["pages", "--quick"])
    lines = {line["page"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert list(lines) == ["search", "review", "audit"]
    must_be_positive(*(line[key] for line in lines.values() for key in ("first_s", "mb", "rows")))
    must_be_positive(lines["search"]["results_s"], lines["review"]["server_cpu_s"])


@pytest.mark.slow
@pytest.mark.process
def test_serve_review(capsys):
    pytest.importorskip("fastapi")
    importlib.import_module("serve").main(["review", "--quick"])
    *lines, whole = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert whole["lost"] == 0 < whole["acknowledged"] and whole["answers"] == {"200": 30}
    assert list(whole["rss_mb"]) == ["5", "10", "20", "30"] and whole["suspects"] > 0
    check_latencies(lines, {"bare uvicorn"})


def check_latencies(lines, kinds):
    """Check the lines of one client and of several; `kinds` are among the kinds of requests of both."""
    for clients in (1, 2):
        own = [line for line in lines if line["clients"] == clients]
        by_kind = {line["kind"]: line for line in own if "kind" in line}
        assert kinds <= set(by_kind)
        for line in by_kind.values():
            must_be_positive(*(line[key] for key in ("count", "p50_ms", "p95_ms", "p99_ms")))
        must_be_positive(*(line["per_second"] for line in own if "per_second" in line))


@starts("benchmarks/review_actions.py")
@pytest.mark.browser
@pytest.mark.process
def test_review_actions(start):
    """A scripted reviewer decides all suspects in a real browser; groups take fewer actions, and no decision is lost."""
    pytest.importorskip("fastapi")
    pytest.importorskip("playwright")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    told, found = start("review_actions", "--quick")
    assert [json.loads(line) for line in told.splitlines() if line.startswith("{")] == found
    groups, one = found
    assert (groups["view"], one["view"], one["screens"]) == ("groups", "one", 30)
    for line in found:
        assert line["suspects"] == 30 and line["lost"] == line["wrong"] == line["needless"] == 0
        assert line["actions"] == sum(line["by_kind"].values())
    assert groups["actions"] < one["actions"] / 2


@starts("benchmarks/scale.py")
def test_scale(capsys, tmp_path):
    module = importlib.import_module("scale")
    parts = ["--parts", "likewise", "votes", "sets"]
    module.main(["--quick", "--out", str(tmp_path / "records"), "--figure", str(tmp_path / "scale.png"), *parts])
    voted, sets = (
        json.loads((tmp_path / "records" / f"600x110-{name}.json").read_text()) for name in ("votes", "sets")
    )
    assert voted["cpu_seconds"] > 0 and voted["wrong"] < 0.1 and voted["columns"] == 110
    assert sets["cpu_seconds"] > 0 and sets["listed"] >= 600 and sets["most"] < 0.1
    found = json.loads((tmp_path / "records" / "600x110-likewise.json").read_text())
    assert found["seconds"] > 0 and 0.9 < found["precision"] <= 1 and (tmp_path / "scale.png").stat().st_size > 1000
    assert "600 x 110 | SelfClean" in capsys.readouterr().out
    assert module.exponent([{"samples": n, "seconds": 2 * n**1.5} for n in (10, 100, 1000)]) == pytest.approx(1.5)
    z, _, true = module.simulate_shop(600, 300)
    np.savez(tmp_path / "shop.npz", x=z, y=np.unique(true, return_inverse=True)[1])
    module.main(["--agreement", str(tmp_path)])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["wrong"] for line in lines] == [0.0, 0.1, 0.5] and lines[1]["Jaccard"] > 0.8


@starts("benchmarks/label_speed.py")
def test_label_speed(capsys):
    importlib.import_module("label_speed").main(["--quick", "--device", "cpu"])
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == 300 and found["labels_seconds"] > 0 and 0.5 < found["AP"] <= 1


@starts("benchmarks/thresholds.py")
def test_thresholds_are_counted_on_new_classes(start):
    out, lines = start("thresholds", "--quick", "--splits", "2", "--worlds", "2")
    chance, *lines = lines
    made = {tuple(line[name] for name in ("data", "what", "aim", "classes", "rate")): line for line in lines}
    assert out.startswith("| data | what | aim |") and len(made) == len(lines) == 55
    assert 0 < chance["error"] < 0.2 and 0 < chance["log_loss"] < 2
    line = made["simulated", "pair", "false accepts", 30, 0.05]
    assert line["refused"] == 0 and 0 <= line["held"] <= 1 and 0.9 < line["true_accepts"] <= 1
    assert made["simulated", "pair", "false accepts", 30, 0.001]["refused"] == 1  # 435 pairs of classes promise 4 / 435


@starts("tools/walk.py")
def test_a_walk_lists_the_files_of_a_command_in_order(capsys):
    importlib.import_module("walk").main(["recipe", "triplet"])
    *files, last = capsys.readouterr().out.splitlines()
    files = [line for line in files if line.endswith(".py")]
    assert files[0] == "cli/main.py" and "learn/recipes/__init__.py" in files and "learn/training/fit.py" not in files
    rooms = [file.split("/")[0] for file in files]
    assert last == f"{len(files)} files, {sum(map(str.__ne__, rooms, rooms[1:]))} changes of room"


@starts("tools/advice.py")
def test_advice_is_printed_and_fails_nothing(capsys, tmp_path):
    module = importlib.import_module("advice")
    file = tmp_path / "x.py"
    arguments = ", ".join(f"a{i}" for i in range(11))
    file.write_text(
        f"def f({arguments}):\n    'Nobody is told.'\n" + 61 * "    pass\n" + "x = (\n    1\n)  # outside\n"
    )
    module.HOME = tmp_path.parent
    module.ruled_out = lambda: {"picture"}
    kinds = {kind for kind, _ in module.advice(file)}
    assert kinds == {"long function", "many arguments", "unclear word", "comment behind a bracket"}
    assert importlib.reload(module).main([]) == 0
    assert capsys.readouterr().out.startswith("advice: ")


@starts("tools/compare_versions.py")
@pytest.mark.process
def test_versions_are_compared(tmp_path, capsys, monkeypatch):
    module = importlib.import_module("compare_versions")
    words = [str(ROOT), str(ROOT), "--out", str(tmp_path), "--parts", "published"]
    assert module.main(words) == 0
    assert ", 0 differ, 0 are in one checkout only" in capsys.readouterr().out
    file = tmp_path / "b" / "published" / "published.csv"
    file.write_text(file.read_text().replace("hierarchical", "changed", 1))
    assert module.main(words) == 1
    assert "1 differ" in capsys.readouterr().out


def test_every_script_is_started_by_a_test():
    files = {f"{folder}/{file.name}" for folder in FOLDERS for file in (ROOT / folder).glob("*.py")}
    elsewhere = {file for there in ELSEWHERE.values() for file in there}
    assert files == STARTED | elsewhere, "write a test that starts the new script at toy size"
    for test, there in ELSEWHERE.items():
        text = (ROOT / "tests" / test).read_text("utf-8")
        assert all(Path(file).stem in text for file in there), f"{test} does not start all of {there}"


def commands():
    """Python commands for the scripts in pages, in comments of grids and in the scripts themselves: where, and the words."""
    one = rf"python (?:{'|'.join(FOLDERS)})/\w+\.py"
    for page in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(f for d in FOLDERS for f in (ROOT / d).rglob("*.*")),
    ):
        if page.suffix in (".md", ".py", ".toml"):
            text = page.read_text("utf-8")
            for found in (
                *re.findall(rf"`({one}[^`]*)`", text),
                *re.findall(rf"^(?:# ?)?(?:.*: )? *({one}.*)$", text, re.M),
            ):
                yield page.name, shlex.split(re.sub(r"[\[\]|]|\.\.\.", " ", found.split("`")[0]), comments=True)[1:]


def test_commands_in_the_docs_are_accepted_by_the_scripts(capsys):
    found = list(commands())
    assert len(found) > 30
    for page, (file, *words) in found:
        module = importlib.import_module(Path(file).stem)
        try:
            if hasattr(module, "parse"):
                module.parse(words)
            else:
                assert not words
        except SystemExit:
            pytest.fail(f"{page}: {shlex.join([file, *words])}: {capsys.readouterr().err}")


@starts("benchmarks/multi_label_noise.py")
def test_multi_label_noise(tmp_path, capsys):
    """The toy set has a line with precision and recall of both kinds, and the file has the bins."""
    module, out = importlib.import_module("multi_label_noise"), tmp_path / "table.json"
    module.main(["--quick", "--out", str(out)])
    assert "| toy | 0.1, 0.03 | likewise | " in capsys.readouterr().out
    (found,) = json.loads(out.read_text("utf-8"))
    assert found["missing"]["wrong"] > 0 and found["missing"]["precision"] > 0.5 and found["superfluous"]["bins"]


@starts("benchmarks/graded.py", "benchmarks/graded_sets.py")
def test_graded(start, tmp_path):
    """Flat and graded training of toy blobs, as a table in a page; the features of a set are divided by classes."""
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- graded begin -->\nold\n<!-- graded end -->\nbelow\n", "utf-8")
    said, found = start("graded", "--quick", "--losses", "SupCon", "ArcFace", "--write", str(page))
    assert [(one["data"], one["loss"], one["flat"]) for one in found] == [
        ("toy", "SupCon", "flat"),
        ("toy", "ArcFace", "flat"),
    ]
    gain = found[0]["nDCG@10"]
    assert gain["difference"] == pytest.approx(gain["graded"] - gain["flat"], abs=1e-9) and 20 < gain["flat"] < 100
    text = page.read_text("utf-8")
    assert re.fullmatch(r"above\n<!-- graded begin -->\n\n\| set \|[\s\S]*\|\n\n<!-- graded end -->\nbelow\n", text)
    assert "| toy | SupCon | `TreeDepth(power=1)` |" in text and "old" not in text and "toy | ArcFace | graded:" in said
    _, chosen = start("graded", "--quick", "--tune", "--losses", "ListwiseKL", "--seeds", "0", "--steps", "2")
    assert chosen["toy"]["ListwiseKL"] in importlib.import_module("graded").CANDIDATE_POWERS
    y = np.arange(60) % 6
    names = ["Royal-Gala", "Zucchini", "Granny-Smith", "Kiwi", "Arla-Milk", "Oat-Milk"]
    above = ["Fruit/Apple/", "Vegetables/", "Fruit/Apple/", "Fruit/", "Packages/Milk/", "Packages/Milk/"]
    path = [f"/d/train/{above[c]}{names[c]}/{number}.jpg" for number, c in enumerate(y)]
    np.savez(tmp_path / "grocery.npz", x=np.random.default_rng(0).normal(size=(60, 8)), label=y, names=names, path=path)
    train, test = importlib.import_module("graded_sets").read_features(tmp_path / "grocery.npz")
    assert set(train.names) | set(test.names) == set(names) and len(train.names) == 3 and len(train.y) == 30
    assert train.tree["Royal-Gala"] == ("Fruit", "Apple") and train.tree["Kiwi"][0] == "Fruit"


def test_graded_with_several_labels(start):
    _, found = start("graded", "--quick", "--sets", "glyph_labels", "--losses", "SupCon", "ProxyAnchor", "--seeds", "0")
    assert [(one["loss"], one["flat"]) for one in found] == [
        ("SupCon", "flat"),
        ("SupCon", "any"),
        ("ProxyAnchor", "flat"),
    ]
    assert {one["graded"] for one in found} == {"SharedLabels()"}


def test_graded_scores_agree_with_another_library():
    """nDCG@10 is that of scikit-learn with linear gains; R@1 and MAP@R are counted one query at a time."""
    from sklearn.metrics import ndcg_score

    graded, sets = importlib.import_module("graded"), importlib.import_module("graded_sets")
    _, data = sets.toy()
    data = data.only(np.arange(5))
    found, z = graded.Scores(data).of(lambda x: x), torch.nn.functional.normalize(data.x)
    path = [(*data.tree[data.names[c]], data.names[c]) for c in data.y]
    for i in range(0, len(z), 7):
        others = [j for j in range(len(z)) if j != i]
        sim = [float(z[i] @ z[j]) for j in others]
        value = [sum(a == b for a, b in zip(path[i], path[j], strict=True)) / 2 for j in others]
        assert found["nDCG@10"][i] == pytest.approx(ndcg_score([value], [sim], k=10), rel=1e-9)
        near = [path[others[at]] == path[i] for at in np.argsort(sim)[::-1]]
        hits = near[: sum(near)]
        precise = [sum(hits[: at + 1]) / (at + 1) for at, hit in enumerate(hits) if hit]
        assert found["R@1"][i] == near[0] and found["MAP@R"][i] == pytest.approx(sum(precise) / len(hits), rel=1e-9)
