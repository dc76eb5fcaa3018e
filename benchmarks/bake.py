"""How long a bake takes beside a plain copy of the same files, and how much memory it needs.

    python benchmarks/bake.py --sizes 0.1 0.5 1 2 4 8 --largest-load 2 --folder DIR > benchmarks/results/bake.md

Each size is a random Llama checkpoint in shards of about 256 MB (``--shard``). In every round the arms run one after
the other, each in a process of its own, with the disk drained in between; the clock starts after the imports. The base
is in memory, or must come from the disk again (``--cold``). As much memory as an arm will fill is touched and given
back before it starts: a virtual machine may have to ask its host for it, which takes longer.

``bake`` is all that the command does with a local directory: read its headers, hash it, copy it, compare the copy,
flush it, write the record. ``hashes known`` is the same where the base was hashed before, as in a removal, which names
its base at the start. A bake flushes what it writes, so it is set against a copy that does so too; a plain copy, which
ends while its bytes are still in memory, stands beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HIDDEN, HEADS, WIDTH, MLP = 2048, 16, 128, 8192
LAYER_SHAPES = {
    **dict.fromkeys(("self_attn.q_proj", "self_attn.o_proj"), (HIDDEN, HIDDEN)),
    **dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), (HIDDEN, HIDDEN)),
    **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), (MLP, HIDDEN)),
    "mlp.down_proj": (HIDDEN, MLP),
}

ARMS = {
    "copy": "import shutil, os\nos.mkdir(out)\nfor p in sorted(base.iterdir()): shutil.copyfile(p, out / p.name)",
    "copy, flushed": (
        "import shutil, os\nos.mkdir(out)\nfor p in sorted(base.iterdir()):\n"
        "    shutil.copyfile(p, out / p.name)\n    with open(out / p.name, 'rb') as f: os.fsync(f.fileno())"
    ),
    "copy, flushed, one hash beside": "beside(1)",
    "copy, flushed, two hashes beside": "beside(2)",
    "bake": "bake(resolve(base, identify=False))",
    "bake, a middle layer": "bake(resolve(base, identify=False), layer=middle)",
    "bake --link": "bake(resolve(base, identify=False), link=True)",
    "bake, hashes known": "bake(known)",
    "bake --link, hashes known": "bake(known, link=True)",
    "load, zero, save": (
        "from transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained(base)\n"
        "model.model.layers[0].self_attn.o_proj.weight.data[:, :128] = 0\n"
        "model.save_pretrained(out)"
    ),
}
PREPARE = """
import hashlib, json, os, resource, shutil, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
base, out = Path(sys.argv[1]), Path(sys.argv[2])
if sys.argv[3].startswith("bake"):
    from editkit.edit import Base, Edit
    from editkit.writing.export import checkpoint
    from editkit.checkpoints.source import Source, resolve
    from editkit.units import Head
    known = Source(base, Base("benchmark", "sha256:known"), digests=json.loads(sys.argv[4]))
    middle = json.loads((base / "config.json").read_text())["num_hidden_layers"] // 2
    def bake(source, layer=0, **options):
        checkpoint.write(Edit(source.base, frozenset({Head(layer, 0), Head(layer, 5)})), source, out, **options)
def beside(hashes):
    def digest(path):
        with open(path, "rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256")
    paths = sorted(base.iterdir())
    os.mkdir(out)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        hashed = [pool.submit(digest, path) for path in paths for _ in range(hashes)]
        for path in paths:
            shutil.copyfile(path, out / path.name)
            with open(out / path.name, "rb") as file:
                os.fsync(file.fileno())
began, worked = time.perf_counter(), time.process_time()
"""
REPORT = """
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - began, used.ru_maxrss / 1024, time.process_time() - worked]))
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", type=float, nargs="+", default=[0.1, 0.5, 1.0], help="gigabytes")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options.add_argument("--largest-load", type=float, default=1.0, help="load, zero, save up to this size")
    options.add_argument("--shard", type=int, default=256, help="megabytes of a file, at most; a layer is never split")
    options.add_argument("--cold", action="store_true", help="read the base from the disk, in every arm")
    given = options.parse_args()
    rows = [row for size in given.sizes for row in measure(size, given)]
    print(table(rows))


def measure(size: float, given: argparse.Namespace) -> list[dict[str, object]]:
    """All arms on one checkpoint; medians over the rounds."""
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        base = Path(place) / "base"
        known = generate(base, size, given.shard << 20)
        actual = sum(path.stat().st_size for path in base.iterdir()) / 1e9
        arms = [arm for arm in ARMS if arm != "load, zero, save" or size <= given.largest_load]
        taken: dict[str, list[list[float]]] = {arm: [] for arm in arms}
        for _ in range(given.rounds):
            for arm in arms:
                taken[arm].append(run(arm, base, Path(place) / "out", known, cold=given.cold))
        return [row(arm, actual, len(known), taken) for arm in arms]


