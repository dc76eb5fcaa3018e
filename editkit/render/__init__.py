"""Data in, text out: the model card, the report page, the plots and the terminal's tables."""
