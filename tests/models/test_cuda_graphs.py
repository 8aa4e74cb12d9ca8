"""How the network of a step is run: what is chosen and kept, by stand-ins; and on a GPU, captured it gives the same bits."""

import copy
import math
import weakref

import pytest
import torch
from torch import nn

from likewise.models import Embedder
from likewise.models import cuda_graphs as capture
from likewise.models.cuda_graphs import Captured, ModeTuner, milliseconds
from likewise.models.grad_cache import Chunked

FEATURES = 6


def small():
    torch.manual_seed(0)
    return Embedder("features", 4, pretrained=False, features=FEATURES)


def pictures(count=8, size=16, device="cpu"):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8).to(device)


def network_of_pictures(device="cpu"):
    torch.manual_seed(0)
    return Embedder("conv_small", 8, pretrained=False).to(device).train()


class OnGpu(torch.Tensor):
    """A batch that says it is on a GPU."""

    is_cuda = property(lambda self: True)


def batch():
    return torch.zeros(4, FEATURES).as_subclass(OnGpu)


class Tried:
    """What was made and measured. Stands in for capturing and for the clock: `ms` by way, None where it cannot be made."""

    def __init__(self, monkeypatch, **ms):
        self.made, self.measured = [], []
        tried = self

        class StandIn(nn.Module):
            def __init__(self, embedder, x, bf16, compiled=False):
                super().__init__()
                self.embedder, self.x, self.bf16, self.way = embedder, x, bf16, "compile" if compiled else "graph"
                tried.made.append(self.way)
                if ms.get(self.way, 1) is None:
                    raise RuntimeError("operation not permitted when stream is capturing")
                tried.last = weakref.ref(self)

        def clock(network, x, bf16):
            way = getattr(network, "way", "eager")
            self.measured.append(way)
            if ms[way] is None:
                raise RuntimeError("out of memory")
            return ms[way]

        monkeypatch.setattr(capture, "Captured", StandIn)
        monkeypatch.setattr(capture, "milliseconds", clock)


@pytest.mark.parametrize("wish", ["auto", "eager", "graph"])
def test_on_the_cpu_the_network_stays_as_it_is(wish):
    """And what a GPU did before is not forgotten there."""
    embedder, x = small(), torch.randn(4, FEATURES)
    for known in (None, "graph"):
        fast = ModeTuner(embedder, wish, 10**9, known)
        assert fast.network(x, False) is embedder and fast.network(x, True) is embedder
        assert fast.known == known and fast.tried == {}


def test_on_the_cpu_it_is_compiled_once_where_that_is_wished(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda module: asked.append(module) or nn.Sequential(module))
    embedder, x = small(), torch.randn(4, FEATURES)
    fast = ModeTuner(embedder, "compile", 1)
    made = fast.network(x, False)
    assert asked == [embedder] and made[0] is embedder
    assert fast.network(x, False) is made and len(asked) == 1


def compiled_and_plain():
    """What the compiled network gives and learns, beside the plain one, in a process without checked shapes."""
    embedder, x = small(), torch.randn(5, FEATURES)
    found = []
    for wish in ("eager", "compile"):
        out = ModeTuner(embedder, wish, 1).network(x, False)(x)
        embedder.zero_grad()
        (out.z[:, 0].sum() + out.f.square().sum()).backward()
        found.append([out.z, out.e, *(p.grad for p in embedder.parameters())])
    return [[t.detach().tolist() for t in tensors] for tensors in found]


@pytest.mark.slow
def test_compiled_it_gives_the_same(bare):
    plain, compiled = bare(compiled_and_plain)
    assert len(plain) >= 4
    for a, b in zip(plain, compiled, strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b))


FAST = {"eager": 10.0, "graph": 6.0}
CHOICES = [  # wish, steps, known, milliseconds -> chosen, captured on trial, measured
    ("auto", 100, None, FAST, "graph", ["graph"], ["eager", "graph"]),
    ("auto", 100, None, FAST | {"eager": 5.0}, "eager", ["graph"], ["eager", "graph"]),
    # Three tenths of 6 ms a step make the minute that compiling takes within 33333 steps.
    ("auto", 33_000, None, FAST | {"compile": 4.0}, "graph", ["graph"], ["eager", "graph"]),
    ("auto", 34_000, None, FAST | {"compile": 4.0}, "compile", ["graph", "compile"], ["eager", "graph", "compile"]),
    ("auto", 34_000, None, FAST | {"compile": 7.0}, "graph", ["graph", "compile"], ["eager", "graph", "compile"]),
    ("auto", 34_000, None, FAST | {"compile": None}, "graph", ["graph", "compile"], ["eager", "graph"]),
    ("auto", 10**9, None, {"eager": 10.0, "graph": None, "compile": None}, "eager", ["graph", "compile"], ["eager"]),
    # A wish, and the mode before a training was resumed, are taken unmeasured; the wish comes first.
    *(("auto", 10**9, known, {}, known, [known], []) for known in ("graph", "compile")),
    ("auto", 10**9, "eager", {}, "eager", [], []),
    *(
        (wish, 10**9, known, {}, wish, [wish], [])
        for wish in ("graph", "compile")
        for known in (None, "eager", "graph")
    ),
    *(("eager", 10**9, known, {}, "eager", [], []) for known in (None, "graph")),
]


