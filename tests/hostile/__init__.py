"""Checkpoints made to mislead, crash or escape: see ``corpus.py``."""
