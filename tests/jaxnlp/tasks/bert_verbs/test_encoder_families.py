"""RoBERTa, XLM-RoBERTa, DistilBERT, ELECTRA and ModernBERT in every task with a BERT: loaded, used and exported."""

import dataclasses
import functools

import chex
import jax
import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.convert.pretrained_encoder import read_pretrained
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.extractive_qa import BertSpanConfig
from jaxnlp.models.recurrent_parser import RecurrentParserConfig
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.targets import OneClass
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.commands import Export
from jaxnlp.tasks.bert_verbs.word_export import ExportWords
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.extractive_qa import ExtractiveQA
from jaxnlp.tasks.extractive_qa.export import ExportSpans
from jaxnlp.tasks.parsing import Parsing
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.question_contexts import ContextQuestion, QuestionProcessor
from jaxnlp.text.tagger_processor import TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs
from tests.encoder_folders import PREFIXES, TEXTS, make_model, save_tokenizer, write_folder
from tests.random_parameters import random_parameters

FAMILIES = ["roberta", "xlm-roberta", "distilbert", "electra", "modernbert"]
THOROUGH = ("xlm-roberta", "distilbert", "modernbert")
"""Each differs from one of the others by its tokenizer or by what it leaves out."""
EACH = pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.thorough) if name in THOROUGH else name for name in FAMILIES]
)
LABELS = OneClass(("arts", "sport", "world"))
ROWS = [(text, other) for text, other in zip(TEXTS, [*TEXTS[1:], "A cat."], strict=True)]
WORDS = ("The", "cats", "sat", "in", "Rome", ",", "猫")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The folder of a tiny model of a family, with a pooler where the family has one, and the loaded model."""

    @functools.cache
    def make(family):
        folder = tmp_path_factory.mktemp("weights") / family
        write_folder(family, folder)
        return folder, jaxnlp.load_pretrained(folder)

    return make


def begun(weights, family, config, task, processor_of):
    """A model of a task that begins with the weights, with other parameters at random."""
    _, loaded = weights(family)
    adopted = config.adopt(loaded)
    processor = processor_of(adopted.processor)
    adopted.config.check(processor)
    model, shapes = adopted.config.build(processor), adopted.config.inputs(processor)
    params = jax.tree_util.tree_map_with_path(
        lambda path, x: given_at(adopted.params, path, x), random_parameters(model, *shapes, spread=0.5)
    )
    return Trained(task, model, jax.device_put(params), processor, name="mine")


def given_at(params, path, otherwise):
    for key in path:
        if key.key not in params:
            return otherwise
        params = params[key.key]
    return params


def classifier(weights, family, *, texts=1, **fields):
    config = BertClassifierConfig(compute=EXACT, head_dropout_rate=0.25, **fields)
    return begun(
        weights, family, config, Classification(), lambda v: TextClassifierProcessor(v, 40, one_part(LABELS, texts))
    )


@pytest.mark.thorough
@EACH
def test_pretrained_weights_embed_compare_and_attend(weights, family, tmp_path, capsys):
    folder, loaded = weights(family)
    model = transformers.AutoModel.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS[:3]:
        inputs = tokenizer(text, truncation=True, max_length=40, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**{name: inputs[name] for name in ("input_ids", "attention_mask")}).last_hidden_state[0]
        np.testing.assert_allclose(loaded.embed(text), hidden.mean(0).numpy(), atol=1e-5)
    vectors = loaded.embed(TEXTS[:2])
    cosine = vectors[0] @ vectors[1] / np.prod(np.linalg.norm(vectors, axis=1))
    np.testing.assert_allclose(loaded.predict(*TEXTS[:2]).label, max(cosine, 0.0), atol=1e-5)
    maps = loaded.attend("A cat.", "The dog.").maps[0]
    special = loaded.processor.vocabulary.special
    assert maps.rows[0] == special.cls
    assert maps.rows.count(special.sep) == (3 if "roberta" in family else 2)
    np.testing.assert_allclose(maps.weights.sum(-1), 1.0, atol=1e-5)
    assert main(["attention", str(folder), "A cat.", "--out", str(tmp_path / "page.html")]) == 0
    capsys.readouterr()
    assert main(["export", str(folder), str(tmp_path / "again")]) == 0
    assert f"transformers.{PREFIXES[family]}Model.from_pretrained reads it" in capsys.readouterr().out
    chex.assert_trees_all_equal(read_pretrained(tmp_path / "again").params, read_pretrained(folder).params)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("electra", "ForPreTraining"), ("electra", "ForMaskedLM"), ("bert", "ForNextSentencePrediction")],
)
def test_each_pretraining_head_goes_out_in_its_own_class(family, kind, tmp_path, capsys):
    model, _ = write_folder(family, tmp_path / "theirs", kind)
    assert main(["export", str(tmp_path / "theirs"), str(tmp_path / "again")]) == 0
    assert f"transformers.{type(model).__name__}.from_pretrained reads it" in capsys.readouterr().out
    again, report = type(model).from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(report.values())
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.sweep(1)
@EACH
def test_a_folder_of_sentence_transformers_gives_its_embeddings(weights, family, tmp_path):
    folder, _ = weights(family)
    theirs = SentenceTransformer(modules=[Transformer(str(folder)), Pooling(8, "cls"), Normalize()], device="cpu")
    theirs.max_seq_length = 12
    theirs.save(str(tmp_path / "theirs"))
    ours = jaxnlp.load_pretrained(tmp_path / "theirs")
    expected = theirs.encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(ours.embed(TEXTS), expected, atol=1e-5)
    Export(tmp_path / "ours")(ours)
    again = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS, show_progress_bar=False), expected, atol=1e-5)


def scores_of(trained, rows):
    tokenized = trained.processor.tokenize(rows)
    longest = max(map(len, tokenized.tokens))
    batch = trained.processor.batch(tokenized.tokens, tokenized.segments, len(rows), longest)
    reads = (batch[name] for name in trained.model.config.reads)
    return np.asarray(jax.jit(trained.model.apply)({"params": trained.params}, *reads))


def read_by_transformers(auto, folder, **options):
    """The model, of which no parameter is missing or left over."""
    model, report = auto.from_pretrained(folder, output_loading_info=True, **options)
    assert not any(report.values()), report
    return model.eval()


def inputs_of(folder, *columns, **options):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer(*columns, padding=True, truncation=True, return_tensors="pt", **options)


@pytest.mark.thorough
@EACH
@pytest.mark.parametrize("texts", [1, 2])
def test_a_classifier_by_the_pooler_is_transformers_own(weights, family, texts, tmp_path):
    trained = classifier(weights, family, texts=texts, pooling="pooler")
    Export(tmp_path / "out")(trained)
    model = read_by_transformers(transformers.AutoModelForSequenceClassification, tmp_path / "out")
    assert type(model).__name__ == f"{PREFIXES[family]}ForSequenceClassification"
    assert model.config.id2label == dict(enumerate(LABELS.names))
    places = {"distilbert": "dropout", "modernbert": "drop"}
    dropout = getattr(model, places[family]) if family in places else model.classifier.dropout
    assert dropout.p == 0.25
    rows = [row[:texts] for row in ROWS]
    with torch.no_grad():
        expected = model(**inputs_of(tmp_path / "out", *map(list, zip(*rows, strict=True)))).logits.numpy()
    np.testing.assert_allclose(scores_of(trained, rows), expected, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 1e-2
    again = jaxnlp.load_pretrained(tmp_path / "out")
    chex.assert_trees_all_equal(jax.device_get(again.params), jax.device_get(trained.params))
    assert (again.processor, again.task) == (trained.processor, trained.task)
    found = [again.predict(*row).label for row in rows]
    assert found == [LABELS.names[index] for index in expected.argmax(-1)]


@pytest.mark.thorough
@EACH
def test_a_classifier_by_the_mean_has_a_program_and_other_classes_refuse_it(weights, family, tmp_path):
    trained = classifier(weights, family, pooling="mean")
    Export(tmp_path / "out")(trained)
    for auto in (
        transformers.AutoModelForSequenceClassification,
        transformers.AutoModelForTokenClassification,
        transformers.AutoModelForMultipleChoice,
    ):
        if family != "distilbert" or auto is not transformers.AutoModelForMultipleChoice:
            with pytest.raises(RuntimeError, match="mismatch"):
                auto.from_pretrained(tmp_path / "out")
    auto = transformers.AutoModelForSequenceClassification
    model = read_by_transformers(auto, tmp_path / "out", trust_remote_code=True)
    with torch.no_grad():
        expected = model(**inputs_of(tmp_path / "out", TEXTS)).logits.numpy()
    np.testing.assert_allclose(scores_of(trained, [(text,) for text in TEXTS]), expected, atol=1e-5)
    assert jaxnlp.load_pretrained(tmp_path / "out").predict(TEXTS) == trained.predict(TEXTS)


WORD_FIELDS = {"bert": True, "word_width": 0, "character_features": 0, "recurrent_widths": ()}


def word_inputs(vocabulary):
    return WordInputs.of_sentences([WORDS], pieces=vocabulary, max_pieces=40, max_characters=6)


@pytest.mark.thorough
@EACH
def test_a_tagger_is_transformers_own_and_reads_words_as_it_does(weights, family, tmp_path):
    config = TaggerConfig(crf=False, input_dropout_rate=0.25, **WORD_FIELDS)
    trained = begun(
        weights, family, config, Tagging(), lambda v: TaggerProcessor(word_inputs(v), ("O", "B-X", "I-X"), "bio")
    )
    ExportWords(tmp_path / "out")(trained)
    model = read_by_transformers(transformers.AutoModelForTokenClassification, tmp_path / "out")
    assert type(model).__name__ == f"{PREFIXES[family]}ForTokenClassification"
    assert model.config.id2label == {0: "O", 1: "B-X", 2: "I-X"}
    inputs = inputs_of(tmp_path / "out", [list(WORDS)], is_split_into_words=True)
    with torch.no_grad():
        logits = model(**inputs).logits[0].numpy()
    first = [inputs.word_ids(0).index(number) for number in range(len(WORDS))]
    held = trained.processor.inputs
    batch = held.batch([held.encode(WORDS)], 1, held.length(WORDS))
    np.testing.assert_array_equal(batch["pieces"][0], inputs["input_ids"][0])
    np.testing.assert_array_equal(batch["first_pieces"][0][: len(WORDS)], first)
    scores = jax.jit(trained.model.apply)({"params": trained.params}, *(batch[name] for name in config.reads)).scores
    np.testing.assert_allclose(scores[0, : len(WORDS)], logits[first], atol=2e-2)  # bfloat16 products
    again = jaxnlp.load_pretrained(tmp_path / "out")
    text = "The cats sat in Rome, 猫"
    assert again.tag(text) == trained.tag(text)
    assert again.attend(text).maps[0].rows == trained.attend(text).maps[0].rows


@pytest.mark.thorough
@EACH
def test_a_parser_reads_the_encoder_and_is_read_back_whole(weights, family, tmp_path):
    fields = WORD_FIELDS | {"recurrent_widths": (3,)}
    trained = begun(
        weights,
        family,
        RecurrentParserConfig(**fields),
        Parsing(),
        lambda v: ParserProcessor(word_inputs(v), (), ("root", "nsubj"), tag_column="none"),
    )
    ExportWords(tmp_path / "out")(trained)
    again = jaxnlp.load_pretrained(tmp_path / "out")
    assert again.parse("The cats sat in Rome") == trained.parse("The cats sat in Rome")
    expected = jax.device_get(trained.params)
    expected["encoder"]["bert"].pop("pooler", None)
    chex.assert_trees_all_equal(jax.device_get(again.params), expected)
    with pytest.raises(RuntimeError, match="mismatch"):
        transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "out")


QUESTION, CONTEXT = "Where does the big dog eat fish?", "The cat sat on the mat. A big dog ate a fish in Rome, 北京."


@pytest.mark.thorough
@EACH
def test_a_model_that_finds_answers_is_transformers_own(weights, family, tmp_path):
    trained = begun(
        weights, family, BertSpanConfig(compute=EXACT), ExtractiveQA(), lambda v: QuestionProcessor(v, 40, 4)
    )
    ExportSpans(tmp_path / "out")(trained)
    model = read_by_transformers(transformers.AutoModelForQuestionAnswering, tmp_path / "out")
    assert type(model).__name__ == f"{PREFIXES[family]}ForQuestionAnswering"
    inputs = inputs_of(tmp_path / "out", "Where?", "A big dog ate.")
    with torch.no_grad():
        found = model(**inputs)
    (window,) = trained.processor.windows([ContextQuestion("1", "Where?", "A big dog ate.")])
    np.testing.assert_array_equal(window.tokens, inputs["input_ids"][0])
    batch = trained.processor.batch([window], 1, len(window.tokens))
    scores = trained.model.apply({"params": trained.params}, *(batch[name] for name in trained.model.config.reads))
    for side, logits in enumerate((found.start_logits, found.end_logits)):
        np.testing.assert_allclose(scores[..., side], logits.numpy(), atol=1e-5)
    again = jaxnlp.load_pretrained(tmp_path / "out")
    assert again.ask(QUESTION, CONTEXT, n_best=3) == trained.ask(QUESTION, CONTEXT, n_best=3)
    model.save_pretrained(tmp_path / "theirs")  # as one that Transformers trained
    transformers.AutoTokenizer.from_pretrained(tmp_path / "out").save_pretrained(tmp_path / "theirs")
    answers = jaxnlp.load_pretrained(tmp_path / "theirs").ask(QUESTION, CONTEXT, n_best=3)
    assert {answer.text for answer in answers} <= {CONTEXT[i:j] for i in range(70) for j in range(i, 71)}


@EACH
def test_answers_begin_and_end_at_words_marks_and_chinese_characters(weights, family):
    vocabulary = weights(family)[1].processor.vocabulary
    processor = QuestionProcessor(vocabulary, 120, 4)
    (window,) = processor.windows([ContextQuestion("1", "Where?", CONTEXT)])
    starts, stops = (set(window.offsets[window.edges[:, side], side].tolist()) for side in (0, 1))
    # Here the vocabulary of XLM-RoBERTa has one unknown token for both Chinese characters.
    chinese = "北京" if family == "xlm-roberta" else "京"
    for answer in ("Rome", "fish in Rome", "The cat", "mat.", chinese):
        place = CONTEXT.index(answer)
        assert place in starts, answer
        assert place + len(answer) in stops, answer
    inside = CONTEXT.index("ome")
    assert inside not in starts


@EACH
def test_pretraining_by_next_sentences_says_why_it_does_not_apply(weights, family):
    _, loaded = weights(family)
    with pytest.raises(ValueError, match=rf"model\.encoder\.model_type must be bert, got {family}"):
        BertPretrainingConfig().adopt(loaded)


@EACH
def test_dropout_rates_of_the_file_are_those_of_the_config_and_training_keeps_its_own(weights, family):
    _, loaded = weights(family)
    assert loaded.model.config.encoder.dropout_rate == (0.0 if family == "modernbert" else 0.1)
    config = BertClassifierConfig(pooling="mean")
    config = dataclasses.replace(config, encoder=dataclasses.replace(config.encoder, dropout_rate=0.3))
    assert config.adopt(loaded).config.encoder.dropout_rate == 0.3


def test_a_bert_with_the_tokenizer_of_xlm_roberta_is_read_as_sentence_transformers_reads_it(tmp_path):
    """As paraphrase-multilingual-MiniLM-L12-v2 and multilingual-e5-small are."""
    tokenizer = save_tokenizer("xlm-roberta", tmp_path / "bert")
    make_model("bert", vocab_size=len(tokenizer)).save_pretrained(tmp_path / "bert")
    modules = [Transformer(str(tmp_path / "bert")), Pooling(8, "mean"), Normalize()]
    theirs = SentenceTransformer(modules=modules, device="cpu")
    theirs.max_seq_length = 30
    theirs.save(str(tmp_path / "theirs"))
    ours, expected = jaxnlp.load_pretrained(tmp_path / "theirs"), theirs.encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(ours.embed(TEXTS), expected, atol=1e-5)
    assert ours.processor.vocabulary.tokens(ours.processor.vocabulary.encode("cat"))[0].startswith("▁")
    Export(tmp_path / "ours")(ours)
    again = SentenceTransformer(str(tmp_path / "ours"), device="cpu").encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(again, expected, atol=1e-5)
