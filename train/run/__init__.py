"""A run: its start, its folder, its checkpoints and its end."""
