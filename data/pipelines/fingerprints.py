"""Text for the fingerprints of data sets."""

import json

from jaxnlp.text.vocabulary import Vocabulary


def vocabulary_text(vocabulary: Vocabulary) -> str:
    """A vocabulary as text; equal vocabularies give the same text."""
    return json.dumps(vocabulary.to_json(), ensure_ascii=False) + "\n"
