"""The rule over names, on names alone.

If one fails: a model's heads are taken from the wrong matrix, or a model that works is refused.
"""

from __future__ import annotations

import pytest

from editkit.checkpoints.projections import find
from editkit.errors import EditkitError


@pytest.mark.parametrize(
    "path",
    [
        "model.layers.3.self_attn.o_proj",
        "layers.3.self_attn.o_proj",
        "transformer.h.3.attn.c_proj",
        "h.3.attn.c_proj",
        "transformer.h.3.attn.attention.out_proj",
        "gpt_neox.layers.3.attention.dense",
        "transformer.h.3.self_attention.dense",
        "bert.encoder.layer.3.attention.output.dense",
        "model.layers.3.attn.Wo",
        "model.decoder.layers.3.self_attn.out_proj",
        "language_model.model.layers.3.self_attn.o_proj",
        "model.layers.3.shared_transf.self_attn.o_proj",
    ],
)
def test_output_projections_are_found(path: str) -> None:
    assert find("unlisted", [path], layers=None).paths == {3: path}


@pytest.mark.parametrize(
    "path",
    [
        "model.layers.3.linear_attn.out_proj",
        "model.layers.3.mamba.out_proj",
        "model.layers.3.conv.out_proj",
        "model.layers.3.mlp.c_proj",
        "model.layers.3.output.dense",
        "model.layers.3.my_self_attn.o_proj",
        "model.layers.3.self_attn.o_proj_norm",
        "model.layers.3.self_attn.indexer.o_proj",
        "model.vision_tower.encoder.layers.3.self_attn.out_proj",
        "visual.blocks.3.attn.c_proj",
        "model.decoder.layers.3.encoder_attn.out_proj",
        "mtp.layers.3.self_attn.o_proj",
        "lm_head.dense",
    ],
)
def test_other_maps_are_not(path: str) -> None:
    with pytest.raises(EditkitError, match="No attention output projection"):
        find("unlisted", [path], layers=None)


def test_the_decoder_is_meant_where_there_is_an_encoder() -> None:
    paths = [f"model.{side}.layers.0.self_attn.out_proj" for side in ("encoder", "decoder")]
    assert find("bart", paths, layers=None).paths == {0: paths[1]}


def test_two_attentions_in_a_layer_count_as_two_layers() -> None:
    paths = [f"model.layers.{layer}.self_attn.{part}.o_proj" for layer in range(2) for part in range(2)]
    found = find("longcat_flash", paths, layers=2)
    assert found.layers == 4
    assert [found.paths[layer] for layer in range(4)] == paths


def test_stacks_of_one_model_are_counted_through() -> None:
    paths = [f"model.{stack}.layers.{layer}.attn.o_proj" for stack in ("L_module", "H_module") for layer in range(2)]
    found = find("hrm_text", reversed(paths), layers=2)
    assert [found.paths[layer] for layer in range(4)] == paths


def test_lightning_attention_is_left_out() -> None:
    paths = ["model.layers.0.self_attn.o_proj", "model.layers.1.self_attn.out_proj"]
    assert find("minimax", paths, layers=2).paths == {0: paths[0]}
