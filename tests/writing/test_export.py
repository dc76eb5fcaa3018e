"""Forms of an edit on disk, but for the law over all types of models (tests/test_every_type.py).

If one fails: what somebody downloads is not the edit that its card describes, or breaks the licence of its base.
"""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from editkit.checkpoints import architecture
from editkit.checkpoints.architecture import Architecture
from editkit.checkpoints.base_card import base_model
from editkit.checkpoints.source import Source, resolve
from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.models.knockout import knocked_out
from editkit.units import Head
from editkit.writing.bake import bake
from editkit.writing.export import EXPORTS, checkpoint, lora
from editkit.writing.undo import undo
from editkit.writing.verify import verify
from tests import small_checkpoints as checkpoints
from tests import tiny

CLOSE = 1e-4
"""Unmerged adapters in float32: W x - (W x)_slice rounds where W' x does not."""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with checkpoints.in_memory() as folder:
        yield folder


def adapt(edit: Edit, source: Source, made: Path, load: Load) -> Any:
    """The base with the edit's adapter on it."""
    from peft import PeftModel

    lora.write(edit, source, made)
    return PeftModel.from_pretrained(load(source.directory), str(made)).eval()


Load = Callable[[Path], Any]


def save(
    model_type: str, directory: Path, *, dtype: torch.dtype = torch.float32, shards: str = "40KB"
) -> tuple[Source, Load]:
    """A checkpoint of the type, and how to load one (some text models inside others have no Auto class)."""
    model, _ = tiny.build(model_type)
    model.to(dtype).save_pretrained(directory, max_shard_size=shards)
    kind: Any = type(model)
    return resolve(directory), lambda place: kind.from_pretrained(place, attn_implementation="eager").eval()


def logits(model: Any) -> torch.Tensor:
    tokens = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(tokens).logits


def zero_live(model: Any, found: Architecture, units: frozenset[Head]) -> torch.Tensor:
    for unit in units:
        site = found.site(unit)
        span = site.slice(unit.index)
        for module in (site.module, *site.twins):
            model.get_submodule(module).weight.data.narrow(site.axis, span.start, site.width).zero_()
    return logits(model)


def assert_same_files(one: Path, other: Path) -> None:
    assert checkpoints.files(one) == checkpoints.files(other)


def test_a_bfloat16_adapter_rounds_and_says_what_a_server_needs(tmp_path: Path) -> None:
    """Unmerged it is a tenth of the edit's own effect from the bake at most, in float32 far less."""
    source, load = save("llama", tmp_path / "base", dtype=torch.bfloat16)
    edit = Edit(source.base, frozenset({Head(0, 1), Head(1, 0), Head(1, 3)}))
    checkpoint.write(edit, source, tmp_path / "whole")
    before, baked = logits(load(source.directory)), logits(load(tmp_path / "whole"))
    rounded = (logits(adapt(edit, source, tmp_path / "out", load)) - baked).abs().max()
    assert 0 < rounded < (before - baked).abs().max() / 10
    written = lora.write(edit, source, tmp_path / "again")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "--max-lora-rank 16" in written.notes[0] and all(note in card for note in written.notes)
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["r"] == config["lora_alpha"] == 16
    assert config["rank_pattern"] == config["alpha_pattern"] == {"model.layers.0.self_attn.o_proj": 8}


@pytest.mark.parametrize("model_type", ["llava", "llama4"])
def test_an_adapter_fits_the_class_that_the_checkpoint_names(model_type: str, tmp_path: Path) -> None:
    """llava has no class for text alone; llama4 has one, with other module paths than the one for text and images."""
    import transformers
    from peft import PeftModel

    torch.manual_seed(0)
    name = f"{model_type.title()}ForConditionalGeneration"
    kind: Any = getattr(transformers, name)
    kind(tiny.configure(model_type)).save_pretrained(tmp_path / "base")
    assert json.loads((tmp_path / "base" / "config.json").read_text())["architectures"] == [name]
    heads = [Head(0, 1), Head(1, 2)]
    bake(tmp_path / "base", heads, out=tmp_path / "lora", format="lora")
    bake(tmp_path / "base", heads, out=tmp_path / "whole")
    model, baked = (kind.from_pretrained(tmp_path / place).eval() for place in ("base", "whole"))
    with torch.no_grad():
        ids = torch.randint(3, 60, (2, 7))
        before, expected = model(input_ids=ids).logits, baked(input_ids=ids).logits
        found = PeftModel.from_pretrained(model, str(tmp_path / "lora")).eval()(input_ids=ids).logits
    assert (found - expected).abs().max() < CLOSE < (before - expected).abs().max() / 10


