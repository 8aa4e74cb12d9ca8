import numpy as np
import pytest
from likewise.contracts import Confidence, Loss, Miner
from likewise.losses import MultiSimilarity, Triplet
from likewise.miners import HardPairs, SemiHard
from likewise.types import LikewiseError

from likewise import losses, miners, noise, protocols, samplers
from likewise.core.settings.spec import brief, build, canonical, check_names, find, spec


def test_build_reads_names_literals_and_nested_parts():
    loss = build("MultiSimilarity(alpha=3, beta=4.05e1, miner=HardPairs(eps=0.2))", Loss)
    assert isinstance(loss, MultiSimilarity) and loss.alpha == 3 and loss.beta == 40.5 and loss.miner.eps == 0.2
    assert build("MultiSimilarity(miner=None)").miner is None
    assert isinstance(build("SemiHard", Miner), SemiHard)


@pytest.mark.parametrize(
    "text",
    [
        "MultiSimilarity()", "MultiSimilarity(alpha=3)", "MultiSimilarity(miner=None)", "Triplet(margin=0.1, squared=True)",
        "MultiSimilarity(miner=HardPairs(eps=0.3))", "Contrastive(miner=SemiHard())", "Uniform(share=0.5, exact=False)",
        "UnseenClasses(val=0.2)", "ProxyAnchor(classes=4, dim=3, alpha=16)",
    ],
)  # fmt: skip
def test_spec_and_build_round_trip(text):
    assert spec(build(text)) == text
    assert spec(build(spec(build(text)))) == text


def test_defaults_are_left_out_and_differences_kept():
    assert spec(Triplet()) == "Triplet()"
    assert spec(MultiSimilarity(alpha=2, miner=HardPairs(eps=0.1))) == "MultiSimilarity()"
    assert spec(MultiSimilarity(miner=HardPairs(eps=0.2))) == "MultiSimilarity(miner=HardPairs(eps=0.2))"


def test_canonical_spells_one_way_and_writes_everything_out():
    full = "MultiSimilarity(alpha=2.0, beta=40.0, base=0.5, miner=HardPairs(eps=0.1), space='cosine')"
    for text in ("MultiSimilarity", "MultiSimilarity( )", "MultiSimilarity(beta=40, alpha = 2)", full, canonical(full)):
        assert canonical(text) == full
    assert canonical("MultiSimilarity(alpha=3)") == canonical("MultiSimilarity(alpha=3.0)") != full
    assert canonical("ProxyAnchor()") == "ProxyAnchor(alpha=32.0, margin=0.1)"  # classes and dim are the run's to fill
    assert canonical("ProxyAnchor(dim=4)") == "ProxyAnchor(dim=4, alpha=32.0, margin=0.1)"
    assert (
        canonical("SamplesPerClass()")
        == "SamplesPerClass(batch=112, per_class=2, lonely='error', with_replacement=False)"
    )
    assert canonical("my_lab.Mine(a=1)") == "my_lab.Mine(a=1)"
    for text in ("Triplet(margin=0.1)", "Contrastive(miner=SemiHard())"):
        assert spec(build(canonical(text))) == spec(build(text))


def test_every_argument_is_written_out():
    full = "CrossBatchMemory(loss=Contrastive(margin=1.0, pull_margin=0.0, miner=None, space='cosine'), size=1024, start=0)"
    for text in ("CrossBatchMemory", "CrossBatchMemory(loss=Contrastive(space='cosine'))", full):
        assert canonical(text) == full
    bent = canonical("Contrastive(space='hyperbolic')")
    assert (
        bent == "Contrastive(margin=1.0, pull_margin=0.0, miner=None, space='hyperbolic')" != canonical("Contrastive")
    )
    assert build(canonical("SupCon")).space == "cosine"
    with pytest.raises(LikewiseError, match="SNR has no argument 'space'"):  # what is wrong is not dropped either
        build(canonical("SNR(space='cosine')"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Triplet(margin='a')", "Triplet: margin must be a number, got 'a'"),
        ("Triplet(miner=None)", "Triplet: miner must be a Miner, got None"),
        ("MultiSimilarity(miner=3)", "miner must be a Miner or None, got 3"),
        ("MultiSimilarity(miner=Uniform())", "miner must be a Miner or None, got Uniform"),
        ("SamplesPerClass(batch=12.0)", "batch must be a whole number, got 12.0"),
        ("SamplesPerClass(lonely='drop')", "lonely must be 'error' or 'skip', got 'drop'"),
        ("Triplet(squared=1)", "squared must be True or False, got 1"),
        pytest.param("-" * 100_000 + "1", "too deeply nested|cannot be read", id="deep"),
        pytest.param("Triplet(margin=" + "-" * 900 + "1)", "too deeply nested", id="less deep"),
        pytest.param("a" + ".a" * 3000, "too deeply nested", id="long name"),
        pytest.param(f"Triplet(margin={'9' * 4000})", "whole numbers must be between", id="4000 digits"),
        pytest.param(f"Triplet(margin={'9' * 5000})", "cannot be read|too deeply nested", id="5000 digits"),
        pytest.param(
            f"Triplet(margin=0x{'f' * 5000})", "whole numbers must be between|too deeply nested", id="hexadecimal"
        ),
        ("Triplet(margin={[]: 1})", "'{\\[\\]: 1}' is not a literal"),
        ("Triplet(margin=0.1, margin=0.2)", "Triplet has the argument margin twice; remove one"),
        ("MultiSimilarity(miner=HardPairs(eps=0.1, eps=0.1))", "HardPairs has the argument eps twice"),
        ("Triplet(margin='\0')", "too deeply nested|cannot be read|must be a number"),
    ],
)
def test_values_of_the_wrong_kind_are_explained(text, says):
    for read in (build, lambda text: build(canonical(text))):
        with pytest.raises(LikewiseError, match=says):
            read(text)


