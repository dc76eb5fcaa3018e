"""Slices of tensors as runs of bytes: where they are in a file, how to zero, pack and compare them."""
