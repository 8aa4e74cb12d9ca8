"""Flags: help with texts and defaults, flags of other tools, and values of a wrong type."""

import dataclasses
import re
import shlex
from typing import Literal, get_type_hints

import pytest
from likewise.config import Noise, Report, Train
from likewise.errors import LikewiseError

from likewise.cli import flags as help_module
from likewise.cli import main as cli
from likewise.cli.flags import ALIASES, FLAG_SENTENCES, ONLY_TRAIN, SIMILAR_FLAGS, check_words
from likewise.core.settings.field_types import Folder, Spec
from likewise.core.settings.training_settings import COMMON_FLAGS, FLAG_GROUPS

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


def test_defaults_and_placeholders():
    flags = {flag.field: flag for flag in help_module.flags_of(Train)}
    assert flags["epochs"].usage == "--epochs FLOAT" and flags["epochs"].default == "(default: 20)"
    assert flags["evaluate"].usage == "--evaluate, --no-evaluate" and flags["evaluate"].default == "(default: on)"
    assert flags["layer_norm"].usage == "--layer-norm" and flags["freeze_bn"].usage == "--freeze-bn, --no-freeze-bn"
    assert flags["crop_scale"].default == "(default: 0.08 1.0)" and flags["terms"].usage == "--terms NAME(...) ..."
    assert help_module.placeholder(tuple[float, float] | None) == "FLOAT FLOAT"
    assert help_module.placeholder(Literal["a", "b"] | None) == "{a,b}"
    assert help_module.placeholder(Folder | None) == "FOLDER" and help_module.placeholder(Spec) == "NAME(...)"
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


ALIASED = {
    "--model resnet18": ("backbone", "resnet18"),
    "--output-dir=runs/a": ("out", "runs/a"),
    "--output_dir runs/a": ("out", "runs/a"),
    "-o runs/a": ("out", "runs/a"),
    "--num-workers 4": ("workers", 4),
    "--learning-rate 0.5": ("lr", 0.5),
    "--bs 8": ("batch_size", 8),
    "--img-size 64": ("size", 64),
    "--wd 0.1": ("weight_decay", 0.1),
    "--optim sgd": ("optimizer", "sgd"),
    "--eval-metrics R@1 R@5": ("metrics", ("R@1", "R@5")),
    "--silent": ("quiet", True),
}
"""Words after `likewise train photos` -> the setting, and its value."""


def test_flags_of_other_tools_with_the_same_values_work(subtests):
    for words, (setting, value) in ALIASED.items():
        with subtests.test(words):
            assert getattr(cli.parse("train", ["photos", *words.split()]), setting) == value
    assert cli.parse("search", ["runs/a", "--model", "runs/b", "--image", "3", "--topk=2"]).k == 2  # --model is its own
    assert cli.parse("train", ["photos", "--recipe", "prism", "--num-epochs=10"]).steps is None  # as --epochs


TRAIN_FLAGS = {
    "--data-dir": "DATA is given without a flag: likewise train DATA",
    "--dataset": "DATA is given without a flag: likewise train DATA",
    "--data": "DATA is given without a flag: likewise train DATA",
    "--num-workers 1.5": "--num-workers must be a whole number, got '1.5'",
    "--exp-name a": "did you mean '--out'?",
    "--epoch 2": "train: there is no flag '--epoch'; did you mean '--epochs'?",
    "--epo 2": "did you mean '--epochs'?",
    "--xyz": "there is no flag '--xyz'. See",
    "--metric R@1": "train: there is no flag '--metric'; did you mean '--metrics'?",
    "--gpu": "did you mean '--device'?",
    "--resume": "the same command resumes a training that was interrupted; write no flag",
    "--amp": "write --precision bf16",
    "--fp16": "write --precision bf16",
    "--verbose": "progress is printed by default",
    "--robust=yes": "--robust takes no value, got 'yes'; write --robust, or leave it out",
    "--quiet=yes": "--quiet takes no value, got 'yes'; write --quiet, or leave it out (--no-quiet switches it off)",
    "--size abc": "train: --size must be a whole number, got 'abc'",
    "--size=abc": "train: --size must be a whole number, got 'abc'",
    "--size --lr 1": "--size must be a whole number, got nothing; write --size INT",
    "--size": "--size must be a whole number, got nothing; write --size INT",
    "--steps 1.5": "--steps must be a whole number, got '1.5'",
    "--lr fast": "--lr must be a number, got 'fast'",
    "--optimizer adm": "--optimizer must be one of adam, adamw, rmsprop, sgd, got 'adm'; did you mean 'adam'?",
}
"""Words after `likewise train photos` -> a part of the error."""


def error(command, words):
    with pytest.raises(LikewiseError) as caught:
        check_words(command, KINDS[command], words.split())
    return str(caught.value)


def test_flags_of_other_tools(subtests):
    for words, says in TRAIN_FLAGS.items():
        with subtests.test(words):
            assert says in error("train", f"photos {words}")


def test_what_a_flag_means_depends_on_the_command():
    assert "RUN is given without a flag: likewise embed RUN DATA" in error("embed", "--model runs/a photos")
    assert "TARGET is given without a flag" in error("search", "--data runs/a")
    assert "resumes" not in error("search", "runs/a --resume")


@pytest.mark.parametrize(
    "words",
    [
        "photos --size 64 --lr 1e-4 --pretrained False --no-evaluate --augment none --freeze-bn",
        "photos --size None --optimizer=sgd --batch_size=8 --robust --terms A() B()",
        "photos --seed -1 --out my-run",
    ],
)
def test_right_words_pass(words):
    check_words("train", KINDS["train"], words.split())


def test_every_line_of_the_tables_can_be_used():
    settings = {name for kind in KINDS.values() for name in kind.__dataclass_fields__}
    assert {*ALIASES, *SIMILAR_FLAGS} <= settings and set(ONLY_TRAIN) <= set(FLAG_SENTENCES)
    flags = [flag for table in (ALIASES, SIMILAR_FLAGS) for others in table.values() for flag in others]
    assert len(flags) == len(set(flags)) and not set(flags) & set(FLAG_SENTENCES)


@pytest.mark.parametrize(("command", "example"), [(c, e) for c, calls in help_module.EXAMPLES.items() for e in calls])
def test_examples_of_help_are_shown_and_parse(command, example, capsys):
    assert f"\nExamples:\n  {help_module.EXAMPLES[command][0]}\n" in shown(capsys, command, "--help")
    program, name, *words = shlex.split(example)
    assert (program, name) == ("likewise", command) and cli.parse(name, words)
