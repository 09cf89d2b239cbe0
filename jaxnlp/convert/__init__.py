"""Weights from other libraries, and for them."""

from jaxnlp.convert.pretrained import load_pretrained, pretrained_task, save_pretrained

__all__ = ["load_pretrained", "pretrained_task", "save_pretrained"]
