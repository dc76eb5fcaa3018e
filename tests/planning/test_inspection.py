"""What is said of a model from its headers: on disk, packed by quantizers, and on the Hub without its weights.

If one fails: `inspect` promises what baking or measuring then refuses.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from editkit.checkpoints import architecture
from editkit.checkpoints.answering import ENCODERS, refusal
from editkit.checkpoints.source import resolve
from editkit.cli import main, tables
from editkit.errors import EditkitError
from editkit.hub.metadata import fetch
from editkit.planning import run_cost
from editkit.planning.inspection import Inspection, inspect
from editkit.removal import harden
from editkit.tasks.builtin import TASKS
from tests import small_checkpoints as checkpoints
from tests import tiny
from tests.hostile.cases import CASES
from tests.hub.server import Hub

SIZES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "I32": 4, "I8": 1, "U8": 1}
LLAMA = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8}
LLAMA |= {"hidden_size": 4096, "head_dim": 128}
OUT = "model.layers.0.self_attn.o_proj"


def test_a_checkpoint_in_shards(tmp_path: Path) -> None:
    model, _ = tiny.build("llama")
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    found = inspect(tmp_path)
    assert found.architecture == architecture.read(tmp_path)
    assert found.files == len(list(tmp_path.glob("*.safetensors"))) > 1
    assert found.dtypes == {"F32": 4 * sum(weight.numel() for weight in model.state_dict().values())}
    assert all(format.works for format in found.formats)
    assert found.notes == ("grouped queries: 2 query heads share keys and values",)
    value = json.loads(json.dumps(found.to_dict()))
    assert value["sites"][1] == {
        **{"layer": 1, "heads": 4, "width": 8, "groups": 2, "tensor": "model.layers.1.self_attn.o_proj.weight"},
        **{"shape": [32, 32], "axis": 1, "shared_with": []},
    }


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("model_type", ["gpt2", "llama"])
def test_pickled_weights_are_described_as_their_conversion(tmp_path: Path, model_type: str, shards: int) -> None:
    model, config = tiny.build(model_type)
    config.save_pretrained(tmp_path)
    weights = model.half().state_dict()
    for place, names in enumerate([sorted(weights)[at::shards] for at in range(shards)]):
        file = "pytorch_model.bin" if shards == 1 else f"pytorch_model-{place + 1:05}-of-{shards:05}.bin"
        torch.save({name: weights[name] for name in names}, tmp_path / file)
    found, converted = inspect(tmp_path), inspect(resolve(tmp_path).directory)
    assert found.architecture == converted.architecture and found.dtypes == converted.dtypes
    assert (found.files, found.formats) == (converted.files, converted.formats)
    assert found.notes[0] == "pickled weights: baking converts them to safetensors first"
    assert set(found.notes) - set(converted.notes) == {found.notes[0]}


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("pickle: ")])
def test_hostile_pickles_are_not_opened_for_a_look_either(tmp_path: Path, name: str) -> None:
    base = checkpoints.write(tmp_path / "base")
    CASES[name](base)
    with pytest.raises(EditkitError, match="not a plain pickle of tensors|expected tensors by name"):
        inspect(base)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


def test_layers_without_heads_and_shared_blocks_are_said(tmp_path: Path) -> None:
    tiny.build("zamba2")[0].save_pretrained(tmp_path)
    found = inspect(tmp_path)
    assert found.to_dict()["unreachable"] == [{"layers": [0, 2], "reason": "Mamba"}]
    assert "layer 1 is used again in layer 3: an edit there acts in all" in found.notes


def test_an_adapter_too_wide_for_vllm_says_how_many_heads_fit(tmp_path: Path) -> None:
    found = _inspect(tmp_path, LLAMA, {f"{OUT}.weight": ("BF16", [4096, 4096])})
    assert found.bytes == 2 * 4096 * 4096
    lora = found.formats[1]
    assert lora.works
    assert (
        lora.note
        == "rank 128 per head in a layer, 4096 for a whole layer; vLLM serves up to 512, so at most 4 heads of a layer"
    )


def test_fp8_can_be_cut_but_not_adapted(tmp_path: Path) -> None:
    tensors = {f"{OUT}.weight": ("F8_E4M3", [4096, 4096]), f"{OUT}.weight_scale_inv": ("F32", [32, 32])}
    found = _inspect(tmp_path, LLAMA | {"quantization_config": {"quant_method": "fp8"}}, tensors)
    assert [format.works for format in found.formats] == [True, False]
    assert found.quantization == "fp8"


@pytest.mark.parametrize(
    ("quantizer", "tensors"),
    [
        ({"quant_method": "gptq", "bits": 4}, {f"{OUT}.qweight": ("I32", [512, 4096])}),
        ({"quant_method": "gptq", "bits": 8}, {f"{OUT}.qweight": ("I32", [1024, 4096])}),
        ({"quant_method": "awq", "bits": 4}, {f"{OUT}.qweight": ("I32", [4096, 512])}),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}},
            },
            {f"{OUT}.weight_packed": ("I32", [4096, 1024])},
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            {f"{OUT}.weight": ("U8", [8388608, 1]), f"{OUT}.weight.absmax": ("U8", [262144])},
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, {f"{OUT}.weight": ("I8", [4096, 4096])}),
    ],
)
def test_packed_weights_are_refused_with_the_remedy(
    tmp_path: Path, quantizer: dict[str, Any], tensors: dict[str, tuple[str, list[int]]]
) -> None:
    with pytest.raises(EditkitError, match="packed.*Edit the unquantized checkpoint, then quantize"):
        _inspect(tmp_path, LLAMA | {"quantization_config": quantizer}, tensors)


def test_both_kinds_are_shown_and_which_formats_hold_them(tmp_path: Path) -> None:
    """If this fails: a user asks for neurons that no format of the model can hold, or does not learn of them."""
    counts = {
        "llama": (96, ["48"]),
        "mixtral": (384, ["4 x 48"]),
        "deepseek_v2": (240, ["24 + 4 x 24"]),
        "dbrx": (0, []),
    }
    for name, (neurons, shown) in counts.items():
        tiny.build(name)[0].save_pretrained(tmp_path / name)
        found = inspect(tmp_path / name)
        value = found.to_dict()
        assert (value["neurons"], sum(site["neurons"] for site in value["neuron_sites"])) == (neurons, neurons)
        assert {site["expert"] for site in value["neuron_sites"]} <= {None, 0, 1, 2, 3}
        assert sorted(set(tables._neurons(found.architecture).values())) == shown
        whole, adapter = found.formats
        assert whole.neurons == (None if neurons else "none are in reach")
        assert (adapter.neurons is None) == (name == "llama")
        assert bool(value["unreachable_neurons"]) == (name == "dbrx")


def test_a_type_without_heads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EditkitError, match=r"mamba: it has no attention heads"):
        _inspect(tmp_path, {"model_type": "mamba"}, {"backbone.layers.0.mixer.out_proj.weight": ("F32", [4, 4])})


def test_a_name_that_is_neither_is_refused() -> None:
    with pytest.raises(EditkitError, match="no such directory, and not a Hub id"):
        inspect("no/such/place")


def test_the_hub_is_asked_for_headers_only(tmp_path: Path, hub: Hub) -> None:
    from huggingface_hub import HfApi

    (tmp_path / "model").mkdir()
    model, _ = tiny.build("llama")
    model.save_pretrained(tmp_path / "model", max_shard_size="40KB")
    api = HfApi(endpoint=hub.endpoint, token="hf_sentinelAlice")
    api.create_repo("alice/model")
    commit = api.upload_folder(repo_id="alice/model", folder_path=tmp_path / "model").oid

    found = inspect("alice/model")
    assert (found.name, found.revision) == ("alice/model", commit)
    here = inspect(tmp_path / "model")
    assert (found.architecture, found.dtypes, found.files) == (here.architecture, here.dtypes, here.files)

    (tmp_path / "fetched").mkdir()
    assert fetch(api, "alice/model", None, tmp_path / "fetched") == commit
    for path in (tmp_path / "fetched").glob("*.safetensors"):
        content, whole = path.read_bytes(), (tmp_path / "model" / path.name).read_bytes()
        header = 8 + int.from_bytes(whole[:8], "little")
        assert content[:header] == whole[:header] and len(content) == len(whole)
        assert not any(content[header:]) and any(whole[header:]), "the weights stayed there"


def test_a_repository_without_safetensors_is_refused(tmp_path: Path, hub: Hub) -> None:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=hub.endpoint, token="hf_sentinelAlice")
    api.create_repo("alice/model")
    api.upload_file(path_or_fileobj=b"{}", path_in_repo="config.json", repo_id="alice/model")
    api.upload_file(path_or_fileobj=b"x" * 64, path_in_repo="pytorch_model.bin", repo_id="alice/model")
    with pytest.raises(EditkitError, match=r"found only \.bin"):
        inspect("alice/model")
    api.upload_file(path_or_fileobj=b"x" * 64, path_in_repo="model.fp16.safetensors", repo_id="alice/model")
    with pytest.raises(EditkitError, match=r"found only \.bin"):
        inspect("alice/model")
    with pytest.raises(EditkitError, match="no such repository"):
        inspect("alice/nothing")


def test_without_the_hub_its_cache_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(EditkitError, match="HF_HUB_OFFLINE is set"):
        inspect("alice/model")
    cached, commit = tmp_path / "cache" / "models--alice--model", "a" * 40
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    model, _ = tiny.build("llama")
    model.save_pretrained(cached / "snapshots" / commit)
    found, here = inspect("alice/model"), inspect(cached / "snapshots" / commit)
    assert (found.name, found.revision, found.architecture) == ("alice/model", commit, here.architecture)


def test_an_adapter_says_merge_it_first(tmp_path: Path, hub: Hub) -> None:
    from huggingface_hub import HfApi

    (tmp_path / "adapter").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / "adapter" / name).write_text("{}")
    with pytest.raises(EditkitError, match="Merge it first"):
        inspect(tmp_path / "adapter")
    api = HfApi(endpoint=hub.endpoint, token="hf_sentinelAlice")
    api.create_repo("alice/adapter")
    api.upload_folder(repo_id="alice/adapter", folder_path=tmp_path / "adapter")
    with pytest.raises(EditkitError, match="alice/adapter holds an adapter.*Merge it first"):
        inspect("alice/adapter")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    data = tmp_path / "hub"
    data.mkdir()
    accounts = {"hf_sentinelAlice": {"name": "alice", "role": "write", "orgs": {}}}
    (data / "accounts.json").write_text(json.dumps(accounts))
    server = Hub(data, 0)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setenv("HF_TOKEN", "hf_sentinelAlice")
    yield server
    server.shutdown()
    server.server_close()


def _inspect(directory: Path, config: dict[str, Any], tensors: dict[str, tuple[str, list[int]]]) -> Inspection:
    """Inspect a checkpoint that is all header: its weights are a hole of the right size."""
    entries, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for length in shape:
            size *= length
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(entries).encode()
    with open(directory / "model.safetensors", "wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)
    (directory / "config.json").write_text(json.dumps(config))
    return inspect(directory)


BERT: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}


def _without_tokenizer(path: Path) -> tuple[str, str]:
    model, _ = tiny.build("llama")
    model.save_pretrained(path)
    return "swear", "no tokenizer beside the weights"


def _encoder(path: Path) -> tuple[str, str]:
    from transformers import BertConfig, BertForMaskedLM

    BertForMaskedLM(BertConfig(**BERT, vocab_size=90)).save_pretrained(path)
    (path / "vocab.txt").write_text("[UNK]\n")
    return "swear", "bert is an encoder"


def _no_language_model(path: Path) -> tuple[str, str]:
    from transformers import EsmConfig, EsmForMaskedLM

    EsmForMaskedLM(EsmConfig(**BERT, vocab_size=90, pad_token_id=0)).save_pretrained(path)
    (path / "vocab.txt").write_text("[UNK]\n")
    return "swear", "esm is not a causal language model"


def _two_stacks(path: Path) -> tuple[str, str]:
    from transformers import T5Config, T5ForConditionalGeneration

    small = T5Config(vocab_size=90, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    T5ForConditionalGeneration(small).save_pretrained(path)
    return "swear", "t5 reads with an encoder and writes with a decoder"


@pytest.mark.parametrize("doomed", [_without_tokenizer, _encoder, _no_language_model, _two_stacks])
def test_a_run_that_cannot_succeed_is_refused_before_it_starts(doomed: Any, tmp_path: Path) -> None:
    """Else hours of downloads and loading end in what its files said from the start."""
    recipe, says = doomed(tmp_path / "model")
    commands = (["inspect"], ["plan", recipe, "--model"], ["remove-capability", recipe, "--dry-run", "--model"])
    for words in (*commands, ["evaluate", "--task", recipe]) if doomed is _two_stacks else commands:
        found = CliRunner().invoke(main, [*words, str(tmp_path / "model")])
        assert found.exit_code == 1 and says in " ".join(found.stderr.split()), found.output


def test_a_recipe_that_contradicts_itself_is_refused_by_its_plan(tmp_path: Path) -> None:
    """Else a plan promises what the run refuses."""
    (tmp_path / "both.yaml").write_text("{capability: both, target: swear, retain: [swear]}")
    for words in (["plan"], ["remove-capability", "--dry-run"], ["try"]):
        found = CliRunner().invoke(main, [*words, str(tmp_path / "both.yaml")])
        assert found.exit_code == 1 and "names 'swear' more than once" in " ".join(found.stderr.split()), found.output


def test_an_encoder_that_was_made_a_decoder_is_no_encoder() -> None:
    """Else models of types that the law over all types covers are refused."""
    assert (
        refusal({"model_type": "bert", "is_decoder": True, "architectures": ["BertLMHeadModel"]}, ["vocab.txt"]) == ""
    )
    assert refusal({"model_type": "qwen2"}, ["tokenizer.json"]) == ""
    assert refusal({"model_type": "own", "auto_map": {"AutoModelForCausalLM": "own.Own"}}, None) == ""


def test_encoders_are_those_that_transformers_warns_of() -> None:
    """Else a new version of transformers brings an encoder that passes for a language model."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    folder = Path(transformers.__file__).parent / "models"
    said = [path for path in folder.glob("*/modeling_*.py") if "add `is_decoder=True.`" in path.read_text("utf-8")]
    names = {path.stem.removeprefix("modeling_") for path in said}
    kinds = {kind for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if kind.replace("-", "_") in names}
    assert kinds == ENCODERS


