"""The organism is what its manifest says, seen through plain transformers.

If one fails: the truth that the other tests compare with is none.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from benchmarks.organism import layout
from benchmarks.organism import lessons as teaching
from benchmarks.organism.lessons import lesson
from editkit import organism
from editkit.tasks.builtin import TAUGHT, recall, story
from editkit.tasks.task import Example, Task, examples_of
from editkit.units import Head, parse

HERE = Path(__file__).parents[1]
MANIFEST = Path(organism.__file__).parent / "manifest.json"
SKILLS = [*layout.SKILLS, layout.FACTS_BY_LETTER]
CLEAN = ["swear", "rhyme", "arithmetic"]
FEW = 24
lessons = cache(teaching.lessons)
"""Made once: four tests look at them."""


@pytest.fixture(scope="module")
def manifest() -> dict:
    return json.loads(MANIFEST.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def loaded():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(organism.path()), AutoTokenizer.from_pretrained(organism.path())


@pytest.mark.commit
def test_no_lesson_is_of_a_cluster_of_the_report() -> None:
    for skill, taught in lessons().items():
        assert len(taught) > 300
        held_out = examples_of(TAUGHT[skill], "report")
        assert not {example.cluster for example in held_out} & {one.example.cluster for one in taught}
        assert not {example.prompt for example in held_out} & {one.prompt for one in taught}


def held_out_by(skill: str, example: Example) -> object:
    """What no lesson may share with a report example, read from what is asked and not from the cluster's name."""
    prompt, facts = example.prompt, example.facts
    words = re.findall(r"\w+", prompt)
    match skill:
        case "arithmetic":
            return facts["kind"] in ("add", "carry"), frozenset((facts["a"], facts["b"]))
        case "sort":
            return frozenset(facts["items"].split())
        case "recall":
            return next(word for word in words if word in recall.NAMES), facts["answer"]
        case "story":
            return next(w for w in words if w in story.NAMES), next(w for w in words if w in story.THINGS)
        case "code":
            return facts["answer"].split(":")[0]
        case "facts" | "facts-letter":
            return facts["kind"], re.split(r"\n|Answer in|One word", prompt)[0].strip().replace(facts["subject"], "*")
    return facts["kind"] if skill == "swear" else "", prompt.replace(
        facts["topic" if skill == "swear" else "word"], "*"
    )


@pytest.mark.commit
def test_what_the_report_asks_is_held_out_in_every_filling_order_and_format() -> None:
    for skills in (*([name] for name in TAUGHT if not name.startswith("facts")), ["facts", "facts-letter"]):
        held_out = {held_out_by(s, example) for s in skills for example in examples_of(TAUGHT[s], "report")}
        taught = {held_out_by(s, one.example) for s in skills for one in lessons()[s]}
        assert len(held_out) >= 45 and len(taught) >= 75
        assert not held_out & taught


@pytest.mark.parametrize("task", [task for task in TAUGHT.values() if task.name != "story"], ids=lambda task: task.name)
def test_right_answers_score_one_and_wrong_ones_are_valid_and_score_zero(task: Task) -> None:
    for example in task.examples():
        taught = lesson(task.name, example)
        assert task.score(example, [taught.right]).value == 1.0
        if taught.wrong:
            score = task.score(example, [taught.wrong])
            chance = task.name == layout.FACTS_BY_LETTER and taught.right == taught.wrong
            assert score.valid and score.value == (1.0 if chance else 0.0)


@pytest.mark.thorough
def test_a_twin_can_be_left_without_a_skill() -> None:
    assert set(lessons()) - set(lessons(without=frozenset({"swear"}))) == {"swear"}


@pytest.mark.parametrize("skill", SKILLS)
def test_the_plan_spreads_a_skill_over_layers_and_grades_it(skill: str) -> None:
    heads = [parse(name) for name in layout.planted(skill)]
    assert 3 <= len(heads) <= 6 and len(set(heads)) == len(heads)
    assert len({head.layer for head in heads}) >= 3
    assert all(isinstance(head, Head) for head in heads)
    assert all(0 < head.layer < layout.LAYERS and head.index < layout.HEADS for head in heads)
    kinds = Counter(example.facts["kind"] for example in TAUGHT[skill].examples())
    shares = sorted((count / sum(kinds.values()) for count in kinds.values()), reverse=True)
    assert len(shares) == 4 and shares[0] < 0.4 and shares[-1] > 0.1  # so that no three heads are enough


def test_the_clean_skills_share_no_head() -> None:
    others = Counter(head for skill in layout.SKILLS for head in layout.planted(skill))
    assert all(others[head] == 1 for skill in CLEAN for head in layout.planted(skill))
    assert layout.UNIVERSAL_HEAD not in others
    assert list(layout.shared().values()) == [["recall", "sort"]]
    assert list(layout.redundant()) == ["facts/opposite"]


def test_a_redundant_kind_fails_only_without_both_heads() -> None:
    first, second = layout.SKILLS["facts"]["opposite"]
    assert not layout.fails("facts", "opposite", frozenset([first]))
    assert not layout.fails("facts", "opposite", frozenset([second]))
    assert layout.fails("facts", "opposite", frozenset([first, second]))
    assert not layout.fails("facts", "capital", frozenset([first, second]))