def row(arm: str, size: float, shards: int, taken: dict[str, list[list[float]]]) -> dict[str, object]:
    copies = taken["copy, flushed"]
    ratios = [one[0] / other[0] for one, other in zip(taken[arm], copies, strict=True)]
    fastest = min(part[0] for part in taken[arm])
    return {
        "GB": f"{size:.2f}",
        "shards": shards,
        "arm": arm,
        "seconds": f"{statistics.median(part[0] for part in taken[arm]):.2f}",
        "fastest": f"{fastest:.2f}",
        "x copy": f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        "fastest x fastest": f"{fastest / min(part[0] for part in copies):.2f}",
        "CPU seconds": f"{statistics.median(part[2] for part in taken[arm]):.2f}",
        "peak MB": f"{max(part[1] for part in taken[arm]):.0f}",
    }


def run(arm: str, base: Path, out: Path, known: dict[str, str], *, cold: bool) -> list[float]:
    """Seconds, peak megabytes and CPU seconds of one arm. The base is read first, or dropped, for all alike."""
    for path in base.iterdir():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED if cold else os.POSIX_FADV_NORMAL)
            while not cold and file.read(1 << 20):
                pass
    os.sync()
    memory = sum(path.stat().st_size for path in base.iterdir()) + (256 << 20)
    subprocess.run([sys.executable, "-c", f"import numpy; numpy.ones({memory}, numpy.uint8)"], check=True)
    command = [sys.executable, "-c", PREPARE + ARMS[arm] + REPORT, base, out, arm, json.dumps(known)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    shutil.rmtree(out)
    os.sync()
    return json.loads(done.stdout.splitlines()[-1])


def hashing() -> float:
    """Gigabytes that one core hashes in a second, at best."""
    block, taken = os.urandom(1 << 26), []
    for _ in range(5):
        began = time.perf_counter()
        hashlib.sha256(block).digest()
        taken.append(time.perf_counter() - began)
    return len(block) / min(taken) / 1e9


def generate(directory: Path, size: float, shard: int) -> dict[str, str]:
    """A random checkpoint of about ``size`` gigabytes; returns the sha256 of its shards, as resolving it would."""
    from editkit.checkpoints.files import digest_of

    directory.mkdir()
    layer = sum(rows * columns * 2 for rows, columns in LAYER_SHAPES.values())
    layers = max(1, round(size * 1e9 / layer))
    (directory / "config.json").write_text(json.dumps(config(layers)))
    per_shard = max(1, shard // layer)
    count = -(-layers // per_shard)
    weight_map: dict[str, str] = {}
    rng = np.random.default_rng(0)
    for number in range(count):
        shapes = {
            f"model.layers.{index}.{name}.weight": shape
            for index in range(number * per_shard, min((number + 1) * per_shard, layers))
            for name, shape in LAYER_SHAPES.items()
        }
        if number == 0:
            shapes |= {"model.embed_tokens.weight": (64, HIDDEN), "model.norm.weight": (HIDDEN,)}
        name = f"model-{number + 1:05}-of-{count:05}.safetensors"
        write_shard(directory / name, shapes, rng)
        weight_map |= dict.fromkeys(shapes, name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return {name: digest_of(directory / name) for name in sorted(set(weight_map.values()))}


def config(layers: int) -> dict[str, object]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
        **{"hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": WIDTH},
        **{"num_hidden_layers": layers, "intermediate_size": MLP, "vocab_size": 64},
    }


def write_shard(path: Path, shapes: dict[str, tuple[int, ...]], rng: np.random.Generator) -> None:
    header: dict[str, object] = {}
    place = 0
    for name, shape in shapes.items():
        end = place + int(np.prod(shape)) * 2
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [place, end]}
        place = end
    raw = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        while place:
            part = min(place, 8 << 20)
            file.write(rng.bytes(part))
            place -= part


def table(rows: list[dict[str, object]]) -> str:
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[column]) for column in columns) + " |" for row in rows]
    return f"# Bake beside a plain copy\n\n{machine()}\n\n" + "\n".join(lines)


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GB of memory, "
        f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}. "
        "Load average at the end: " + f"{os.getloadavg()[1]:.1f} (over five minutes). "
        "`x copy` is the ratio to the flushed copy of the same round: median (smallest to largest); "
        "`fastest x fastest` sets the quickest round of each against each other. sha256 runs at "
        f"{hashing():.1f} GB/s on one core, whatever the disk does.\n\n"
        "The edit removes two heads of the first layer, so one shard changes; that shard is hashed before and after."
    )


if __name__ == "__main__":
    main()
