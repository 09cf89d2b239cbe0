import dataclasses
import functools
import types

import jax
import numpy as np
import pytest
import torch
import transformers

from jaxnlp.convert.encoder_weights import to_huggingface
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.extractive_qa import BertSpanConfig, RecurrentSpanConfig
from jaxnlp.nn.recurrent import CellName
from jaxnlp.text.question_contexts import QuestionProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.jaxnlp.models.parameter_helpers import assert_described
from tests.random_parameters import random_parameters

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, *"abcdefgh"])
PROCESSOR = QuestionProcessor(VOCABULARY, 12, 2)
BERT = BertSpanConfig(encoder=BertConfig(num_layers=2, num_heads=2, width=8, max_positions=12, use_pooler=False))
RECURRENT = RecurrentSpanConfig(embedding_width=6, feature_width=3, widths=(4, 5))
CONFIGS = pytest.mark.parametrize("config", [BERT, RECURRENT], ids=["bert", "recurrent"])


def batch(rows=3, length=9):
    draw = np.random.default_rng(0)
    tokens = draw.integers(5, VOCABULARY.size, (rows, length)).astype(np.int32)
    mask = np.arange(length) < np.array([length, 7, 6])[:rows, None]
    return tokens, np.int32(np.arange(length) >= 4) * mask, mask


@functools.cache
def built(config):
    model = config.build(PROCESSOR)
    return model, random_parameters(model, *(np.zeros(x.shape, x.dtype) for x in config.inputs(PROCESSOR)))


@functools.cache
def compiled(config):
    return jax.jit(built(config)[0].apply)


def scores(config, *inputs):
    return np.asarray(compiled(config)({"params": built(config)[1]}, *inputs))


@pytest.mark.thorough
@CONFIGS
def test_each_token_has_two_scores_in_float32_and_neither_padding_nor_other_rows_change_any(config):
    tokens, segments, mask = batch()
    found = scores(config, tokens, segments, mask)
    assert (found.shape, found.dtype) == ((3, 9, 2), np.float32)
    other = np.where(mask, tokens, 7)
    np.testing.assert_allclose(
        scores(config, other, segments, mask)[mask], found[mask], rtol=1e-5, atol=1e-6
    )  # also as a token of the question
    other = np.where(np.arange(3)[:, None] == 1, tokens, 7)
    np.testing.assert_allclose(scores(config, other, segments, mask)[1], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
@CONFIGS
def test_every_parameter_is_described_and_training_has_dropout(config):
    model, params = built(config)
    described = assert_described(config, params)
    assert [path for path, entry in described.items() if entry.head] == [("span", "bias"), ("span", "kernel")]
    arguments = {"params": params}, *batch()
    rngs = {"rngs": {"dropout": jax.random.key(0)}}
    assert not np.allclose(model.apply(*arguments, deterministic=False, **rngs), scores(config, *batch()))


def test_equals_the_question_answering_bert_of_transformers():
    _, params = built(BERT)
    settings = transformers.BertConfig(
        vocab_size=VOCABULARY.size,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    theirs = transformers.BertForQuestionAnswering(settings).eval()
    tensors = {
        f"bert.{name}": x for name, x in to_huggingface(params["encoder"], BERT.encoder, VOCABULARY.size).items()
    }
    tensors |= {"qa_outputs.weight": params["span"]["kernel"].T, "qa_outputs.bias": params["span"]["bias"]}
    theirs.load_state_dict({name: torch.tensor(np.array(x)) for name, x in tensors.items()})
    tokens, segments, mask = batch()
    with torch.no_grad():
        found = theirs(*(torch.tensor(np.int64(x)) for x in (tokens, mask, segments)))
    expected = torch.stack([found.start_logits, found.end_logits], dim=-1).numpy()
    np.testing.assert_allclose(scores(BERT, tokens, segments, mask)[mask], expected[mask], rtol=2e-4, atol=2e-5)


def test_recurrent_layers_read_whether_a_token_is_in_the_question():
    tokens, segments, mask = batch(1)
    tokens[0] = [2, 5, 6, 3, 7, 8, 9, 10, 3]
    asked = tokens.copy()
    asked[0, 1] = 8
    _, params = built(RECURRENT)
    blind = {**params, "tokens": {"embedding": np.ones_like(params["tokens"]["embedding"])}}
    first, second = (
        np.asarray(compiled(RECURRENT)({"params": blind}, each, segments, mask)) for each in (tokens, asked)
    )
    assert not np.allclose(first, second)
    same = asked.copy()
    same[0, 1] = 11  # as unknown to the text as the token that it replaces
    np.testing.assert_array_equal(first, compiled(RECURRENT)({"params": blind}, same, segments, mask))


def test_an_encoder_is_adopted_from_any_bert_and_the_head_from_a_model_of_this_kind():
    model, params = built(BERT)
    pretrained = types.SimpleNamespace(model=model, params=params, processor=PROCESSOR, name="earlier")
    adopted = BertSpanConfig().adopt(pretrained)
    assert adopted.config.encoder.width == 8
    assert adopted.processor is VOCABULARY
    assert set(adopted.params) == {"encoder", "span"}
    other = types.SimpleNamespace(bert_path=("encoder",), encoder=BERT.encoder)
    encoder = types.SimpleNamespace(**vars(pretrained) | {"model": types.SimpleNamespace(config=other)})
    assert set(BertSpanConfig().adopt(encoder).params) == {"encoder"}
    assert BERT.frozen(("encoder", "pooler", "kernel"))
    assert not BERT.frozen(("encoder", "blocks", "attention", "qkv", "kernel"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: BertSpanConfig(encoder=BertConfig(num_segments=1)).check(PROCESSOR),
            "num_segments must be at least 2",
        ),
        (lambda: dataclasses.replace(RECURRENT, widths=()), "model.widths needs at least one layer"),
        (lambda: dataclasses.replace(RECURRENT, feature_width=0), "model.feature_width must be at least 1"),
        (lambda: dataclasses.replace(RECURRENT, widths=(4,), hidden_dropout_rate=0.1), "hidden_dropout_rate"),
    ],
)
def test_configs_that_do_not_fit_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("cell", ["gru", "rnn_tanh"])
def test_other_cells_are_built_and_described(cell: CellName):
    config = dataclasses.replace(RECURRENT, cell=cell)
    shapes = jax.eval_shape(config.build(PROCESSOR).init, jax.random.key(0), *config.inputs(PROCESSOR))["params"]
    assert_described(config, shapes)
