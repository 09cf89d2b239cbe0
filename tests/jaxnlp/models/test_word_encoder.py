import dataclasses
import types

import chex
import jax
import numpy as np
import pytest

from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.word_encoder import WordEncoder, WordEncoderConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel
from jaxnlp.text.word_inputs import UNKNOWN_ID, WordInputs
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.random_parameters import random_parameters

PIECES = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "dog", "##s", "see", "rome"])
SENTENCES = [["The", "dogs", "see", "Rome"], ["the", "dog"]]
INPUTS = WordInputs.of_sentences(SENTENCES, pieces=PIECES, max_pieces=12, max_characters=6)
BERT = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=12, use_pooler=False)
SMALL = {"word_width": 5, "character_width": 4, "character_features": 6}
WORDS = WordEncoderConfig(recurrent_widths=(3,), **SMALL)
WHOLE = WordEncoderConfig(bert=True, encoder=BERT, recurrent_widths=(3,), **SMALL)


def batch_of(sentences, size=None):
    return INPUTS.batch([INPUTS.encode(words) for words in sentences], size or len(sentences), 12)


def encoded(config, batch, params=None, **options):
    encoder = WordEncoder(config, *config.sizes(INPUTS))
    arrays = [batch[name] for name in config.reads]
    params = random_parameters(encoder, *arrays) if params is None else params
    run = jax.jit(lambda params, *arrays: encoder.apply({"params": params}, *arrays, **options))
    return jax.device_get(run(params, *arrays)), params


@pytest.fixture(scope="module")
def whole():
    """The vectors of two sentences with all parts, and the parameters."""
    return encoded(WHOLE, batch_of(SENTENCES))


@pytest.mark.thorough
def test_vectors_are_as_wide_as_said_and_0_at_padding(whole):
    found, _ = whole
    chex.assert_shape(found, (2, 12, WHOLE.width))
    np.testing.assert_array_equal((found != 0.0).any(axis=-1), batch_of(SENTENCES)["word_mask"])
    assert WORDS.width == 6
    assert dataclasses.replace(WHOLE, recurrent_widths=()).width == 8 + 5 + 6


@pytest.mark.thorough
def test_sentences_and_padding_do_not_change_each_other(whole):
    found, params = whole
    alone, _ = encoded(WHOLE, batch_of(SENTENCES[1:], 2), params)
    np.testing.assert_allclose(alone[0, :2], found[1, :2], atol=1e-6)
    batch = batch_of(SENTENCES)
    batch["words"][1, 5], batch["characters"][1, 5], batch["pieces"][1, 8] = 3, 2, 6
    dirty, _ = encoded(WHOLE, batch, params)
    np.testing.assert_allclose(dirty, found, atol=1e-6)


def test_the_pair_of_the_last_word_does_not_read_padding():
    config = WordEncoderConfig(word_width=0, character_features=0, recurrent_widths=(), bigram_width=4)
    found, params = encoded(config, batch_of(SENTENCES))
    batch = batch_of(SENTENCES)
    batch["words"][1, 2] = 3
    np.testing.assert_array_equal(encoded(config, batch, params)[0], found)


def test_parts_are_concatenated_the_berts_first():
    config = dataclasses.replace(WHOLE, recurrent_widths=())
    batch = batch_of(SENTENCES)
    found, params = encoded(config, batch)
    read = jax.jit(Bert(BERT, PIECES.size).apply)
    hidden = np.asarray(read({"params": params["bert"]}, batch["pieces"], None, batch["piece_mask"]).hidden)
    for row, words in enumerate(SENTENCES):
        for place, start in enumerate(INPUTS.encode(words)["first_pieces"]):
            np.testing.assert_allclose(found[row, place, :8], hidden[row, start], atol=1e-5)
    words = params["words"]["embedding"][batch["words"]]
    np.testing.assert_allclose(found[0, :4, 8:13], words[0, :4], atol=1e-6)


def test_features_of_characters_are_the_maximum_over_windows():
    config = WordEncoderConfig(word_width=0, recurrent_widths=(), character_width=4, character_features=6)
    batch = batch_of(SENTENCES)
    found, params = encoded(config, batch)
    kernel = params["convolution"]["kernel"].reshape(3, 4, 6)
    for place, word in enumerate(SENTENCES[0]):
        ids = batch["characters"][0, place][: len(word)]
        x = np.pad(params["characters"]["embedding"][ids], ((2, 2), (0, 0)))
        windows = [sum(x[start + k] @ kernel[k] for k in range(3)) for start in range(len(word) + 2)]
        expected = np.maximum(np.max(windows, axis=0) + params["convolution"]["bias"], 0.0)
        np.testing.assert_allclose(found[0, place], expected, atol=1e-5)


def test_words_are_unknown_at_random_in_training_only():
    config = WordEncoderConfig(
        word_width=5, character_features=0, recurrent_widths=(), word_dropout_rate=0.5, input_dropout_rate=0.0
    )
    batch = {name: np.repeat(value, 50, axis=0) for name, value in batch_of(SENTENCES[:1]).items()}
    plain, params = encoded(config, batch)
    trained, _ = encoded(config, batch, params, deterministic=False, rngs={"dropout": jax.random.key(0)})
    unknown = params["words"]["embedding"][UNKNOWN_ID]
    is_unknown = (np.abs(np.asarray(trained)[:, :4] - unknown) < 1e-6).all(axis=-1)
    assert 0.35 < is_unknown.mean() < 0.65
    assert not (np.abs(np.asarray(plain)[:, :4] - unknown) < 1e-6).all(axis=-1).any()


