"""Fingerprints of data sets: equal data has the same one."""

import hashlib
import json

import numpy as np

from jaxnlp.text.vocabulary import Vocabulary


def fingerprint(*contents: str | np.ndarray) -> str:
    """SHA-256 of texts and of the bytes of arrays, in hex digits."""
    digest = hashlib.sha256()
    for content in contents:
        if isinstance(content, str):
            digest.update(content.encode("utf-8", errors="surrogatepass"))
        else:
            digest.update(np.ascontiguousarray(content).data)
    return digest.hexdigest()


def vocabulary_text(vocabulary: Vocabulary) -> str:
    """A vocabulary as text; equal vocabularies give the same text."""
    return json.dumps(vocabulary.to_json(), ensure_ascii=False) + "\n"
