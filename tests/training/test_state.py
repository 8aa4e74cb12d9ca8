"""What a training is made of: numbers of classes and samples, what the seed decides, verdicts, and what cannot go together."""

import dataclasses

import numpy as np
import pytest
import torch

from likewise.config import Train
from likewise.data import load
from likewise.runs.defaults import resolve
from likewise.training.state import Parts
from likewise.types import Embedded, LikewiseError, Verdict

CPU = torch.device("cpu")


@pytest.fixture
def items(features):
    """Training rows that are not the first of the table."""
    data = load(features)
    return dataclasses.replace(data, split=np.where(data.y < 12, "test", "train"))


@pytest.fixture
def make(settings):
    def make_parts(items, **changes):
        return Parts(resolve(Train(**settings | changes), items), items, CPU)

    return make_parts


def same(a, b, prefix=""):
    a, b = ({k: v for k, v in part.tensors().items() if k.startswith(prefix)} for part in (a, b))
    return a.keys() == b.keys() and all(torch.equal(v, b[k]) for k, v in a.items())


def test_samples_and_classes_are_numbered_from_0(items, make):
    parts = make(items, noise="Uniform(share=0.3)")
    assert parts.rows.tolist() == list(range(144, 288)) and parts.place[144:].tolist() == list(range(144))
    assert (parts.place[:144] == -1).all()
    assert parts.class_names == tuple(items.class_name[12:]) and parts.facts["classes"] == 12
    assert (parts.labels + 12).tolist() == parts.items.y[144:].tolist()
    assert (parts.clean + 12).tolist() == items.y[144:].tolist()
    assert (parts.watch.noisy.numpy() == (parts.items.y != items.y)[144:]).all() and parts.watch.noisy.sum() == 43
    assert np.array_equal(parts.given.y, items.y) and np.array_equal(parts.items.y[:144], items.y[:144])


def test_a_class_that_no_label_names_has_no_number(items, make):
    """How many classes there are must not tell of true labels."""
    y = np.where(items.y == 15, 16, items.y)
    parts = make(dataclasses.replace(items, y=y, y_clean=items.y))
    assert parts.facts["classes"] == 11 and "15" not in parts.class_names
    assert (parts.clean == -1).sum() == 12 and parts.watch.noisy.sum() == 12


@pytest.mark.parametrize("confidence", ["ProcSim()", "LabelPosterior()", "PRISM(share=0.2)"])
def test_doubting_labels_changes_no_other_start(items, make, confidence):
    """Of the network, the loss, the terms, and of the random numbers to come."""
    both = {"loss": "ProxyAnchor()", "terms": ("S2SD(dims=(6, 7))",)}
    plain = make(items, **both)
    state = torch.get_rng_state()
    doubting = make(items, **both, confidence=confidence)
    assert torch.equal(state, torch.get_rng_state())
    assert all(same(plain, doubting, part) for part in ("embedder.", "loss.", "term_0."))
    assert plain.tensors("term_0") and doubting.sampler.one_pass(0) == plain.sampler.one_pass(0)


def test_two_networks_start_apart_and_are_trained_and_stored_both(items, make):
    parts = make(items, confidence="CoTeaching(share=0.2)", loss="NormSoftmax()")
    assert len(parts.embedders) == len(parts.losses) == 2
    assert list(parts.modules()) == ["embedder", "loss", "embedder_2", "loss_2", "confidence"]
    first, second = (dict(embedder.named_parameters()) for embedder in parts.embedders)
    assert not any(torch.equal(first[k], second[k]) for k in first if k.endswith("weight"))
    assert not torch.equal(parts.losses[0].proxies, parts.losses[1].proxies)
    trained = {id(p) for group in parts.optimizer.param_groups for p in group["params"]}
    for module in (*parts.embedders, *parts.losses):
        assert all(id(p) in trained for p in module.parameters())
    alone = make(items, loss="NormSoftmax()")
    assert same(alone, parts, "embedder.") and same(
        alone, parts, "loss."
    )  # the first is who it would be without the other


def test_every_miner_that_wants_a_teacher_gets_to_see_it(items, make):
    """Those of a second network's loss and of a term's copies too."""
    loss = "Contrastive(miner=TSINT(share=0.2))"
    two = make(items, loss=loss, confidence="CoTeaching(share=0.2)")
    assert two.watchers == [own.miner for own in two.losses] and len(two.watchers) == 2
    one = make(items, loss=loss, terms=("S2SD(dims=(6,))",))
    assert one.watchers == [own.miner for own in (one.loss, *one.terms[0].losses)] and len(one.watchers) == 2


def test_a_network_is_trained_once_though_terms_know_it(items, make):
    parts = make(items, terms=("SelfDistillation()", "S2SD(dims=(6,))"))
    everyone = [p for group in parts.optimizer.param_groups for p in group["params"]]
    assert len({id(p) for p in everyone}) == len(everyone)
    names = [group["name"] for group in parts.optimizer.param_groups]
    assert "terms" in names and not any(p.requires_grad for p in parts.terms[0].parameters())


