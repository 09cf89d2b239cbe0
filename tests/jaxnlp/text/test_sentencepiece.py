import io
import os
import pydoc_data.topics
import random
from pathlib import Path

import pytest
import sentencepiece

from jaxnlp.serialization import processor_from_json, processor_to_json
from jaxnlp.text.sentencepiece import read_sentencepiece
from jaxnlp.text.subwords import START

TEXTS = [
    "The old man and the sea.",
    "The oldest woman saw the sea, and the man!",
    "der alte Mann und das Meer",
    "ältere Männer am Meer; 你好。世界。你好。",
    # Without rows of stars, which several segmentations fit equally well.
    *(line for line in pydoc_data.topics.topics["assignment"].split("\n") if "**" not in line),
]
A4 = [("chr_en", "src", "chr"), ("chr_en", "tgt", "en"), ("zh_en", "src", "zh"), ("zh_en", "tgt", "en")]


def random_text(generator):
    ranges = [(32, 127), (0x20, 0x300), (0x300, 0x370), (0x1100, 0x1200), (0x3000, 0xD800), (0xE000, 0x11000)]
    characters = [chr(generator.randrange(*generator.choice(ranges))) for _ in range(generator.randrange(16))]
    return "".join(generator.choice([character, character, " ", "\u2581", "the"]) for character in characters)


def train(path, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, minloglevel=9, **options
    )
    path.write_bytes(model.getvalue())
    return path


def assert_equal(path, texts):
    """Tokens and decoded texts are those of the package; its ids are <unk> 0, <s> 1, </s> 2, then the pieces."""
    ours, theirs = read_sentencepiece(path), sentencepiece.SentencePieceProcessor(model_file=str(path))
    for text in texts:
        expected = theirs.encode(text)
        ids = ours.encode(text)
        assert ids == [number + 1 for number in expected], text
        assert ours.decode(ids) == theirs.decode(expected), text


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bpe", "vocab_size": 150},
        {"model_type": "bpe", "vocab_size": 400, "byte_fallback": True},
        {"model_type": "unigram", "vocab_size": 150},
        {"model_type": "unigram", "vocab_size": 370, "byte_fallback": True, "character_coverage": 0.98},
        {"model_type": "unigram", "vocab_size": 150, "normalization_rule_name": "nmt_nfkc_cf"},
        {"model_type": "bpe", "vocab_size": 150, "normalization_rule_name": "identity", "add_dummy_prefix": False},
        {"model_type": "bpe", "vocab_size": 150, "remove_extra_whitespaces": False, "split_by_whitespace": False},
    ],
)
def test_models_tokenize_texts_as_the_package_does(tmp_path, options):
    path = train(tmp_path / "some.model", **options)
    generator = random.Random(0)
    texts = [*TEXTS, "", " ", "a  b ", "\uff41\uff42 \ufb01", *(random_text(generator) for _ in range(300))]
    if options.get("remove_extra_whitespaces") is False:
        texts = [text.replace("\u2581", "") for text in texts]  # a ▁ of the text is no blank then
    assert_equal(path, texts)


@pytest.mark.sweep(1)
@pytest.mark.realdata
@pytest.mark.parametrize(("pair", "model", "language"), A4)
def test_models_of_the_course_tokenize_texts_as_the_package_does(pair, model, language):
    folder = Path(os.environ["JAXNLP_DATA"]) / f"cs224n_a4_{pair}"
    generator = random.Random(0)
    lines = (folder / f"dev.{language}").read_text(encoding="utf-8").split("\n")
    assert_equal(folder / f"{model}.model", [*lines, *(random_text(generator) for _ in range(500))])


def test_a_model_survives_its_processor_file(tmp_path):
    subwords = read_sentencepiece(train(tmp_path / "some.model", model_type="unigram", vocab_size=150), extra=5)
    assert processor_from_json(processor_to_json(subwords)) == subwords
    assert subwords.size == 1 + 150 + 5
    assert subwords.tokens([START]) == ["<s>"]


def test_models_that_cannot_be_read_are_named_with_the_reason(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the SentencePiece model .*none.model does not exist"):
        read_sentencepiece(tmp_path / "none.model")
    symbols = train(tmp_path / "a.model", model_type="bpe", vocab_size=150, user_defined_symbols=["<sep>"])
    with pytest.raises(ValueError, match=r"a.model is not .* token '<sep>' is of type 4 \(user-defined or unused\)"):
        read_sentencepiece(symbols)
    with pytest.raises(ValueError, match="neither a unigram nor a BPE model"):
        read_sentencepiece(train(tmp_path / "b.model", model_type="char", vocab_size=60))
    suffix = train(tmp_path / "c.model", model_type="bpe", vocab_size=150, treat_whitespace_as_suffix=True)
    with pytest.raises(ValueError, match="its tokens end with the space, which is not supported"):
        read_sentencepiece(suffix)


def test_a_damaged_or_other_file_is_refused(tmp_path):
    path = train(tmp_path / "some.model", model_type="unigram", vocab_size=150)
    raw = path.read_bytes()
    for damaged in (b"", b"some text\n", raw[: len(raw) // 2], raw[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"some.model is not a SentencePiece model that can be read"):
            read_sentencepiece(path)
