"""Ways to unlearn, beside plain removal, under the same attacks: ``python -m benchmarks.unlearning``.

One file per method: ``prepare(model, lessons, own) -> Descent``, with what its paper says and what is ours.
"""
