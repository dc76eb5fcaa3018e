"""Every place where editkit reads what others wrote: a valid input, what lies around it, and the commands that read it.

    loader = LOADERS["config.json"]
    loader.prepare(place)                              a checkpoint in place/base
    (place / loader.file).write_bytes(b"{")            the input takes the place of its config.json
    loader.load(place)                                 raises EditkitError; what it writes lies in place/out

``benchmarks/fuzz.py`` draws inputs from ``loader.inputs(place)``; ``test_corpus.py`` tries those that once failed.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import editkit
from editkit.checkpoints import base_card, gguf
from editkit.checkpoints.knockout import Knockout
from editkit.checkpoints.source import Source, resolve
from editkit.edit import Edit
from editkit.errors import EditkitError
from editkit.evidence import examples
from editkit.evidence.attacks import Attack, Attacks, Control, Nats
from editkit.evidence.exhibits import Audit
from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.recovery import Recovered
from editkit.hub.release import read_release
from editkit.measuring import store
from editkit.models import encoding
from editkit.planning.inspection import inspect
from editkit.reliability import plan
from editkit.removal import recipe, study
from editkit.removal.recipe import Recipe
from editkit.render import evidence_folder
from editkit.render.evidence_check import check
from editkit.tasks import execution, find, verdicts
from editkit.tasks.task import Generate, Likelihood, Loglikelihood
from editkit.units import Head
from editkit.writing import manifest
from editkit.writing.export import EXPORTS
from editkit.writing.export import gguf as in_blocks
from editkit.writing.undo import undo
from editkit.writing.verify import verify
from tests import made_evidence
from tests import small_checkpoints as checkpoints
from tests.hostile import mutations
from tests.hostile.mutations import Inputs

HEAD = frozenset({Head(0, 1)})


@dataclass(frozen=True)
class Loader:
    """One kind of foreign input.

    Args:
        file: the input's name in the place.
        prepare: writes a valid input and what lies around it into an empty folder.
        load: reads it as the commands do; writes to ``out*`` in the place only.
        inputs: what to try, made from what ``prepare`` wrote.
    """

    file: str
    prepare: Callable[[Path], object]
    load: Callable[[Path], object]
    inputs: Callable[[Path], Inputs]


def all_of(*steps: Callable[[], object]) -> None:
    """Take every step, also after one was refused; then raise the first refusal."""
    refusals = []
    for step in steps:
        try:
            step()
        except EditkitError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


# A checkpoint, read from its files


def bake(place: Path, form: str = "checkpoint") -> None:
    source = resolve(place / "base")
    EXPORTS[form](Edit(source.base, HEAD), source, place / f"out-{form}")


def look(place: Path) -> None:
    all_of(lambda: inspect(place / "base"), lambda: bake(place))


def of_any_type(place: Path) -> Inputs:
    """The config that is there, and those of other types with its sizes."""
    given = json.loads((place / "base" / "config.json").read_text("utf-8"))
    types = ("llama", "gpt2", "mixtral", "zamba2", "gemma3_text", "dbrx", "mllama", "falcon", "deepseek_v3", "jamba")
    more = {
        "n_head": 4,
        "n_layer": 3,
        "layer_types": ["full_attention"] * 3,
        "per_layer_config": {"1": {"head_dim": 6}},
    }
    more |= {"text_config": {"num_attention_heads": 4}, "attn_config": {"kv_n_heads": 2}, "rope_scaling": {"factor": 2}}
    several = [given, *(given | more | {"model_type": kind} for kind in types)]
    return mutations.documents([json.dumps(each).encode() for each in several])


def pickled(place: Path) -> None:
    import torch

    checkpoints.write(place / "base")
    (place / "base" / "model.safetensors").unlink()
    tensors = {name: torch.ones(shape) for name, shape in checkpoints.shapes().items()}
    torch.save(tensors, place / "base" / "pytorch_model.bin")
    torch.save(tensors, place / "old.bin", _use_new_zipfile_serialization=False)


def carded(place: Path) -> None:
    """What a base's card says, on the card of an edit."""
    source = resolve(place / "base")
    base = base_card.base_model(source, dtype="float32")
    known = made_evidence.measured()
    evidence_folder.texts(replace(known, provenance=replace(known.provenance, base=base)))
    EXPORTS["lora"](Edit(source.base, HEAD), source, place / "out-lora")


# A checkpoint, loaded as a network


def small_model(place: Path) -> None:
    from tests.untrained import checkpoint

    checkpoint(place / "base", "qwen2", window=64)


