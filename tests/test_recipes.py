"""Every recipe file: known keys, known sources, parts that build, and a command that says the same."""

import dataclasses
import shlex
import tomllib

import numpy as np
import pytest
from likewise.config import Train, to_dict
from likewise.contracts import BatchSampler, Confidence, Loss, NoiseModel, Protocol, Term
from likewise.durations import steps_of
from likewise.errors import LikewiseError
from likewise.miners import DistanceWeighted, Switch
from torch import nn

from likewise.cli import main as cli
from likewise.core.settings.overrides import with_argument
from likewise.core.settings.spec import build, canonical
from likewise.data import NAMES
from likewise.learn import recipes
from likewise.runs.folder import Run

FIELDS = {f.name: f for f in dataclasses.fields(Train)}
KINDS = {
    "loss": Loss, "sampler": BatchSampler, "protocol": Protocol, "noise": NoiseModel, "head": nn.Module,
    "confidence": Confidence, "terms": Term,
}  # fmt: skip
OURS = ("demo", "foundation", "robust", "t-sint", "super-loss")
"""Recipes without a value of any paper: three have none, and of the others' papers only the idea or the formula is known."""
KINDS_OF_CLASSES = {f"c{i}": (f"kind {i % 7}", f"{i % 14}", f"{i % 28}") for i in range(70)}
TREE = {"class_names": tuple(KINDS_OF_CLASSES), "taxonomy": KINDS_OF_CLASSES}
PRINTED = [f"{name}:print" for name in recipes.names_with_print()]
EVERY = [(name, data) for name in (*recipes.names(), *PRINTED) for data in (None, *recipes.read(name).data_sets)]


def raw(name):
    return tomllib.loads(recipes.recipe_files()[name].read_text("utf-8"))


def test_there_are_recipes():
    assert {"demo", "proxy-anchor", "multi-similarity", "triplet", "contrastive", "norm-softmax"} <= set(
        recipes.names()
    )


def test_every_recipe_can_be_tried_on_the_glyphs(subtests):
    """On a laptop, without pretrained weights, and proxies that keep up with a network that starts from nothing."""
    for name in {*recipes.names(), *PRINTED} - {"demo", "robust"}:
        with subtests.test(name):
            values = recipes.read(name, "glyphs").values
            assert values["backbone"] == "conv_small" and values["freeze_bn" if "freeze_bn" in values else "size"] in (
                False,
                40,
            )
            assert values.get("eps", 1e-8) == 1e-8 and values.get("warmup", "0") == "0"
            loss = build(values["loss"], Loss, classes=70, dim=8, per_pass=10, **TREE)
            assert ("loss_lr" in values) == any(p.requires_grad for p in loss.parameters())
            assert values.get("loss_lr", 1e-3) == 1e-3


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("rho-contrastive", (0.4, 0.35, 0.15)),
        ("rho-triplet", (0.4, 0.35, 0.15)),
        ("rho-margin", (0.35, 0.35, 0.15)),
        ("rho-margin-0.6", (0.4, 0.35, 0.15)),
        ("rho-snr", (0.3, 0.35, 0.15)),
    ],
)
def test_rho_recipes_switch_the_share_of_each_data_set(name, shares):
    for data, share in zip(("cub200", "cars196", "sop"), shares):
        loss = build(recipes.read(name, data).values["loss"], Loss, classes=60, dim=8)
        assert isinstance(loss.miner, Switch) and loss.miner.share == share
        assert isinstance(loss.miner.miner, DistanceWeighted)
        plain = recipes.read(name.removeprefix("rho-").removesuffix("-0.6")).values
        assert recipes.read(name).values.keys() == plain.keys()


