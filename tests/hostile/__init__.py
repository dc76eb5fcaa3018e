"""Checkpoints made to mislead, crash or escape: see ``cases.py``; and what fuzzing keeps: ``corpus/``."""