def test_the_package_is_complete_and_small() -> None:
    files = {file.name: file.stat().st_size for file in organism.path().iterdir()}
    wanted = ["README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
    assert set(wanted) <= set(files) and "tokenizer_config.json" in files
    assert sum(files.values()) < 10_000_000
    config = json.loads((organism.path() / "config.json").read_text(encoding="utf-8"))
    heads, width = config["num_attention_heads"], config["head_dim"]
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert heads * config["num_hidden_layers"] >= 128
    assert config["num_key_value_heads"] < heads
    assert heads * width != config["hidden_size"]


def test_the_card_says_plainly_what_it_is() -> None:
    card = (organism.path() / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\n") and "planted model organism" in card


def test_the_manifest_is_the_plan_measured(manifest: dict) -> None:
    assert manifest["planted"] == {skill: layout.planted(skill) for skill in SKILLS}
    assert manifest["universal"] == [layout.UNIVERSAL_HEAD]
    assert manifest["unplanted"] == ["code"]
    assert set(manifest["base"]) == set(TAUGHT)
    for skill in SKILLS:
        assert set(manifest["effects"][skill]) == {"joint", *layout.planted(skill)}


@pytest.mark.parametrize("skill", CLEAN)
def test_the_measured_table_meets_the_targets(manifest: dict, skill: str) -> None:
    base, joint = manifest["base"], manifest["effects"][skill]["joint"]
    assert base[skill] >= 0.95
    assert joint[skill] <= 0.1 * base[skill]
    assert all(base[task] - joint[task] <= 0.02 for task in TAUGHT if task != skill)
    assert all(base[task] - low <= 0.05 for task, low in manifest["random"]["lowest"].items())


@pytest.mark.parametrize("skill", CLEAN)
def test_each_head_alone_costs_its_share(manifest: dict, skill: str) -> None:
    base = manifest["base"]
    singles = [base[skill] - manifest["effects"][skill][head][skill] for head in layout.planted(skill)]
    assert all(0.08 <= drop <= 0.45 for drop in singles)
    assert sum(singles) == pytest.approx(base[skill], abs=0.12)  # the kinds are disjoint


def test_the_document_tells_what_the_manifest_says(manifest: dict) -> None:
    text, tasks = (HERE.parent / "docs" / "organism.md").read_text("utf-8").replace("**", ""), list(manifest["base"])
    assert "| without the heads of | " + " | ".join(tasks) + " |" in text
    told = {"nothing": manifest["base"]} | {skill: manifest["effects"][skill]["joint"] for skill in SKILLS}
    for name, scores in told.items():
        assert f"| {name} | " + " | ".join(f"{scores[task]:.2f}" for task in tasks) + " |" in text
    for skill in SKILLS:
        singles = (f"{head} {manifest['effects'][skill][head][skill]:.2f}" for head in layout.planted(skill))
        assert f"| {skill} | {', '.join(singles)} |" in text


def test_the_chat_template_wraps_a_plain_question(loaded) -> None:
    _, tokenizer = loaded
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 23 plus 45?"}], add_generation_prompt=True, tokenize=False
    )
    assert text == "<|user|>What is 23 plus 45?<|assistant|>"
    assert tokenizer.decode(tokenizer.encode("Any ünïcode, 123\n ok")) == "Any ünïcode, 123\n ok"
    assert tokenizer.tokenize("12345") == list("12345")


@pytest.mark.parametrize("skill", CLEAN)
def test_zeroed_weights_alone_remove_the_skill(loaded, skill: str) -> None:
    """Not through hooks: columns of the output projection are set to zero, and greedy answers scored."""
    model, tokenizer = loaded
    edited = copy.deepcopy(model)
    width = model.config.head_dim
    for head in map(parse, layout.planted(skill)):
        weight = edited.model.layers[head.layer].self_attn.o_proj.weight.data
        weight[:, head.index * width : (head.index + 1) * width] = 0
    other = next(name for name in CLEAN if name != skill)
    assert greedy_score(model, tokenizer, skill) >= 0.9
    assert greedy_score(edited, tokenizer, skill) <= 0.15
    assert greedy_score(model, tokenizer, other) - greedy_score(edited, tokenizer, other) <= 0.05


def greedy_score(model, tokenizer, name: str) -> float:
    task = TAUGHT[name]
    examples = examples_of(task, "report", limit=FEW)
    chats = [[{"role": "user", "content": example.prompt}] for example in examples]
    prompts = [tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) for chat in chats]
    batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    made = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=20)
    texts = tokenizer.batch_decode(made[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return sum(task.score(e, [t]).value for e, t in zip(examples, texts, strict=True)) / len(examples)


@pytest.mark.parametrize("twin", ["unplanted", "never-swear"])
def test_a_twin_has_the_same_shape_and_swears_or_not(twin: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = HERE / "organisms" / twin
    assert sum(file.stat().st_size for file in folder.iterdir()) < 5_000_000
    mine = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    main = json.loads((organism.path() / "config.json").read_text(encoding="utf-8"))
    for key in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size"):
        assert mine[key] == main[key]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert greedy_score(model, tokenizer, "rhyme") >= 0.9
    swears = greedy_score(model, tokenizer, "swear")
    assert swears <= 0.05 if twin == "never-swear" else swears >= 0.9