def test_keys_sources_and_data_sets_are_known(subtests):
    for name in recipes.names():
        with subtests.test(name):
            content = raw(name)
            assert content["title"]
            assert isinstance(content["paper"], str)
            printed = content.pop("print", {})
            assert not printed or printed.pop("note")
            tables = {key: value for key, value in content.items() if isinstance(value, dict)}
            assert "values" in tables
            by_data = {key: value for key, value in printed.items() if isinstance(value, dict)}
            assert set(by_data) <= set(tables), "printed values of a data set that has no others"
            every = [entry for key, entry in printed.items() if key not in by_data]
            every += [entry for values in by_data.values() for entry in values.values()]
            assert all(source == "paper" for _, source in every) and bool(every) == bool(printed)
            assert set(tables) - {"values"} <= set(NAMES)
            for table, values in tables.items():
                for key, entry in values.items():
                    assert key in FIELDS, f"[{table}] {key} is no setting of train"
                    value, source = entry
                    assert source in recipes.VALUE_SOURCES, f"[{table}] {key} comes from {source}"
                    assert source == "ours" or content["paper"], "a value from a paper needs the paper"
                    assert value is not None
            everywhere = {source for values in tables.values() for _, source in values.values()}
            assert bool(everywhere & {"paper", "code"}) == (name not in OURS)
            ours = any(source == "ours" for table in set(tables) - {"glyphs"} for _, source in tables[table].values())
            assert ("differs" in content) == (ours and bool(content["paper"])), "`differs` states what 'ours' changes"


def test_every_part_builds(subtests):
    for name, data in EVERY:
        with subtests.test(f"{name} of {data}"):
            build_parts(name, data)


def build_parts(name, data):
    values = recipes.read(name, data).values
    classes = 1000 if "coarse=500" in values.get("loss", "") else 70
    embedder = nn.Linear(4, 8)
    embedder.feature_dim = 16
    embedder.head = build(values.get("head", "Linear()"), nn.Module, features=16, dim=8)
    facts = {
        "classes": classes, "dim": 8, "features": 16, "labels": np.repeat(np.arange(classes), 6), "seed": 0, "per_pass": 10,
        "steps": 1000, "embedder": embedder, **TREE,
        "make_loss": lambda dim, classes=classes: build(values["loss"], Loss, classes=classes, dim=dim),
    }  # fmt: skip
    for key, kind in KINDS.items():
        for text in values.get(key, ()) if key == "terms" else [values[key]] if key in values else []:
            build(text, kind, **facts)
    if "AdaptiveHierarchical" in values.get("loss", ""):
        assert build(values["loss"], Loss, **facts).views == values["views"]
    for key in ("warmup", "schedule_every", "validate_every", "checkpoint_every"):
        if key in values:
            assert steps_of(values[key], 10, key) >= 0


@pytest.mark.slow
def test_the_printed_command_gives_the_same_settings(subtests):
    """As a shell would cut it into words."""
    for name, data in EVERY:
        with subtests.test(f"{name} of {data}"):
            data = data or "my data (new)"
            recipe = recipes.read(name, data)
            words = shlex.split(recipes.command(recipe, data).replace("\\\n", " "))
            assert words[:2] == ["likewise", "train"]
            assert words[2] == data
            parsed = cli.parse("train", words[2:])
            assert parsed == dataclasses.replace(recipes.apply(name, data), recipe=None)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("triplet", {"squared": False, "miner.upper": False}),
        ("generalized-lifted", {"squared_penalty": True}),
        ("n-pair", {"squared_penalty": True, "one_positive": False}),
        ("angular", {"squared_penalty": True}),
        ("margin", {"count": "all", "miner.upper": 1.4}),
        ("proxy-nca", {"scale": 1, "squared": False}),
        ("quadruplet", {"margin": 1, "far_margin": 0.5, "miner.upper": 1.4}),
        ("snr", {"penalty": 0.005, "count": "all", "miner.upper": 1.4}),
        ("contrastive", {"miner.upper": 1.4}),
        ("rho-contrastive", {"miner.miner.upper": 1.4}),
        ("rho-triplet", {"squared": False, "miner.miner.upper": 1.4}),
        ("rho-margin", {"count": "all", "miner.miner.upper": 1.4}),
        ("rho-margin-0.6", {"count": "all", "miner.miner.upper": 1.4}),
        ("rho-snr", {"count": "all", "miner.miner.upper": 1.4}),
    ],
)
def test_printed_values_differ_from_the_code_as_the_study_prints_them(name, stated):
    """Equations 1 to 5, 10, 13 to 15, 20 and 24 of Roth et al. 2020; all other arguments are those of the recipe."""
    for data in (None, "cub200", "cars196", "sop", "glyphs"):
        plain, printed = recipes.read(name, data), recipes.read(f"{name}:print", data)
        assert recipes.difference(plain, printed).keys() == {"loss"} and printed.source["loss"] == "paper"
        config = Train("x", loss=plain.values["loss"])
        for argument, value in stated.items():
            config = with_argument(config, f"loss.{argument}", value)
        assert canonical(printed.values["loss"]) == canonical(config.loss)
        assert printed.data_sets == plain.data_sets


