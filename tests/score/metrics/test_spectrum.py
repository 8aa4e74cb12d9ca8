"""Spectra against numpy's singular values, densities one pair at a time."""

import json
import math

import numpy as np
import pytest
import torch
from likewise.config import Evaluate, Train
from likewise.metrics import spectrum as module
from likewise.types import LikewiseError

from likewise import metrics
from likewise.learn.training.fit import train
from likewise.score.evaluate import evaluate
from likewise.score.metrics.spectrum import class_spectrum, density, knows, measure, spectral_decay, spectrum


def some(rows=90, dim=7, classes=8, seed=0):
    """Uneven classes of vectors that are not of unit length; class 100 has one sample."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (rows,), generator=g) ** 2
    y[5] = 100
    return torch.randn(60, dim, generator=g)[y.clamp_max(59)] + torch.rand(rows, dim, generator=g), y


def decay_by_hand(z, drop, drop_last=0):
    s = np.linalg.svd(z.double().numpy(), compute_uv=False)
    kept = s[drop : len(s) - drop_last]
    return sum(math.log(1 / len(kept) / (v / kept.sum())) for v in kept) / len(kept)


@pytest.mark.parametrize("chunk", [8192, 7, 1])
@pytest.mark.parametrize("shape", [(90, 7), (7, 90), (2, 5), (40, 40)])
def test_the_spectrum_is_numpys(shape, chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk)
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    s = np.linalg.svd(z.double().numpy(), compute_uv=False)
    torch.testing.assert_close(spectrum(z), torch.as_tensor(s / s.sum()), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("drop", "drop_last"), [(1, 0), (0, 0), (1, 1), (4, 0), (0, 3)])
def test_decay_by_hand(drop, drop_last):
    z, _ = some()
    assert spectral_decay(z, drop, drop_last) == pytest.approx(decay_by_hand(z, drop, drop_last), rel=1e-9)
    assert spectral_decay(1024 * z, drop, drop_last) == pytest.approx(spectral_decay(z, drop, drop_last), rel=1e-9)


def test_decay_of_known_spectra():
    """Orthogonal directions decay by 0; the numbers of the study's toy give its rho."""
    assert spectral_decay(torch.eye(6), drop=0) == pytest.approx(0, abs=1e-12)
    assert spectral_decay(torch.diag(torch.tensor([0.9067, 0.0933])), drop=0) == pytest.approx(0.542, abs=5e-4)
    assert spectral_decay(torch.diag(torch.tensor([0.5628, 0.4372])), drop=0) == pytest.approx(0.008, abs=5e-4)
    flat = spectral_decay(torch.diag(torch.tensor([9.0, 1, 1, 1])))
    steep = spectral_decay(torch.diag(torch.tensor([9.0, 4, 2, 1])))
    assert flat == pytest.approx(0, abs=1e-12) and steep > 0.1


def test_a_direction_that_is_not_used_decays_to_the_floor_and_a_collapsed_space_has_no_decay_to_measure():
    z = torch.diag(torch.tensor([4.0, 1.0, 1.0, 0.0]))
    assert spectrum(z)[3] == 0
    assert spectral_decay(z) == pytest.approx((2 * math.log(2 / 3) + math.log(1 / 3 / 1e-12)) / 3)
    one = torch.nn.functional.normalize(torch.rand(500, 1) * torch.randn(1, 64), dim=1)  # rounding apart, one direction
    assert spectrum(one)[0] == 1
    assert math.isnan(spectral_decay(one)) and spectral_decay(one, drop=0) > 20
    assert spectrum(torch.zeros(3, 4)).isnan().all()


@pytest.mark.parametrize("chunk", [8192, 1])
@pytest.mark.parametrize("ranks", [35, 3])
@pytest.mark.parametrize("dim", [7, 200])
def test_class_spectra_by_hand(dim, ranks, chunk, monkeypatch):
    """Classes larger and smaller than the dimension, and one of a single sample, which is left out."""
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk)
    z, y = some(dim=dim)
    curves = []
    for label in sorted(set(y.tolist())):
        own = z[y == label].double().numpy()
        if len(own) < 2:
            continue
        s = np.linalg.svd(own, compute_uv=False)
        curves.append([*(s / s.sum()), *[0.0] * 35][:ranks])
    assert len(curves) == 8
    found = class_spectrum(z, y, ranks)
    torch.testing.assert_close(found, torch.tensor(np.mean(curves, 0)), rtol=1e-6, atol=1e-8)
    if ranks == 35 and dim == 7:
        assert found.sum() == pytest.approx(1) and (found[7:] == 0).all()


