"""Configs whose batches have few lengths, each of which is a program."""

from train.config import update


def with_few_lengths(config):
    """The config with batches of few lengths, if its data can make them."""
    return update(config, **{"data.few_lengths": True}) if "few_lengths" in vars(config.data) else config
