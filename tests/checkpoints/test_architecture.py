"""Where heads lie, from files and from live models; tests/test_every_type.py says that both agree on every type.

If one fails: an edit cuts bytes that are not a head, or a config that lies is believed.
"""

from __future__ import annotations

import contextlib
import json
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from editkit.checkpoints import architecture, config_fields, projections
from editkit.checkpoints.architecture import Unreachable
from editkit.errors import EditkitError
from editkit.units import Head
from tests import tiny

DOCS = Path(__file__).parents[2] / "docs" / "architectures.md"


def test_every_causal_type_of_transformers_is_accounted_for() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if not transformers.__version__.startswith("5.23."):
        pytest.skip(f"the table is of transformers 5.23; this is {transformers.__version__}")
    listed = [*tiny.TYPES, *projections.REFUSED, *tiny.UNBUILT]
    assert sorted(listed) == sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


@pytest.mark.parametrize("model_type", sorted(projections.REFUSED))
def test_refused_types_are_named_with_the_reason(model_type: str) -> None:
    with pytest.raises(EditkitError) as error:
        architecture.describe(model_type, {"model_type": model_type}, {})
    assert projections.REFUSED[model_type] in str(error.value)
    assert f"| `{model_type}` | {projections.REFUSED[model_type]} |" in DOCS.read_text().splitlines()


def test_a_conv1d_is_cut_by_rows() -> None:
    found = tiny.stored(tiny.build("gpt2")[0])
    assert found.sites[0].axis == 0
    assert found.sites[0].tensor == "transformer.h.0.attn.c_proj.weight"


@pytest.mark.parametrize("model_type", ["imagegpt", "vision-encoder-decoder"])
def test_a_conv1d_of_a_type_nobody_listed_is_known_by_its_shapes(model_type: str) -> None:
    decoder = tiny.configure("gpt2")
    if model_type == "imagegpt":
        model: Any = transformers.ImageGPTForCausalImageModeling(transformers.ImageGPTConfig(**tiny.shrink(decoder)))
    else:
        decoder.add_cross_attention = True
        encoder = transformers.ViTConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=8
        )
        both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
        model = transformers.VisionEncoderDecoderModel(both)
    for found in (tiny.stored(model), architecture.from_model(model)):
        assert {site.axis for site in found.sites} == {0}
        assert {site.tensor.rsplit(".", 2)[1] for site in found.sites} == {"c_proj"}


def test_files_that_hide_a_conv1d_do_not_agree_with_the_model() -> None:
    """Nothing beside the projection tells: it is taken for an ``nn.Linear``, and the loaded model contradicts."""
    live = architecture.from_model(tiny.build("gpt2")[0])
    shapes = {f"transformer.h.{layer}.attn.c_proj": (32, 32) for layer in range(live.layers)}
    stored = architecture.describe("gpt2", {"num_attention_heads": 4}, shapes)
    with pytest.raises(EditkitError, match="not what its checkpoint says"):
        architecture.join(stored, live)


def test_value_width_not_key_width_in_latent_attention() -> None:
    site = architecture.from_model(tiny.build("deepseek_v3")[0]).sites[0]
    assert (site.units, site.width, site.shape) == (4, 12, (32, 48))
    assert site.groups is None


def test_widths_and_heads_may_differ_per_layer() -> None:
    assert {site.width for site in architecture.from_model(tiny.build("gemma4_text")[0]).sites} == {8, 16}
    assert {site.units for site in architecture.from_model(tiny.build("dots3_note_text")[0]).sites} == {2, 4}


def test_layers_without_heads_are_counted() -> None:
    found = architecture.from_model(tiny.build("qwen3_next")[0])
    assert found.unreachable == (Unreachable((0,), "linear attention"),)
    assert [site.layer for site in found.sites] == [1]


def test_a_type_nobody_listed_is_read_by_the_rule() -> None:
    found = architecture.describe("brandnew", {"num_attention_heads": 4}, _shapes("model.layers.{}.self_attn.o_proj"))
    assert [(site.layer, site.width) for site in found.sites] == [(0, 8), (1, 8)]


def test_a_type_nobody_listed_with_two_candidates_is_refused_with_both() -> None:
    shapes = _shapes("model.layers.{}.self_attn.o_proj") | _shapes("model.layers.{}.self_attn.out_proj")
    with pytest.raises(EditkitError, match=r"o_proj \(2 layers\).*out_proj \(2 layers\)"):
        architecture.describe("brandnew", {"num_attention_heads": 4}, shapes)


def test_a_type_nobody_listed_without_candidates_lists_what_is_near() -> None:
    with pytest.raises(EditkitError, match=r"near attention: model\.layers\.N\.attention\.mix"):
        architecture.describe("brandnew", {"num_attention_heads": 4}, _shapes("model.layers.{}.attention.mix"))


class Counted(UserDict[str, tuple[int, ...]]):
    """Shapes that count how often somebody goes through all of them."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return super().__iter__()


def test_the_work_grows_with_the_tensors_and_not_with_their_square() -> None:
    """200,000 experts' matrices took minutes: each was looked up in a copy of the whole table."""
    times = []
    for experts in (2, 40):
        shapes = {"model.layers.0.self_attn.o_proj": (16, 16)}
        shapes |= {f"model.layers.0.mlp.experts.{number}.down_proj": (16, 2) for number in range(experts)}
        counted = Counted(shapes)
        fields = config_fields.from_json(
            {"model_type": "mixtral", "num_attention_heads": 4, "num_hidden_layers": 1, "hidden_size": 16}
        )
        found = architecture.describe("mixtral", fields, counted)
        assert len(found.neuron_sites) == experts
        times.append(counted.times)
    assert times[0] == times[1]