@pytest.mark.parametrize(("wish", "steps", "known", "ms", "chosen", "made", "measured"), CHOICES)
def test_the_chosen_mode(monkeypatch, wish, steps, known, ms, chosen, made, measured):
    tried, embedder = Tried(monkeypatch, **ms), small()
    fast = ModeTuner(embedder, wish, steps, known)
    network = fast.network(batch(), True)
    assert (fast.known, getattr(network, "way", "eager")) == (chosen, chosen)
    assert (tried.made, tried.measured) == (made, measured)
    assert fast.tried == {mode: math.inf if ms[mode] is None else ms[mode] for mode in [*measured, *made] if ms}
    assert network is embedder if chosen == "eager" else (network.embedder, network.bf16) == (embedder, True)


def test_a_network_that_cannot_run_at_all_says_so(monkeypatch):
    Tried(monkeypatch, eager=None)
    with pytest.raises(RuntimeError, match="out of memory"):
        ModeTuner(small(), "auto", 1).network(batch(), False)
    Tried(monkeypatch, graph=None)
    with pytest.raises(RuntimeError, match="capturing"):  # a wish that cannot be met is not hidden
        ModeTuner(small(), "graph", 1).network(batch(), False)


def test_it_is_made_anew_on_request_and_keeps_its_way(monkeypatch):
    """A graph holds the gradients that were asked for when it was made: with other ones to learn, it is another."""
    tried, embedder = Tried(monkeypatch, eager=10.0, graph=6.0), small()
    fast = ModeTuner(embedder, "auto", 1)
    first = fast.network(batch(), False)
    assert fast.network(batch(), False) is first and tried.made == ["graph"]
    fast.made = None
    second = fast.network(batch(), False)
    assert second is not first and fast.network(batch(), False) is second
    assert tried.made == ["graph", "graph"] and tried.measured == ["eager", "graph"]


def test_graphs_that_are_not_used_are_let_go(monkeypatch):
    """Each holds the memory of all activations."""
    tried, embedder = Tried(monkeypatch, eager=5.0, graph=6.0), small()
    assert ModeTuner(embedder, "auto", 1).network(batch(), False) is embedder
    assert tried.last() is None


class Graph:
    """A graph without a GPU: a replay calls, and writes where the first call did."""

    def __init__(self, work=None):
        self.replay = work


class OnCpu(Captured):
    """Captured, with replays of that kind."""

    def _capture(self, work):
        def forward():
            with torch.enable_grad():
                self.now = work(self.x)
            for there, t in zip(self.outs, self.now, strict=True):
                there.data.copy_(t)

        def backward():
            for there, t in zip(self.grads, self._slopes(self.now, self.slopes), strict=True):
                there.copy_(t)

        self.graphs = Graph(forward), Graph(backward)
        outs = work(self.x)
        return outs, [torch.zeros_like(t) for t in outs], tuple(torch.zeros_like(p) for p in self.learning)


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    return OnCpu


@pytest.mark.parametrize("bf16", [False, True])
def test_replayed_steps_are_those_of_the_network(on_cpu, bf16):
    plain, other, x = network_of_pictures(), network_of_pictures(), pictures()
    wanted, found = steps_of(plain, plain, x, bf16), steps_of(on_cpu(other, x, bf16), other, x, bf16)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert not torch.equal(wanted[0], wanted[4 * (3 + len(list(plain.parameters())))])  # it learns


def test_what_a_replay_gave_outlives_the_next(on_cpu):
    embedder, x = network_of_pictures(), pictures()
    captured = on_cpu(embedder, x, bf16=False)
    first = captured(x)
    kept = [None if t is None else t.clone() for t in first]
    captured(pictures())
    assert first.nodes is None and first.z.requires_grad
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(first, kept, strict=True))


def test_only_what_learned_then_gets_a_gradient(on_cpu):
    """A frozen backbone has none, and its features none to hand on."""
    plain, other, x = network_of_pictures(), network_of_pictures(), pictures()
    for embedder in (plain, other):
        for p in embedder.backbone_parameters():
            p.requires_grad_(False)
    for network in (plain, on_cpu(other, x, bf16=False)):
        out = network(x)
        (out.z[:, 0].sum() + out.f.sum()).backward()
    for (name, p), q in zip(plain.named_parameters(), other.parameters(), strict=True):
        assert (q.grad is None) == (p.grad is None) == name.startswith("backbone."), name
        assert p.grad is None or torch.equal(p.grad, q.grad)


def test_captured_shares_its_parameters_once(on_cpu):
    """Who clips, zeroes or stores them finds each a single time."""
    embedder = network_of_pictures()
    captured = on_cpu(embedder, pictures(), bf16=False)
    assert [id(p) for p in captured.parameters()] == [id(p) for p in embedder.parameters()]
    assert captured.state_dict().keys() == {f"embedder.{name}" for name in embedder.state_dict()}


