"""Recipes: one experiment a file. `get_config()` gives its TrainConfig; the docstring its source, cost and result."""
