"""Odd inputs of all commands for `test_odd_inputs.py`: the files, and one line per case.

A case is the words of a command, then `!` and the beginning of the error that must come, or `=` and a part of what the command
prints when it succeeds. In the words, `in/` is a folder of inputs that no case may change, `out/` an empty folder, and `%run` a
fresh copy of `in/run`.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from likewise.cli import main as cli

RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(6), 6)
X = (RNG.normal(size=(6, 4))[Y] * 3 + RNG.normal(size=(36, 4))).astype(np.float32)


def make_inputs(folder: Path, run: Path, features: Path, pictures: Path) -> None:
    """Write the inputs of all cases. `run`: a finished run on `features`; `pictures`: a folder of images by class."""
    folder.mkdir()
    shutil.copytree(run, folder / "run")
    shutil.copy(features, folder / "features.npz")
    shutil.copytree(pictures, folder / "pictures")
    write_embeddings(folder)
    write_rubbish(folder)
    write_runs(folder)
    write_tables(folder)
    cli.main(["audit", str(folder / "good.npz"), "--out", str(folder / "audit"), "--device", "cpu", "--quiet"])
    shutil.copytree(folder / "audit", folder / "badaudit")
    (folder / "badaudit" / "audit.json").write_text('{"title": 5}')


def write_embeddings(folder: Path) -> None:
    one_off = X.copy()
    one_off[3, 2] = np.nan
    arrays = {
        "good": {"x": X, "label": Y},
        "nan": {"x": one_off, "label": Y},
        "norows": {"x": X[:0], "label": Y[:0]},
        "onerow": {"x": X[:1], "label": Y[:1]},
        "oneclass": {"x": X, "label": np.zeros(36, int)},
        "alone": {"x": X, "label": np.arange(36)},
        "nocolumns": {"x": X[:, :0], "label": Y},
        "nolabel": {"x": X},
        "wide": {"x": np.tile(X, 3), "label": Y},
    }
    for name, found in arrays.items():
        np.savez(folder / f"{name}.npz", **found)
    np.savez(folder / "objects.npz", x=np.array([{}] * 36, object), label=Y)
    np.save(folder / "good.npy", X)


def write_rubbish(folder: Path) -> None:
    body = (folder / "good.npz").read_bytes()
    (folder / "cut.npz").write_bytes(body[: len(body) // 2])
    for suffix in ("npz", "csv", "toml", "json", "png", "safetensors", "parquet", "jsonl", "xml", "faiss"):
        (folder / f"empty.{suffix}").touch()
        (folder / f"rubbish.{suffix}").write_bytes(bytes(range(256)) * 8)
    (folder / "folder.npz").mkdir()
    (folder / "folder.csv").mkdir()
    (folder / "emptyfolder").mkdir()
    (folder / "taken.png").write_text("a file of the user's")
    (folder / "taken").write_text("a file of the user's")
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").write_text("the user's notes")
    (folder / "text.npz").write_text("x,label\n1,2\n")
    Image.new("RGB", (8, 8), "red").save(folder / "query.png")
    (folder / "cut.png").write_bytes((folder / "query.png").read_bytes()[:40])
    with zipfile.ZipFile(folder / "other.npz", "w") as other:
        other.writestr("notes.txt", "not an array")


def write_runs(folder: Path) -> None:
    """Write run folders that are damaged or not finished."""
    (folder / "norun").mkdir()
    (folder / "norun" / "config.json").write_text("{}")
    for name, file in (("noconfig", "config.json"), ("noweights", "model.safetensors"), ("noscores", "scores.json")):
        shutil.copytree(folder / "run", folder / name)
        (folder / name / file).unlink()
    (folder / "noweights" / "best.safetensors").unlink()
    (folder / "noscores" / "per_query.parquet").unlink()
    for name, file in (("badweights", "best.safetensors"), ("badscores", "scores.json"), ("badqueries", "per_query.parquet"),
                       ("badconfig", "config.json"), ("badlog", "log.jsonl"), ("badusage", "usage.json")):  # fmt: skip
        shutil.copytree(folder / "run", folder / name)
        body = (folder / name / file).read_bytes()
        (folder / name / file).write_bytes(body[: len(body) // 2] + (b"\n{}" if file == "log.jsonl" else b""))
    shutil.copytree(folder / "run", folder / "newer")
    about = json.loads((folder / "newer" / "config.json").read_text())
    (folder / "newer" / "config.json").write_text(json.dumps(about | {"format": 99}))
    shutil.copytree(folder / "run", folder / "nodata")
    moved = about | {"config": about["config"] | {"data": "gone.npz"}}
    (folder / "nodata" / "config.json").write_text(json.dumps(moved))


def write_tables(folder: Path) -> None:
    settings = '[settings]\ndata = "in/good.npz"\ndim = 4\nsteps = 4\ndevice = "cpu"\n'
    texts = {
        "grid.toml": settings + "[axes]\nseed = [0, 1]\n",
        "nogrid.toml": "x = 1\n",
        "noaxes.toml": settings,
        "badaxis.toml": settings + "[axes]\nseed = 3\n",
        "badname.toml": settings.replace("dim", "dimm") + "[axes]\nseed = [0]\n",
        "badtype.toml": settings.replace("dim = 4", 'dim = "four"') + "[axes]\nseed = [0]\n",
        "twice.toml": settings + "[axes]\nseed = [0, 0]\n",
        "nodata.toml": "[settings]\ndim = 4\n[axes]\nseed = [0]\n",
        "deep.toml": "x = " + "[" * 3000 + "]" * 3000 + "\n",
        "unused.toml": settings + "[axes]\nseed = [0]\n[settingz]\nlr = 1\n",
        "config.toml": settings + 'protocol = "UnseenClasses(val=0.5)"\n',
        "results.csv": "identity,status,R@1\nabc,finished,0.5\n",
        "noresults.csv": "a,b\n1,2\n",
        "token": "\n",
        "corrected.csv": "path,label\npictures/gone.png,wren\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "token").chmod(0o644)
    (folder / "latin.toml").write_bytes(b'title = "na\xefve"\n')


CASES = {
    "train": """
        train in/good.npz --out in/taken/run ! train: --out must be a folder, got 'in/taken/run', but
        train in/gone.npz ! train: there is no data 'in/gone.npz'
        train in/emptyfolder ! emptyfolder must hold one sub-folder per class, got no sub-folder
        train in/rubbish.npz ! features: rubbish.npz holds Python objects, which are not unpickled, because that could
        train in/other.npz ! features: other.npz must hold the vectors
        train in/folder.npz ! folder.npz must hold one sub-folder per class, got no sub-folder
        train in/nan.npz --device cpu ! features: x of nan.npz must be finite, but 1 of 36 rows
        train in/onerow.npz ! protocols: 1 class cannot be divided into train and test classes at train=0.5
        train in/oneclass.npz ! protocols: 1 class cannot be divided into train and test classes at train=0.5
        train in/alone.npz ! train: in the test split of 'alone' no query has a relevant gallery row outside its
        train in/nocolumns.npz ! features: x of nocolumns.npz must have the shape
        train in/objects.npz ! features: the array 'x' of objects.npz holds Python objects, which are not unpickled,
        train in/good.npz --dim 0 ! train: dim must be 1 or more, got 0
        train in/good.npz --dim -3 ! train: dim must be 1 or more, got -3
        train in/good.npz --lr nan ! train: lr must be 0 or more, got nan
        train in/good.npz --lr -1 ! train: lr must be 0 or more, got -1.0
        train in/good.npz --epochs inf ! train: epochs must be 0 or more, got inf
        train in/good.npz --batch-size 0 ! train: batch_size must be 1 or more, got 0
        train in/good.npz --steps 1.5 ! train: --steps must be a whole number, got '1.5'
        train in/good.npz --seed -1 ! train: seed must be between 0 and 2.14748e+09, got -1
        train in/good.npz --loss Tripplet() ! train: --loss must name a loss, got 'Tripplet'
        train in/good.npz --loss "Triplet(margn=1)" ! Triplet has no argument 'margn'
        train in/good.npz --loss "Triplet(margin='x')" ! Triplet: margin must be a number, got 'x'
        train in/good.npz --loss "Triplet(" ! spec 'Triplet(' cannot be read
        train in/good.npz --loss "__import__('os').system('true')" ! train: --loss must name known components, got '__import__'
        train in/good.npz --loss os.system ! spec 'os.system': 'os.system' would be imported, which runs its code
        train in/good.npz --backbone resnet51 ! Embedder: backbone must be a timm model or one of bn_inception, conv_small,
        train in/good.npz --recipe tripplet ! recipe: there is no 'tripplet'
        train in/good.npz --metrics R@0 ! train: --metrics must name known metrics, got 'R@0'
        train in/good.npz --metrics R@one ! train: --metrics must name known metrics, got 'R@one'. `likewise list metrics` shows
        train in/good.npz --device tpu ! train: --device must be cpu, cuda, cuda:1 or mps, got 'tpu'
        train in/good.npz --device cuda:99 ! device: 'cuda:99' cannot be used on this machine
        train in/good.npz --gpus 2 --device cuda:0 ! train: --gpus 2 trains on several GPUs, but --device cuda:0 selects one
        train in/good.npz --gpus 99 ! train: --gpus 99 needs 99 GPUs
        train in/good.npz --protocol "UnseenClasses(train=2)" ! UnseenClasses: train must be above 0 and at most 1, got 2
        train in/good.npz --sampler "SamplesPerClass(batch=7, per_class=4)" ! SamplesPerClass: batch must be a multiple of
        train in/good.npz --out in/taken --device cpu ! train: --out must be a folder, got 'in/taken', but
        train in/good.npz --out in/full --device cpu ! train: 'in/full' must be empty or a run folder, but it exists and is not
        train in/good.npz --out in/run --device cpu ! train: 'in/run' must be empty or hold a run with the same settings, but it
        train in/good.npz --votes in/gone.csv ! train: --votes
        train in/good.npz --noise "Uniform(share=2)" ! Uniform: share must be between 0 and 1, got 2
        train in/good.npz --bogus ! train: there is no flag '--bogus'
        train ! required
        train in/good.npz --lora 4 --device cpu ! train: --lora 4 changes a frozen backbone a little, which excludes data that
        train in/good.npz --weights in/gone.pt ! train: there is no 'in/gone.pt' for --weights
        train in/good.npz --mixup 0.5 --record-losses --device cpu ! train: --mixup leaves no loss of a single sample to record
    """,
    "evaluate": """
        evaluate in/gone ! evaluate: there is no 'in/gone'
        evaluate in/emptyfolder ! run: 'in/emptyfolder' is not a run folder: it has no config.json
        evaluate in/norun ! run: in/norun/config.json must have format, identity, data and config, as `likewise
        evaluate in/noconfig ! run: 'in/noconfig' is not a run folder: it has no config.json
        evaluate in/noweights ! run: 'in/noweights' has no model.safetensors any more
        evaluate in/badweights ! run: in/badweights/best.safetensors is damaged
        evaluate in/badconfig ! run: in/badconfig/config.json is damaged
        evaluate in/newer ! run: 'in/newer' was written by a newer version of likewise
        evaluate in/nodata ! data: 'gone.npz' is neither a known name nor an existing path. DATA is a name
        evaluate in/good.npz --metrics Recoll@1 ! evaluate: --metrics must name known metrics, got 'Recoll@1'
        evaluate in/good.npz --relevance Nothing() ! evaluate: --relevance must name a relevance, got 'Nothing'. `likewise list
        evaluate in/good.npz --relevance "ListedPairs(file='in/gone.csv')" ! ListedPairs: there is no file 'in/gone.csv'
        evaluate in/good.npz --out in/taken/scores.json ! evaluate: the folder of --out 'in/taken/scores.json' does not exist
        evaluate in/good.npz --out out/scores.txt ! evaluate: --out must end in .json, got 'out/scores.txt'
        evaluate in/good.npz --per-query out/x.csv ! evaluate: --per-query must end in .parquet, got 'out/x.csv'
        evaluate in/good.npz --split val ! evaluate: 'in/good.npz' has no `split` column, so no val split
        evaluate in/good.npz --memory 1XB ! memory: must be an amount such as '512MB' or '4GB', got '1XB'
        evaluate in/good.npz --checkpoint last ! evaluate: 'in/good.npz' is a file of embeddings, but --checkpoint needs a run
        evaluate in/good.npz --exclude in/rubbish.csv ! exclude: rubbish.csv must be a text file in UTF-8
        evaluate in/good.npz --correct-test-labels in/rubbish.csv ! evaluate: rubbish.csv must be a text file in UTF-8
        evaluate in/good.npz --taxonomy in/rubbish.json --metrics R@1:level1 ! taxonomy: rubbish.json is not JSON
        evaluate in/good.npz --device cpu --metrics R@1 --out out/scores.json = R@1
        evaluate %run --device cpu --metrics R@1 = R@1
        evaluate %badscores --device cpu --metrics R@1 ! run: out/run/scores.json is damaged
        evaluate in/good.npz --labels in/empty.csv ! labels: empty.csv must hold a header and rows, but it is empty
    """,
    "search": """
        search in/gone --query 0 ! search: there is no 'in/gone'
        search in/emptyfolder --query 0 ! run: 'in/emptyfolder' is not a run folder: it has no config.json
        search in/good.npz ! search: one action must be given, got none
        search in/good.npz --query 36 ! search: the row must be in the target, got 36, but the target has 36 rows in 0 to 35
        search in/good.npz --query -1 ! search: --query must be an image file or the number of a row, got '-1', which does not
        search in/good.npz --query in/query.png ! search: an image query needs a network, and the target names none
        search in/good.npz --query in/gone.png ! search: --query must be an image file or the number of a row, got
        search in/good.npz --query 0 --k 0 ! search: k must be 1 or more, got 0
        search in/good.npz --query 0 --k 100 = 3 23
        search in/good.npz --query 0 --filter 99 ! search: a filter must name labels of the index, got '99'. A label that holds
        search in/good.npz --query 0 --index hnswx ! search: --index must be one of exact, hnsw, ivfpq, got 'hnswx'
        search in/good.npz --query 0 --index ivfpq ! search: --index ivfpq must have at least 1000 rows, got 36
        search in/good.npz --query 0 --out out/figure.jpg ! search: --out must end in .png, got 'out/figure.jpg'
        search in/good.npz --query 0 --out out/missing/figure.png ! search: the folder of --out 'out/missing/figure.png' does
        search in/good.npz --save in/full ! search: --save must be a new or empty folder, got 'in/full', which exists
        search in/good.npz --save in/taken ! search: --save must be a new or empty folder, got 'in/taken', which exists
        search in/good.npz --add in/good.npz ! search: --add and --remove must have a saved index as target
        search in/good.npz --remove 3 ! search: --add and --remove must have a saved index as target
        search in/good.npz --serve --host 0.0.0.0 --token-file in/token ! search: --token-file must be closed to other accounts,
        search in/good.npz --serve --port 99999 ! search: port must be between 0 and 65535, got 99999
        search in/good.npz --serve --max-upload lots ! search: --max-upload must be an amount such as '20MB', got 'lots'
        search in/norows.npz --query 0 ! features: x of norows.npz must have the shape
        search in/nan.npz --query 0 ! features: x of nan.npz must be finite, but 1 of 36 rows
        search in/good.npz --query 0 --json = "row":
    """,
    "embed": """
        embed in/run in/gone.npz --out out/z.npz ! embed: there is no data 'in/gone.npz'
        embed in/gone in/good.npz --out out/z.npz ! run: 'in/gone' is not a run folder: it has no config.json
        embed in/run in/wide.npz --out out/z.npz ! embed: the data must be like the training data of 'in/run', which are
        embed in/run in/pictures --out out/z.npz ! embed: the data must be like the training data of 'in/run', which are
        embed in/run in/features.npz --out out/z.csv ! embed: --out must end in .npz, got 'out/z.csv'
        embed in/run in/features.npz --out out/missing/z.npz ! embed: the folder of --out 'out/missing/z.npz' does not exist
        embed in/run in/features.npz --out in/folder.npz ! embed: --out must be the name of a file, got 'in/folder.npz'
        embed in/run in/features.npz ! required
        embed in/run in/features.npz --out out/z.npz --checkpoint best --size 12 ! embed: --size is for a backbone, but 'in/run'
        embed in/run in/features.npz --out out/z.npz --layer head ! embed: --layer must be one of embedding, feature, got
        embed in/run in/features.npz --out out/z.npz --device cpu = 288 embeddings of 8 numbers: out/z.npz
    """,
    "export": """
        export in/gone --to safetensors ! export: there is no 'in/gone'
        export in/good.npz --to safetensors ! run: 'in/good.npz' is not a run folder: it has no config.json
        export in/norun --to safetensors ! run: in/norun/config.json must have format, identity, data and config, as `likewise
        export in/badweights --to safetensors --out out/e ! run: in/badweights/best.safetensors is damaged
        export in/run --to torchscript --out out/e ! export: --to must be one of onnx, safetensors, got 'torchscript'.
        export in/run --to safetensors --out in/full ! full', which holds notes.txt
        export in/run --to safetensors --out in/taken ! taken', which holds taken
        export in/run --to safetensors --gallery in/gone --out out/e ! export: there is no 'in/gone' for --gallery
        export %run --to safetensors --gallery out/run --out out/e ! export: --gallery needs a calibrated run
        export in/run --to safetensors --checkpoint worst --out out/e ! export: --checkpoint must be one of best, last,
        export %run --to safetensors --parity-samples 0 --out out/e = checked on 16 synthetic vectors (no data)
    """,
    "calibrate": """
        calibrate in/gone ! calibrate: there is no 'in/gone'
        calibrate in/good.npz ! run: 'in/good.npz' is not a run folder: it has no config.json
        calibrate in/noweights ! run: 'in/noweights' has no model.safetensors any more
        calibrate in/run --far 0 ! calibrate: --far must lie between 0 and 1, got 0.0
        calibrate in/run --far 1 ! calibrate: --far must lie between 0 and 1, got 1.0
        calibrate in/run --far nan ! calibrate: far must be a finite number, got nan
        calibrate in/run --precision 1.5 ! calibrate: --precision must lie between 0 and 1, got 1.5
        calibrate in/run --far 0.1 --precision 0.9 ! calibrate: give --far or --precision, not both: each of them chooses the
        calibrate in/run --out out/figure.pdf ! calibrate: --out must end in .png, got 'out/figure.pdf'
        calibrate in/run --out out/missing/figure.png ! calibrate: the folder of --out 'out/missing/figure.png' does not exist
        calibrate %run --device cpu --far 0.3 --quiet =
    """,
    "compare": """
        compare in/run in/gone ! compare: there is no 'in/gone'
        compare in/run in/noscores ! compare: 'in/noscores' has no per_query.parquet
        compare in/run in/badqueries ! compare: 'in/badqueries/per_query.parquet' is not a parquet file or damaged
        compare in/run in/rubbish.parquet ! compare: 'in/rubbish.parquet' is not a parquet file or damaged
        compare in/run in/good.npz ! compare: 'in/good.npz' is not a parquet file or damaged
        compare in/run in/run --metrics mAP ! compare: 'mAP' must have been measured in A
        compare in/run in/run --out out/figure.txt ! compare: --out must end in .png, got 'out/figure.txt'
        compare in/run in/run --csv out/missing/x.csv ! compare: the folder of --csv 'out/missing/x.csv' does not exist
        compare in/run in/run --on in/gone.npz ! compare: there is no data 'in/gone.npz'
        compare in/run in/run --on in/wide.npz --device cpu ! compare: the data must be like the training data of 'in/run',
        compare in/run in/run = measures it).
        compare in/run ! required
    """,
    "bench": """
        bench in/gone.toml ! bench: there is no 'in/gone.toml'
        bench in/deep.toml ! grid: 'in/deep.toml' is not TOML
        bench in/empty.toml ! bench: the one cell: grid: data must be text, got None
        bench in/rubbish.toml ! grid: 'in/rubbish.toml' is not TOML
        bench in/latin.toml ! grid: 'in/latin.toml' is not TOML
        bench in/nogrid.toml ! grid: 'in/nogrid.toml' has the unknown key 'x'. Known keys: base, title, note, differs,
        bench in/badaxis.toml ! grid: axis 'seed' must be a list of values or of tables, got 3
        bench in/badname.toml ! grid: there is no setting 'dimm'
        bench in/badtype.toml ! bench: seed 0: train: dim must be a whole number, got 'four'
        bench in/twice.toml ! grid: axis 'seed' has '0' twice
        bench in/nodata.toml ! bench: seed 0: grid: data must be text, got None
        bench in/unused.toml ! grid: 'in/unused.toml' has the unknown key 'settingz'
        bench in/emptyfolder ! grid: there is no table 'in/emptyfolder'. `likewise list tables` lists them
        bench procsim-table99 ! bench: there is no 'procsim-table99'
        bench in/grid.toml --only seed=7 --out out/b --list ! grid: there is no seed called '7'. There are: 0, 1
        bench in/grid.toml --only 9 --out out/b --list ! grid: a cell must be axis=name or a number from 1 to 2, got '9'
        bench in/grid.toml --set dimm=3 --out out/b --list ! grid: there is no setting 'dimm'
        bench in/grid.toml --set dim=x --out out/b --list ! bench: seed 0: train: dim must be a whole number, got 'x'
        bench in/grid.toml --budget -1 --out out/b ! bench: --budget must be a number of minutes above 0, got -1
        bench in/grid.toml --budget nan --out out/b ! bench: budget must be a finite number, got nan
        bench in/grid.toml --jobs 0 --out out/b ! bench: jobs must be between 1 and 1024, got 0
        bench in/grid.toml --adopt in/gone.csv --out out/b --list ! bench: there is no 'in/gone.csv' for --adopt
        bench in/grid.toml --adopt in/noresults.csv --out out/b --list ! bench: --adopt must be a results.csv that bench wrote,
        bench in/grid.toml --adopt in/rubbish.csv --out out/b --list ! bench: --adopt must be a results.csv that bench wrote,
        bench in/grid.toml --adopt in/empty.csv --out out/b --list ! bench: --adopt must be a results.csv that bench wrote, with
        bench in/grid.toml --adopt in/folder.csv --out out/b --list ! bench: --adopt must be a results.csv that bench wrote, got
        bench in/grid.toml --executor dask --out out/b ! bench: --executor must be "ray" or "ray://HOST:PORT", got "dask"
        bench in/grid.toml --out in/taken --device cpu ! bench: --out must be a folder, got 'in/taken'
        bench in/grid.toml --adopt in/results.csv --out out/b --list = 2 of 2 trainings are not finished
        bench in/grid.toml --no-train --out out/b --device cpu = runs: out/b/results.csv
    """,
    "tune": """
        tune in/gone.toml --ranges lr=0..1 ! tune: there is no 'in/gone.toml'
        tune in/config.toml ! tune: there must be a range to search, got none
        tune in/config.toml --ranges lr ! tune: a range must be name=low..high or name=a|b|c, got 'lr'
        tune in/config.toml --ranges lr=1..0 ! tune: range lr must have low < high, got '1..0'
        tune in/config.toml --ranges "lr=0..1 log" ! tune: range lr must have 0 < low < high, got '0..1 log'
        tune in/config.toml --ranges lr=a..b ! tune: range lr must lie between two numbers, got 'a..b'
        tune in/config.toml --ranges lr=0..inf ! tune: range lr must have low < high, got '0..inf'
        tune in/config.toml --ranges lrr=0..1 ! grid: there is no setting 'lrr'
        tune in/config.toml --ranges loss.margn=0..1 ! tune: loss.margn: MultiSimilarity has no argument 'margn'. It takes:
        tune in/config.toml --ranges dim=0.5..1.5 ! tune: dim is a whole number up to 2**53, so its range must be too, got
        tune in/config.toml --ranges lr=0..1 --trials 0 ! tune: trials must be 1 or more, got 0
        tune in/config.toml --ranges lr=0..1 --sampler cma ! tune: --sampler must be one of tpe, gp, random, got 'cma'.
        tune in/config.toml --ranges lr=0..1 --storage nosuch:///x --out out/t ! tune: the storage 'nosuch:///x' cannot be used
        tune in/config.toml --ranges lr=0..1 --storage in/folder.csv --out out/t ! tune: the storage 'in/folder.csv' cannot be
        tune in/config.toml --ranges lr=0..1 --storage in/rubbish.jsonl --out out/t ! tune: the storage 'in/rubbish.jsonl'
        tune in/config.toml --ranges lr=0..1 --out in/taken ! tune: --out must be a folder, got 'in/taken'
        tune in/rubbish.toml --ranges lr=0..1 --out out/t ! grid: 'in/rubbish.toml' is not TOML
    """,
    "noise": """
        noise in/good.npz --model Uniform(share=0.2) ! required
        noise in/good.npz --model Unifrm(share=0.2) --out out/n.parquet ! noise: --model must name a noise model, got 'Unifrm'
        noise in/good.npz --model Uniform(share=1.5) --out out/n.parquet ! Uniform: share must be between 0 and 1, got 1.5
        noise in/good.npz --model Uniform(share='x') --out out/n.parquet ! Uniform: share must be a number, got 'x'
        noise in/good.npz --model Uniform(share=0.2) --out out/n.csv ! table: features do not fit in a CSV file
        noise in/good.npz --model Uniform(share=0.2) --out out/n.txt ! noise: --out must end in .csv, got 'out/n.txt'
        noise in/good.npz --model Uniform(share=0.2) --out out/missing/n.parquet ! noise: the folder of --out
        noise in/oneclass.npz --model Uniform(share=0.2) --out out/n.parquet ! protocols: 1 class cannot be divided into train
        noise in/gone.npz --model Uniform(share=0.2) --out out/n.parquet ! noise: there is no data 'in/gone.npz'
        noise in/good.npz --model Semantic(share=0.2) --out out/n.parquet ! Semantic: it needs a class tree, but the data has
        noise in/good.npz --model Uniform(share=0.2) --seed -1 --out out/n.parquet ! noise: seed must be between 0 and
        noise in/good.npz --model Uniform(share=0.0) --out out/n.parquet = figure: out/n.png
    """,
    "report": """
        report ! report: at least one run folder must be given, got none
        report in/gone ! report: there is no 'in/gone'
        report in/emptyfolder ! run: 'in/emptyfolder' is not a run folder: it has no config.json
        report in/badscores --out out/r.html ! run: in/badscores/scores.json is damaged
        report in/badlog --out out/r.html ! run: line 32 of in/badlog/log.jsonl is damaged
        report in/badusage --out out/r.html ! run: in/badusage/usage.json is damaged
        report in/cut.npz --out out/r.html ! features: cut.npz cannot be read as NumPy data
        report in/nan.npz --out out/r.html ! features: x of nan.npz must be finite, but 1 of 36 rows
        report in/run --out out/r.txt ! report: --out must end in .html, got 'out/r.txt'
        report in/run --out out/missing/r.html ! report: the folder of --out 'out/missing/r.html' does not exist
        report in/run --map mds --out out/r.html ! report: --map must be one of auto, pca, tsne, umap, none, got 'mds'.
        report in/run --k 0 --out out/r.html ! report: k must be 1 or more, got 0
        report in/run --out out/r.html --quiet --device cpu = page: out/r.html
    """,
    "hierarchy": """
        hierarchy in/gone ! hierarchy: there is no 'in/gone'
        hierarchy in/good.npz ! run: 'in/good.npz' is not a run folder: it has no config.json
        hierarchy in/run --clusters 1000 --out out/h ! hierarchy: clusters must be at least 2 and less than the 8 training
        hierarchy in/run --clusters 0 --out out/h ! hierarchy: clusters must be at least 2 and less than the 8 training classes,
        hierarchy in/run --taxonomy in/rubbish.json --out out/h ! taxonomy: rubbish.json is not JSON
        hierarchy in/run --taxonomy in/gone.csv --out out/h ! hierarchy: there is no 'in/gone.csv' for --taxonomy
        hierarchy in/run --out in/taken ! hierarchy: --out must be a folder, got 'in/taken'
        hierarchy in/noweights --out out/h ! run: 'in/noweights' has no model.safetensors any more
        hierarchy %run --out out/h --device cpu = figure: out/h/hierarchy.png
    """,
    "audit": """
        audit in/gone ! audit: there is no target 'in/gone'
        audit in/emptyfolder ! emptyfolder must hold one sub-folder per class, got no sub-folder
        audit in/good.npz --out in/taken ! audit: --out must be a folder, got 'in/taken'
        audit in/good.npz --verify --out out/a ! audit: --verify must be used with a run, got the file of embeddings
        audit in/good.npz --order gain --out out/a ! audit: --order gain must be used with --forecast, which writes the queue
        audit in/good.npz --worst-by size --out out/a ! audit: --worst-by must be one of count, rate, got 'size'.
        audit in/run --overlap --out out/a ! overlap: two runs or more must be given, got 1
        audit in/oneclass.npz --out out/a = Unknown in all: 36 labels cannot be scored (there is one class)
        audit in/nan.npz --out out/a ! features: x of nan.npz must be finite, but 1 of 36 rows
        audit in/onerow.npz --out out/a ! audit: the test split must have two samples or more, got 1
        audit in/nolabel.npz --out out/a ! features: nolabel.npz must hold the labels as label or y, got: nothing else
        audit in/good.npz --votes in/rubbish.csv --out out/a ! table: rubbish.csv must be a text file in UTF-8
        audit in/badweights --out out/a ! run: in/badweights/best.safetensors is damaged
        audit in/run --influence third --out out/a ! audit: --influence must be one of finite, lissa, got
        audit in/good.npz --out out/a --device cpu --quiet =
    """,
    "review": """
        review in/gone --no-browser ! review: there is no 'in/gone'
        review in/good.npz --no-browser ! review: the folder must be an audit
        review in/taken --no-browser ! review: the folder must be an audit
        review in/badaudit --no-browser ! audit: in/badaudit/audit.json is damaged
        review in/audit --no-browser --store in/rubbish.png ! review: in/rubbish.png is damaged or not a store of decisions
        review in/audit --no-browser --store in/folder.csv ! review: in/folder.csv cannot be opened or written
        review in/audit --no-browser --store out/missing/d.sqlite ! review: out/missing/d.sqlite cannot be opened or written
        review in/audit --no-browser --host 0.0.0.0 --token-file in/token ! review: --token-file must be closed to other
        review in/audit --no-browser --order random ! review: --order must be one of suspicion, gain, votes, got 'random'.
        review in/audit --no-browser --stop-below nan ! review: stop_below must be 0 or more, got nan
        review in/audit --no-browser --port 70000 ! review: port must be between 0 and 65535, got 70000
    """,
    "clean": """
        clean in/gone ! clean: there is no data 'in/gone'
        clean in/emptyfolder ! emptyfolder must hold one sub-folder per class, got no sub-folder
        clean in/pictures --to in/full --no-browser ! clean: --to must be a new or empty folder, but 'in/full' exists
        clean in/pictures --backbone resnet51 --no-browser ! embed: 'resnet51' is not a run folder, and no backbone either
        clean in/pictures --weights in/gone.pt --backbone conv_small --no-browser ! clean: there is no 'in/gone.pt' for
        clean in/pictures --votes in/gone.csv --no-browser ! table: in/gone.csv cannot be read
        clean in/pictures --port 99999 --no-browser ! clean: port must be between 0 and 65535, got 99999
        clean in/pictures --out in/taken --no-browser ! clean: --out must be a folder, got 'in/taken', but
    """,
    "send": """
        send in/gone --to csv --out out/s.csv ! data: 'in/gone' is neither a known name nor an existing path. DATA is a name
        send in/good.npz --to excel --out out/s.csv ! send: --to must be one of label-studio, hugging-face, csv, parquet,
        send in/good.npz --to csv --out out/missing/s.csv ! csv: the folder of --out 'out/missing/s.csv' does not exist
        send in/norows.npz --to csv --out out/s.csv ! features: x of norows.npz must have the shape
        send in/good.npz --to csv ! required
        send in/good.npz --to csv --out out/s.csv --columns path ! csv: --columns must be OURS=THEIRS, each name once, got
    """,
    "receive": """
        receive in/gone.csv --from csv --into in/audit ! csv:
        receive in/empty.csv --from csv --into in/audit ! csv: empty.csv must hold a header and rows, but it is empty
        receive in/results.csv --from excel --into in/audit ! receive: --from must be one of label-studio, hugging-face, csv,
        receive in/results.csv --from csv ! required
        receive in/rubbish.parquet --from parquet --into out/z.npz ! features: rubbish.parquet is not a readable Parquet
        receive in/results.csv --from csv --into in/emptyfolder ! csv: results.csv
    """,
    "apply": """
        apply ~nobody/c.csv --to out/c ! apply: there is no '~nobody/c.csv'
        apply in/gone.csv --to out/c ! apply: there is no 'in/gone.csv'
        apply in/corrected.csv --to out/c --in-place ! apply: --to and --in-place exclude each other, got both
        apply in/folder.csv --to out/c ! apply: the table must be
    """,
    "small commands": """
        review in/run --no-browser ! review: the folder must be an audit
        list lossess ! list: there is no registry 'lossess'
        list losses zzz ! list: a name must contain 'zzz', but no name in losses does.
        list losses triplet = Triplet
        published --paper procsimm ! published: there is no paper 'procsimm'
        published --csv out/missing/p.csv ! published: the folder of --csv 'out/missing/p.csv' does not exist
        published --csv out/p.txt ! published: --csv must end in .csv, got 'out/p.txt'
        published --paper procsim --metric R@77 ! published: there is no metric 'R@77'. There are: R@1, R@1 harmonic mean, R@2,
        recipe tripplet ! recipe: there is no 'tripplet'
        recipe ! required
        recipe triplet in/gone ! run: 'in/gone' is not a run folder: it has no config.json
        recipe in/badconfig triplet ! run: in/badconfig/config.json is damaged
        recipe in/run triplet = values for
        doctor --bogus ! doctor: there is no flag '--bogus'. See `likewise doctor --help-all`
        zzz ! there is no command 'zzz'
        train x --epohcs 3 ! train: there is no flag '--epohcs'; did you mean '--epochs'?
        train x --robst ! did you mean '--robust'?
        evaluate x --robust ! there is no flag '--robust'
        evaluate x --checkpoint first ! evaluate: --checkpoint must be one of best, last, untrained, got 'first'
        audit ! the target must be one folder of images, run folder or file of embeddings, got 0; use --overlap
        audit in/run --influence kronecker ! must be one of finite, lissa
        audit in/run --max-errors -1 ! max_errors must be 0 or more, got -1
        search in/run --query 0 --model in/run ! is a run and has its own network
        demo --noise-rate 2 --out out/d ! demo: noise_rate must be between 0 and 1, got 2.0
        demo --epochs nan --out out/d ! demo: epochs must be 0 or more, got nan
        demo --data in/good.npz --out out/d ! demo: --data must have images for the figure, but 'in/good.npz'
        demo --out in/taken ! demo: --out must be a folder, got 'in/taken'
        trian in/good.npz ! there is no command 'trian'
        --bogus ! there is no command '--bogus'. See `likewise --help`
        list losses --device cpu ! list: there is no flag '--device'. See `likewise list --help-all`
    """,
}
"""Command -> its cases."""