def small_tokenizer() -> bytes:
    """Of a few letters, so that what changes is seldom one word among many."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    words = {word: at for at, word in enumerate(["<unk>", "<eos>", *"\u0120Saynumberpl1+=two.", "\u0120n", "\u0120nu"])}
    made = Tokenizer(models.BPE(vocab=words, merges=[("\u0120", "n"), ("\u0120n", "u")], unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("  ", " ")])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", words["<eos>"])])
    made.add_special_tokens([AddedToken("<unk>", special=True), AddedToken("<eos>", special=True)])
    return made.to_str().encode()


def loaded(place: Path) -> None:
    from editkit.models.loading import load_source

    model = load_source(resolve(place / "base"), check=False)
    asked(model.tokenizer)


def asked(tokenizer: Any) -> None:
    for prompt in ("Say a number, please.", "1 + 1 =\n\n\u00e9 \U0001f600"):
        for chat in (False, True):
            encoding.encode(tokenizer, Generate(prompt, 8, chat), 64)
            encoding.encode(tokenizer, Loglikelihood(prompt, " two", chat), 64)


@cache
def tokenizer_in(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def templated(place: Path) -> None:
    tokenizer = tokenizer_in(place / "base")
    tokenizer.chat_template = (place / "base" / "chat_template.jinja").read_bytes().decode("utf-8", "replace")
    asked(tokenizer)


# What a user writes


RECIPE = """\
capability: rude
summary: Rude words.
target: {prompts: prompts.jsonl, scorer: {word: [ahoy, matey]}, name: rude}
retain: [rhyme, facts, swear: words.txt, task.yaml]
transfer: [{prompts: prompts.txt, scorer: {regex: 'a+h'}, chat: false, max_new_tokens: 8}]
goal: 0.15
damage: {each: 0.02, mean: 0.01}
examples: {locate: 10, choose: 10, report: 20}
hide: [rude]
heads: auto
"""
STUDY = """\
study: small
summary: By one method.
models: [bundled]
methods: [halving, css]
heads: [1, 4]
seeds: [0, 1]
capabilities:
  - recipe: {capability: a, target: swear, retain: [rhyme], goal: 0.2}
    also: [facts]
  - recipe: swear
"""
PLAN = """\
reliability: small
summary: Capitals.
capability: [facts, facts-letter]
content: [rhyme]
other: [swear]
settings: {draws: 2, seeds: 1}
"""
TASK = """\
prompts: prompts.csv
scorer: {judge: {model: some, question: 'Is it rude?'}}
name: asked
chance: 0.1
chat: true
gate: false
max_new_tokens: 12
"""
ROWS = "".join(
    json.dumps(
        {"prompt": f"Ask {at}.", "answer": str(at % 3), "choices": ["0", "1", "2"], "id": f"i{at}", "cluster": at}
    )
    + "\n"
    for at in range(60)
)


def written_by_a_user(place: Path) -> None:
    (place / "recipe.yaml").write_text(RECIPE)
    (place / "study.yaml").write_text(STUDY)
    (place / "plan.yaml").write_text(PLAN)
    (place / "task.yaml").write_text(TASK)
    (place / "words.txt").write_text("darn\nheck\n")
    (place / "code.jsonl").write_text(CODE)
    (place / "classifier").mkdir()
    labels = {"id2label": {"0": "kind", "1": "rude"}, "num_labels": 2, "problem_type": None}
    (place / "classifier" / "config.json").write_text(json.dumps(labels))
    (place / "prompts.jsonl").write_text(ROWS)
    (place / "prompts.txt").write_text("".join(f"Say {at}, please.\n" for at in range(60)))
    table = "".join(f'"Ask, {at}",{at % 2},0|1,c{at},k\n' for at in range(60))
    (place / "prompts.csv").write_text(f"prompt,answer,choices,id,cluster\n{table}")


def tables(place: Path, file: str) -> Inputs:
    """A YAML file's lines changed; or its values, in the form of JSON, which is YAML too."""
    text = (place / file).read_text()
    flow = json.dumps(yaml.safe_load(text)).encode()
    odd = (*mutations.YAML, *mutations.JSON)
    return mutations.lines([text.encode()], odd) | mutations.documents([flow], odd)


def of_recipe(place: Path) -> None:
    given = recipe.read(str(place / "recipe.yaml"))
    recipe.dump(given).encode()
    for spec in (*given.target, *given.retain, *given.transfer, *given.also):
        if "lm" not in str(spec)[:12]:  # another library's tasks
            find.find(spec, where="recipe.yaml", folder=place, planning=True)


