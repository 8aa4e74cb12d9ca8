"""Help: every flag with its text and default, the common flags of train on one screen."""

import dataclasses
import re
from typing import Literal, get_type_hints

import pytest
from likewise.config import Noise, Report, Train

from likewise.cli import help as help_module
from likewise.cli import main as cli
from likewise.core.settings.cli_types import Folder, Spec
from likewise.core.settings.train import COMMON_FLAGS, FLAG_GROUPS

KINDS = {command: cli.config_class(command) for command in cli.COMMANDS}


def shown(capsys, *words):
    cli.main(list(words))
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("command", KINDS)
def test_arguments_without_dashes_are_positional(command):
    hints = get_type_hints(KINDS[command], include_extras=True)
    for flag in help_module.flags_of(KINDS[command]):
        if not flag.usage.startswith("-"):
            assert "POSITIONAL" in repr(hints[flag.field]).upper(), (
                f"{flag.field} is a flag, but help shows {flag.usage}"
            )


def test_every_setting_of_train_belongs_to_one_group():
    grouped = [name for names in FLAG_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted([*(field.name for field in dataclasses.fields(Train)), "robust"])
    assert set(COMMON_FLAGS) <= set(grouped)


def test_the_help_of_train_fits_on_one_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    out = shown(capsys, "train", "--help")
    assert len(out.splitlines()) <= 40 and max(map(len, out.splitlines())) <= 100
    flags = re.findall(r"^  --([\w-]+)", out, re.M)
    assert flags == [name.replace("_", "-") for name in COMMON_FLAGS]
    assert "likewise train --help-all shows every flag." in out and out.count("\n  likewise train ") == 2
    assert "\x1b" not in out
    assert shown(capsys, "train", "x", "-h") == out


def test_help_all_of_train_names_every_setting_once_by_group(capsys):
    out = shown(capsys, "train", "--help-all")
    flags = re.findall(r"^  (--[\w-]+)", out, re.M)
    wanted = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Train)} - {"--data"} | {"--robust"}
    assert set(flags) == wanted and len(flags) == len(wanted)
    titles = re.findall(r"^(\w[\w ]*):$", out, re.M)
    assert titles == ["Most used flags", *FLAG_GROUPS, "Examples"]
    assert flags[: len(COMMON_FLAGS)] == [f"--{name.replace('_', '-')}" for name in COMMON_FLAGS]


@pytest.mark.parametrize("command", KINDS)
@pytest.mark.parametrize("columns", [80, 200])
def test_help_all_shows_every_flag_with_its_text_and_default(command, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = shown(capsys, *command.split(), "--help-all")
    assert max(map(len, out.splitlines())) <= min(columns, help_module.MAX_LINE_WIDTH)
    assert "None" not in out
    flat = " ".join(out.split())
    assert flat.startswith(f"usage: likewise {command}")
    flags = help_module.flags_of(KINDS[command])
    assert {flag.field for flag in flags} - {"robust"} == {field.name for field in dataclasses.fields(KINDS[command])}
    for flag in flags:
        assert flag.usage in flat
        first, *more = flag.text.split("\n")
        assert f"{first} {flag.default}".strip() in flat and all(text in flat for text in more)
        assert flag.default or "By default" in flag.text or flag.is_positional, f"{flag.field} names no default"
    required = [f for f in dataclasses.fields(KINDS[command]) if f.default is dataclasses.MISSING]
    assert flat.count("(required)") == len(required)


@pytest.mark.parametrize("command", [name for name in KINDS if name != "train"])
def test_help_of_other_commands_shows_every_flag(command, capsys):
    assert shown(capsys, *command.split(), "--help") == shown(capsys, *command.split(), "--help-all")


def test_help_of_recipe_shows_both_of_its_commands(capsys):
    out = shown(capsys, "recipe", "--help")
    assert "usage: likewise recipe show NAME" in out and "usage: likewise recipe diff A [B]" in out


def test_defaults_and_placeholders():
    flags = {flag.field: flag for flag in help_module.flags_of(Train)}
    assert flags["epochs"].usage == "--epochs FLOAT" and flags["epochs"].default == "(default: 20)"
    assert flags["evaluate"].usage == "--evaluate, --no-evaluate" and flags["evaluate"].default == "(default: on)"
    assert flags["layer_norm"].usage == "--layer-norm" and flags["freeze_bn"].usage == "--freeze-bn, --no-freeze-bn"
    assert flags["crop_scale"].default == "(default: 0.08 1.0)" and flags["terms"].usage == "--terms SPEC ..."
    assert help_module.placeholder(tuple[float, float] | None) == "FLOAT FLOAT"
    assert help_module.placeholder(Literal["a", "b"] | None) == "{a,b}"
    assert help_module.placeholder(Folder | None) == "FOLDER" and help_module.placeholder(Spec) == "SPEC"
    assert [flag.field for flag in help_module.flags_of(Noise)][:3] == ["data", "model", "out"]  # required first
    assert help_module.help_text("report", Report).startswith("usage: likewise report [RUNS] [flags]")


def test_errors_of_the_parser_have_the_texts_of_help():
    hints = get_type_hints(help_module.documented(Train), include_extras=True)
    texts = [hint.__metadata__[-1].help for hint in hints.values()]
    assert len(texts) > 50 and not any("\n" in text for text in texts)


def test_a_value_that_does_not_parse_shows_the_placeholder(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "x", "--color-jitter", "many", "0", "0"])
    out, err = capsys.readouterr()
    assert "--color-jitter FLOAT FLOAT FLOAT" in out + err and "(default: None)" not in out + err