def test_a_verdict_changes_labels_and_who_is_drawn(items, make):
    parts = make(items, confidence="LabelPosterior()")
    parts.sampler.step = 4
    y, w = torch.as_tensor(parts.labels).clone(), torch.ones(144)
    y[0], w[20:30] = 3, 0.0
    parts.adopt(Verdict(y, w))
    assert parts.sampler.step == 4 and parts.y[0] == 3 and parts.labels[0] == 0
    assert set(parts.kept.tolist()) == set(range(144)) - set(range(20, 30))
    assert parts.within[parts.kept].tolist() == list(range(134))
    drawn = {int(parts.kept[i]) for number in range(30) for b in parts.sampler.one_pass(number) for i in b}
    assert drawn == set(parts.kept.tolist())
    assert parts.sampler.labels[0] == 3


def test_a_verdict_that_leaves_too_little_says_whose_it_was(items, make):
    parts = make(items, confidence="LabelPosterior()")
    verdict = Verdict(torch.as_tensor(parts.labels), torch.as_tensor((parts.labels < 3).astype(np.float32)))
    with pytest.raises(LikewiseError, match=r"after LabelPosterior\(.*\) left out labels; smaller batches"):
        parts.adopt(verdict)


@pytest.mark.parametrize(
    "changes",
    [
        {"confidence": "ProcSim(threshold='mean')", "terms": ("SelfDistillation()",)},
        {"confidence": "CoTeaching(share=0.2)", "loss": "NormSoftmax()"},
        {"confidence": "LabelPosterior()"},
        {"keep_losses": True},
    ],
)
def test_the_state_is_everything(items, make, changes):
    """Stored as plain tensors; restored into other parts, all of it is back, verdict and watch included."""
    parts, other = (
        make(items, **changes, noise="Uniform(share=0.3)"),
        make(items, **changes, noise="Uniform(share=0.3)"),
    )
    with torch.no_grad():
        for part in parts.modules().values():
            for t in part.state_dict().values():
                t.add_(1)
    parts.step = 7
    parts.watch.last[0] = torch.arange(144.0)
    parts.watch.add("weight", torch.tensor(0.5))
    if parts.history:
        for _ in range(2):
            parts.history.see(torch.arange(3.0), torch.tensor([0, 5, 9]))
            parts.history.end_pass(6)
    if parts.judge_every:
        x = torch.as_tensor(parts.items.x[parts.rows])
        parts.adopt(parts.confidence.judge(Embedded(x, torch.as_tensor(parts.labels), torch.arange(144))))
        assert len(parts.kept) < 144
    other.load(parts.state(), "state.pt")
    assert same(parts, other) and other.step == 7
    assert torch.equal(parts.y, other.y) and np.array_equal(parts.kept, other.kept)
    assert torch.equal(parts.watch.last.nan_to_num(), other.watch.last.nan_to_num())
    assert {name: float(n) for name, n in other.watch.take().items()} == {"sum of weight": 0.5, "count of weight": 1.0}
    assert bool(other.history) == bool(changes.get("keep_losses"))
    if parts.history:
        assert other.history.step == [6] and torch.equal(other.history.loss[0].isnan(), parts.history.sums[1] == 0)
        assert other.history.sums[:, [0, 5, 9]].tolist() == [[0, 1, 2], [1, 1, 1]]


def test_a_state_of_an_older_likewise_still_loads(items, make):
    """It holds a state of random numbers, which are drawn anew in every step by now, and does not know how the network ran."""
    parts, other = make(items, loss="ProxyAnchor()"), make(items, loss="ProxyAnchor()")
    with torch.no_grad():
        parts.loss.proxies.add_(1)
    parts.step = parts.sampler.step = 7
    state = parts.state()
    assert "rng" not in state
    del state["way"]
    before = torch.get_rng_state()
    other.load(state | {"rng": {"cpu": torch.Generator().manual_seed(5).get_state()}}, "state.pt")
    assert same(parts, other) and other.step == other.sampler.step == 7 and other.way is None
    assert torch.equal(torch.get_rng_state(), before)


def test_random_numbers_depend_on_seed_step_and_purpose_alone(items, make):
    """So that a training which goes on needs none of those drawn before."""
    drawn = {}
    for seed in (0, 1):
        parts = make(items, seed=seed)
        for parts.step in (0, 1, 2):
            for what in (0, 1):
                parts.seed(what)
                drawn[seed, parts.step, what] = float(torch.rand(()))
    assert len(set(drawn.values())) == 12
    again = make(items, seed=1)
    torch.rand(9)
    again.step = 2
    again.seed(1)
    assert float(torch.rand(())) == drawn[1, 2, 1]


