"""Intra-batch connections: attention and classifiers by hand, what a message changes, and a training."""

import math

import pytest
import torch
from likewise.terms import IntraBatch
from likewise.types import Batch, LikewiseError, Output
from torch.nn import functional as F

DIM, CLASSES = 4, 3


def made(**changes):
    torch.manual_seed(0)
    term = IntraBatch(CLASSES, DIM, **({"dropout": 0.0} | changes)).double()
    for p in term.parameters():  # biases and norms start at 0 and 1, which would hide them
        torch.nn.init.normal_(p, std=0.5)
    return term


def output(size=6):
    e = torch.randn(size, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Output(F.normalize(e, dim=1), e, e), Batch(e, torch.arange(size) % CLASSES, torch.arange(size))


def linear(weight, bias, row):
    return [b + sum(w * x for w, x in zip(r, row, strict=True)) for r, b in zip(weight, bias, strict=True)]


def scaled(row, norm):
    mean = sum(row) / len(row)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + norm.eps)
    return [
        (v - mean) / deviation * w + b for v, w, b in zip(row, norm.weight.tolist(), norm.bias.tolist(), strict=True)
    ]


def attended(rows, layer, heads):
    """What every sample hears, head by head: softmax of scaled products over all samples, itself included."""
    weight, bias = layer.self_attn.in_proj_weight.tolist(), layer.self_attn.in_proj_bias.tolist()
    q, k, v = (
        [linear(weight[s], bias[s], row) for row in rows] for s in (slice(i * DIM, i * DIM + DIM) for i in range(3))
    )
    wide, heard = DIM // heads, []
    for i in range(len(rows)):
        value = []
        for h in range(heads):
            at = slice(h * wide, h * wide + wide)
            powers = [
                math.exp(sum(a * b for a, b in zip(q[i][at], k[j][at])) / math.sqrt(wide)) for j in range(len(rows))
            ]
            value += [sum(p * v[j][d] for j, p in enumerate(powers)) / sum(powers) for d in range(at.start, at.stop)]
        heard.append(linear(layer.self_attn.out_proj.weight.tolist(), layer.self_attn.out_proj.bias.tolist(), value))
    return heard


def layer_by_hand(rows, layer, heads):
    found = []
    for row, heard in zip(rows, attended(rows, layer, heads), strict=True):
        row = scaled([a + b for a, b in zip(row, heard, strict=True)], layer.norm1)
        hidden = [max(0.0, v) for v in linear(layer.linear1.weight.tolist(), layer.linear1.bias.tolist(), row)]
        step = linear(layer.linear2.weight.tolist(), layer.linear2.bias.tolist(), hidden)
        found.append(scaled([a + b for a, b in zip(row, step, strict=True)], layer.norm2))
    return found


def cross_entropy(logits, label, temperature, smoothing):
    logits = [v / temperature for v in logits]
    total = math.log(sum(math.exp(v) for v in logits))
    target = [smoothing / CLASSES + (1 - smoothing) * (c == label) for c in range(CLASSES)]
    return sum(t * (total - v) for t, v in zip(target, logits, strict=True))


def test_the_objective_by_hand():
    term = made(layers=2, heads=2, temperature=0.5, auxiliary=0.7, smoothing=0.2)
    out, batch = output()
    rows = [linear(term.enter.weight.tolist(), term.enter.bias.tolist(), row) for row in out.z.tolist()]
    for layer in term.attention:
        rows = layer_by_hand(rows, layer, 2)
    columns = [scaled_column(column, term.norm, d) for d, column in enumerate(zip(*rows, strict=True))]
    found = term(out, batch).tolist()
    for i, label in enumerate(batch.y.tolist()):
        alone = linear(term.alone.weight.tolist(), term.alone.bias.tolist(), out.e[i].tolist())
        together = linear(term.together.weight.tolist(), [0.0] * CLASSES, [column[i] for column in columns])
        expected = 0.7 * cross_entropy(alone, label, 0.5, 0.2) + cross_entropy(together, label, 0.5, 0.2)
        assert found[i] == pytest.approx(expected)


def scaled_column(column, norm, d):
    mean = sum(column) / len(column)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in column) / len(column) + norm.eps)
    return [(v - mean) / deviation * float(norm.weight[d].detach()) + float(norm.bias[d].detach()) for v in column]


def test_all_layers_side_by_side():
    term = made(layers=2, concatenate=True)
    z = output()[0].z
    first = term.attention[0](term.enter(z)[None])
    expected = torch.cat([first[0], term.attention[1](first)[0]], 1)
    torch.testing.assert_close(term.exchange(z), expected)


def test_a_sample_hears_the_others_in_one_classifier_only():
    """Another sample changes the messages; the classifier of the embedding alone sees nothing of it."""
    out, batch = output()
    moved = out._replace(z=torch.cat([out.z[:-1], -out.z[-1:]]))
    silent = made(auxiliary=1.0)
    for p in (silent.together.weight,):
        torch.nn.init.zeros_(p)
    assert torch.equal(silent(out, batch)[:-1], silent(moved, batch)[:-1])
    loud = made(auxiliary=0.0)
    assert not torch.isclose(loud(out, batch)[:-1], loud(moved, batch)[:-1]).any()


def test_the_norm_has_no_shift():
    term = IntraBatch(CLASSES, DIM)
    assert not term.norm.bias.requires_grad and not term.norm.bias.any() and term.together.bias is None


def test_errors():
    with pytest.raises(LikewiseError, match="dim must be a multiple of heads, got dim=4, heads=3"):
        made(heads=3)
