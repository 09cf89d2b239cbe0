import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.tagged_sentences import TaggedSentences
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.ops.crf import Chain, crf_log_likelihood
from jaxnlp.tasks import Trained
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.tasks.tagging.inference import best_labels, decoding_chain, label_sentences, labels_and_confidence
from jaxnlp.text.tag_schemes import illegal_positions
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs
from tests.jaxnlp.models.test_word_encoder import PIECES
from tests.random_parameters import random_parameters

SENTENCES = [["Anna", "visits", "New", "York", "."], ["Paris", "sleeps"], ["the", "dog"] * 50]


@pytest.fixture(scope="module")
def found(trained):
    return label_sentences(trained, SENTENCES)


def test_sentences_have_a_label_and_a_probability_for_each_word(found):
    for words, one in zip(SENTENCES, found, strict=True):
        assert len(one.labels) == len(one.confidence) == len(words)
        assert 0.0 < min(one.confidence) <= max(one.confidence) <= 1.0 + 1e-6


def test_long_sentences_are_divided_and_put_together(found, trained):
    assert len(SENTENCES[2]) > trained.processor.inputs.max_length
    first = label_sentences(trained, [SENTENCES[2][:24]])[0]
    assert first.labels == found[2].labels[:24]
    np.testing.assert_allclose(first.confidence, found[2].confidence[:24], atol=1e-5)


@pytest.mark.thorough
def test_the_best_labels_are_legal_and_more_probable_than_others(found, trained):
    processor, model = trained.processor, trained.model
    assert not any(illegal_positions(one.labels, processor.scheme) for one in found[:2])
    batch = processor.batch([processor.encode(TaggedSentence("", tuple(words))) for words in SENTENCES[:2]], 2, 24)
    labels = np.asarray(jax.jit(best_labels(model, processor, constrained=True))(trained.params, batch))
    assert labels.shape == (2, processor.inputs.longest)
    assert [processor.labels[i] for i in labels[0, :5]] == found[0].labels

    @jax.jit
    def likelihood(params, batch, labels):
        scores = model.apply({"params": params}, *(batch[name] for name in model.config.reads))
        chain = decoding_chain(scores.chain, processor, constrained=True)
        return crf_log_likelihood(scores.scores, labels, jnp.array([5, 2]), chain)

    labels = jnp.asarray(labels)
    best, outside = (likelihood(trained.params, batch, x) for x in (labels, jnp.zeros_like(labels)))
    assert (best >= outside).all()
    assert best[0] > outside[0]


def test_only_a_constraint_forbids_labels(trained):
    size = len(trained.processor.labels)
    chain = Chain(jnp.zeros((size, size)), jnp.zeros(size), jnp.zeros(size))
    assert decoding_chain(chain, trained.processor, constrained=False) is chain
    bound = decoding_chain(chain, trained.processor, constrained=True)
    assert np.isneginf(bound.transitions).any()
    assert np.isfinite(bound.transitions).any(axis=1).all()


def test_context_needs_a_bert():
    data = TaggedSentences(source="conll2003_ner", context=3)
    with pytest.raises(ValueError, match=r"only a BERT reads data.context: set model.bert, or data.context 0"):
        Tagging().check(TaggerConfig(), data)
    Tagging().check(TaggerConfig(bert=True), data)


def test_a_sentence_without_words_is_refused(trained):
    with pytest.raises(ValueError, match="sentence 2 has no words"):
        label_sentences(trained, [["a"], []])


def test_sentences_of_one_text_are_labelled_as_in_their_file(tmp_path):
    """A model with context reads their neighbours in both; in a list of texts each sentence is alone."""
    inputs = WordInputs.of_sentences(SENTENCES, pieces=PIECES, max_pieces=12, max_characters=6)
    processor = TaggerProcessor(inputs, ("O", "B-X"), "bio", context=3)
    config = TaggerConfig(
        bert=True,
        encoder=BertConfig(num_layers=1, num_heads=2, width=8, max_positions=12),
        **{"word_width": 0, "character_features": 0, "recurrent_widths": (), "crf": False},
    )
    model = config.build(processor)
    params = random_parameters(model, *config.inputs(processor), spread=0.5)
    trained = Trained(Tagging(), model, params, processor, name="mine")
    file = tmp_path / "x.conll"
    file.write_text("".join("".join(f"{word}\tO\n" for word in words) + "\n" for words in SENTENCES))
    split = TaggedSentences(source="files").read_file(file, processor)
    predicted = [label for one in label_sentences(trained, SENTENCES, of_one_text=True) for label in one.confidence]
    scored = [0.0] * len(split.examples)
    row, read = 0, labels_and_confidence(model, processor, constrained=True)
    for batch in split.batches:
        _, confidence = jax.jit(read)(params, batch)
        for values, length in zip(confidence, batch["word_mask"].sum(axis=1), strict=True):
            if length:
                scored[split.rows[row]], row = values[:length], row + 1
    np.testing.assert_allclose(predicted, np.concatenate(scored), atol=1e-5)
    alone = label_sentences(trained, SENTENCES)
    assert np.abs(np.subtract(predicted[:5], alone[0].confidence)).max() > 1e-3
    np.testing.assert_array_equal(alone[0].confidence, label_sentences(trained, SENTENCES[:1])[0].confidence)
