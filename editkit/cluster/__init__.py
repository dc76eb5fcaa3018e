"""Copies of a model on other processors and machines, which answer in its place (docs/cluster.md)."""