@pytest.mark.parametrize(("text", "every"), [("30s", "30s"), ("4", 4), ("0.5e", 3)])
def test_states_are_saved_by_steps_passes_or_seconds(items, make, text, every):
    assert make(items, checkpoint_every=text).checkpoint_every == every


def test_what_is_held_covers_who_trains_validates_and_is_peeked_at(pictures, small, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("likewise.training.state.hold", lambda *args, **settings: asked.append((args, settings)))
    config = {"data": str(pictures), "out": str(tmp_path / "run"), "keep": "device", "keep_budget": "2GB", **small}
    given = load(str(pictures))
    for changes, rows in (({"keep_side": 9}, 18), ({"peek_every": "1e"}, 36)):
        parts = Parts(resolve(Train(**config | changes), given), given, CPU)
        parts.prepare_pictures()
        (_, held, device, keep, side), settings = asked.pop()
        assert sorted(held.tolist()) == list(range(rows)) and (device, keep, side) == (
            CPU,
            "device",
            9 if rows < 36 else None,
        )
        assert settings["budget"] == 2 * 2**30
        assert parts.augment.side == parts.plain.side == side


def test_a_budget_that_is_none_is_told_before_anything_is_done(pictures, small):
    given = load(str(pictures))
    with pytest.raises(LikewiseError, match="an amount such as '512MB' or '4GB', got 'much'"):
        Parts(resolve(Train(data=str(pictures), keep_budget="much", **small), given), given, CPU)


def test_terms_are_given_the_training_samples_in_order(items, make, tmp_path, monkeypatch):
    from likewise.runs.folder import Run
    from likewise.terms import SelfDistillation

    seen = []
    monkeypatch.setattr(SelfDistillation, "prepare", lambda self, given: seen.append(given))
    parts = make(items, terms=("SelfDistillation()",), noise="Uniform(share=0.3)")
    parts.prepare_pictures()
    parts.prepare_terms(Run(tmp_path))
    (given,) = seen
    x, place = (torch.cat(t) for t in zip(*given.pictures(None)))
    assert place.tolist() == list(range(144)) and torch.equal(x, torch.as_tensor(items.x[144:]))
    assert np.array_equal(given.labels, parts.labels) and given.class_names == parts.class_names


def test_terms_may_look_at_pictures_with_the_usual_workers(pictures, small, tmp_path, monkeypatch):
    from likewise.runs.folder import Run
    from likewise.terms import SelfDistillation

    seen = []
    monkeypatch.setattr(SelfDistillation, "prepare", lambda self, given: seen.extend(given.pictures(None)))
    given = load(str(pictures))
    config = Train(data=str(pictures), terms=("SelfDistillation()",), **small | {"workers": -1})
    parts = Parts(resolve(config, given), given, CPU)
    parts.prepare_pictures()
    parts.prepare_terms(Run(tmp_path))
    assert [place for _, places in seen for place in places.tolist()] == list(range(18))


@pytest.mark.parametrize(("inner", "views"), [(2, 1), (3, 2)])
def test_a_loss_and_its_batches_agree_on_views(items, make, inner, views):
    """Else it would take other pictures for views of one."""
    for loss in (f"AdaptiveHierarchical(views={inner})", f"CrossBatchMemory(loss=AdaptiveHierarchical(views={inner}))"):
        with pytest.raises(LikewiseError, match=f"has views={inner}, but a batch holds every picture {views} times"):
            make(items, loss=loss, views=views)
    assert make(items, loss=f"AdaptiveHierarchical(views={views})", views=views).loss.views == views


def test_without_training_rows_it_says_so(items, make):
    with pytest.raises(LikewiseError, match="the train part of .* is empty"):
        make(dataclasses.replace(items, split=np.full(288, "test")), sampler="Shuffled(batch=4)")


def test_terms_go_with_one_network(items, make):
    with pytest.raises(LikewiseError, match=r"CoTeaching\(.*trains 2 networks, and SelfDistillation\(.*goes with one"):
        make(items, loss="NormSoftmax()", confidence="CoTeaching(share=0.2)", terms=("SelfDistillation()",))


def test_co_teaching_plus_wants_a_loss_with_classes(items, make):
    with pytest.raises(LikewiseError, match=r"CoTeachingPlus\(.*asks which class the loss would name.*use NormSoftmax"):
        make(items, loss="MultiSimilarity()", confidence="CoTeachingPlus(share=0.2)")


@pytest.mark.parametrize("more", [{"chunk": 4}, {"recompute": True}])
def test_mixup_goes_with_nothing_that_cuts_or_repeats(items, make, more):
    with pytest.raises(LikewiseError, match=r"train: mixup mixes .*; leave one of them out"):
        make(items, mixup=2.0, mixup_at="input", **more)
