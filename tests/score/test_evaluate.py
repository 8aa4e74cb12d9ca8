"""Evaluation: the numbers are those of a plain loop, and what cannot be scored is said, not guessed."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from likewise.config import Evaluate, Train
from likewise.types import LikewiseError
from PIL import Image
from score.by_hand import NAMES, assert_scores, by_hand, score, some

from likewise.core.vectors import Vectors
from likewise.data.features import read_embeddings
from likewise.data.shards import write_shards
from likewise.data.vector_files import compact, mapped_rows, read_header
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks, Interrupted
from likewise.runs.embeddings import origin
from likewise.score import evaluate_arrays
from likewise.score.evaluate import evaluate
from likewise.score.scoring import score_all


def test_embeddings_score_as_by_hand(tmp_path):
    x, y = some()
    np.savez(tmp_path / "z.npz", x=x, label=y)
    result = score(tmp_path / "z.npz")
    assert_scores(result, by_hand(x, y)[0])
    assert result["queries"] == result["rows"] == 60
    assert result["dim"] == 3
    assert result["similarity"] == "cosine"
    far = score(tmp_path / "z.npz", similarity="euclidean")
    assert_scores(far, by_hand(x, y, euclidean=True)[0])
    assert far["metrics"] != result["metrics"]
    assert far["similarity"] == "euclidean"


@pytest.mark.parametrize("kind", ["csv", "txt", "npy", "parquet"])
def test_every_kind_of_file_gives_the_same_scores(tmp_path, kind):
    x, y = some()
    words = [f"klass {label}" for label in y]
    np.save(tmp_path / "z.npy", x)
    labels = str(tmp_path / f"labels.{kind}")
    if kind == "csv":
        Path(labels).write_text("label,note\n" + "".join(f"{w},x\n" for w in words))
    elif kind == "txt":
        Path(labels).write_text("\n".join(words) + "\n")
    elif kind == "npy":
        np.save(labels, y.astype(np.int32))
    else:
        pq.write_table(pa.table({"x": list(x), "label": words}), tmp_path / "z.parquet")
    result = score(tmp_path / "z.parquet") if kind == "parquet" else score(tmp_path / "z.npy", labels=labels)
    assert_scores(result, by_hand(x, y)[0])


@pytest.mark.parametrize("kind", ["npy", "shards", "int8"])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_vectors_on_disk_have_the_scores_of_the_same_numbers_in_memory(tmp_path, monkeypatch, kind, similarity):
    """float16 stays float16 (in a .npy file memory-mapped), int8 becomes float32; metrics of the whole set get float32."""
    monkeypatch.setattr("likewise.data.features.MAX_LOADED_BYTES", 0)
    x, y = some()
    seen = []
    monkeypatch.setattr(evaluate_arrays, "score_all", lambda e, how: seen.append(e.z) or score_all(e, how))
    if kind == "npy":
        np.save(tmp_path / "z.npy", x.astype(np.float16))
        target, labels = tmp_path / "z.npy", {"labels": str(tmp_path / "y.npy")}
        np.save(tmp_path / "y.npy", y)
    else:
        dtype = "int8" if kind == "int8" else "float16"
        target, labels = tmp_path / "z", {}
        names = [str(c) for c in range(int(y.max()) + 1)]
        write_shards(target, iter([x]), y, names, width=x.shape[1], dtype=dtype, shard_rows=16)
    same = np.asarray(read_embeddings(str(target), **labels).x)
    assert_scores(
        score(target, similarity=similarity, **labels), by_hand(same, y, euclidean=similarity == "euclidean")[0]
    )
    assert seen[0].dtype == (torch.float32 if kind == "int8" else torch.float16)
    evaluate(Evaluate(target=str(target), metrics=("R@1", "NMI"), quiet=True, device="cpu", **labels))
    assert seen[1].dtype == torch.float32


def test_some_rows_of_half_precision_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("likewise.core.vectors.BLOCK_BYTES", 64)
    x = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float16)
    np.save(tmp_path / "z.npy", x)
    stored = Vectors(mapped_rows(str(tmp_path / "z.npy"), read_header(tmp_path / "z.npy")), 8)
    assert isinstance(compact(stored, np.arange(40)), np.memmap)
    for rows in (np.arange(40), np.arange(3, 40, 2)):
        found = compact(stored, rows)
        assert found.dtype == np.float16 and np.array_equal(found, x[rows])


def test_queries_gallery_groups_and_splits_are_those_of_the_columns(tmp_path, subtests):
    x, y = some()
    at = np.arange(60)
    group = np.where(at < 50, at // 12, -1)
    for columns, sides in (
        ({"query": at < 20, "gallery": at >= 15}, {"query": at < 20, "gallery": at >= 15}),  # five rows are both
        ({"gallery": at >= 30}, {"gallery": at >= 30}),
        ({"group": group}, {"group": group}),
    ):
        with subtests.test(str(list(columns))):
            np.savez(tmp_path / "z.npz", x=x, label=y, **columns)
            result, expected = score(tmp_path / "z.npz"), by_hand(x, y, **sides)[0]
            assert_scores(result, expected)
            assert result["rows"] == 60 and expected != pytest.approx(by_hand(x, y)[0])
            assert result["queries"] == (20 if "query" in columns else 60)
    np.savez(tmp_path / "z.npz", x=x, label=y, split=np.where(at < 24, "train", "test"))
    assert_scores(score(tmp_path / "z.npz"), by_hand(x[24:], y[24:])[0])


def test_a_class_of_one_image_is_counted_and_not_scored(tmp_path):
    x, y = some()
    y[[3, 7]] = 100, 101
    np.savez(tmp_path / "z.npz", x=x, label=y)
    expected, unscored, _ = by_hand(x, y)
    assert unscored == 2
    result = score(tmp_path / "z.npz")
    assert_scores(result, expected, unscored=2)
    assert result["queries"] == 58


def test_nothing_to_find_is_an_error(tmp_path):
    x, _ = some()
    np.savez(tmp_path / "alone.npz", x=x, label=np.arange(60))
    with pytest.raises(LikewiseError, match="none of the 60 queries has a relevant"):
        score(tmp_path / "alone.npz")
    np.savez(tmp_path / "one.npz", x=x, label=np.zeros(60, int))
    with pytest.raises(LikewiseError, match="all 60 rows are of one class"):
        score(tmp_path / "one.npz")


def test_bad_embeddings_and_wrong_targets_are_named(tmp_path):
    x, y = some()
    x[[4, 9]] = np.nan
    np.savez(tmp_path / "nan.npz", x=x, label=y)
    with pytest.raises(LikewiseError, match=r"finite, but 2 of 60 rows .from 0: 4, 9"):
        score(tmp_path / "nan.npz")
    with pytest.raises(LikewiseError, match=r"no '.*missing'; give a run folder"):
        score(tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(LikewiseError, match="is not a run folder"):
        score(tmp_path / "folder")
    np.save(tmp_path / "z.npy", x[10:])
    with pytest.raises(LikewiseError, match="give a file with the labels"):
        score(tmp_path / "z.npy")
    np.save(tmp_path / "short.npy", y[:5])
    with pytest.raises(LikewiseError, match=r"50 rows and short.npy has 5"):
        score(tmp_path / "z.npy", labels=str(tmp_path / "short.npy"))


def test_metrics_that_cannot_be_measured(tmp_path):
    x, y = some()
    np.savez(tmp_path / "z.npz", x=x, label=y)
    for metrics, says in [
        (("R@1", "mAQ"), "there is no 'mAQ'"),
        (("mAP@10",), "mAP@10/min"),
        (("R@0",), "of 1 or more, as in R@1; got 'R@0'"),
        ((), "at least one metric"),
        (("R@1000",), "need 1000 results of every query, but there are at most 59"),
        (("P@60",), "need 60 results of every query, but there are at most 59"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            evaluate(Evaluate(target=str(tmp_path / "z.npz"), metrics=metrics, device="cpu"))
    whole = evaluate(Evaluate(target=str(tmp_path / "z.npz"), metrics=("R@59", "P@59"), device="cpu"))
    assert whole["metrics"] == pytest.approx({"R@59": 1.0, "P@59": 9 / 59})


def test_a_run_is_scored_as_by_hand_and_its_files_agree(run):
    (run.path / "per_query.parquet").unlink()  # without it, no earlier metric is kept beside these
    result = score(run.path)
    assert json.loads((run.path / "scores.json").read_text()) == result
    with np.load(run.path / "embeddings.npz") as saved:
        x, y, row = saved["x"], saved["label"], saved["row"]
    expected, unscored, order_of = by_hand(x, y)
    assert_scores(result, expected, unscored)
    table = pq.read_table(run.path / "per_query.parquet").to_pydict()
    for name in NAMES:
        assert np.nanmean(table[name]) == pytest.approx(result["metrics"][name])
    assert table["row"] == row.tolist()
    assert table["label"] == y.tolist()
    for q, nearest in enumerate(table["nearest"]):
        assert nearest == [row[g] for g in order_of[q][:10]]
    assert table["relevant"] == [11] * 144


def test_queries_of_a_run_and_their_answers_are_rows_of_its_data(tmp_path):
    """A table with a split and with marked queries, end to end: rows in the file are lines of the table."""
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(8), 9)
    x = (rng.normal(size=(8, 5))[y] * 2 + rng.normal(size=(72, 5))).astype(np.float32)
    split = np.where(y % 2 == 0, "train", "test")
    query = (split == "test") & (np.arange(72) % 3 == 0)
    gallery = (split == "test") & ~query
    np.savez(tmp_path / "toy.npz", x=x, label=y, split=split, query=query, gallery=gallery)
    run = train(Train(
        data=str(tmp_path / "toy.npz"), out=str(tmp_path / "run"), dim=4, steps=5, quiet=True, device="cpu",
        sampler="SamplesPerClass(batch=8, per_class=2)", metrics=NAMES,
    ))  # fmt: skip
    assert run.about["config"]["protocol"] == "QueryGallery(train=0.5, val=0.0, gallery=None)"
    with np.load(run.path / "embeddings.npz") as saved:
        z, row = saved["x"], saved["row"]
    assert row.tolist() == np.flatnonzero(split == "test").tolist()
    expected, _, order_of = by_hand(z, y[row], query[row], gallery[row])
    assert_scores(run.scores, expected)
    assert run.scores["queries"] == query.sum()
    table = pq.read_table(run.path / "per_query.parquet").to_pydict()
    assert table["row"] == np.flatnonzero(query).tolist()
    place = {r: p for p, r in enumerate(row.tolist())}
    for r, nearest in zip(table["row"], table["nearest"]):
        assert nearest == [row[g] for g in order_of[place[r]][:10]]
    assert_scores(score(run.path / "embeddings.npz"), expected)  # the file alone says the same


def test_best_last_and_untrained_are_three_networks(run):
    (run.path / "scores.json").unlink()  # without it, no earlier metric is kept beside these
    found = {checkpoint: score(run.path, checkpoint=checkpoint) for checkpoint in ("best", "last", "untrained")}
    assert [found[w]["checkpoint"] for w in found] == ["best", "last", "untrained"]
    assert json.loads((run.path / "scores.json").read_text()) == found["best"]
    assert found["untrained"]["metrics"]["MAP@R"] < found["last"]["metrics"]["MAP@R"]
    score(run.path, checkpoint="best")
    shutil.copy(run.path / "best.safetensors", run.path / "model.safetensors")
    assert score(run.path, checkpoint="last")["metrics"] == found["best"]["metrics"]


def test_data_that_changed_since_training_is_refused(settings, tmp_path):
    moving = tmp_path / "toy.npz"
    shutil.copy(settings["data"], moving)
    run = train(Train(**settings | {"data": str(moving), "steps": 2, "evaluate": False}))
    before = score(run.path)
    moving.rename(tmp_path / "moved.npz")
    with pytest.raises(LikewiseError, match="neither a known name nor an existing path"):
        score(run.path)
    assert score(run.path, data=str(tmp_path / "moved.npz")) == before
    with np.load(tmp_path / "moved.npz") as saved:
        x, y = saved["x"], saved["label"]
    y[[200, 250]] = y[[250, 200]]
    np.savez(moving, x=x, label=y)
    with pytest.raises(LikewiseError, match=r"must be the data that .* was trained with"):
        score(run.path)


def test_a_run_opens_from_any_folder(settings, tmp_path, monkeypatch):
    shutil.copy(settings["data"], tmp_path / "toy.npz")
    monkeypatch.chdir(tmp_path)
    run = train(Train(**settings | {"data": "toy.npz", "out": "here/run", "steps": 2}))
    assert run.scores["queries"] == 144
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert score("../here/run")["queries"] == 144


def test_labels_beside_a_run_are_refused(run, tmp_path):
    with pytest.raises(LikewiseError, match="is a run and has labels of its own"):
        score(run.path, labels=str(tmp_path / "labels.csv"))


def test_a_half_trained_run_is_scored_with_a_word_and_scored_again_when_finished(settings):
    def stop(state, batch):
        if state.step == 20:
            raise KeyboardInterrupt
        return batch

    with pytest.raises(KeyboardInterrupt) as caught:
        train(Train(**settings), hooks=Hooks(before_step=stop))
    assert not isinstance(caught.value, Interrupted)
    lines = []
    half = evaluate(Evaluate(target=settings["out"], quiet=True, device="cpu"), lines.append)
    assert "is not finished, so these are the scores of its last checkpoint" in lines[0]
    run = train(Train(**settings))
    assert run.scores["metrics"] != half["metrics"]
    assert evaluate(Evaluate(target=settings["out"], quiet=True, device="cpu")) == run.scores


def test_a_run_without_a_network_is_no_use_yet(run):
    (run.path / "model.safetensors").unlink()
    with pytest.raises(LikewiseError, match=r"no model.safetensors .*--restart"):
        score(run.path, checkpoint="last")


def test_pictures_left_out_in_training_are_left_out_here(tmp_path, pictures, small):
    """A run that skipped broken pictures is evaluated without being told so again."""
    folder = shutil.copytree(pictures, tmp_path / "data")
    (folder / "5 färg" / "bild 2.png").write_bytes(b"no picture")
    train(Train(data=str(folder), out=str(tmp_path / "run"), **small | {"steps": 2}), lambda line: None)
    result = evaluate(Evaluate(target=str(tmp_path / "run"), workers=0, quiet=True, device="cpu"))
    assert result["rows"] == 17
    (folder / "5 färg" / "bild 2.png").unlink()
    with pytest.raises(LikewiseError, match="must be the data that .* was trained with"):
        evaluate(Evaluate(target=str(tmp_path / "run"), workers=0, quiet=True, device="cpu"))


def test_pictures_of_every_kind_train_and_are_scored(tmp_path, small):
    """A table of grey, 16-bit, CMYK, transparent, boxed and large pictures, with split, query and gallery."""
    rng = np.random.default_rng(0)
    kinds = ["L", "I;16", "CMYK", "RGBA", "RGB", "P"]
    lines = ["path,label,split,query,gallery,box"]
    for c in range(6):
        for i, kind in enumerate(kinds):
            size = (1500, 900) if kind == "RGB" and c == 3 else (24, 20)
            grey = Image.fromarray(rng.integers(0, 255, size[::-1], dtype=np.uint8)).point(
                lambda v, c=c: v // 4 + 30 * c
            )
            wide = np.asarray(grey, np.uint16) * 257
            image = Image.fromarray(wide) if kind == "I;16" else grey.convert("RGB").convert(kind)
            file = f"bild {c} {i}.{'jpg' if kind == 'CMYK' else 'png'}"
            image.save(tmp_path / file)
            part = "train" if c < 3 else "test"
            lines.append(
                f"{file},{c},{part},{int(part == 'test' and i < 2)},{int(part == 'test' and i >= 2)},2 2 20 18"
            )
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    run = train(Train(data=str(tmp_path / "table.csv"), out=str(tmp_path / "run"), **small))
    assert run.scores["queries"] == 6
    assert run.scores["rows"] == 18
    with np.load(run.path / "embeddings.npz") as saved:
        assert np.isfinite(saved["x"]).all()
        assert saved["right"].tolist() == [20.0] * 18
    again = evaluate(Evaluate(target=str(run.path / "embeddings.npz"), device="cpu"))
    assert again["metrics"] == pytest.approx(run.scores["metrics"])


RAW = '''
from likewise.contracts import Loss
from likewise.similarity import compare, neg_squared


class Plain(Loss):
    """Pull class mates together in the space before the norm."""

    input = "raw"

    def forward(self, z, y, ref=None):
        sim, pairs = compare(z, y, ref, neg_squared)
        return -(sim * pairs.pos).sum(1) + (sim.exp() * pairs.neg).sum(1)
'''


def test_a_loss_on_raw_embeddings_is_scored_by_distance(settings, tmp_path, monkeypatch):
    (tmp_path / "my_raw_losses.py").write_text(RAW)
    monkeypatch.syspath_prepend(tmp_path)
    run = train(Train(**settings | {"loss": "my_raw_losses.Plain()", "allow_imports": True, "metrics": NAMES}))
    sys.modules.pop("my_raw_losses")
    assert run.scores["similarity"] == "euclidean"
    with np.load(run.path / "embeddings.npz") as saved:
        x, y = saved["x"], saved["label"]
    assert not np.allclose(np.linalg.norm(x, axis=1), 1)
    assert_scores(run.scores, by_hand(x, y, euclidean=True)[0])
    assert origin(run.path / "embeddings.npz")["similarity"] == "euclidean"
    assert_scores(score(run.path / "embeddings.npz"), by_hand(x, y, euclidean=True)[0])
    unit = score(run.path, similarity="cosine", allow_imports=True)
    assert_scores(unit, by_hand(x, y)[0])


def test_only_the_runs_own_result_is_written(settings):
    """Another network or another similarity is a question, not the result of the run."""
    run = train(Train(**settings | {"steps": 4}))
    before = {p.name: p.read_bytes() for p in run.path.iterdir()}
    for question in ({"checkpoint": "last"}, {"checkpoint": "untrained"}, {"similarity": "euclidean"}):
        assert evaluate(Evaluate(target=str(run.path), quiet=True, device="cpu", **question))["queries"] == 144
        assert {p.name: p.read_bytes() for p in run.path.iterdir()} == before


def test_means_come_with_intervals_and_with_means_over_classes(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), np.arange(2, 22))  # classes of 2 to 21
    x = rng.normal(size=(20, 4))[y] + 0.7 * rng.normal(size=(len(y), 4))
    np.savez(tmp_path / "z.npz", x=x, label=y)
    result = score(tmp_path / "z.npz", per_query=str(tmp_path / "each.parquet"))
    table = pq.read_table(tmp_path / "each.parquet").to_pydict()
    for name in NAMES:
        per_class = [np.mean([v for v, c in zip(table[name], table["label"]) if c == k]) for k in range(20)]
        assert result["class_mean"][name] == pytest.approx(np.mean(per_class))
        low, high = result["interval"][name]
        assert low < result["metrics"][name] < high
    assert result["interval_over"] == "classes"
    assert result["class_mean"]["P@5"] != pytest.approx(result["metrics"]["P@5"], abs=0.01)
    few = y < 9
    np.savez(tmp_path / "few.npz", x=x[few], label=y[few])
    assert score(tmp_path / "few.npz")["interval_over"] == "queries"  # nine classes say little of others


def test_every_gallery_is_asked_alone_and_all_together(tmp_path):
    x, y = some()
    query = np.arange(60) < 12
    place = np.where(np.arange(60) < 12, "", np.where(np.arange(60) % 2, "shop", "street"))
    np.savez(tmp_path / "z.npz", x=x, label=y, query=query, gallery=place)
    result = score(tmp_path / "z.npz")
    assert_scores(result, by_hand(x, y, query, place != "")[0])
    assert list(result["galleries"]) == ["shop", "street"]
    for name, found in result["galleries"].items():
        expected, unscored, _ = by_hand(x, y, query, place == name)
        assert_scores(found, expected, unscored)


def test_memory_is_an_amount_and_changes_no_number(tmp_path):
    x, y = some()
    np.save(tmp_path / "z.npy", x)
    np.save(tmp_path / "y.npy", y)
    usual, little = (score(tmp_path / "z.npy", labels=str(tmp_path / "y.npy"), memory=m) for m in ("512MB", "0.001 GB"))
    assert usual == little
    with pytest.raises(LikewiseError, match="such as '512MB' or '4GB', got 'much'"):
        score(tmp_path / "z.npy", labels=str(tmp_path / "y.npy"), memory="much")


def test_a_run_says_what_train_and_test_share(run, settings, features, tmp_path):
    assert run.scores["leaks"] == score(run.path)["leaks"]
    assert "share no class" in run.scores["leaks"]
    with np.load(features) as data:
        x, y = data["x"].copy(), data["label"]
    x[200] = x[0]  # a training vector among the test ones
    np.savez(tmp_path / "leaky.npz", x=x, label=y)
    leaky = train(Train(**settings | {"data": str(tmp_path / "leaky.npz"), "out": str(tmp_path / "leaky")}))
    assert leaky.scores["leaks"].startswith("1 ") and "row 0 = row 200" in leaky.scores["leaks"]


def test_the_best_test_epoch_is_kept_apart_and_decides_nothing(settings, tmp_path):
    plain = train(Train(**settings))
    peeked = train(Train(**settings | {"out": str(tmp_path / "peeked"), "test_every": "10"}))
    assert plain.scores["best_test_epoch"] is None
    best = peeked.scores["best_test_epoch"]
    assert peeked.scores["metrics"] == plain.scores["metrics"]
    seen = [line["test R@1"] for line in peeked.read_log() if "test R@1" in line]
    assert len(seen) == 4 and best["R@1"] == max(seen) and seen[-1] == pytest.approx(plain.scores["metrics"]["R@1"])


def test_what_a_run_saves_scores_the_same_when_training_images_answer(settings):
    run = train(Train(**settings | {"protocol": "SeenClasses(gallery='train')"}))
    again = evaluate(Evaluate(target=str(run.path / "embeddings.npz"), device="cpu", quiet=True))
    assert again["metrics"] == pytest.approx(run.scores["metrics"])
    assert again["queries"] == run.scores["queries"] < run.scores["rows"]


def test_a_gallery_too_small_for_a_metric_or_without_an_answer_leaves_a_gap(tmp_path):
    x, y = some()
    query = np.arange(60) < 12
    place = np.where(query, "", "shop").astype("<U9")
    place[[20, 21, 22]] = "street"  # three rows: no fifth answer
    y[40], place[40] = 99, "attic"  # of nobody's class
    np.savez(tmp_path / "z.npz", x=x, label=y, query=query, gallery=place)
    found = score(tmp_path / "z.npz")["galleries"]
    assert list(found["shop"]["metrics"]) == list(NAMES)
    assert list(found["street"]["metrics"]) == ["R@1", "RP", "MAP@R"] and found["street"]["unscored"] > 0
    assert found["attic"] == {"metrics": {}, "queries": 0, "unscored": 12}


def test_marked_queries_whose_class_is_not_in_the_gallery_are_counted_or_all_refused(tmp_path):
    x, y = some()
    query = np.arange(60) < 12
    y[:3] = 77
    np.savez(tmp_path / "z.npz", x=x, label=y, query=query, gallery=~query)
    expected, unscored, _ = by_hand(x, y, query, ~query)
    assert unscored == 3
    assert_scores(score(tmp_path / "z.npz"), expected, unscored)
    y[:12] = 77
    np.savez(tmp_path / "z.npz", x=x, label=y, query=query, gallery=~query)
    with pytest.raises(LikewiseError, match="none of the 12 queries .*the gallery has none"):
        score(tmp_path / "z.npz")


def test_peeking_keeps_metrics_of_which_high_is_good(settings):
    run = train(Train(**settings | {"test_every": "20", "metrics": ("R@1", "EER", "rho")}))
    assert list(run.scores["best_test_epoch"]) == ["R@1"] and "EER" in run.scores["metrics"]


def test_peeking_goes_by_the_labels_that_evaluation_goes_by(settings):
    """Training rows that answer have wrong labels in training, and true ones in every score."""
    how = {"protocol": "SeenClasses(gallery='train')", "noise": "Uniform(share=0.5)", "test_every": "40"}
    run = train(Train(**settings | how))
    assert run.scores["best_test_epoch"] == pytest.approx(run.scores["metrics"])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"checkpoint": "untrained"}, "--checkpoint needs a run"),
        ({"data": "birds"}, "--data needs a run"),
        ({"per_query": "each.csv"}, "--per-query must end in .parquet"),
        ({"per_query": "each.parquet", "metrics": ("rho",)}, "needs at least one metric per query"),
        ({"split": "test", "column": "train"}, "the test split of 'z' is empty.*or use --split train"),
    ],
)
def test_what_a_file_of_embeddings_has_no_answer_to_is_refused_at_once(tmp_path, settings, says):
    x, y = some()
    column = settings.pop("column", "test")
    np.savez(tmp_path / "z.npz", x=x, label=y, split=np.full(60, column))
    with pytest.raises(LikewiseError, match=says):
        evaluate(Evaluate(**{"target": str(tmp_path / "z.npz"), "metrics": NAMES, "quiet": True, **settings}))