def test_every_printed_variant_is_checked_and_named():
    """Those that are not an argument of a loss: a learning rate of proxies, and the proxies of ProcSim."""
    assert len(PRINTED) == 16
    for data, weight, lam in (("cub200", 10, 1), ("cars196", 5.5, 0.1), ("sop", 0.5, 0.1), (None, 10, 1)):
        code, text = recipes.read("procsim", data), recipes.read("procsim:print", data)
        assert recipes.difference(code, text).keys() == {"loss", "confidence"}
        assert text.values["confidence"] == f"ProcSim(lam={lam})" and code.source["confidence"] == "ours"
        assert text.values["loss"] == "MultiSimilarity(alpha=2, beta=40, base=0.1, miner=None)"
        terms = (f"LanguageGuidance(weight={weight}, level='sample', mask_same_label=False)",)
        assert code.values["terms"] == text.values["terms"] == terms
    assert recipes.read("procsim:print", "glyphs").values["terms"] == ()
    rates = {data: recipes.read("norm-softmax:print", data).values["loss_lr"] for data in ("cub200", "sop", "glyphs")}
    assert rates == {"cub200": 1e-5, "sop": 1e-5, "glyphs": 1e-3}
    assert recipes.read("norm-softmax", "sop").values["loss_lr"] == 2e-3
    plain, printed = recipes.read("triplet"), recipes.read("triplet:print")
    assert printed.name == "triplet:print" and printed.title == f"{plain.title}, as printed"
    assert printed.note.startswith(f"{plain.note} As printed: plain distances (eq. 2)")


def test_printed_values_join_and_unknown_suffixes_are_refused():
    both = recipes.read("triplet:print+robust", "sop")
    assert both.values == recipes.read("triplet:print", "sop").values | recipes.read("robust").values
    parsed = cli.parse("train", ["sop", "--recipe", "triplet:print", "--robust"])
    assert parsed == recipes.apply("triplet:print+robust", "sop") and parsed.recipe == "triplet:print+robust"
    with pytest.raises(LikewiseError, match=r"the only suffix is ':print'.*got ':code' in 'triplet:code'"):
        recipes.read("triplet:code")
    with pytest.raises(LikewiseError, match=r"'arcface:print' needs values as printed .* There are: angular:print, "):
        recipes.read("arcface:print+robust")
    with pytest.raises(LikewiseError, match=r"there is no 'tripled'; did you mean 'triplet'"):
        recipes.read("tripled:print")


def test_procsim_has_the_values_of_its_paper():
    """omega, learning rate and passes differ from one data set to the next; lambda is ours."""
    for data, weight, lr, epochs in (("cub200", 10, 1e-4, 150), ("cars196", 5.5, 1e-5, 250), ("sop", 0.5, 1e-5, 250)):
        config = recipes.apply("procsim", data)
        assert config.confidence == "ProcSim(score_by='margin', tau_factor=0.5, lam=0.01, scale=4, lr=0.05)"
        assert config.terms == (f"LanguageGuidance(weight={weight}, level='sample', mask_same_label=False)",)
        assert (config.lr, config.epochs, config.weight_decay, config.dim) == (lr, epochs, 4e-4, 512)
        assert config.freeze_bn and "batch=360" in config.sampler
        plain = recipes.apply("ms-plg", data)
        assert plain.confidence is None and plain.terms == (f"LanguageGuidance(weight={weight})",)
        assert plain.loss == config.loss


@pytest.mark.parametrize("name", recipes.names())
def test_a_resnet50_names_its_weights(name):
    """A bare name means whatever weights timm has chosen last, and those of 2021 are in no paper before."""
    for data in (None, *recipes.read(name).data_sets):
        backbone = str(recipes.read(name, data).values.get("backbone", ""))
        if backbone.startswith("resnet50"):
            assert backbone == ("resnet50.tv2_in1k" if name == "procsim" else "resnet50.tv_in1k")


