"""What the processes of test_step do: train every kind of part together, and stop half way."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from likewise.config import Train
from likewise.terms import language_guidance as guidance

from likewise import losses
from likewise.core.distributed.collectives import world
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks, Interrupted
from likewise.runs.folder import Run

SPREAD = {"sampler": "SamplesPerClass(batch=25, per_class=5)"}  # neither 2 nor 3 processes share it evenly
NOISY = {"noise": "Uniform(share=0.3)"}

AROUND = {
    "Hierarchical": "Hierarchical(loss=ProxyAnchor(), coarse=3, every=2, start='2')",
    "HierarchicalTriplet": "HierarchicalTriplet(start=2, every=1)",
    "CrossBatchMemory": "CrossBatchMemory(size=60)",
}
LOSSES = [AROUND.get(name, f"{name}()") for name in losses.__all__] + [
    "Hierarchical(loss=ProxyNCA(), coarse=3, every=2, start='2', by='means')",
    "Hierarchical(loss=NormSoftmax(), coarse=3, every=2, start='2', coarse_proxies='centroid')",
    "Triplet(miner=Random())",
    "Triplet(miner=Random(per_anchor=False))",
    "Triplet(miner=Switch(miner=SoftHard()))",
    "Contrastive(miner=TSINT(momentum=0.5))",
    "Margin(miner=DistanceWeighted())",
    "CrossBatchMemory(loss=MultiSimilarity(), size=40, start=2)",
]

CASES = {text: {"loss": text, "protocol": None, "steps": 4} for text in LOSSES} | {
    "ProcSim": {"confidence": "ProcSim(lr=0.05)", "record_losses": True, **NOISY},
    "ProcSim by loss": {"confidence": "ProcSim(score_by='loss', threshold='mean')", **NOISY},
    "PRISM": {"confidence": "PRISM(share=0.3, window=2)", "loss": "CrossBatchMemory(size=60)", **NOISY},
    "SuperLoss": {"confidence": "SuperLoss(tau='ema')", "loss": "Triplet()", **NOISY},
    "LabelPosterior": {"confidence": "LabelPosterior(every='2')", "record_losses": True, **NOISY},
    "LabelPosterior, proxies": {"confidence": "LabelPosterior(every='3')", "loss": "ProxyAnchor()", **NOISY},
    "CoTeaching": {"confidence": "CoTeaching(share=0.3, ramp='3')", "loss": "NormSoftmax()", "record_losses": True, **NOISY},
    "CoTeachingPlus": {"confidence": "CoTeachingPlus(share=0.3, start='2', ramp='3')", "loss": "NormSoftmax()", **NOISY},
    "CoTeachingPlus, sharded": {
        "confidence": "CoTeachingPlus(share=0.3, start='2', ramp='3')", "loss": "NormSoftmax()", "shard_proxies": True, **NOISY,
    },
    "SelfDistillation": {"terms": ("SelfDistillation(weight=5)",)},
    "S2SD": {"terms": ("S2SD(dims=(12, 16), delay=2)",), "loss": "ProxyAnchor()"},
    "Ensemble": {"terms": ("Ensemble()",), "head": "Relational(k=2)", "loss": "ProxyAnchor()", "loss_weight": 10.0},
    "Ensemble, balanced": {"terms": ("Ensemble(balanced=True)",), "head": "Relational(k=2)"},
    "LanguageGuidance": {"terms": ("LanguageGuidance(by='names', weight=2, weighted=True)",), "confidence": "ProcSim()"},
    "DivideConquer": {
        "terms": ("DivideConquer()",), "head": "Slices(k=2)", "sampler": "Clustered(batch=20, clusters=2, every=1)",
        "loss": "Margin()", "loss_weight": 0.0,
    },
    "DiVA": {
        "terms": ("DiVA(views=2, memory=30)",), "views": 2, "head": "Slices(k=4)", "loss": "Margin()", "loss_weight": 0.0,
    },
    "MIC": {"terms": ("MIC(clusters=4, every=2)",), "loss": "Margin()"},
    "DCML": {"terms": ("DCML()",), "head": "Compositional(k=2)", "loss": "ProxyAnchor()", "loss_weight": 0.0},
    "IntraBatch": {"terms": ("IntraBatch(temperature=2)",), "loss_weight": 0.0},  # 0.2 makes rounding ten times larger
    "AnchorNeighbours": {"sampler": "AnchorNeighbours(batch=12, per_class=3, neighbourhood=2)"},
    "GreedyCoreset": {"sampler": "GreedyCoreset(batch=20, pool=40)"},
    "DistanceMatching": {"sampler": "DistanceMatching(batch=20, pool=40)"},
    "FrechetMatching": {"sampler": "FrechetMatching(batch=20, pool=40)"},
    "SamplesRandom": {"sampler": "SamplesRandom(batch=25)"},
    "Shuffled, fewer than processes": {"sampler": "Shuffled(batch=2)", "loss": "NormSoftmax()"},
    "views": {"views": 2, "loss": "SupCon()"},
    "clip_norm": {"clip_norm": 0.05, "loss": "ProxyAnchor()"},
    "clip_norm, sharded": {"clip_norm": 0.05, "loss": "ArcFace()", "shard_proxies": True},
    "clip_value": {"clip_value": 1e-3},
    "chunk": {"chunk_size": 5, "loss": "ProxyAnchor()"},
    "chunk, one has more": {"chunk_size": 12},
    "shard ArcFace": {"loss": "ArcFace()", "shard_proxies": True, "optimizer": "adamw", "lr": 1e-3},
    "shard CosFace": {"loss": "CosFace()", "shard_proxies": True},
    "shard NormSoftmax": {"loss": "NormSoftmax()", "shard_proxies": True, "confidence": "SuperLoss()", **NOISY},
    "shard ProxyNCA": {"loss": "ProxyNCA()", "shard_proxies": True},
    "warmup, schedule": {
        "warmup": "2", "schedule": "plateau", "validate_every": "2", "schedule_patience": 0, "head": "MLP(hidden=6)",
    },
}  # fmt: skip

LABELLED = {"data": "learn.training.labelled_work.labelled()", "protocol": None, "allow_imports": True}
CASES |= {
    "labels": LABELLED | {"sampler": "SamplesPerLabel(batch=25, per_label=5)", "loss": "MultiSimilarity()"},
    "labels, proxies": LABELLED | {
        "sampler": "SamplesPerLabel(batch=25, per_label=5)", "loss": "ProxyAnchor()", "chunk_size": 12,
    },
    "relevance of samples": LABELLED | {
        "relevance": "learn.training.labelled_work.Near()",
        "sampler": "RelatedSamples(batch=25, per_anchor=5)", "loss": "SupCon()",
    },
    "judged triplets": LABELLED | {
        "relevance": "learn.training.labelled_work.Judged()", "sampler": "RelatedSamples(batch=24)", "loss": "Triplet()",
    },
}  # fmt: skip

PICTURES = {
    "backbone": "conv_small", "size": 16, "sampler": "SamplesPerClass(batch=10, per_class=2)", "augment": "affine",
    "data": "glyphs(classes=16, per_class=4, size=16)", "lr": 0.01, "protocol": None,
}  # fmt: skip
CASES |= {
    "pictures": PICTURES,
    "pictures, frozen norms": PICTURES | {"freeze_bn": True},
    "pictures, views, teacher": PICTURES | {"views": 2, "loss": "Contrastive(miner=TSINT(momentum=0.5))"},
    "pictures, distilled": PICTURES | {"terms": ("SelfDistillation(weight=5)",)},
    "pictures, peers": PICTURES | {"confidence": "CoTeaching(share=0.3, ramp='3')", "loss": "NormSoftmax()", **NOISY},
}

STOPPED = {
    "judged": {"confidence": "LabelPosterior(every='3')", "loss": "ProxyAnchor()", "record_losses": True, **NOISY},
    "sharded": {"loss": "ArcFace()", "shard_proxies": True, "optimizer": "adamw", "lr": 1e-3},
    "remembering": {"confidence": "PRISM(share=0.3, window=2)", "loss": "CrossBatchMemory(size=60)", **NOISY},
    "chosen": {"sampler": "GreedyCoreset(batch=20, pool=40)", "loss": "Triplet(miner=Random())"},
    "pictures": PICTURES | {"augment": "crop"},
}


FEW = {
    "MultiSimilarity()", "Hierarchical(loss=ProxyAnchor(), coarse=3, every=2, start='2')", "ProcSim", "LabelPosterior",
    "CoTeachingPlus, sharded", "LanguageGuidance", "GreedyCoreset", "views", "clip_norm, sharded", "chunk, one has more",
    "pictures, views, teacher", "labels, proxies", "relevance of samples",
}  # fmt: skip
"""Cases of the fast suite: every kind of part, and every way in which processes share work, at least once."""


def cases(many: int) -> list[str]:
    """Three processes train all there is; two, what depends on who has which share, and the cases of the fast suite."""
    shared = ("shard", "chunk", "clip", "views", "pictures")
    return [name for name in CASES if many > 2 or name in FEW or name.startswith(shared)]


def config(folder, name: str, more: dict) -> Train:
    """Some steps by sgd, so that rounding stays rounding, on twelve classes of vectors."""
    usual = {
        "data": f"{folder}/data.npz", "dim": 8, "steps": 6, "lr": 0.02, "optimizer": "sgd", "log_every": 1,
        "quiet": True, "device": "cpu", "workers": 0, "evaluate": False, "protocol": "UnseenClasses(val=0.3)",
        "validate_every": "6", "checkpoint_every": "100", "out": f"{folder}/{world()[1]}/{name}",
    } | SPREAD  # fmt: skip
    return Train(**usual | more)


def write_data(folder) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(16), 10)
    x = rng.normal(size=(16, 12))[y] + rng.normal(size=(160, 12))
    words = np.array([f"word {letter}" for letter in "abcdefghijklmnop"])  # language guidance needs words
    np.savez(f"{folder}/data.npz", x=x.astype(np.float32), label=words[y], split=np.where(y < 12, "train", "test"))


def encode(texts: list[str]) -> torch.Tensor:
    return torch.stack([torch.randn(8, generator=torch.Generator().manual_seed(sum(map(ord, t)))) for t in texts])


def to_double(state) -> None:
    for module in state.components.modules().values():
        module.double()


DOUBLED = Hooks(built=to_double, before_step=lambda state, batch: batch._replace(x=batch.x.double() / 255))
"""Norms over a few pictures make kinks of rounding in float32; in float64 there is nothing to see."""


def start(mine: Train, **more) -> Run:
    hooks = replace(DOUBLED if mine.backbone else Hooks(), **more)
    with mock.patch.object(guidance, "text_encoder", return_value=encode):
        return train(mine, hooks=hooks)


def train_case(folder, name: str) -> Run:
    return start(config(folder, name, CASES[name]))


def stop_half_way(folder, name: str) -> None:
    """The last process alone is asked to stop, after step 3."""
    me, many = world()

    def stop_the_last(state) -> None:
        if state.step == 3 and me == many - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        start(config(folder, f"stopped {name}", STOPPED[name]), after_step=stop_the_last)
    except Interrupted:
        return
    raise AssertionError("it was not stopped")


def go_on(folder, name: str, of: int) -> Run:
    """What so many processes began, in a folder of one's own."""
    mine = config(folder, f"{name} from {of}", STOPPED[name])
    if world()[0] == 0:
        shutil.copytree(f"{folder}/{of}/stopped {name}", mine.out)
    if world()[1] > 1:
        dist.barrier()
    return start(mine)


