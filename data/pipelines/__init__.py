"""Pipelines: from examples to batches of static shapes."""