def of_study(place: Path) -> None:
    for cell in study.cells(study.read(place / "study.yaml"))[:50]:
        assert cell.key


def of_plan(place: Path) -> None:
    read, folder = plan.read([str(place / "plan.yaml")])
    plan.data_sets(read, folder=folder)


def prompted(place: Path, file: str) -> None:
    scorers: tuple[Any, ...] = ("refusal", {"contains": ["a"]})
    scorers += () if file.endswith(".txt") else ("exact", "choice", "numeric", "word")
    all_of(*(partial(scored, place, {"prompts": file, "scorer": scorer}) for scorer in scorers))


def scored(place: Path, spec: Any) -> None:
    task = find.find(spec, folder=place, planning=True)
    for example in task.examples():
        outputs = [
            Likelihood(-1.0, 1, False) if isinstance(each, Loglikelihood) else "It is 1,000, matey."
            for each in task.requests(example)
        ]
        task.score(example, outputs)


CODE = "".join(
    json.dumps({"task_id": at, "text": f"Add {at}.", "test_list": [f"assert f(1) == {1 + at}"], "code": "def f(x): x"})
    + "\n"
    for at in range(40)
)


def programmed(place: Path) -> None:
    """As ``execution.task`` reads them, without the sandbox that it asks for."""
    for line, row in enumerate(execution._local(place / "code.jsonl"), 1):
        execution._example(execution._mbpp, row, line, "code.jsonl")


def classified(place: Path) -> None:
    """The labels of a classifier are read from its config before anything is loaded."""
    setting = {"model": "classifier", "label": "rude"}
    find.find({"prompts": "prompts.txt", "scorer": {"classifier": setting}}, folder=place)


# What editkit wrote, and somebody changed and sealed again


def output(place: Path, form: str = "checkpoint") -> None:
    """An output with all kinds of evidence; that of a checkpoint is whole and follows from its examples."""
    source = resolve(checkpoints.write(place / "base"))
    EXPORTS[form](Edit(source.base, HEAD), source, place / "given")
    if form == "checkpoint":
        with_evidence(place, source)


def with_evidence(place: Path, source: Source) -> None:
    known, recovered = made_evidence.measured(), Recovered(0.1, 0.0, 0.2)
    scores = (0.9, 0.0, 0.1, Control("never had it (x)", 0.0, True), recovered, {"rhyme": -0.1})
    names = ("relearning", "prefill", "sampling", "few-shot")
    rows = tuple(Attack(name, "60 answers", "swear", 40, 20, *scores) for name in names)
    nats = Nats("swear", 40, {"base": (0.1, 0.1, None, None), "edited": (6.0, 0.2, None, None)})
    attacked = Attacks(
        "x", "e", "quick", 0, "float32", {"swear": 0.0}, None, rows, (nats,), ("prefill: none",), {"x": 1.0}
    )
    point = FrontierPoint(
        (Head(0, 1),),
        {"swear": 0.1},
        {"rhyme": 0.0, "facts": 0.01},
        {task: (0.9, 0.1) for task in ("swear", "rhyme", "facts")},
    )
    more = made_evidence.evidence().exhibits
    exhibits = replace(known.exhibits, dose=more.dose[:3], audits=(Audit("relearn", "held", True),), frontier=(point,))
    outcome = replace(known, edit=Edit(source.base, HEAD), exhibits=exhibits, attacks=attacked)
    evidence_folder.write(place / "given", outcome)
    (place / "given" / "editkit" / "attacks.json").write_text(attacked.to_json(), "utf-8")
    manifest.write(place / "given", replace(manifest.read(place / "given"), recipe=made_evidence.RECIPE))


def sealed(place: Path) -> Path:
    """A copy of the output whose manifest lists its files as they are now."""
    out = place / "out"
    shutil.copytree(place / "given", out)
    manifest.write(out, manifest.read(out))
    return out


def believed(place: Path) -> None:
    """What is done with an output that one was given."""
    out = sealed(place)
    all_of(
        lambda: verify(out),
        lambda: check(out),
        lambda: editkit.export(out, to="lm-eval", directory=place / "out-lm-eval"),
        lambda: read_release(out, allow_unmet=True),
        lambda: evidence_folder.render_again(out),
        lambda: undo(out, place / "out-base"),
    )


