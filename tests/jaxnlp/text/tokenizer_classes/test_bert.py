import pytest

from jaxnlp.text.tokenizer_classes import SpecialTokens
from jaxnlp.text.tokenizer_classes.bert import CLASS, SPECIAL, add_template, bert_tokenizer, ids_of

PIECES = [*SPECIAL, "cat", "##s"]


def test_the_class_makes_the_tokenizer_of_its_files(tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\r\n" for piece in PIECES))
    whole = CLASS.read(tmp_path)
    assert whole == {"model": {"vocab": ids_of(PIECES)}}
    found = CLASS.build(whole, CLASS.named, {"do_lower_case": False})
    CLASS.finish(found, CLASS.named, {})
    like = bert_tokenizer(ids_of(PIECES), lowercase=False)
    add_template(like)
    assert found.to_str() == like.to_str()
    assert found.encode("cats", "Cats").tokens == ["[CLS]", "cat", "##s", "[SEP]", "[UNK]", "[SEP]"]


def test_special_tokens_may_have_other_names():
    special = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    tokenizer = bert_tokenizer(ids_of([*special, "cat"]), special)
    add_template(tokenizer, special)
    assert tokenizer.encode("cat dog").tokens == ["<s>", "cat", "<unk>", "</s>"]


def test_the_unknown_token_must_be_among_the_tokens():
    with pytest.raises(ValueError, match=r"needs the unknown token \[UNK\]"):
        bert_tokenizer({"a": 0})


def test_tokens_must_be_distinct():
    with pytest.raises(ValueError, match="'cat' occurs twice"):
        ids_of([*PIECES, "cat"])