def test_many_small_classes_take_no_time_and_none_at_all_no_number():
    z, y = torch.randn(33000, 64), torch.arange(33000) // 3
    found = class_spectrum(z, y)
    assert found.sum() == pytest.approx(1) and (found[3:] == 0).all()
    assert class_spectrum(z[:10], torch.arange(10)).isnan().all()
    zeros = torch.cat([torch.eye(4), torch.zeros(4, 4)])
    assert class_spectrum(zeros, torch.arange(8) // 4, 4).tolist() == pytest.approx([0.25] * 4)


def density_by_hand(z, y):
    z, y = z.double().numpy(), y.tolist()
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    members = {c: [i for i in range(len(y)) if y[i] == c] for c in sorted(set(y))}
    intra = [
        np.mean([1 - unit[i] @ unit[j] for i in own for j in own if i != j]) for own in members.values() if len(own) > 1
    ]
    centre = {c: unit[own].mean(0) / np.linalg.norm(unit[own].mean(0)) for c, own in members.items()}
    inter = np.mean([1 - centre[c] @ centre[d] for c in members for d in members if c != d])
    return np.mean(intra), inter, np.mean(intra) / inter


@pytest.mark.parametrize("chunk", [8192, 7])
def test_density_by_hand(chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk)
    z, y = some()
    assert density(z, y) == pytest.approx(density_by_hand(z, y), rel=1e-9)
    assert density(5 * z.double(), y.int()) == pytest.approx(density_by_hand(z, y), rel=1e-6)


def test_density_is_nan_where_it_is_not_defined():
    z, _ = some(20)
    alone = density(z, torch.arange(20))
    assert math.isnan(alone.pi_intra) and math.isnan(alone.pi_ratio) and 0 < alone.pi_inter < 2
    one = density(z, torch.zeros(20, dtype=torch.int64))
    assert math.isnan(one.pi_inter) and math.isnan(one.pi_ratio) and 0 < one.pi_intra < 2
    tight = density(torch.eye(2).repeat_interleave(3, 0), torch.arange(6) // 3)
    assert tight == pytest.approx((0, 1, 0))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("z", "y", "says"),
    [
        (torch.rand(3), None, r"z must be a float tensor \(N, D\) of two rows or more, got torch.float32 of shape \(3,\)"),
        (torch.rand(1, 4), None, "two rows or more"),
        (torch.rand(4, 0), None, "two rows or more"),
        (torch.ones(4, 4, dtype=torch.int64), None, "a float tensor .*got torch.int64"),
        (np.ones((4, 4)), None, "got ndarray"),
        (torch.tensor([[1.0, 2], [3, math.nan], [math.inf, 1]]), None, "2 of 3 rows are not .first: row 1"),
        (torch.rand(4, 4), torch.rand(4), "y must have one integer for each of the 4 rows, got torch.float32"),
        (torch.rand(4, 4), torch.ones(4, dtype=torch.bool), "one integer .*got torch.bool"),
        (torch.rand(4, 4), torch.arange(3), r"of the 4 rows, got torch.int64 of shape \(3,\)"),
        (torch.rand(4, 4), [0, 0, 1, 1], "got list"),
    ],
)  # fmt: skip
def test_bad_input_is_named(z, y, says):
    for owner in (density, class_spectrum):
        with pytest.raises(LikewiseError, match=f"{owner.__name__}: .*{says}"):
            owner(z, torch.arange(len(z)) if y is None else y)
    if y is None:
        with pytest.raises(LikewiseError, match=says):
            spectral_decay(z)


def test_too_little_left_to_compare_is_an_error():
    z = torch.rand(9, 3)
    for drop, last in ((2, 0), (1, 1), (-1, 0), (0, -1)):
        with pytest.raises(LikewiseError, match=f"have 3 and drop={drop}, drop_last={last}"):
            spectral_decay(z, drop, last)


def test_names():
    z, y = some()
    unit = torch.nn.functional.normalize(z, dim=1)
    drops = {"rho": 1, "rho@1": 0, "rho@2": 1, "rho@4": 3}
    found = measure(["pi_ratio", *drops, "pi_inter", "pi_intra"], z, y)
    assert list(found) == ["pi_ratio", *drops, "pi_inter", "pi_intra"]
    for name, drop in drops.items():
        assert found[name] == pytest.approx(decay_by_hand(unit, drop), rel=1e-6)
    for name in ("pi_intra", "pi_inter", "pi_ratio"):
        assert found[name] == getattr(density(z, y), name)
    assert [n for n in ("R@1", "rho@0", "rho@", "pi", "rho@3", "NMI") if knows(n)] == ["rho@3"]
    with pytest.raises(LikewiseError, match="'pi_rato'; did you mean 'pi_ratio'"):
        metrics.metric("pi_rato")


@pytest.mark.parametrize("name", [name.replace("@k", "@3") for name in module.NAMES])
def test_each_is_one_number_that_order_names_and_turns_do_not_change(name):
    z, y = some()
    before = z.clone(), y.clone()
    value = measure([name], z, y)[name]
    assert isinstance(value, float) and math.isfinite(value) and value >= 0
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(2))
    turn, _ = torch.linalg.qr(torch.randn(7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3)))
    for again, rel in ((z[order], y[order]), 1e-9), ((z, 1000 - y), 1e-9), ((z.double() @ turn, y), 1e-5):
        assert measure([name], *again)[name] == pytest.approx(value, rel=rel)
    assert torch.equal(z, before[0]) and torch.equal(y, before[1])