def undone(place: Path) -> None:
    out = sealed(place)
    all_of(lambda: verify(out), lambda: undo(out, place / "out-base"), lambda: verify(out, place / "base"))


def with_manifest(place: Path) -> None:
    """The manifest with a digest that is right, as far as it is an object at all."""
    out = place / "out"
    shutil.copytree(place / "given", out)
    path = out / manifest.NAME
    path.write_bytes(digested(path.read_bytes(), manifest._canonical))
    all_of(lambda: verify(out), lambda: check(out), lambda: undo(out, place / "out-base"), lambda: read_release(out))


def digested(raw: bytes, form: Callable[[dict[str, Any]], str]) -> bytes:
    try:
        value = json.loads(raw)
        empty = form(value | {"digest": "0" * 64})
        return form(value | {"digest": hashlib.sha256(empty.encode()).hexdigest()}).encode()
    except (ValueError, TypeError, RecursionError):
        return raw


def document(
    file: str, prepare: Callable[[Path], object] = output, load: Callable[[Path], object] = believed
) -> Loader:
    return Loader(file, prepare, load, lambda place: mutations.documents([(place / file).read_bytes()]))


def asked_examples(place: Path) -> Inputs:
    raw = examples.to_bytes(made_evidence.measured().examples)
    import gzip

    return mutations.zipped(mutations.lines([gzip.decompress(raw)], mutations.WORDS, rows=True))


# What a run keeps


def measured(place: Path) -> None:
    (place / "work").mkdir()
    with store.opened(place / "work" / "store.sqlite") as opened:
        space = opened.space({"task": "a"})
        opened.put(
            space, [(Knockout.of(np.array([each])), f"e{each}", store.Cell(0.5, True, "x")) for each in range(4)]
        )
    changes = (
        *("DROP TABLE cell", "DROP TABLE space", "DELETE FROM space", "UPDATE space SET digest = x'ff'"),
        *("UPDATE cell SET output = x'ff'", "UPDATE cell SET valid = 'x'", "UPDATE cell SET example = NULL"),
        *("PRAGMA user_version = 2", "PRAGMA user_version = 99", "PRAGMA application_id = 0"),
        *("UPDATE cell SET checksum = 5", "PRAGMA journal_mode = DELETE", "PRAGMA encoding = 'UTF-16'"),
        "ALTER TABLE cell DROP COLUMN checksum; PRAGMA user_version = 2",
        "CREATE TRIGGER t BEFORE INSERT ON cell BEGIN SELECT raise(ABORT, 'no'); END",
        "CREATE TRIGGER t AFTER INSERT ON space BEGIN DELETE FROM space; END",
        "ALTER TABLE cell RENAME TO c; CREATE VIEW cell AS SELECT * FROM c",
        "ALTER TABLE space RENAME TO s; CREATE VIEW space AS SELECT 1 AS id, 'x' AS digest, 'y' AS value",
        "DROP TABLE space; CREATE VIRTUAL TABLE space USING fts5(id, digest, value)",
        "UPDATE space SET id = 9223372036854775807",
        "ALTER TABLE cell RENAME TO c;"
        "CREATE VIEW cell AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        "SELECT i AS space, i AS knockout, i AS example, 1 AS value, 1 AS valid, 'x' AS output, x'' AS checksum FROM n",
    )
    (place / "changed").mkdir()
    for number, change in enumerate(changes):
        path = place / "changed" / str(number)
        shutil.copy(place / "work" / "store.sqlite", path)
        connection = sqlite3.connect(path)
        try:
            connection.executescript(change)
        except sqlite3.Error:
            path.unlink()
        finally:
            connection.close()


SQLITE = ((16, 18), (18, 19), (19, 20), (20, 21), (24, 28), (28, 32), (32, 36), (36, 40), (40, 44), (44, 48), (52, 56))
SQLITE += ((56, 60), (60, 64), (64, 68), (68, 72), (92, 96), (96, 100), (100, 101), (101, 103), (103, 105), (105, 107))
"""The numbers of the header of an SQLite file and of its first page."""


def stored(place: Path) -> None:
    mask = Knockout.of(np.array([1]))
    with store.opened(place / "work" / "store.sqlite") as opened:
        all_of(
            lambda: opened.count(),
            lambda: opened.get(opened.space({"task": "a"}), mask),
            lambda: opened.put(opened.space({"task": "b"}), [(mask, "new", store.Cell(1.0))]),
            lambda: opened.knockouts(1),
        )