def found(run: Run) -> dict:
    """All that a training leaves behind, apart from how long it took."""
    state = run.load_state()
    out = {f"tensor {k}": v for k, v in state["tensors"].items()}
    out |= {f"memory {n} {k}": v for n, of in state["optimizer"]["state"].items() for k, v in of.items()}
    out |= {f"sampler {k}": v for k, v in state["sampler"].items()}
    for number, line in enumerate(run.read_log()):
        out |= {f"log {number} {k}": v for k, v in line.items() if k not in ("images_per_s", "speed", "speed_ms")}
    for name in ("sample_weights.npz", "losses.npz"):
        if (run.path / name).exists():
            with np.load(run.path / name) as columns:
                out |= {f"{name} {k}": columns[k] for k in columns.files}
    return out


def start_all(folder, asked: set[str], most: int) -> None:
    """Two, then (up to `most`) three real processes train these cases; then three go on with what two began."""
    write_data(folder)
    mp.spawn(work, (str(folder), asked, most), nprocs=most)


def work(me: int, folder: str, asked: set[str], most: int) -> None:
    torch.set_num_threads(1)
    for many in range(max(me + 1, 2), most + 1):
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet{many}", rank=me, world_size=many)
        errors = {}
        half = {f"stopped {name}": name for name in STOPPED if name in asked}
        for name in (*(name for name in cases(many) if name in asked), *half):
            try:
                if name in CASES:
                    train_case(folder, name)
                elif many == 2:
                    stop_half_way(folder, half[name])
                else:
                    go_on(folder, half[name], 2)
            except Exception as error:  # the test of this case tells it
                errors[name] = f"{type(error).__name__}: {error}"
        Path(f"{folder}/errors {me} of {many}.json").write_text(json.dumps(errors))
        dist.destroy_process_group()
