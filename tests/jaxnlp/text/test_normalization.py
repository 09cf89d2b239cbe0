import pytest

from jaxnlp.text.normalization import Normalization


def test_nothing_is_changed_by_default():
    assert Normalization().apply("  a \t\u2581 b ") == "   a \t\u2581 b "
    assert Normalization(prefix=False).apply("  a \t\u2581 b ") == "  a \t\u2581 b "
    assert Normalization().apply("") == ""


def test_stripping_removes_blanks_at_both_ends_and_repeated_ones():
    assert Normalization(strip=True).apply("  a   b\u2581c ") == " a b\u2581c"
    assert Normalization(strip=True).apply("   ") == ""


def test_a_sign_is_a_blank_that_is_stripped_only_at_the_end():
    assert Normalization(sign_is_blank=True).apply("\u2581a\u2581 b\u2581") == "  a  b "
    assert Normalization(strip=True, sign_is_blank=True).apply("\u2581a\u2581 b\u2581 \u2581") == "  a  b"


def test_fields_that_make_no_normalization_are_named():
    fields = Normalization(strip=True, prefix=False, nfc=True).to_json()
    assert Normalization.from_json(fields) == Normalization(strip=True, prefix=False, nfc=True)
    with pytest.raises(ValueError, match="strip is missing or not of type bool"):
        Normalization.from_json(fields | {"strip": 1})
    with pytest.raises(ValueError, match="a charsmap of 6 bytes cannot have a trie of 255"):
        Normalization(charsmap=b"\xff\0\0\0ab")
