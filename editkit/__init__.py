"""editkit: find the heads a capability hangs on, remove them from the weights, and prove what changed."""

__version__ = "0.1.0"