# From here on, as people ask for them: in scores.json, for a part, and by name.

ALL = ("rho", "rho@1", "pi_intra", "pi_inter", "pi_ratio")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 10)
    file = tmp_path_factory.mktemp("data") / "toy.npz"
    np.savez(file, x=(rng.normal(size=(12, 6))[y] * 2 + rng.normal(size=(120, 6))).astype(np.float32), label=y)
    return train(Train(
        data=str(file), out=str(file.parent / "run"), dim=5, steps=8, sampler="SamplesPerClass(batch=8, per_class=2)",
        metrics=("R@1", *ALL), noise="Uniform(share=0.3)", device="cpu", quiet=True,
    ))  # fmt: skip


def ask(target, **settings):
    return evaluate(Evaluate(target=str(target), device="cpu", quiet=True, **settings))


def expected(x, y):
    unit = torch.nn.functional.normalize(torch.as_tensor(x), dim=1)
    return [decay_by_hand(unit, 1), decay_by_hand(unit, 0), *density_by_hand(unit, torch.as_tensor(y))]


def test_a_run_records_them_beside_the_metrics_per_query(run):
    stored = json.loads((run.path / "scores.json").read_text())
    assert list(stored["metrics"]) == ["R@1", *ALL] and stored["split"] == "test"
    with np.load(run.path / "embeddings.npz") as saved:
        assert [stored["metrics"][name] for name in ALL] == pytest.approx(
            expected(saved["x"], saved["label"]), rel=1e-5
        )
    import pyarrow.parquet as pq

    columns = pq.read_table(run.path / "per_query.parquet").column_names
    assert "R@1" in columns and not set(ALL) & set(columns)


def test_the_training_part_can_be_asked_and_the_runs_result_stays(run):
    before = {p.name: p.read_bytes() for p in run.path.iterdir()}
    found = ask(run.path, split="train", metrics=("MAP@R", *ALL))
    from likewise import embed

    e = embed(run, run.about["config"]["data"], device="cpu", quiet=True)
    assert found["split"] == "train" and found["rows"] == found["queries"] == 60
    assert [found["metrics"][name] for name in ALL] == pytest.approx(expected(e.z[:60], e.y[:60]), rel=1e-4)
    assert found["metrics"]["rho"] != ask(run.path, metrics=("rho",))["metrics"]["rho"]  # a question, and not written
    assert {p.name: p.read_bytes() for p in run.path.iterdir()} == before
    with pytest.raises(LikewiseError, match="val split of 'toy' is empty"):
        ask(run.path, split="val")


def test_numbers_of_the_set_need_nobody_to_find(tmp_path):
    """Nothing is ranked for them: every class may have one sample, or there may be one class."""
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.savez(tmp_path / "alone.npz", x=x, label=np.arange(30))
    found = ask(tmp_path / "alone.npz", metrics=("rho", "pi_intra"))
    assert found["metrics"]["rho"] == pytest.approx(expected(x, np.arange(30) // 2)[0], rel=1e-5)
    assert math.isnan(found["metrics"]["pi_intra"]) and found["queries"] == found["unscored"] == 0
    split = np.where(np.arange(30) < 20, "train", "test")
    np.savez(tmp_path / "split.npz", x=x, label=np.arange(30) // 2, split=split)
    part = ask(tmp_path / "split.npz", metrics=ALL, split="train")
    assert list(part["metrics"].values()) == pytest.approx(expected(x[:20], np.arange(20) // 2), rel=1e-5)
    with pytest.raises(LikewiseError, match="has no `split` column.*--split"):
        ask(tmp_path / "alone.npz", metrics=ALL, split="train")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"metrics": ("rho",)}, "evaluation needs at least one metric per query"),
        ({"metrics": ("R@1", "rho@5")}, "have 5 and drop=4, drop_last=0; drop fewer"),
        ({"metrics": ("R@1", "roh")}, "there is no 'roh'; did you mean 'rho'"),
        ({"select": "rho"}, "'rho' is one value for a whole set"),
    ],
)
def test_what_cannot_be_measured_is_told_before_training(run, tmp_path, change, says):
    settings = {**run.about["config"], "out": str(tmp_path / "other"), **change}
    with pytest.raises(LikewiseError, match=says):
        train(Train(**{k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}))
    assert not (tmp_path / "other").exists()
