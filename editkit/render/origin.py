"""The card's sections on where the model comes from and how to load, undo and verify it.

origin(edit, provenance)["commands"] -> "```sh\\neditkit undo THIS_FOLDER -o base\\n...```"
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from editkit.edit import Edit
from editkit.evidence.provenance import Provenance
from editkit.render import front_matter, wording
from editkit.render.inert import Inert, code, fence, prose, web_address


def origin(edit: Edit, provenance: Provenance) -> dict[str, Any]:
    """The template's values for these sections."""
    base = provenance.base
    name = json.dumps(front_matter.hub_id(base) or "BASE")
    load = {
        "evidence": "# no model was written: the criteria were not met",
        "checkpoint": "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER")\n'
        'tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")',
        "lora": "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n"
        f'base = AutoModelForCausalLM.from_pretrained({name})\nmodel = PeftModel.from_pretrained(base, "THIS_FOLDER")',
    }[provenance.format]
    known = front_matter.hub_id(base)
    against = f" --base {shlex.quote(known)}" if known else ""
    commands = "# re-hash; exactly the named slices differ from the base and are zero\n"
    commands += f"editkit verify THIS_FOLDER{against}"
    if provenance.format == "checkpoint":
        commands = f"# the unedited model, bit for bit\neditkit undo THIS_FOLDER -o base\n{commands}"
    pairs = [f"{name} {version}" for name, version in sorted(provenance.versions.items())]
    seeds = [f"{name} {seed}" for name, seed in sorted(provenance.seeds.items())]
    return {
        "load": fence(load, "python"),
        "commands": fence(commands, "sh"),
        "command": fence(provenance.command, "sh"),
        "made": [
            Inert(f"Date: {code(provenance.date)}. Weights: {code(base.dtype or 'unknown')}."),
            Inert(f"Versions: {prose(', '.join(pairs) or 'not recorded')}"),
            Inert(f"Seeds: {prose(', '.join(seeds) or 'not recorded')}"),
            Inert(f"Edit: sha256 {code(edit.digest)}"),
        ],
        "recipe": fence(provenance.recipe_text, "yaml"),
        "hashes": fence("\n".join(f"{value}  {name}" for name, value in provenance.hashes.items()) or "not recorded"),
        "licence": _licence(provenance),
    }


def _licence(provenance: Provenance) -> list[Inert]:
    base = provenance.base
    revision = f", revision {code(base.revision)}" if base.revision else ", revision not recorded"
    lines = [Inert(f"Base: {base_shown(provenance)}{revision}.")]
    if base.license or base.license_name:
        link = web_address(base.license_link)
        terms = f" ([terms]({link}))" if link and "(" not in link and ")" not in link else ""
        name = code(base.license_name or base.license or "")
        lines.append(Inert(f"Licence, carried over from the base: {name}{terms}."))
    else:
        lines.append(Inert("The base names no licence. Find out its terms before you share this model."))
    return lines + [Inert(f"Notice of the base: {prose(notice)}") for notice in base.notices]


def base_shown(provenance: Provenance) -> Inert:
    """The base in a sentence."""
    if provenance.base.source == "bundled":
        return Inert("the small model that is bundled with editkit")
    return code(wording.base_name(provenance))
