"""How an output is run by the programs that serve models, as commands that are right for its form.

serving("checkpoint", "alice/no-swear", published=True)     "# vLLM\\nvllm serve alice/no-swear\\n\\n# llama.cpp: ..."
"""

from __future__ import annotations

import shlex

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM accepts as ``--max-lora-rank``."""


def serving(form: str, name: str, *, base: str = "BASE", published: bool = False, quantized: bool = False) -> str:
    """Shell commands for vLLM, llama.cpp and Ollama.

    Args:
        form: ``checkpoint`` or ``lora``.
        name: the folder of the output, or where it is ``published``, its Hub id.
        base: the unedited model, as the reader can name it.
        quantized: the base is a GGUF file, which takes the same edit.
    """
    base, made = shlex.quote(base), "edited.gguf"
    if form == "lora":
        ranks = ", ".join(map(str, RANKS[:-1]))
        lines = ["# vLLM. R: the r in adapter_config.json, or the next of " + f"{ranks} and {RANKS[-1]}"]
        lines += [f"vllm serve {base} --enable-lora --lora-modules edited={name} --max-lora-rank R"]
    else:
        lines = ["# vLLM", f"vllm serve {name}"]
    lines += ["", "# llama.cpp"]
    if quantized or form == "lora":
        edit, model = (name, base) if not published else ("editkit/edit.json", base)
        lines += [f"hf download {name} editkit/edit.json --local-dir ."] if published else []
        if quantized:
            lines += [f"editkit bake {model} --edit {edit} -o {made}  # inside the quantized blocks of the base"]
        else:
            lines += [f"editkit bake {model} --edit {edit} -o edited", _converted("edited", made, published=False)]
    else:
        lines += [_converted(name, made, published=published)]
    lines += [f"llama-server -m {made}", "", "# Ollama, with the same file"]
    lines += [f'echo "FROM ./{made}" > Modelfile', "ollama create edited && ollama run edited"]
    return "\n".join(lines)


def _converted(name: str, made: str, *, published: bool) -> str:
    """The command of llama.cpp that makes one GGUF file of a checkpoint."""
    return f"python convert_hf_to_gguf.py {'--remote ' if published else ''}{name} --outfile {made}"