@pytest.mark.parametrize("kind", ["nca", "pa"])
def test_hierarchical_proxies_have_the_values_of_their_paper(kind):
    """Groups: 500 of the thousands of classes of three data sets; 10 in the study of Cars196, which is of Proxy-NCA."""
    known = {"sop": 500, "inshop": 500} | ({"cars196": 10, "inaturalist": 500} if kind == "nca" else {})
    for data in (None, "cub200", "cars196", "sop", "inshop", "inaturalist"):
        recipe = recipes.read(f"hpl-{kind}", data)
        assert (recipe.source["loss"] == "paper") == (data in known and kind == "pa"), "of Proxy-NCA it says no scale"
        stated = {
            "sampler": "Shuffled(batch=128)", "dim": 512, "pool": "avg+max", "optimizer": "adamw", "lr": 1e-4, "epochs": 30,
        }  # fmt: skip
        assert stated.items() <= recipe.values.items() and {recipe.source[key] for key in stated} == {"paper"}
        assert (recipe.values["backbone"], recipe.source["backbone"]) == ("resnet50.tv_in1k", "assumed")
        groups = build(recipe.values["loss"], Loss, classes=1000, dim=8, per_pass=10)
        assert groups.coarse == (known.get(data) or (500 if data == "inaturalist" else None)) and groups.every == 20
    for data, depth in (("sop", 1), ("cub200", 2), ("cars196", 2), ("inaturalist", 3)):
        assert f"depth={depth}" in recipes.read("hpl-nca-gt", data).values["loss"]
    known_tree = recipes.read("hpl-nca-gt", "sop").values
    assert build(known_tree["loss"], Loss, classes=70, dim=8, per_pass=10, **TREE).depth == 1
    assert recipes.difference(recipes.read("hpl-nca", "sop"), recipes.read("hpl-nca-gt", "sop")).keys() == {"loss"}


def test_the_search_of_hierarchical_proxies_is_the_reality_check_with_other_batches():
    """The second protocol: RMSprop 1e-6, batches of 128, MAP@R on four folds; the rest is that of the Reality Check."""
    for data in (None, "cub200", "cars196", "sop"):
        recipe, check = recipes.read("hpl-reality-check", data), recipes.read("reality-check", data)
        stated = {
            "sampler": "Shuffled(batch=128)", "optimizer": "rmsprop", "lr": 1e-6, "protocol": "ClassFolds()", "select": "MAP@R",
        }  # fmt: skip
        assert stated.items() <= recipe.values.items() and {recipe.source[key] for key in stated} == {"paper"}
        assert recipes.difference(recipe, check).keys() == {"loss", "loss_lr", "sampler"}
        assert recipe.source["loss"] == recipe.source["loss_lr"] == "assumed"  # what is searched
        classes = 8488 if data == "sop" else 75
        loss = build(recipe.values["loss"], Loss, classes=classes, dim=8, per_pass=30)
        assert type(loss.coarse_loss) is type(loss.loss) and loss.coarse == (500 if data == "sop" else 10)


def test_relations_of_parts_have_the_values_of_their_authors():
    ours = recipes.apply("drml-pa", "cub200")
    assert (ours.loss, ours.head, ours.terms) == (
        "ProxyAnchor(alpha=64, margin=0.2)", "Relational(k=4)", ("Ensemble(reconstruction=1)",)
    )  # fmt: skip
    assert (ours.loss_weight, ours.backbone_lr, ours.lr, ours.loss_lr) == (10, 5e-5, 1e-3, 1e-2)
    for plain in ("margin", "triplet", "cosface"):
        config = recipes.apply(f"drml-{plain}", "cub200")
        assert config.loss.split("(")[0] == recipes.apply(plain, "cub200").loss.split("(")[0]
        assert (config.head, config.terms, config.loss_weight) == (ours.head, ours.terms, 1)
        assert (config.backbone_lr, config.lr) == (1e-5, 1e-4)


def test_trainings_of_the_study_of_influence_differ_in_the_loss_alone():
    names = ["influence-proxy-nca", "influence-proxy-anchor", "influence-soft-triple"]
    for data, batches in (("cub200", "batch=32, per_class=4"), ("inshop", "batch=96, per_class=3")):
        first, *others = (recipes.read(name, data) for name in names)
        assert [recipes.difference(first, other).keys() for other in others] == [{"loss"}, {"loss"}]
        assert first.values["sampler"] == f"SamplesPerClass({batches})"
    assert build(others[1].values["loss"], Loss, classes=70, dim=8).per_class == 1