def test_facts_fill_what_is_left_open_and_only_that():
    loss = build("ProxyAnchor(dim=4)", Loss, classes=7, dim=99)
    assert loss.classes == 7 and loss.dim == 4
    with pytest.raises(LikewiseError, match="ProxyAnchor needs classes"):
        build("ProxyAnchor(dim=4)")


def test_groups_and_copies_reach_a_confidence_whose_spec_is_canonical():
    def copies():
        return np.arange(6)

    facts = {"classes": 2, "samples": 6, "labels": np.array([0, 1] * 3), "seed": 0}
    found = build(canonical("LabelPosterior()"), Confidence, **facts, group=np.array([0, 0, 1, 1, 2, 2]), copies=copies)
    assert found.group.tolist() == [0, 0, 1, 1, 2, 2] and found.copies is copies


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Triplte()", "no component called 'Triplte'; did you mean 'Triplet'"),
        (
            "Triplet(margn=1)",
            "Triplet has no argument 'margn'; did you mean 'margin'. It takes: margin, squared, miner, space",
        ),
        ("Triplet(0.1)", "arguments must be given by name"),
        ("HardPairs()", "describes a HardPairs, but a Loss is needed here"),
        ("Triplet(", "cannot be read"),
        ("", "cannot be read"),
        ("3", "a component must be a name with arguments"),
        ("Triplet(margin=x)", "'x' is neither a literal nor a component"),
        ("Triplet(miner=SemiHard)", r"SemiHard\(\)"),
        ("Triplet(margin=1 + 1)", "not a literal"),
        ("Triplet(margin=[1 for _ in 'ab'])", "not a literal"),
        ("Triplet(margin=__import__('os').system('true'))", "no component called|would be imported"),
        ("os.system(command='true')", "would be imported, which runs its code"),
        ("(lambda: 1)()", "is not a name"),
        ("Triplet(**{'margin': 1})", "has no argument"),
    ],
)
def test_bad_specs_are_explained(text, says):
    with pytest.raises(LikewiseError, match=says):
        build(text, Loss)


def test_a_spec_never_runs_code(tmp_path):
    mark = tmp_path / "mark"
    for text in (
        f"open({str(mark)!r}, 'w')",
        f"Triplet(margin=open({str(mark)!r}, 'w'))",
        f"pathlib.Path.touch(self='{mark}')",
    ):
        with pytest.raises(LikewiseError):
            build(text)
    assert not mark.exists()


def test_dotted_names_need_permission():
    name = "likewise.learn.losses.triplet.Triplet(margin=0.3)"
    with pytest.raises(LikewiseError, match=r"--allow-imports \(Python: allow_imports=True"):
        build(name)
    assert build(name, Loss, allow_imports=True).margin == 0.3
    for missing in ("no_such_lab.Loss()", "likewise.losses.NoSuchLoss()"):
        with pytest.raises(LikewiseError, match="cannot be imported"):
            build(missing, allow_imports=True)
    with pytest.raises(LikewiseError, match="cannot be built as a component"):
        build("os.path.join()", allow_imports=True)


def test_registries_list_themselves():
    for registry in (losses, miners, samplers, noise, protocols):
        name = registry.__name__.removeprefix("likewise.")
        assert list(find(name)) == registry.__all__ == sorted(registry.__all__, key=str.lower)


def test_brief_leaves_out_what_goes_without_saying():
    for text in (
        "MultiSimilarity()",
        "Triplet(miner=SemiHard())",
        "Hierarchical(loss=ProxyAnchor(alpha=16.0), coarse=(10, 3))",
    ):
        assert brief(canonical(text)) == text
    assert brief("my_lab.Loss(a=1)") == "my_lab.Loss(a=1)"


def test_slips_in_names_are_told_without_building():
    check_names("Triplet(miner=SemiHard())")
    check_names("ProxyAnchor()")  # what only the run knows is not asked for
    check_names("my_lab.losses.Mine(a=1)")
    for text, says in (
        ("Tripplet()", "did you mean 'Triplet'"),
        ("Triplet(margn=1)", "did you mean 'margin'"),
        ("Triplet(miner=SemiHart())", "did you mean 'SemiHard'"),
    ):
        with pytest.raises(LikewiseError, match=says):
            check_names(text)
