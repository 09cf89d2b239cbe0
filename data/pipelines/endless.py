"""Endless examples for training."""

import grain

ENDLESS = 2**40
"""An effectively infinite number of examples. Grain's own endless repeat() overflows when its examples are batched."""


def shuffled(examples: grain.MapDataset, seed: int) -> grain.MapDataset:
    """The examples endlessly, reshuffled in each epoch."""
    return examples.seed(seed).shuffle().repeat(ENDLESS // len(examples))


def iterable(batches: grain.MapDataset) -> grain.IterDataset:
    """The batches in their order; the iterator's state can be saved and set.

    No threads read ahead: a batch takes microseconds, and on few cores threads slow down the training step.
    """
    return batches.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
