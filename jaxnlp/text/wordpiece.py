"""WordPiece vocabularies: of given tokens, or of texts."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tokenizers import Tokenizer
from tokenizers.trainers import WordPieceTrainer

from jaxnlp.text import most_frequent
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary, TokenizedTexts, padded_texts, refuse_lacking
from jaxnlp.text.tokenizer_classes.bert import SPECIAL, add_template, bert_tokenizer, ids_of

__all__ = ["CLS", "MASK", "PAD", "SEP", "SPECIAL", "UNK", "TokenizedTexts", "WordPieceVocabulary", "padded_texts"]

PAD, UNK, CLS, SEP, MASK = SPECIAL


class WordPieceVocabulary(EncoderVocabulary):
    """A vocabulary of WordPiece with BERT's special tokens."""

    @classmethod
    def of_pieces(cls, pieces: Sequence[str], *, lowercase: bool = True) -> "WordPieceVocabulary":
        """BERT's tokenizer.

        Args:
          pieces: the token with id i at index i; tokens that continue a word start with ##.
          lowercase: lowercase texts.

        Raises: ValueError when tokens are not distinct, or special tokens are missing.
        """
        ids = ids_of(pieces)
        refuse_lacking(ids, SPECIAL)
        tokenizer = bert_tokenizer(ids, lowercase=lowercase)
        add_template(tokenizer)
        tokenizer.add_special_tokens(list(SPECIAL))
        return cls(tokenizer)

    @classmethod
    def of_texts(
        cls, texts: Sequence[str], size: int, *, minimum_count: int = 2, lowercase: bool = True
    ) -> "WordPieceVocabulary":
        """A vocabulary for texts: their characters, and tokens made by merging the most frequent pairs.

        The same texts in the same order give the same tokens with the same ids.

        Args:
          texts: split into words as BERT does.
          size: maximum V; V is smaller when no more pairs are frequent enough.
          minimum_count: minimum number of occurrences of a merged pair.
          lowercase: lowercase texts.

        Raises:
          ValueError: when the special tokens and the characters are already more than `size`.
        """
        tokenizer = cls.of_pieces(SPECIAL, lowercase=lowercase).tokenizer
        first, further = set[str](), set[str]()
        for word in _words(tokenizer, texts):
            first.add(word[0])
            further.update(word[1:])
        # The trainer adds ##x in an order that differs from process to process. The ids would differ too, and with them
        # the # choice among equally frequent neighbours.
        fixed = [*SPECIAL, *(f"##{character}" for character in sorted(further))]
        if len(fixed) + len(first | further) > size:
            raise ValueError(
                f"a vocabulary of {size} tokens is too small for {len(SPECIAL)} special tokens, {len(first | further)} "
                f"characters that start words and {len(further)} that continue words; it needs at least "
                f"{len(fixed) + len(first | further)}"
            )
        trainer = WordPieceTrainer(
            vocab_size=size, min_frequency=minimum_count, special_tokens=fixed, show_progress=False
        )
        tokenizer.train_from_iterator(texts, trainer)
        ids = tokenizer.get_vocab()
        return cls.of_pieces(sorted(ids, key=ids.__getitem__), lowercase=lowercase)

    @classmethod
    def of_whole_words(cls, texts: Sequence[str], size: int, *, minimum_count: int = 2) -> "WordPieceVocabulary":
        """A vocabulary of whole lowercased words: the special tokens, and the most frequent words of texts.

        Args:
          texts: split into words as BERT does.
          size: maximum V, special tokens included.
          minimum_count: minimum number of occurrences of a word.
        """
        counts = Counter(_words(cls.of_pieces(SPECIAL).tokenizer, texts))
        words = [word for word in most_frequent(counts, minimum_count) if word not in SPECIAL]
        return cls.of_pieces([*SPECIAL, *words[: size - len(SPECIAL)]])


def _words(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[str]:
    """The words of texts, as a tokenizer splits them."""
    for text in texts:
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text)):
            yield word