def test_capturing_and_measuring_move_nothing(on_cpu):
    """Neither BatchNorm's statistics, nor random numbers, nor gradients."""
    embedder, x = network_of_pictures(), pictures()
    embedder.backbone.register_forward_pre_hook(lambda module, given: torch.rand(1) and None)
    before, state = copy.deepcopy(embedder.state_dict()), torch.get_rng_state()
    captured = on_cpu(embedder, x, bf16=False)
    assert milliseconds(captured, x, False, rounds=1) > 0 and milliseconds(embedder, x, True, rounds=1) > 0
    assert torch.equal(torch.get_rng_state(), state) and all(p.grad is None for p in embedder.parameters())
    for name, value in embedder.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert any(name.endswith("running_mean") for name in before)


def must_not_replay(captured, x):
    """Other shapes, and evaluation."""
    embedder, graphs = captured.embedder, captured.graphs
    captured.graphs = [Graph(lambda: pytest.fail("replayed"))] * 2
    assert captured(x[:5]).z.shape == (5, 8)
    embedder.eval()
    assert torch.equal(captured(x).z, embedder(x).z)
    embedder.train()
    captured.graphs = graphs
    assert captured(x).z.shape == (8, 8)


def test_what_was_not_captured_goes_through_the_network_itself(on_cpu):
    x = pictures()
    must_not_replay(on_cpu(network_of_pictures(), x, bf16=False), x)


def slopes_of_chunks(make, x, chunk):
    """Of the second of two steps."""
    embedder = network_of_pictures(x.device)
    chunked = Chunked(make(embedder), chunk)
    for _ in range(2):
        out = chunked(x)
        embedder.zero_grad(set_to_none=True)
        out.z[:, 0].sum().backward()
        chunked.finish()
    return [p.grad.clone() for p in embedder.parameters()]


@pytest.mark.parametrize("count", [12, 11])
def test_slopes_of_chunks_add_up_though_each_replay_writes_where_the_last_one_did(on_cpu, count):
    """Of eleven, the last chunk is smaller and goes through the network itself."""
    x = pictures(count)
    wanted = slopes_of_chunks(lambda embedder: embedder, x, 4)
    found = slopes_of_chunks(lambda embedder: on_cpu(embedder, x[:4], False), x, 4)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_gradients_may_pile_up_over_several_steps(on_cpu):
    plain, other, x = network_of_pictures(), network_of_pictures(), [pictures() for _ in range(3)]
    for network in (plain, on_cpu(other, x[0], bf16=False)):
        for some in x:
            network(some).z[:, 0].sum().backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(plain.parameters(), other.parameters(), strict=True))


def steps_of(network, embedder, x, bf16, count=5):
    """What so many steps give: outputs, gradients and, in the end, all of the state."""
    optimizer, found = torch.optim.SGD(embedder.parameters(), lr=0.1), []
    for _ in range(count):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
            out = network(x)
        optimizer.zero_grad(set_to_none=True)
        (out.z[:, 0].sum() + out.f.square().mean()).backward()
        found += [out.z.detach(), out.e.detach(), out.f.detach(), *(p.grad.clone() for p in embedder.parameters())]
        optimizer.step()
    return found + [t.clone() for t in embedder.state_dict().values()]


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


@pytest.mark.gpu
@pytest.mark.parametrize("bf16", [False, True])
def test_on_a_gpu_captured_equals_eager_to_the_bit(exact, bf16):
    x = pictures(device="cuda")
    plain, other = network_of_pictures("cuda"), network_of_pictures("cuda")
    wanted = steps_of(plain, plain, x, bf16)
    found = steps_of(Captured(other, x, bf16), other, x, bf16)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert not torch.equal(wanted[0], wanted[4 * (3 + len(list(plain.parameters())))])  # it learns


@pytest.mark.gpu
def test_on_a_gpu_other_shapes_and_evaluation_go_through_the_network_itself(exact):
    x = pictures(device="cuda")
    must_not_replay(Captured(network_of_pictures("cuda"), x, bf16=False), x)


@pytest.mark.gpu
def test_on_a_gpu_a_graph_that_nobody_uses_is_gone():
    captured = weakref.ref(Captured(network_of_pictures("cuda"), pictures(device="cuda"), bf16=False))
    assert captured() is None


@pytest.mark.gpu
def test_on_a_gpu_what_looks_at_values_is_not_captured(exact):
    """And leaves the device as it was."""
    embedder, x = network_of_pictures("cuda"), pictures(device="cuda")
    plain = copy.deepcopy(embedder)
    embedder.backbone.register_forward_hook(lambda module, given, found: found * float(found.abs().max() > -1))
    fast = ModeTuner(embedder, "auto", 100)
    assert fast.network(x, False) is embedder and fast.tried["graph"] == math.inf
    wanted, found = (steps_of(e, e, x, False) for e in (plain, embedder))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("count", [24, 23])
def test_on_a_gpu_captured_chunks_have_the_slopes_of_eager_ones(exact, count):
    x = pictures(count, device="cuda")
    wanted, found = (
        slopes_of_chunks(lambda embedder, wish=wish: ModeTuner(embedder, wish, 1).network(x[:8], False), x, 8)
        for wish in ("eager", "graph")
    )
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