def test_prediction_layers_beyond_the_depth_are_left_out() -> None:
    fields = {"model_type": "deepseek_v3", "num_attention_heads": 4, "num_hidden_layers": 1}
    found = architecture.describe("deepseek_v3", fields, _shapes("model.layers.{}.self_attn.o_proj"))
    assert found.layers == 1 and len(found.sites) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 5}, "5 heads"),
        ({"num_attention_heads": 8}, "of width 8"),
        ({"num_attention_heads": 10**9}, "no model has that many"),
        ({"num_hidden_layers": 10**12}, "no model has that many"),
        ({"num_attention_heads": -4}, "no model has that many"),
        ({"num_attention_heads": "four"}, "transformers cannot read"),
        ({"model_type": None}, "model_type"),
        ({"num_attention_heads": 5, "per_layer_config": {"\u00b2": {}}}, "5 heads"),
        ({"model_type": "mamba"}, "no attention heads"),
    ],
)
def test_a_config_that_lies_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    model, _ = tiny.build("llama")
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(EditkitError, match=message):
        architecture.read(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"model_type": 3}', "[" * 100_000])
def test_a_broken_config_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(EditkitError, match=r"config\.json"):
        architecture.read(tmp_path)


def test_a_projection_without_inputs_is_refused() -> None:
    with pytest.raises(EditkitError, match="0 input features"):
        architecture.describe("llama", {"num_attention_heads": 4}, {"model.layers.0.self_attn.o_proj": (16, 0)})


def test_a_config_that_is_a_link_out_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to("../elsewhere.json")
    with pytest.raises(EditkitError, match="leads out of the checkpoint"):
        architecture.read(tmp_path / "model")


def test_defaults_that_the_file_leaves_out_are_taken_from_transformers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 1}))
    weights = {"h.0.attn.c_proj.weight": torch.zeros(768, 768), "h.0.attn.c_attn.weight": torch.zeros(768, 2304)}
    save_file(weights, tmp_path / "model.safetensors")
    (site,) = architecture.read(tmp_path).sites
    assert (site.units, site.width, site.axis) == (12, 64, 0)


NAMES = [*config_fields.LAYERS, *config_fields.HEADS, *config_fields.GROUPS, "layer_types", "layers_block_type"]
NAMES += ["per_layer_config", "num_attention_heads_per_layer", "text_config", "decoder", "swa_num_attention_heads"]
NAMES += ["head_dim", "v_head_dim", "kv_lora_rank", "multi_query", "attn_config", "num_mem_blocks", "hidden_size"]
NONSENSE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(0, 5)
    | st.floats()
    | st.text(max_size=2)
    | st.sampled_from(["linear_attention", "hybrid", "sliding_attention"]),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(["0", "1", *NAMES]), part, max_size=3),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    model_type=st.sampled_from(
        ["llama", "novel", "zamba", "gpt2", "laguna", "longcat_flash", "inkling_text", "falcon"]
    ),
    honest=st.booleans(),
    fields=st.dictionaries(st.sampled_from(NAMES), NONSENSE, max_size=4),
)
def test_any_config_ends_in_sites_or_one_error(
    tmp_path: Path, model_type: str, honest: bool, fields: dict[str, Any]
) -> None:
    save_file(
        {f"{name}.weight": torch.zeros(8, 8) for name in _shapes("h.{}.self_attn.o_proj")},
        tmp_path / "model.safetensors",
    )
    plain = {"num_attention_heads": 4, "num_hidden_layers": 2} if honest else {}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **plain, **fields}))
    with contextlib.suppress(EditkitError):
        found = architecture.read(tmp_path)
        assert all(site.units * site.width == site.shape[site.axis] for site in found.sites)


def test_joining_two_different_models_is_refused() -> None:
    one = architecture.describe("llama", {"num_attention_heads": 4}, _shapes("model.layers.{}.self_attn.o_proj"))
    other = architecture.describe("llama", {"num_attention_heads": 2}, _shapes("model.layers.{}.self_attn.o_proj"))
    with pytest.raises(EditkitError, match=r"layer 0 has \(heads, width, axis\) \(4, 8, 1\) in the files"):
        architecture.join(one, other)


def test_masks_follow_the_order_of_heads() -> None:
    found = architecture.describe("llama", {"num_attention_heads": 4}, _shapes("model.layers.{}.self_attn.o_proj"))
    row = found.mask([Head(1, 2), Head(0, 1)])
    assert np.flatnonzero(row).tolist() == [1, 6]
    assert found.site(Head(1, 2)).slice(2) == slice(16, 24)
    with pytest.raises(EditkitError, match="L0H4, L7H0: this llama has no such head"):
        found.check([Head(0, 4), Head(1, 0), Head(7, 0)])


def _shapes(pattern: str) -> dict[str, tuple[int, ...]]:
    return {pattern.format(layer): (32, 32) for layer in range(2)}