def judged(place: Path) -> None:
    path = place / "cache" / verdicts.NAME
    path.parent.mkdir(exist_ok=True)
    verdicts.keep("judge", "asked", verdicts.Said("yes", "some"))


def said(place: Path) -> None:
    all_of(
        lambda: verdicts.known("judge", "asked"),
        lambda: verdicts.keep("judge", "other", verdicts.Said("no", "")),
        lambda: verdicts.names("judge"),
    )


GRID = study.Study(
    study="small",
    models=("x",),
    capabilities=(study.Capability(recipe=Recipe(capability="a", target=("swear",), retain=("rhyme",))),),
    methods=("css",),
    heads=(1,),
)
CELL = study.cells(GRID)[0]


def begun(work: Path) -> None:
    known = made_evidence.evidence()
    for result in study.run(GRID, work=work, locate=lambda _: known.localization, assess=lambda *_: known.report):
        if result.error:
            raise EditkitError(result.error)
        assert repr(result.report) and json.dumps(result.to_dict())


def resumed(place: Path) -> None:
    """By the cells and the rankings that are there, and by the rankings alone."""
    shutil.copytree(place / "work" / "rankings", place / "out" / "rankings")
    all_of(lambda: begun(place / "work"), lambda: begun(place / "out"))


# GGUF files


def quantized(place: Path) -> None:
    from tests import gguf_files

    gguf_files.write(place / "base.gguf", "Q4_0", heads=2, width=32)
    gguf_files.write_llama(place / "llama.gguf")
    in_blocks.write(Edit(resolve_base(place), HEAD), place / "base.gguf", place / "given.gguf")


def resolve_base(place: Path) -> Any:
    from editkit.checkpoints.files import digest_of
    from editkit.edit import Base

    return Base(str(place / "base.gguf"), f"sha256:{digest_of(place / 'base.gguf')}")


def of_gguf(place: Path) -> None:
    path = place / "base.gguf"
    edit = Edit(replace(resolve_base(place), revision=None), HEAD)
    all_of(lambda: inspect(path), lambda: in_blocks.write(edit, path, place / "out.gguf"))


def gguf_numbers(content: bytes) -> list[tuple[int, int]]:
    """Where each number and text of a header stands: what the reader takes, one after the other."""
    walk, found = gguf._Walk(io.BytesIO(content), "x", len(content)), []
    take = walk.take

    def noted(count: int, what: str) -> bytes:
        found.append((walk.offset, walk.offset + count))
        return take(count, what)

    walk.take = noted
    gguf._read(Path("x"), walk)
    return found


def gguf_record(place: Path) -> None:
    for suffix in ("", in_blocks.RECORD, in_blocks.UNDO):
        shutil.copy(place / f"given.gguf{suffix}", place / f"out.gguf{suffix}")
    path = place / f"out.gguf{in_blocks.RECORD}"
    path.write_bytes(digested(path.read_bytes(), in_blocks._text))
    all_of(
        lambda: verify(place / "out.gguf"),
        lambda: verify(place / "out.gguf", place / "base.gguf"),
        lambda: undo(place / "out.gguf", place / "out-base.gguf"),
    )


def seeds(place: Path, *names: str) -> list[bytes]:
    return [path.read_bytes() for name in names for path in sorted(place.glob(name))]


WEIGHTS, INDEX = "base/model.safetensors", "base/model.safetensors.index.json"
BASE: Callable[[Path], object] = lambda place: checkpoints.write(place / "base")  # noqa: E731
SHARDED: Callable[[Path], object] = lambda place: checkpoints.write(place / "base", shards=2)  # noqa: E731
ON_STUDY: Callable[[Path], object] = lambda place: begun(place / "work")  # noqa: E731
ADAPTER = partial(output, form="lora")
UNDO = "given/editkit/undo.safetensors"

