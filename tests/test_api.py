"""Every command is a function of `likewise`, with the command's defaults, which prints nothing and shows its result."""

import dataclasses
import importlib
import inspect
import os
import pkgutil
import shutil
import types
from contextlib import suppress

import numpy as np
import pytest
from likewise.errors import LikewiseError

import likewise
from likewise.cli.commands import COMMANDS
from likewise.cli.main import config_class
from likewise.core.public_modules import PUBLIC_MODULES
from likewise.runs.folder import Run

FUNCTION = {
    "noise": "spoil_labels", "report": "write_report", "audit": "audit_run", "list": "list_components",
    "published": "published_numbers", "recipe": "show_recipe",
}  # fmt: skip
"""Commands whose function has another name, because a package or module has the command's."""

ONLY_IN_PYTHON = {"load", "audit_labels"}
OPTIONAL = {("embed", "out")}
"""Settings that a command needs and the function does not."""


@pytest.fixture(scope="module")
def everything():
    """Every module of likewise, imported: an import makes a module an attribute of its package."""
    for found in pkgutil.walk_packages(likewise.__path__, "likewise."):
        if not found.name.endswith("__main__"):
            with suppress(ImportError, LikewiseError):  # an extra that is not installed
                importlib.import_module(found.name)
    return {name: getattr(likewise, name) for name in likewise.__all__}


def test_no_module_hides_a_function(everything):
    functions = {name for name, value in everything.items() if not isinstance(value, types.ModuleType)}
    assert all(inspect.isfunction(everything[name]) for name in functions)
    assert functions == {FUNCTION.get(name, name) for name in COMMANDS} | ONLY_IN_PYTHON
    packages = {module.name for module in pkgutil.iter_modules(likewise.__path__)} | set(PUBLIC_MODULES)
    assert not functions & packages and set(everything) - functions <= packages


@pytest.mark.parametrize("command", COMMANDS)
def test_a_function_has_the_settings_and_defaults_of_its_command(command):
    kind = config_class(command)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    arguments = dict(inspect.signature(getattr(likewise, FUNCTION.get(command, command))).parameters)
    rest = arguments.pop("settings", None)
    assert rest is None or rest.kind is inspect.Parameter.VAR_KEYWORD
    assert rest is not None or arguments.keys() == fields.keys()
    assert arguments.keys() <= fields.keys()
    for name, argument in arguments.items():
        default = fields[name].default
        if (command, name) in OPTIONAL or default == ():  # a command without targets fails later
            continue
        given = dataclasses.MISSING if argument.default is inspect.Parameter.empty else argument.default
        assert given == default, name
    required = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
    assert required <= arguments.keys()


@pytest.fixture(scope="module")
def toys(finished, finished_pictures, features, pictures, tmp_path_factory):
    """Runs, data and files for one call of every function."""
    folder = tmp_path_factory.mktemp("api")
    settings = (
        f'[settings]\ndata = "{features}"\ndim = 4\nsteps = 2\nsampler = "SamplesPerClass(batch=16, per_class=4)"\n'
    )
    (folder / "grid.toml").write_text(f"{settings}[axes]\nseed = [0]\n")
    (folder / "theirs.csv").write_text("path,class\na.jpg,wren\n")
    for path in ("wren/a.jpg", "robin/b.jpg"):
        (folder / "birds" / path).parent.mkdir(parents=True)
        (folder / "birds" / path).touch()
    (folder / "corrected.csv").write_text(f"path,label\n{folder}/birds/wren/a.jpg,robin\n")
    (folder / "tune.toml").write_text(f'{settings}protocol = "ClassFolds(folds=2)"\n')
    return types.SimpleNamespace(
        folder=folder, features=features, pictures=pictures, 
        run=Run(shutil.copytree(finished.path, folder / "run")),
        picture_run=Run(shutil.copytree(finished_pictures.path, folder / "pictures")),
    )  # fmt: skip


HERE = {"device": "cpu"}
# One call of every function, at toy size. `review` and `clean` serve a page (tests/curate/review/test_serve.py,
# tests/curate/test_clean.py), and `load` returns a network (tests/deploy/test_model.py).
CALLS = {
    "train": lambda t: likewise.train(t.features, out=t.folder / "mine", steps=2, dim=4, **HERE),
    "evaluate": lambda t: likewise.evaluate(t.run, **HERE),
    "embed": lambda t: likewise.embed(t.run, t.features, **HERE),
    "search": lambda t: likewise.search(t.picture_run, 20, workers=0, **HERE),
    "calibrate": lambda t: likewise.calibrate(t.run, **HERE),
    "compare": lambda t: likewise.compare(t.run, t.run),
    "bench": lambda t: likewise.bench(t.folder / "grid.toml", out=t.folder / "bench", list=True, **HERE),
    "tune": lambda t: likewise.tune(t.folder / "tune.toml", ranges="lr=1e-4..1e-2 log", trials=1, out=t.folder / "tune", **HERE),
    "demo": lambda t: likewise.demo(data="glyphs(classes=20, per_class=8)", epochs=1, out=t.folder / "demo"),
    "doctor": lambda t: likewise.doctor(),
    "export": lambda t: likewise.export(t.run, "safetensors"),
    "send": lambda t: likewise.send(t.features, "csv", t.folder / "sent.csv"),
    "receive": lambda t: likewise.receive(t.folder / "theirs.csv", "csv", t.folder / "ours.csv", columns="label=class"),
    "apply": lambda t: likewise.apply(t.folder / "corrected.csv", root=t.folder / "birds"),
    "hierarchy": lambda t: likewise.hierarchy(t.run, **HERE),
    "audit_run": lambda t: likewise.audit_run(t.run, max_errors=1, max_classes=0, **HERE),
    "audit_labels": lambda t: likewise.audit_labels(np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 4),
    "write_report": lambda t: likewise.write_report(t.run, map="none", **HERE),
    "spoil_labels": lambda t: likewise.spoil_labels(t.pictures, likewise.noise.Uniform(share=0.5), t.folder / "n.csv"),
    "list_components": lambda t: likewise.list_components(),
    "published_numbers": lambda t: likewise.published_numbers(paper="procsim", table=5),
    "show_recipe": lambda t: likewise.show_recipe("triplet", t.run),
}  # fmt: skip


SHOWN = {
    "audit_run": "the most suspect labels", "compare": "the same", "export": "model.safetensors", "hierarchy": "tree of classes",
    "write_report": "report.html",
}  # fmt: skip
"""Function -> words that the view of its result has."""


@pytest.mark.parametrize("name", CALLS)
def test_a_call_prints_nothing_and_its_result_shows_itself(name, everything, toys, capsys):
    if name == "tune":
        pytest.importorskip("optuna")
    found = CALLS[name](toys)
    assert capsys.readouterr().out == ""
    html = found._repr_html_()
    assert html.startswith("<div") and "cannot be shown" not in html and SHOWN.get(name, "") in html
    assert name != "write_report" or os.fspath(found) == str(found.path)


def test_messages_go_to_stderr_and_quiet_is_quiet(toys, capsys):
    again = {"data": toys.features, "out": toys.folder / "again", "steps": 2, "dim": 4, **HERE}
    likewise.train(**again, quiet=True)
    likewise.train(**again, quiet=True)
    assert capsys.readouterr() == ("", "")
    likewise.train(**again)
    out, err = capsys.readouterr()
    assert out == "" and "this run is finished already" in err
