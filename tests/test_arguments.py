"""Arguments of all components: the ranges in their annotations are checked, and every argument is stored under its name."""

import importlib
import importlib.util
import inspect
import re
import typing

import numpy as np
import pytest
import torch
from annotated_types import Ge, Gt, Interval, Le, Lt, MinLen, MultipleOf
from likewise.contracts import Loss, Miner
from likewise.losses import Triplet
from likewise.miners import HardPairs, SemiHard
from likewise.relevance import SharedLabels
from likewise.types import LikewiseError

from likewise.core.argument_checks import Rule, argument_hints, violation
from likewise.core.settings.spec import build
from likewise.models.heads import Compositional, Relational, Slices

PACKAGES = (
    "losses", "miners", "samplers", "relevance", "noise", "confidence", "terms", "protocols", "loggers", "models.heads",
)  # fmt: skip
COMPONENTS = {
    name: getattr(importlib.import_module(f"likewise.{package}"), name)
    for package in PACKAGES
    for name in importlib.import_module(f"likewise.{package}").__all__
}
SMALL = 1e-6


def outside(hint) -> list:
    """Return values that break an annotation: one just outside of each bound, and one of another type."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, type(int | None)):
        return [value for option in inside for value in outside(option) if violation(value, hint, "x") is not None]
    if origin is typing.Annotated:
        rules = [one for rule in inside[1:] for one in (rule if isinstance(rule, Interval) else [rule])]
        return [value for rule in rules for value in breaking(rule, inside[0])] + outside(inside[0])
    if origin is typing.Literal:
        return ["no such word"]
    if origin is tuple:
        return [(value,) for value in outside(inside[0])] if inside[1:] == (...,) else []
    return {int: [1.5, "1", True], float: [float("nan"), "1"], bool: ["yes", 1], str: [1]}.get(hint, [])


def breaking(rule, kind: type) -> list:
    """Return a value just outside of a constraint."""
    step = 1 if kind is int else SMALL
    match rule:
        case Gt(gt=bound) | Lt(lt=bound):
            return [bound]
        case Ge(ge=bound):
            return [bound - step]
        case Le(le=bound):
            return [] if bound == float("inf") else [bound + step]
        case MinLen(min_length=least):
            return [("x",) * (least - 1)]
        case MultipleOf(multiple_of=number):
            return [number + 1]
        case Rule():
            return [part for part in (HardPairs(), SemiHard()) if not rule.holds(part)]
    return []


def bounds(hint) -> list:
    """Return the inclusive bounds of an annotation."""
    if typing.get_origin(hint) is not typing.Annotated:
        return [
            value
            for option in typing.get_args(hint)
            if typing.get_origin(hint) is not tuple
            for value in bounds(option)
        ]
    rules = [one for rule in typing.get_args(hint)[1:] for one in (rule if isinstance(rule, Interval) else [rule])]
    return [getattr(rule, "ge", getattr(rule, "le", None)) for rule in rules if isinstance(rule, Ge | Le)]


def fitting(hint):
    """Return a value of the type of an annotation, for arguments that must be given."""
    kind = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
    low = next((rule.ge for rule in getattr(hint, "__metadata__", ()) if isinstance(rule, Ge)), 1)
    return {int: low, float: 0.5, str: "x", bool: True, Loss: Triplet(), tuple[str, ...]: ("x",)}.get(kind)


def shown(value) -> str:
    """Return a value as errors show it: a component by its class, and of a tuple the element that breaks the annotation."""
    wrong = value[0] if isinstance(value, tuple) and value else value
    return re.escape(type(wrong).__name__ if isinstance(wrong, Miner) else repr(wrong))


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_value_outside_of_the_annotation_is_an_error_and_a_bound_is_not(name):
    component = COMPONENTS[name]
    signature, hints = argument_hints(component.__init__)
    given = [p for p in list(signature.parameters)[1:] if p not in ("args", "kwargs")]
    assert set(given) <= set(hints), "an annotation cannot be resolved, so no argument of the constructor is checked"
    needed = {n: fitting(hints[n]) for n in given if signature.parameters[n].default is inspect.Parameter.empty}
    for argument in given:
        for value in outside(hints[argument]):
            with pytest.raises(LikewiseError) as caught:
                component(**needed | {argument: value})
            assert re.match(rf"{name}: {argument}(\[0\])? must .+, got {shown(value)}$", str(caught.value)), (
                caught.value
            )
        for value in bounds(hints[argument]):
            assert violation(value, hints[argument], argument) is None


CLASSES, SAMPLES = 8, 64


def facts() -> dict:
    """Return values for the arguments that a run fills in; all are different objects."""
    names = tuple(f"class {number}" for number in range(CLASSES))
    sets = [(number, CLASSES + number // 2) for number in range(CLASSES)]
    network = torch.nn.Module()
    network.head, network.feature_dim = torch.nn.Module(), 6
    return {
        "classes": CLASSES, "dim": 16, "features": 20, "labels": np.arange(SAMPLES) % CLASSES, "class_names": names, "seed": 3,
        "steps": 9, "per_pass": 2, "taxonomy": {one: (f"kind {number % 3}",) for number, one in enumerate(names)},
        "label_sets": sets, "relevance": SharedLabels(sets, threshold=0.3), "rows": np.arange(SAMPLES), "samples": SAMPLES,
        "sample_names": ("a", "b", "c"), "other_names": (), "embedder": network, "largest_class": 5, "share": 0.1,
        "make_loss": lambda dim, classes=0: Triplet(miner=SemiHard()),
    }  # fmt: skip


HEADS = {
    "DCML": Compositional(6, 16),
    "DivideConquer": Slices(6, 16),
    "DiVA": Slices(6, 16),
    "Ensemble": Relational(6, 16),
}
FILES = {
    "ListedPairs": "a,b,value\na,b,1\n", "JudgedPairs": "a,b,same\na,b,1\n",
    "JudgedTriplets": "anchor,nearer,farther\na,b,c\n",
}  # fmt: skip
SPECS = {
    "Hierarchical": "Hierarchical(loss=ProxyAnchor(), coarse_loss=NormSoftmax(), coarse=3, start=1)",
    "SmallCluster": "SmallCluster()", "AnchorNeighbours": "AnchorNeighbours(batch=12)",
}  # fmt: skip


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_stores_every_argument_under_its_own_name(name, tmp_path, monkeypatch):
    """Specs and settings of a run are read from attributes."""
    component, given = COMPONENTS[name], facts()
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda package: package
    )  # loggers of packages that are not installed
    if name in FILES:
        file = tmp_path / "file.csv"
        file.write_text(FILES[name])
        given["file"] = str(file)
    if name in HEADS:
        given["embedder"].head = HEADS[name]
    if name == "SmallCluster":
        given["features"] = np.zeros((SAMPLES, 2), np.float32)
    if name == "Identity":
        given["dim"] = given["features"]
    if name == "GivenValues":
        given["values"] = torch.eye(3)
    batch = "batch=8" if "batch" in inspect.signature(component).parameters else ""
    made = build(SPECS.get(name, f"{name}({batch})"), **given)
    for argument, parameter in inspect.signature(component).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        stored, passed = getattr(made, argument), given.get(argument, parameter.default)
        if argument in given:
            same = stored is passed or (isinstance(stored, torch.Tensor) and torch.equal(stored, passed))
            assert same or stored == passed, f"{argument} was {passed!r}, and is stored as {stored!r}"
        elif f"{argument}=" not in SPECS.get(name, batch):
            assert type(stored) is type(passed) and (stored == passed or isinstance(stored, Loss | Miner)), argument