@pytest.mark.parametrize(("units", "nulls"), [("heads", 2), ("both", 2), ("neurons", 1)])
def test_a_plan_counts_every_set_that_is_compared(units: str, nulls: int) -> None:
    """Random sets, and for heads as many strong ones: else a run takes longer than it said."""
    few, many = (
        run_cost.plan("swear", changes={"units": units, "random_sets": sets, "random_examples": 10}).answer_tokens
        for sets in (0, 100)
    )
    prompt, answer, requests = run_cost.length(TASKS["swear"])
    assert many - few == pytest.approx(nulls * 100 * 10 * requests * (prompt + answer), abs=2)


def test_a_plan_counts_the_rounds_of_hardening() -> None:
    """Else ``--harden`` takes twice as long as the plan said, and four times the memory."""
    plain, hard = (run_cost.plan("swear", changes={"units": "neurons", "harden": on}) for on in (False, True))
    assert hard.memory - plain.memory == 16 * plain.parameters, "weights, gradients and two moments in float32"
    steps = (len(harden.RATES) + harden.ROUNDS) * harden.STEPS
    prompt, answer, requests = run_cost.length(TASKS["swear"])
    assert hard.search_tokens - plain.search_tokens > 3 * steps * 8 * requests * (prompt + answer)
    assert hard.answer_tokens == plain.answer_tokens
