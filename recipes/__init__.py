"""The built-in recipes: one YAML file per capability. Installed as ``editkit.recipes``."""
