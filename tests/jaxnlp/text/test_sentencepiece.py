import io
import os
import pydoc_data.topics
import random
from pathlib import Path

import pytest
import sentencepiece

from jaxnlp.corpus import DataError
from jaxnlp.saving.serialization import processor_from_json, processor_to_json
from jaxnlp.text.sentencepiece import read_sentencepiece
from jaxnlp.text.subwords import START

TEXTS = [
    "The old man and the sea.",
    "The oldest woman saw the sea, and the man!",
    "der alte Mann und das Meer",
    "ältere Männer am Meer; 你好。世界。你好。",
    *pydoc_data.topics.topics["assignment"].split("\n"),
]
A4 = [("chr_en", "src", "chr"), ("chr_en", "tgt", "en"), ("zh_en", "src", "zh"), ("zh_en", "tgt", "en")]


RANGES = [
    (32, 127),
    (0x20, 0x300),
    (0x300, 0x700),
    (0x900, 0xE00),
    (0x1100, 0x1200),
    (0x3000, 0xD800),
    (0xE000, 0x11000),
]
# Blanks, the sign for them, tabs, blanks of other scripts, characters without width, and names of tokens.
STRINGS = [*" \u2581\t\n\x00\x01\u00a0\u00ad\u2003\u200b\u200d\u2028\u3000\ufeff\ufffd", "  ", "\u2581\u2581"]
STRINGS += ["the", " the", "sea", "\U0001f300", "<s>", "<unk>", "<0x41>"]


def random_text(generator):
    characters = [chr(generator.randrange(*generator.choice(RANGES))) for _ in range(generator.randrange(16))]
    return "".join(generator.choice([character, character, generator.choice(STRINGS)]) for character in characters)


AS_WRITTEN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}


def train(path, texts=TEXTS, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, minloglevel=9, hard_vocab_limit=False, **options
    )
    path.write_bytes(model.getvalue())
    return path


def assert_equal(path, texts):
    """Tokens and decoded texts are those of the package."""
    ours, theirs = read_sentencepiece(path), sentencepiece.SentencePieceProcessor(model_file=str(path))
    for text in texts:
        expected = theirs.encode(text)
        assert ours.pieces(text) == theirs.encode(text, out_type=str), text
        ids = ours.encode(text)
        unknown, name = theirs.unk_id(), theirs.id_to_piece
        assert ours.tokens(ids) == ["<unk>" if number == unknown else name(number) for number in expected], text
        assert ours.decode(ids) == theirs.decode(expected), text


@pytest.mark.sweep(1)
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
        {"model_type": "unigram", "vocab_size": 150, "remove_extra_whitespaces": False},
        {"model_type": "bpe", "vocab_size": 400, "byte_fallback": True, **AS_WRITTEN},
        {"model_type": "unigram", "vocab_size": 150, **AS_WRITTEN, "add_dummy_prefix": False},
        {"model_type": "bpe", "vocab_size": 150, "unk_piece": "?", "control_symbols": ["<c>", "X"]},
    ],
)
def test_models_tokenize_texts_as_the_package_does(tmp_path, options):
    path = train(tmp_path / "some.model", **options)
    generator = random.Random(0)
    texts = [*TEXTS, "", " ", "a  b ", "\uff41\uff42 \ufb01", *(random_text(generator) for _ in range(300))]
    assert_equal(path, texts)


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_a_blank_that_is_not_a_token_is_unknown_or_the_bytes_of_its_sign(tmp_path, byte_fallback):
    texts = [text.replace(" ", "") for text in TEXTS]
    options = {"model_type": "bpe", "vocab_size": 400, "byte_fallback": byte_fallback, **AS_WRITTEN}
    generator = random.Random(0)
    path = train(tmp_path / "some.model", texts, **options, add_dummy_prefix=False)
    assert_equal(path, [*TEXTS, "\u2581", " a", *(random_text(generator) for _ in range(100))])


@pytest.mark.thorough
def test_rounding_decides_between_equal_sums_as_in_the_package(tmp_path):
    options = {"model_type": "unigram", "vocab_size": 200, "allow_whitespace_only_pieces": True}
    generator = random.Random(0)
    rows = [["eee", "aaa", "the", "\u4f60"], [" ", "   ", "    ", "sea"]]
    for row, strip in zip(rows, (True, False), strict=True):
        path = train(
            tmp_path / "some.model", [*TEXTS, "a  b   c    d     e"], remove_extra_whitespaces=strip, **options
        )
        assert_equal(path, ["".join(generator.choices([*row, " ", "x "], k=40)) for _ in range(200)])


def test_strings_that_a_model_rewrites_are_stripped_one_by_one(tmp_path):
    rules = {"a": "x  y", "m": "  z", "e": "", "\u2581": " ", "o": "\u2581", "s": "z "}
    lines = [f"{ord(old):X}\t{' '.join(f'{ord(one):X}' for one in new)}\n" for old, new in rules.items()]
    (tmp_path / "rules.tsv").write_text("".join(lines))
    generator = random.Random(0)
    texts = [*TEXTS, "e", " e ", "e\u2581", *("".join(generator.choices("amoes \u2581h", k=6)) for _ in range(200))]
    for strip in (True, False):
        options = {"model_type": "unigram", "vocab_size": 150, "remove_extra_whitespaces": strip}
        path = train(tmp_path / "some.model", **options, normalization_rule_tsv=str(tmp_path / "rules.tsv"))
        assert_equal(path, texts)


def test_any_tokens_have_the_text_that_the_package_gives_them(tmp_path):
    path = train(tmp_path / "some.model", model_type="bpe", vocab_size=400, byte_fallback=True)
    ours, theirs = read_sentencepiece(path), sentencepiece.SentencePieceProcessor(model_file=str(path))
    generator = random.Random(0)
    rows = [[3 + 0x20, 3 + 0x41], [3 + 0xE8, 3 + 0x86], [3 + 0xD7, 1, 3 + 0x86], [0, 0]]
    rows += [[generator.randrange(3, theirs.vocab_size()) for _ in range(6)] for _ in range(300)]
    for row in rows:
        assert ours.decode([number + 1 for number in row]) == theirs.decode(row), row


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
    with pytest.raises(DataError, match=r"a.model is not .* token '<sep>' is of type 4 \(user-defined or unused\)"):
        read_sentencepiece(symbols)
    (tmp_path / "rules.tsv").write_text("61\t78\n")
    for options, message in (
        ({"model_type": "char"}, "its model_type is char, only unigram and bpe are supported"),
        ({"model_type": "word"}, "its model_type is word, only unigram and bpe are supported"),
        ({"treat_whitespace_as_suffix": True}, r"its tokens end with the space, .*\(treat_whitespace_as_suffix\)"),
        ({"unk_surface": "?"}, r"its own text for unknown tokens, .*\(unk_surface\)"),
        ({"denormalization_rule_tsv": str(tmp_path / "rules.tsv")}, r"rewrites decoded texts, .*\(denormalizer_spec\)"),
    ):
        with pytest.raises(DataError, match=message):
            read_sentencepiece(train(tmp_path / "b.model", **{"model_type": "bpe", "vocab_size": 150, **options}))


def test_a_damaged_or_other_file_is_refused(tmp_path):
    path = train(tmp_path / "some.model", model_type="unigram", vocab_size=150)
    raw = path.read_bytes()
    for damaged in (b"", b"some text\n", raw[: len(raw) // 2], raw[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"some.model is not a SentencePiece model that can be read"):
            read_sentencepiece(path)
