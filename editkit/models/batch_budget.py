"""How many tokens go into a batch: batches shrink until they fit.

for numbers, answers in within_memory(range(512), run, Budget(131_072), single=str): ...   # halved as often as needed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from editkit.errors import OutOfMemory
from editkit.models.memory import available, free

FULL = (
    "out of memory",  # CUDA, HIP, XPU, MPS
    "can't allocate memory",  # the CPU
    "ALLOC_FAILED",  # cuBLAS
    "CUDNN_STATUS_NOT_SUPPORTED",  # cuDNN, of a batch that is too large
    "Invalid buffer size",  # MPS, of one tensor
    "PT_DEVMEM Allocation failed",  # HPU
)
"""What devices say when they are full; accelerate knows some of them, fewer in its older versions."""

METAL = 1 << 32
"""Bytes of a tensor from which on operations on Apple's GPUs abort (pytorch issue 149325)."""

Row = TypeVar("Row")
Result = TypeVar("Result")


@dataclass
class Budget:
    """The one thing that changes while a model is used: how many tokens fit in a batch."""

    tokens: int


CACHED = 2**21
"""Tokens times width of a batch on a CPU."""


def first_batch(network: Any, most: int) -> Budget:
    """The budget to begin with: ``most`` tokens, in main memory only as many as fit in half of what is free.

    An accelerator says when it is full, and batches shrink; an operating system may end the process without a word, and
    so does Metal where a tensor is too large. A token is reckoned as its logits and 32 times the model's width, in
    float32. A CPU is quickest where a batch's activations stay in its cache: a third quicker at a width of 576.
    """
    vocabulary, width = network.get_input_embeddings().weight.shape
    if network.device.type == "mps":
        most = min(most, METAL // (4 * vocabulary))
    elif network.device.type != "cpu":
        return Budget(most)
    else:
        most = min(most, max(512, CACHED // width))
    return Budget(max(1, min(most, available() // 2 // (4 * (vocabulary + 32 * width)))))


def within_memory(
    rows: Sequence[Row], run: Callable[[list[Row]], Result], budget: Budget, *, single: Callable[[Row], str]
) -> Iterator[tuple[list[Row], Result]]:
    """Run on all rows at once; where memory runs out, on half as many, and the budget stays smaller.

    Args:
        single: what one row is, for the message when not even one fits.

    Raises:
        OutOfMemory: one row alone does not fit.
    """
    waiting = [list(rows)]
    while waiting:
        batch = waiting.pop(0)
        try:
            result = run(batch)
        except (RuntimeError, MemoryError) as error:
            if not (isinstance(error, MemoryError) or any(sign in str(error) for sign in FULL)):
                raise
            if len(batch) == 1:
                raise OutOfMemory(
                    f"Out of memory on {single(batch[0])}. "
                    "Use a device with more memory, --dtype bfloat16, or shorter examples."
                ) from error
            half = len(batch) // 2
            waiting[:0] = [batch[:half], batch[half:]]
            budget.tokens = max(1, budget.tokens * half // len(batch))
        else:
            yield batch, result
            continue
        free()  # here, where the error no longer holds the batch's tensors
