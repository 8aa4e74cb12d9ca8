"""Flags that people know from other tools, and values of a wrong type, get one line."""

import pytest
from likewise.errors import LikewiseError

from likewise.cli.main import config_class
from likewise.cli.words import FLAG_SENTENCES, FOREIGN_FLAGS, ONLY_TRAIN, check_words

TRAIN_FLAGS = {
    "--model": "did you mean '--backbone'?",
    "--arch": "did you mean '--backbone'?",
    "--network": "did you mean '--backbone'?",
    "--data-dir": "DATA is given without a flag: likewise train DATA",
    "--dataset": "DATA is given without a flag: likewise train DATA",
    "--data": "DATA is given without a flag: likewise train DATA",
    "--output": "did you mean '--out'?",
    "--output_dir": "there is no flag '--output-dir'; did you mean '--out'?",
    "--save-dir": "did you mean '--out'?",
    "--num-workers": "did you mean '--workers'?",
    "--learning-rate": "did you mean '--lr'?",
    "--bs": "did you mean '--batch-size'?",
    "--batch": "did you mean '--batch-size'?",
    "--gpu": "did you mean '--device'?",
    "--num-gpus": "did you mean '--gpus'?",
    "--img-size": "did you mean '--size'?",
    "--image-size": "did you mean '--size'?",
    "--resolution": "did you mean '--size'?",
    "--num-epochs": "did you mean '--epochs'?",
    "--max-epochs": "did you mean '--epochs'?",
    "--resume": "the same command resumes a training that was interrupted; write no flag",
    "--amp": "write --precision bf16",
    "--fp16": "write --precision bf16",
    "--wd": "did you mean '--weight-decay'?",
    "--optim": "did you mean '--optimizer'?",
    "-o": "there is no flag '-o'; did you mean '--out'?",
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
        check_words(command, config_class(command), words.split())
    return str(caught.value)


def test_flags_of_other_tools(subtests):
    for words, says in TRAIN_FLAGS.items():
        with subtests.test(words):
            assert says in error("train", f"photos {words}")


def test_what_a_flag_means_depends_on_the_command():
    assert "RUN is given without a flag: likewise embed RUN DATA" in error("embed", "--model runs/a photos")
    assert "did you mean '--query'?" in error("search", "runs/a --image a.jpg")
    assert "did you mean '--to'?" in error("export", "runs/a --format onnx")
    assert "TARGET is given without a flag" in error("search", "--data runs/a")
    assert "resumes" not in error("search", "runs/a --resume")
    check_words("search", config_class("search"), ["runs/a", "--model", "runs/b"])


@pytest.mark.parametrize(
    "words",
    [
        "photos --size 64 --lr 1e-4 --pretrained False --no-evaluate --augment none --freeze-bn",
        "photos --size None --optimizer=sgd --batch_size=8 --robust --terms A() B()",
        "photos --seed -1 --out my-run",
    ],
)
def test_right_words_pass(words):
    check_words("train", config_class("train"), words.split())


def test_every_line_of_the_table_can_be_used():
    commands = ("train", "search", "evaluate", "export", "bench", "embed", "tune")
    settings = {name for command in commands for name in config_class(command).__dataclass_fields__}
    assert set(FOREIGN_FLAGS) <= settings and set(ONLY_TRAIN) <= set(FLAG_SENTENCES)
    flags = [flag for others in FOREIGN_FLAGS.values() for flag in others]
    assert len(flags) == len(set(flags)) and not set(flags) & set(FLAG_SENTENCES)
