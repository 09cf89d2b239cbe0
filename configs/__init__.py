"""Recipes: one experiment a file. `get_config()` returns its config; the docstring has its source, cost and result."""
