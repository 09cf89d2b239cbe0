import hashlib

import numpy as np

from data.pipelines.fingerprints import fingerprint, vocabulary_text
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.words import WordVocabulary


def test_the_text_of_a_vocabulary_has_all_its_fields():
    assert vocabulary_text(CharacterVocabulary("aß")) == '{"characters": ["a", "ß"]}\n'
    assert vocabulary_text(WordVocabulary(["a"], unknown="a")) == '{"words": ["a"], "unknown": "a"}\n'


def test_a_fingerprint_is_the_sha256_of_all_contents_in_their_order():
    array = np.arange(6, dtype="<i4").reshape(2, 3)
    expected = hashlib.sha256("ß\udcff".encode("utf-8", "surrogatepass") + array.T.tobytes()).hexdigest()
    assert fingerprint("ß\udcff", array.T) == expected
    assert fingerprint(array.T, "ß\udcff") != expected