LOADERS: dict[str, Loader] = {
    "weights": Loader(WEIGHTS, BASE, look, lambda place: mutations.safetensors(seeds(place, WEIGHTS))),
    "index": document(INDEX, SHARDED, look),
    "pickle": Loader(
        "base/pytorch_model.bin", pickled, look, lambda place: mutations.raw(seeds(place, "base/*.bin", "old.bin"))
    ),
    "config.json": Loader("base/config.json", BASE, look, of_any_type),
    "config.json, adapter": Loader("base/config.json", BASE, partial(bake, form="lora"), of_any_type),
    "config.json, loaded": document("base/config.json", small_model, loaded),
    "generation_config.json": document("base/generation_config.json", small_model, loaded),
    "tokenizer.json": Loader(
        "base/tokenizer.json", small_model, loaded, lambda _: mutations.documents([small_tokenizer()])
    ),
    "tokenizer_config.json": document("base/tokenizer_config.json", small_model, loaded),
    "chat template": Loader(
        "base/chat_template.jinja",
        small_model,
        templated,
        lambda place: mutations.lines(seeds(place, "base/chat_template.jinja"), mutations.JINJA),
    ),
    "base card": Loader(
        "base/README.md",
        BASE,
        carded,
        lambda place: mutations.lines(
            [b"---\nlicense: mit\nlanguage: [en]\ntags:\n- a\nlicense_link: x\n---\n# The base\n"],
            (*mutations.YAML, *mutations.WORDS),
        ),
    ),
    "recipe": Loader("recipe.yaml", written_by_a_user, of_recipe, lambda place: tables(place, "recipe.yaml")),
    "study": Loader("study.yaml", written_by_a_user, of_study, lambda place: tables(place, "study.yaml")),
    "reliability plan": Loader("plan.yaml", written_by_a_user, of_plan, lambda place: tables(place, "plan.yaml")),
    "task": Loader(
        "task.yaml",
        written_by_a_user,
        lambda place: find.find("task.yaml", folder=place, planning=True),
        lambda place: tables(place, "task.yaml"),
    ),
    "prompts.jsonl": Loader(
        "prompts.jsonl",
        written_by_a_user,
        partial(prompted, file="prompts.jsonl"),
        lambda place: mutations.lines([ROWS.encode()], mutations.WORDS, rows=True),
    ),
    "prompts.csv": Loader(
        "prompts.csv",
        written_by_a_user,
        partial(prompted, file="prompts.csv"),
        lambda place: mutations.lines(seeds(place, "prompts.csv"), mutations.WORDS),
    ),
    "prompts.txt": Loader(
        "prompts.txt",
        written_by_a_user,
        partial(prompted, file="prompts.txt"),
        lambda place: mutations.lines(seeds(place, "prompts.txt"), mutations.WORDS),
    ),
    "code rows": Loader(
        "code.jsonl",
        written_by_a_user,
        programmed,
        lambda _: mutations.lines([CODE.encode()], mutations.WORDS, rows=True),
    ),
    "classifier": document("classifier/config.json", written_by_a_user, classified),
    "report.json": document("given/editkit/report.json"),
    "localization.json": document("given/editkit/localization.json"),
    "edit.json": document("given/editkit/edit.json"),
    "provenance.json": document("given/editkit/provenance.json"),
    "attacks.json": document("given/editkit/attacks.json"),
    "examples.jsonl.gz": Loader(f"given/{examples.NAME}", output, believed, asked_examples),
    "manifest.json": document(f"given/{manifest.NAME}", load=with_manifest),
    "undo.safetensors": Loader(
        UNDO, output, undone, lambda place: mutations.safetensors(seeds(place, UNDO), within="editkit")
    ),
    "adapter": Loader(
        "given/adapter_model.safetensors",
        ADAPTER,
        undone,
        lambda place: mutations.safetensors(seeds(place, "given/adapter_model.safetensors")),
    ),
    "adapter_config.json": document("given/adapter_config.json", ADAPTER, undone),
    "gguf": Loader(
        "base.gguf",
        quantized,
        of_gguf,
        lambda place: mutations.raw(seeds(place, "base.gguf", "llama.gguf"), gguf_numbers),
    ),
    "gguf, converted": Loader(
        "llama.gguf",
        quantized,
        lambda place: resolve(place / "llama.gguf"),
        lambda place: mutations.raw(seeds(place, "llama.gguf"), gguf_numbers),
    ),
    "gguf record": document(f"given.gguf{in_blocks.RECORD}", quantized, gguf_record),
    "store": Loader(
        "work/store.sqlite",
        measured,
        stored,
        lambda place: mutations.raw(seeds(place, "work/store.sqlite", "changed/*"), lambda _: SQLITE),
    ),
    "verdicts": Loader(
        f"cache/{verdicts.NAME}",
        judged,
        said,
        lambda place: mutations.raw(seeds(place, f"cache/{verdicts.NAME}"), lambda _: SQLITE),
    ),
    "study cell": document(f"work/cells/{CELL.key}.json", ON_STUDY, resumed),
    "study ranking": document(f"work/rankings/{CELL.search}.json", ON_STUDY, resumed),
}