@pytest.mark.parametrize(
    "line", ["date: 2023-02-30", "n: 0x_", "n: 0b_", "t: !!timestamp abc", "b: !!bool maybe", "language: no"]
)
def test_any_yaml_of_the_base_s_card_is_read_as_text(line: str, tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base")
    (base / "README.md").write_text(f"---\nlicense: llama3.2\ntags: null\n{line}\n---\nThe base.\n")
    found = base_model(resolve(base), dtype="float32")
    assert (found.license, found.notices, found.tags) == ("llama3.2", ("Built with Llama",), ())
    assert found.languages == (("no",) if line == "language: no" else ())


@pytest.mark.parametrize(
    ("front", "notice"),
    [
        ("license: llama3.2", "Built with Llama."),
        ("license: llama3", "Built with Meta Llama 3."),
        ("license: other\nlicense_name: llama4", "Built with Llama."),
        ("license: gemma", "found at ai.google.dev/gemma/terms."),
        ("license: llama2", None),
        ("license: apache-2.0", None),
    ],
)
def test_a_card_shows_the_line_that_the_base_s_licence_asks_for(front: str, notice: str | None, tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base")
    (base / "README.md").write_text(f"---\n{front}\n---\nThe base.\n")
    bake(base, [Head(0, 1)], out=tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert notice in card if notice else "Built with" not in card and "Terms of Use" not in card


def test_a_card_that_is_a_link_out_of_the_base_is_not_read(tmp_path: Path) -> None:
    base = checkpoints.write(tmp_path / "base")
    (base / "README.md").rename(tmp_path / "README.md")
    (base / "README.md").symlink_to("../README.md")
    assert base_model(replace(resolve(base), directory=base), dtype="float32").license is None


def test_fp8_weights_are_zeroed_by_bytes_and_dequantize_to_the_zeroed_model(tmp_path: Path) -> None:
    """Blocks of 32 x 32 with scales, as published fp8 checkpoints; transformers dequantizes them where no GPU is."""
    base = fp8(tmp_path / "base")
    source = resolve(base)
    units = frozenset({Head(0, 1), Head(1, 0), Head(1, 3)})
    checkpoint.write(Edit(source.base, units), source, tmp_path / "out")
    assert verify(tmp_path / "out", source).tensors == 2
    before, after = load_file(base / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    differing = {
        name for name in before if not torch.equal(before[name].view(torch.uint8), after[name].view(torch.uint8))
    }
    assert differing == {f"model.layers.{layer}.self_attn.o_proj.weight" for layer in (0, 1)}, "no scale is touched"
    for unit in units:
        columns = slice(unit.index * 32, (unit.index + 1) * 32)
        stored = [each[f"model.layers.{unit.layer}.self_attn.o_proj.weight"] for each in (before, after)]
        assert stored[0].dtype == stored[1].dtype == torch.float8_e4m3fn
        assert stored[0].view(torch.uint8)[:, columns].any() and not stored[1].view(torch.uint8)[:, columns].any()
    live, baked = dequantized(base), dequantized(tmp_path / "out")
    plain = logits(live)
    found = architecture.from_model(live)
    with knocked_out(live, found, units):
        hooked = logits(live)
    zeroed = zero_live(live, found, units)
    assert torch.equal(logits(baked), zeroed) and torch.equal(hooked, zeroed) and not torch.equal(plain, zeroed)
    with pytest.raises(EditkitError, match="stored as F8_E4M3"):
        lora.write(Edit(source.base, units), source, tmp_path / "lora")
    undo(tmp_path / "out", tmp_path / "back")
    assert_same_files(base, tmp_path / "back")


def fp8(directory: Path) -> Path:
    """A Llama whose linear maps are float8_e4m3fn with a scale per block."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    config = LlamaConfig(**sizes, num_hidden_layers=2, intermediate_size=128, vocab_size=96)
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in LlamaForCausalLM(config).state_dict().items():
        tensors[name] = weight.clone()
        if name.endswith("_proj.weight"):
            rows, columns = weight.shape
            blocks = torch.randn(rows // 32, 32, columns // 32, 32, generator=torch.Generator().manual_seed(0))
            scales = blocks.abs().amax((1, 3)) / 448
            tensors[name] = (blocks / scales[:, None, :, None]).reshape(rows, columns).to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = scales * 0.1
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(directory)
    path = directory / "config.json"
    quantization = {"quant_method": "fp8", "weight_block_size": [32, 32], "activation_scheme": "dynamic"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": quantization}))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def dequantized(directory: Path) -> Any:
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config

    config = FineGrainedFP8Config(weight_block_size=(32, 32), dequantize=True)
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, quantization_config=config).eval()


def test_a_rank_that_vllm_cannot_serve_is_refused_unless_asked_for(tmp_path: Path) -> None:
    config: dict[str, Any] = {"num_attention_heads": 12, "num_key_value_heads": 2, "head_dim": 48, "hidden_size": 48}
    config |= {"num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 90}
    from transformers import LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(tmp_path / "base")
    source = resolve(tmp_path / "base")
    edit = Edit(source.base, frozenset(Head(0, index) for index in range(12)))
    with pytest.raises(EditkitError, match=r"o_proj needs rank 576.*512"):
        lora.write(edit, source, tmp_path / "out")
    written = lora.write(edit, source, tmp_path / "out", allow_large_rank=True)
    assert "vLLM serves up to 512" in written.notes[0] and verify(tmp_path / "out", source).form == "lora"


@pytest.mark.parametrize("form", list(EXPORTS))
def test_an_edit_is_baked_from_its_heads_its_file_or_an_output_alike(tmp_path: Path, form: str) -> None:
    source, _ = save("llama", tmp_path / "base")
    made, name = tmp_path / "heads", str(tmp_path / "base")
    from_heads = bake(name, [Head(1, 0)], out=made, format=form)
    for edit, base in ((made, None), (made / "editkit" / "edit.json", name), (made, source)):
        written = bake(base, edit, out=tmp_path / "again", format=form)
        assert (written.form, written.edited, written.notes) == (form, from_heads.edited, from_heads.notes)
        assert_same_files(made, tmp_path / "again")
        shutil.rmtree(tmp_path / "again")


def test_all_forms_share_one_signature() -> None:
    for write in (checkpoint.write, lora.write):
        assert list(inspect.signature(write).parameters)[:3] == ["edit", "base", "out"]
    assert list(EXPORTS) == ["checkpoint", "lora"]
