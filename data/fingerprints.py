"""What fingerprints of data sets are made of."""

import json

from jaxnlp.text.vocabulary import Vocabulary


def vocabulary_text(vocabulary: Vocabulary) -> str:
    """A vocabulary as text; equal ones give the same."""
    return json.dumps(vocabulary.to_json(), ensure_ascii=False) + "\n"