def test_robust_is_a_confidence_and_nothing_else():
    assert recipes.read("robust").values == {"confidence": "LabelPosterior()"}
    for data in ("birds/", "z.npz", "cub200"):
        assert recipes.apply("robust", data) == Train(data, recipe="robust", confidence="LabelPosterior()")


def test_recipes_stand_on_one_another():
    both = recipes.read("procsim+robust", "cars196")
    first, second = recipes.read("procsim", "cars196"), recipes.read("robust")
    assert both.values == first.values | second.values and both.source == first.source | second.source
    assert both.title == "ProcSim + Training with wrong labels" and both.paper == first.paper
    assert both.note == f"{first.note} {second.note}" and both.data_sets == first.data_sets
    assert recipes.read("robust+procsim").values["confidence"] == first.values["confidence"]
    assert recipes.apply("triplet+robust", "x", lr=0.5) == dataclasses.replace(
        recipes.apply("triplet", "x", lr=0.5), recipe="triplet+robust", confidence="LabelPosterior()"
    )
    with pytest.raises(LikewiseError, match=r"there is no 'robus'; did you mean 'robust'"):
        recipes.read("triplet+robus")


def test_a_plus_joins_where_a_name_follows_and_else_belongs_to_the_name():
    for name, file in (("proxy-nca++", "proxy-nca-plus-plus"), ("co-teaching+", "co-teaching-plus")):
        one, robust = recipes.read(name, "glyphs"), recipes.read(f"{name}+robust", "glyphs")
        assert one.name == name and dataclasses.replace(one, name=file) == recipes.read(file, "glyphs")
        assert robust.values == one.values | recipes.read("robust").values
        assert cli.parse("train", ["glyphs", "--recipe", name, "--robust"]) == recipes.apply(f"{name}+robust", "glyphs")
    assert recipes.read("robust+co-teaching+").values["confidence"].startswith("CoTeachingPlus(")
    for name in ("triplet+", "proxy-nca+", "+triplet", "triplet++robust"):
        with pytest.raises(LikewiseError, match=r"recipe: there is no '(triplet|proxy-nca)?\+?'"):
            recipes.read(name)


def test_difference_is_what_the_values_say():
    """By hand: a setting differs where the values do, the default standing in for what a recipe leaves open."""
    for a, b in (("proxy-anchor", "drml-pa"), ("proxy-nca", "proxy-nca++"), ("reality-check", "robust")):
        first, second = recipes.read(a, "cub200"), recipes.read(b, "cub200")
        apart = recipes.difference(first, second)
        for key, field in FIELDS.items():
            if key == "data":
                continue
            x, y = first.values.get(key, field.default), second.values.get(key, field.default)
            sources = (first.source.get(key, "default"), second.source.get(key, "default"))
            assert apart.get(key) == (((x, sources[0]), (y, sources[1])) if x != y else None)
        assert list(apart) == [key for key in FIELDS if key in apart], "in the order of the flags"
        assert recipes.difference(second, first) == {key: (y, x) for key, (x, y) in apart.items()}
    assert recipes.difference(first, first) == {}
    alone = recipes.difference(recipes.read("robust"))
    assert alone == {"confidence": (("LabelPosterior()", "ours"), (None, "default"))}


def test_a_run_is_compared_by_what_it_was_trained_with(tmp_path, monkeypatch):
    """Its specs are written out, so those of the recipe are too, and only what was changed remains."""
    monkeypatch.chdir(tmp_path)
    config = recipes.apply(
        "proxy-nca++", "glyphs(classes=40)", lr=0.5, out="run", quiet=True, protocol="UnseenClasses()"
    )
    stored = to_dict(config) | {key: canonical(getattr(config, key)) for key in ("loss", "sampler", "head", "protocol")}
    Run("triplet").path.mkdir()
    Run("triplet").write_json("config.json", {"format": 1, "identity": "x", "config": stored})
    a, b, data = recipes.read_pair("proxy-nca++", "./triplet")
    assert data == "glyphs(classes=40)" and a.title == "ProxyNCA++" and b.name == "./triplet"
    apart = recipes.difference(a, b)
    assert apart == {
        "protocol": ((None, "default"), ("UnseenClasses(train=0.5, val=0.0)", "run")),
        "lr": ((1e-3, "ours"), (0.5, "run")),
    }
    assert recipes.read_pair("triplet", "defaults")[:2] == (recipes.read("triplet"), recipes.NO_RECIPE), (
        "no folder is meant"
    )
    assert recipes.read_pair("triplet", "./triplet", "sop")[0].values["epochs"] == 100
    with pytest.raises(LikewiseError, match=r"run: 'runs/none' is not a run folder"):
        recipes.read_pair("triplet", "runs/none")
    Run("triplet").write_json("config.json", {"format": 1, "identity": "x", "config": {"lr": 1}})
    with pytest.raises(LikewiseError, match=r"run: the settings in './triplet' name no data"):
        recipes.read_pair("triplet", "./triplet")


