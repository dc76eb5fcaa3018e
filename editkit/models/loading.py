"""Load a model once: files to a live network, its heads found, every site proved.

load_source(resolve("meta-llama/Llama-3.2-1B-Instruct"), Placement(dtype="bfloat16")) -> LanguageModel
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from editkit.checkpoints import answering, config_fields
from editkit.checkpoints.files import printable
from editkit.checkpoints.source import Source
from editkit.errors import EditkitError, first_line
from editkit.models.batch_budget import first_batch
from editkit.models.language_model import TOKENS_PER_BATCH, LanguageModel
from editkit.models.placement import Placement
from editkit.models.shared_layers import shareable

SAMPLE = "Say a number, please."
"""What every tokenizer must be able to write."""


def load_source(source: Source, placement: Placement = Placement(), *, check: bool = True) -> LanguageModel:
    """Load a model once, find its heads, and let each head site prove itself.

    Args:
        check: run the causal self-check (``self_check.prove``): zero mask changes nothing, every site something.

    Raises:
        EditkitError: missing weights, unsupported architecture, or a failed self-check.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from editkit.checkpoints.architecture import from_model
    from editkit.models.padding import harmless
    from editkit.models.self_check import prove
    from editkit.models.shared_prefix import reusable

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what it would warn of is an error here, or no matter
    device, dtype, trusted = placement.device, placement.dtype, placement.trust_remote_code
    spread = not isinstance(device, str) or device in {"balanced", "balanced_low_0", "sequential"}
    options: dict[str, Any] = {"device_map": device if isinstance(device, str) else dict(device)} if spread else {}
    try:
        tokenizer = _with_words(source, AutoTokenizer, trusted)
        network, loaded = AutoModelForCausalLM.from_pretrained(
            source.directory,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            trust_remote_code=trusted,
            use_safetensors=None,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )  # pyright: ignore[reportGeneralTypeIssues]
    except EditkitError:
        raise
    except Exception as error:  # what transformers raises for odd files, nobody can list
        if why := answering.refusal(config_fields.read_json(source.directory), None):
            raise EditkitError(f"{source.base.model}: {why}") from error
        raise EditkitError(
            f"{source.base.model} cannot be loaded as a causal language model: {first_line(error).rstrip('. ')}. "
            + (_leave(error) or "`editkit inspect` shows what its files say.")
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    _require_weights(source, network, loaded)
    _require_fit(source, network, tokenizer)
    if isinstance(device, str) and not spread:
        network = network.to(_device(device))  # pyright: ignore
    network.eval().requires_grad_(False)
    network.generation_config = _greedy(network.generation_config)
    _gather_before_logits(network)
    architecture = from_model(network)
    if check:
        architecture = prove(network, architecture)
    model = LanguageModel(
        source,
        network,
        tokenizer,
        architecture,
        first_batch(network, TOKENS_PER_BATCH.get(network.device.type, 16_384)),
        blocks=shareable(network, architecture),
        prefixes=reusable(network),
        padded=harmless(network, tokenizer),
        asked=placement,
        proved=check,
    )
    return model if placement.pool is None else replace(model, pool=placement.pool(model))


def _with_words(source: Source, auto: Any, trust_remote_code: bool) -> Any:
    """The tokenizer. One without a vocabulary is refused: transformers makes it up where some types have no files."""
    advice = (
        "Expected tokenizer.json, or what this type has instead, beside the weights: download the model again, or copy "
        "these files there."
    )
    try:
        tokenizer = auto.from_pretrained(source.directory, trust_remote_code=trust_remote_code)
        words = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
        tokenizer(SAMPLE, add_special_tokens=False)  # settings of the wrong kind are met only here
    except Exception as error:  # tokenizers raises nothing more precise
        said = " ".join(str(error).split())[:300].rstrip(".")
        raise EditkitError(
            f"{source.base.model}: its tokenizer cannot be used: {said}. {_leave(error) or advice}"
        ) from error
    if not words:
        raise EditkitError(f"{source.base.model}: its tokenizer cannot be used: it knows no words. {advice}")
    return tokenizer


def _leave(error: BaseException) -> str:
    """What to do where transformers would have to run code that came with the model."""
    asks = "trust_remote_code" in str(error)
    return "Read it, then pass --trust-remote-code (trust_remote_code=True from Python)." if asks else ""


def _require_fit(source: Source, network: Any, tokenizer: Any) -> None:
    """Refuse the tokenizer of another model. Its special tokens may lie beyond the embeddings: some are never used."""
    sample = tokenizer(SAMPLE, add_special_tokens=False)["input_ids"]
    rows, most = network.get_input_embeddings().weight.shape[0], max(sample, default=0)
    if most >= rows:
        raise EditkitError(
            f"{source.base.model}: its tokenizer writes token {most}, but the model has embeddings for {rows}: they do "
            "not belong together. Download the model again, or copy its own tokenizer there."
        )


def _require_weights(source: Source, network: Any, loaded: Any) -> None:
    """Refuse a model that is random numbers in part: transformers fills in what the files lack, with a warning only."""
    kind, advice = type(network).__name__, "Download it again, or give the checkpoint with its language-model head."
    if missing := sorted(map(str, loaded["missing_keys"])):
        listed = ", ".join(map(printable, missing[:3])) + (", ..." if len(missing) > 3 else "")
        count = "1 tensor" if len(missing) == 1 else f"{len(missing)} tensors"
        raise EditkitError(
            f"{source.base.model}: expected a whole {kind}, but its files lack {count} ({listed}): "
            f"whatever it answers would be chance. {advice}"
        )
    if mismatched := sorted(loaded["mismatched_keys"]):
        name, shape, expected = mismatched[0]
        raise EditkitError(
            f"{source.base.model}: {printable(name)} has the shape {tuple(shape)}, but its config.json makes a {kind} "
            f"that needs {tuple(expected)}. {advice}"
        )


def _gather_before_logits(network: Any) -> None:
    """Lay the hidden states that are turned into logits side by side first.

    transformers slices them out of all positions, and torch 2.13 multiplies such a slice row by row, in bfloat16 on a
    CPU with a copy of the whole output matrix for every row (``benchmarks/results/output-matrix.md``).
    """
    output = network.get_output_embeddings()
    if isinstance(output, torch.nn.Linear):
        output.register_forward_pre_hook(lambda module, args: (args[0].contiguous(), *args[1:]))


def _greedy(config: Any) -> Any:
    """Where a model's answers begin and end, and nothing else of how its makers would have it generate.

    A penalty on repetition, a smallest length or forbidden tokens would make greedy answers other than the likeliest.
    """
    from transformers import GenerationConfig

    kept = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id")
    return GenerationConfig(**{name: getattr(config, name) for name in kept})


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise EditkitError(
            f"--device {name}: {first_line(error).rstrip('.')}. Use auto, cpu, cuda, cuda:1, mps or balanced."
        ) from error
    return device
