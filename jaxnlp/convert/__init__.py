"""Weights from elsewhere, and for elsewhere."""

from jaxnlp.convert.pretrained import load_pretrained, save_pretrained

__all__ = ["load_pretrained", "save_pretrained"]
