"""The header reader agrees with the reference implementation on whole files and refuses everything else.

If one fails: a crafted or torn file is read as weights, and bytes outside a tensor are changed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from editkit.checkpoints import headers
from editkit.errors import EditkitError

DTYPES = {
    **{"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F64": torch.float64},
    **{"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "I64": torch.int64, "U8": torch.uint8},
    **{"BOOL": torch.bool, "I32": torch.int32},
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_spans_are_the_tensors_own_bytes(tmp_path: Path, dtype: str) -> None:
    tensors = {
        "a.weight": torch.arange(12).reshape(3, 4).to(DTYPES[dtype]),
        "b.bias": torch.arange(5).to(DTYPES[dtype]),
        "scalar": torch.tensor(1).to(DTYPES[dtype]),
        "empty": torch.zeros(0, 7).to(DTYPES[dtype]),
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    read = headers.read(tmp_path)
    raw = (tmp_path / "model.safetensors").read_bytes()
    assert read.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        info = read.tensors[name]
        assert (info.dtype, info.shape, info.file) == (dtype, tuple(tensor.shape), "model.safetensors")
        assert raw[info.start : info.end] == tensor.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()


def test_shards_are_read_through_the_index(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "model-1.safetensors")
    save_file({"b": torch.ones(3)}, tmp_path / "model-2.safetensors")
    save_file({"c": torch.ones(3)}, tmp_path / "unlisted.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / headers.INDEX).write_text(json.dumps(index))
    read = headers.read(tmp_path)
    assert read.files == ("model-1.safetensors", "model-2.safetensors")
    assert {name: info.file for name, info in read.tensors.items()} == index["weight_map"]


def test_a_lone_file_of_another_name_is_found(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "weights.safetensors")
    assert headers.read(tmp_path).files == ("weights.safetensors",)
    save_file({"a": torch.zeros(2)}, tmp_path / "more.safetensors")
    with pytest.raises(EditkitError, match=r"found more\.safetensors, weights\.safetensors"):
        headers.read(tmp_path)


def test_a_hub_cache_snapshot_may_link_into_its_blobs_and_nowhere_else(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--o--n" / "snapshots" / "abc", tmp_path / "models--o--n" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    save_file({"a": torch.zeros(2)}, blobs / "123")
    (snapshot / "model.safetensors").symlink_to("../../blobs/123")
    assert headers.read(snapshot).tensors.keys() == {"a"}
    elsewhere = tmp_path / "models--o--other" / "blobs"
    elsewhere.mkdir(parents=True)
    (blobs / "123").rename(elsewhere / "123")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("../../../models--o--other/blobs/123")
    with pytest.raises(EditkitError, match="leads out of the checkpoint"):
        headers.read(snapshot)


def _file(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def _both_read(raw: bytes) -> tuple[dict[str, headers.TensorInfo] | None, bool]:
    """What we read from the bytes (None: refused), and whether the reference reads them."""
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(raw)
        file.flush()
        try:
            ours = headers.read_file(Path(file.name))
        except EditkitError as error:
            assert str(error) and "\n" not in str(error)
            ours = None
        try:
            with safe_open(file.name, "np") as opened:
                list(opened.keys())
            reference = True
        except SafetensorError:
            reference = False
    return ours, reference


_GOOD = (
    b'{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"U8","shape":[5],"data_offsets":[24,29]}}'
)
_GAP = b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}}'
_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*headers.BITS, "F33"]),
        "shape": st.lists(st.integers(-1, 9) | st.integers(0, 2**64), max_size=3) | _json_values,
        "data_offsets": st.lists(st.integers(-1, 64) | st.integers(0, 2**64), min_size=2, max_size=2) | _json_values,
    }
)
_headers = st.dictionaries(st.text(max_size=5) | st.sampled_from(["a", "b.c"]), _entries | _json_values, max_size=3)
_structured = st.builds(
    lambda value, data, length: _file(json.dumps(value).encode(), data, length),
    _headers,
    st.binary(max_size=64),
    st.none() | st.integers(0, 2**64 - 1),
)


@st.composite
def _flipped(draw: st.DrawFn) -> bytes:
    raw = bytearray(_file(_GOOD, bytes(29)))
    for _ in range(draw(st.integers(1, 3))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.integers(0, len(raw)))]) if draw(st.booleans()) else bytes(raw)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(raw=_structured | _flipped() | st.binary(max_size=128))
@example(raw=_file(_GOOD, bytes(29)))
@example(raw=_file(_GAP, bytes(12)))
@example(raw=_file(b'{"a":' * 200_000))
@example(raw=_file(b"[" * 200_000))
@example(raw=_file(b'{"a":{"dtype":"F32","shape":[1' + b"0" * 9000 + b'],"data_offsets":[0,4]}}', bytes(4)))
@example(
    raw=_file(b'{"a":{"dtype":"F32","shape":[' + b"281474976710655," * 63 + b'2],"data_offsets":[0,4]}}', bytes(4))
)
def test_any_bytes_are_read_or_refused_and_never_read_beyond(raw: bytes) -> None:
    ours, reference = _both_read(raw)
    if ours is None:
        return
    assert reference, "accepted a file that the reference implementation refuses"
    spans = sorted((info.start, info.end) for info in ours.values())
    assert all(8 <= start <= end <= len(raw) for start, end in spans)
    assert sum(end - start for start, end in spans) == len(raw) - 8 - int.from_bytes(raw[:8], "little")


@given(
    shapes=st.dictionaries(st.from_regex(r"[a-z0-9_.]{1,12}", fullmatch=True), st.lists(st.integers(0, 5), max_size=3)),
    dtype=st.sampled_from([np.float32, np.int8, np.float64, np.uint16]),
)
def test_every_whole_file_is_accepted(shapes: dict[str, list[int]], dtype: type) -> None:
    from safetensors.numpy import save

    ours, reference = _both_read(save({name: np.zeros(shape, dtype) for name, shape in shapes.items()}))
    assert reference and ours is not None
    assert {name: list(info.shape) for name, info in ours.items()} == shapes