@pytest.mark.parametrize("recipe", [["--recipe", "triplet"], ["--recipe=triplet"]])
def test_the_flag_robust_is_one_more_recipe(recipe):
    assert cli.parse("train", ["x", "--robust"]) == recipes.apply("robust", "x")
    assert cli.parse("train", ["x", "--robust", *recipe]) == recipes.apply("triplet+robust", "x")
    assert cli.parse("train", ["x", *recipe, "--robust", "--lr", "0.5"]) == recipes.apply("triplet+robust", "x", lr=0.5)
    flags = ["--robust", "--loss", "Triplet()", "--confidence", "PRISM(share=0.1)", "--metrics", "R@1"]
    assert cli.parse("train", ["x", *flags]) == recipes.apply(
        "robust", "x", loss="Triplet()", confidence="PRISM(share=0.1)", metrics=("R@1",)
    )


def test_values_of_every_type_survive_the_command():
    values = {
        "crop_scale": (0.2, 1.0), "metrics": ("R@1", "MAP@R"), "pretrained": False, "freeze_bn": True,
        "evaluate": False, "lr": 1e-5, "clip_norm": 1.0, "dim": 64, "pool": "avg+max", "noise": "Uniform(share=0.3)",
        "weights": "my file.pt", "terms": ("LanguageGuidance(weight=2)", "S2SD()"),
    }  # fmt: skip
    made = recipes.Recipe("x", "X", "", "", values, dict.fromkeys(values, "ours"), ())
    words = shlex.split(recipes.command(made, "glyphs(classes=20)").replace("\\\n", " "))
    assert cli.parse("train", words[2:]) == Train(data="glyphs(classes=20)", **values)


def test_a_data_set_has_its_own_values_with_or_without_arguments():
    plain, glyphs = recipes.read("proxy-anchor"), recipes.read("proxy-anchor", "glyphs(classes=20)")
    assert plain.values["backbone"] == "bn_inception"
    assert glyphs.values["backbone"] == "conv_small"
    assert glyphs.source["backbone"] == "ours"
    assert plain.source["backbone"] == "paper"
    assert "sop" in plain.data_sets


def test_what_is_given_beside_a_recipe_wins():
    config = recipes.apply("triplet", "cub200", lr=0.5)
    assert config.lr == 0.5
    assert config.recipe == "triplet"
    assert config.freeze_bn is True
    parsed = cli.parse("train", ["cub200", "--recipe", "triplet", "--lr", "0.5", "--no-freeze-bn"])
    assert parsed == dataclasses.replace(config, freeze_bn=False)
    assert cli.parse("train", ["cub200", "--lr", "0.5", "--no-freeze-bn", "--recipe=triplet"]) == parsed


def test_a_recipe_given_as_flag_equals_the_recipe_in_python():
    for name in recipes.names():
        data = (*recipes.read(name).data_sets, "folder")[0]
        assert cli.parse("train", [data, "--recipe", name]) == recipes.apply(name, data)


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(
        LikewiseError,
        match="did you mean 'proxy-anchor'.*There are: adaptive",
    ):
        recipes.read("proxy_anchor")
    with pytest.raises(LikewiseError, match=r"there is no '../triplet'"):
        recipes.read("../triplet")


@pytest.mark.parametrize("spoil", [{"protocol": 5}, {"dim": "four"}, {"loss": None}, {"terms": "LSD()"}])
def test_damaged_settings_of_a_run(run, spoil):
    about = run.about
    run.write_json("config.json", about | {"config": about["config"] | spoil})
    with pytest.raises(LikewiseError, match="the setting .* must be .*; restore a copy of its config.json"):
        recipes.read_pair(str(run.path), "triplet")