def test_pairs_of_neighbours_have_embeddings_of_their_own():
    config = WordEncoderConfig(
        word_width=0, character_features=0, recurrent_widths=(), bigram_width=4, bigram_buckets=1_000
    )
    with pytest.raises(ValueError, match="the model has no input"):
        dataclasses.replace(config, bigram_width=0, bigram_buckets=32_768)
    sentences = [["the", "dog", "the", "dog"], ["dog", "the", "dogs"]]
    found = np.asarray(encoded(config, batch_of(sentences))[0])
    np.testing.assert_array_equal(found[0, 0], found[0, 2])  # the dog
    np.testing.assert_array_equal(found[0, 1], found[1, 0])  # dog the
    others = [found[0, 0], found[0, 1], found[0, 3], found[1, 1], found[1, 2]]
    assert len({tuple(vector.tolist()) for vector in others}) == 5
    encoder = WordEncoder(config, *config.sizes(INPUTS))
    first = jax.jit(encoder.init)(jax.random.key(0), *(batch_of(sentences)[name] for name in config.reads))
    assert not np.asarray(first["params"]["bigrams"]["embedding"]).any()


def test_an_unknown_word_is_unknown_in_its_pairs_too():
    config = WordEncoderConfig(
        word_width=5, character_features=0, recurrent_widths=(), bigram_width=4, word_dropout_rate=0.5
    )
    config = dataclasses.replace(config, input_dropout_rate=0.0)
    batch = {name: np.repeat(value, 50, axis=0) for name, value in batch_of([["the", "dog", "dogs"]]).items()}
    _, params = encoded(config, batch)
    found, _ = encoded(config, batch, params, deterministic=False, rngs={"dropout": jax.random.key(0)})
    words, pairs = np.split(np.asarray(found).round(4), [5], axis=-1)
    cases = {(*words[row, :2].ravel(), *pairs[row, 0]) for row in range(len(words))}
    # Each word of the first pair is known or unknown. Each of the four cases has one vector, which no other case has.
    assert len(cases) == len({case[:10] for case in cases}) == len({case[10:] for case in cases}) == 4


@pytest.mark.thorough
def test_only_an_unread_pooler_is_frozen():
    assert WHOLE.frozen(("encoder", "bert", "pooler", "kernel"))
    assert not WHOLE.frozen(("encoder", "bert", "segments"))
    assert not WHOLE.frozen(("encoder", "words", "embedding"))


def test_the_bert_of_another_model_is_adopted_with_its_tokenizer():
    theirs = BertPretrainingConfig(encoder=dataclasses.replace(BERT, dropout_rate=0.4, use_pooler=True))
    model = theirs.build(PIECES)
    trained = Trained(MaskedLanguageModel(), model, {"encoder": {"x": 1}}, PIECES, name="theirs")
    found = dataclasses.replace(WHOLE, encoder=BertConfig(dropout_rate=0.2)).adopt(trained)
    assert found.config.encoder == dataclasses.replace(BERT, dropout_rate=0.2, use_pooler=True)
    assert found.params == {"encoder": {"bert": {"x": 1}}}
    assert found.processor == PIECES
    with pytest.raises(ValueError, match=r"set --model\.bert to read sentences with the BERT of theirs"):
        WORDS.adopt(trained)


CORPUS = types.SimpleNamespace(processor=types.SimpleNamespace(inputs=INPUTS))


def test_word_vectors_of_a_file_are_the_first_embeddings(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1 2 3\ndog 4 5 6\n")
    config = WordEncoderConfig(word_width=3, vectors_path=str(path))
    found = config.initial_params(CORPUS)["encoder"]["words"]["embedding"]
    assert found.shape == (INPUTS.vocabulary_size, 3)
    place = 2 + INPUTS.words.index("dog")
    np.testing.assert_array_equal(found[place], [4.0, 5.0, 6.0])
    assert WORDS.initial_params(CORPUS) == {}
    with pytest.raises(ValueError, match=r"model\.word_width must be that of .*vectors\.txt, 3, got 5"):
        dataclasses.replace(config, word_width=5).initial_params(CORPUS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"word_width": 0, "character_features": 0}, "the model has no input"),
        ({"recurrent_widths": (), "cell": "gru"}, "model.cell applies only to models with recurrent layers"),
        ({"recurrent_widths": (0,)}, "model.recurrent_widths must be at least 1 each"),
        ({"word_dropout_rate": 1.0}, "model.word_dropout_rate must be in"),
        ({"word_width": 0, "word_dropout_rate": 0.5}, "only to models with embeddings of words or pairs"),
        ({"character_features": -1}, "model.character_features must be at least 0, got -1"),
        ({"bigram_buckets": 7}, "model.bigram_buckets applies only to models with model.bigram_width"),
        ({"bigram_width": -1}, "model.bigram_width must be at least 0, got -1"),
        ({"character_window": 0}, "model.character_window must be at least 1, got 0"),
        ({"character_window": 10**9}, "model.character_window must be less than 1001, got 1000000000"),
    ],
)
def test_configs_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        WordEncoderConfig(**fields)


def test_a_bert_needs_its_tokenizer_and_room():
    with pytest.raises(ValueError, match="give a BERT with --init-from"):
        WHOLE.check(types.SimpleNamespace(inputs=dataclasses.replace(INPUTS, pieces=None)))
    with pytest.raises(ValueError, match=r"data\.max_pieces must be at most the BERT's 12 positions, got 13"):
        WHOLE.check(types.SimpleNamespace(inputs=dataclasses.replace(INPUTS, max_pieces=13)))
    WORDS.check(types.SimpleNamespace(inputs=dataclasses.replace(INPUTS, pieces=None)))
    with pytest.raises(ValueError, match="needs pieces, piece_mask and first_pieces"):
        WordEncoder(WHOLE, 9, 9, 9).init(jax.random.key(0), *(batch_of(SENTENCES)[name] for name in WORDS.reads))
