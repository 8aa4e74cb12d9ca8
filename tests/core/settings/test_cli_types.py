"""Which settings are specs and durations, read off the annotations."""

from dataclasses import dataclass

from likewise.config import SPECS, Noise, Train

from likewise.core.settings.cli_types import Duration, Spec, duration_fields, spec_fields, texts_of


def test_specs_of_a_training():
    assert spec_fields(Train) == (*SPECS, "loggers")
    assert SPECS == (
        "loss",
        "relevance",
        "sampler",
        "protocol",
        "confidence",
        "terms",
        "noise",
        "head",
    )  # loggers change nothing learned
    assert spec_fields(Noise) == ("model", "protocol")


def test_durations_of_a_training():
    want = ("warmup", "schedule_every", "validate_every", "test_every", "checkpoint_every")
    assert duration_fields(Train) == want


def test_marks_are_found_inside_unions_and_tuples():
    @dataclass
    class Config:
        a: Spec
        b: Spec | None = None
        c: tuple[Spec, ...] = ()
        d: str = "spec"
        e: Duration | None = None

    assert (spec_fields(Config), duration_fields(Config)) == (("a", "b", "c"), ("e",))
    assert texts_of(Config("one", None, ("two", "three")), ("a", "b", "c")) == ["one", "two", "three"]
