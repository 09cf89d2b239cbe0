"""What holds for every task of the library and for the families of tests/seam."""

import dataclasses
import inspect
import pydoc
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from configs import (
    gpt_play_image,
    invented_people_qa,
    number_words,
    small_grammar_parser,
    small_grammar_tagger,
    vit_digits,
)
from data.text_table import TextTable
from jaxnlp.inference import compilation
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.models.graph_parser import GraphParserConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.models.recurrent_parser import RecurrentParserConfig
from jaxnlp.models.text_cnn import TextCNNConfig
from jaxnlp.models.text_rnn import TextRNNConfig
from jaxnlp.ops.devices import compile_for
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.tasks import Method, Task, Trained, every_task
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.parsing import Parsing
from jaxnlp.tasks.text_to_text import TextToText
from tests.few_lengths import with_few_lengths
from tests.guards import test_families as guards
from tests.random_parameters import random_parameters
from tests.seam import images
from train.config import update
from train.evaluation.scoring import SplitScoring
from train.parallel import make_parallel
from train.report.metrics import charts, title_of
from train.run.init_from import begin
from train.run.setup import set_up
from train.step import has_parts

files = guards.files


def smoothed(config):
    return update(config, **{"task.label_smoothing": 0.1})


def translation(files):
    small = {"num_layers": 1, "width": 8, "num_heads": 2, "context_length": 32}
    data = {"highest": 200, "held_out_pairs": 4, "training_pairs": 40, "lengths": (32,), "batch_tokens": 128}
    fields = {f"model.{name}": value for name, value in small.items()}
    return update(number_words.get_config(), **fields | {f"data.{name}": value for name, value in data.items()})


def images_of_digits():
    small = {"num_layers": 1, "num_heads": 1, "width": 8, "feed_forward_width": 8, "patch": 4}
    return update(vit_digits.get_config(), **{f"model.{name}": value for name, value in small.items()})


def pixels_of_digits():
    fields = {"model.num_layers": 1, "model.num_heads": 1, "model.width": 8, "task.sample_images": 1}
    return update(gpt_play_image.get_config(), **fields)


def small_reader():
    model = {"embedding_width": 8, "widths": (4,)}
    data = {"people": 10, "batch_size": 2, "vocabulary_size": 200, "length_multiple": 192}
    fields = {f"model.{name}": value for name, value in model.items()}
    return update(invented_people_qa.get_config(), **fields | {f"data.{name}": value for name, value in data.items()})


def small_tagger():
    model = {"word_width": 8, "character_features": 4, "recurrent_widths": (4,)}
    data = {"sentences": 64, "held_out_sentences": 16, "batch_size": 8, "length_multiple": 40, "max_length": 40}
    fields = {f"model.{name}": value for name, value in model.items()}
    return update(small_grammar_tagger.get_config(), **fields | {f"data.{name}": value for name, value in data.items()})


def small_parser():
    model = {"word_width": 4, "tag_width": 4, "label_width": 4, "hidden_width": 8}
    data = {"sentences": 64, "held_out_sentences": 16, "lengths": (), "max_length": 40, "batch_words": 320}
    fields = {f"model.{name}": value for name, value in model.items()} | {"task.l2": 1e-8}
    return update(small_grammar_parser.get_config(), **fields | {f"data.{name}": value for name, value in data.items()})


def small_graph_parser():
    model = GraphParserConfig(word_width=8, recurrent_widths=(8,), arc_width=8, relation_width=8)
    return update(small_parser(), model=model, **{"data.system": "graph"})


def reviews(files, model, **data):
    """Classification of short texts by this model: whether a text has a certain word. A tenth of the labels is wrong,
    so that no loss comes near 0, where rounding would be amplified."""
    path, draw = Path(files("reviews.csv")), np.random.default_rng(0)
    texts = [" ".join(draw.choice(guards.WORDS, size=5)) for _ in range(400)]
    path.write_text(
        "\n".join(["text,label", *(f"{text},{('film' in text) != (draw.random() < 0.1)}" for text in texts)])
    )
    sizes = {"batch_size": 8, "max_length": 16, "evaluation_batch_size": 8}
    return guards.run(TextTable(path=path, **sizes, **data), model, task=Classification())


def translator(**fields):
    return EncoderDecoderConfig(num_layers=1, num_heads=2, width=8, context_length=32, embeddings="shared", **fields)


CONFIGS = {
    "LanguageModel": lambda files: smoothed(guards.gpt_characters(files)),
    "RecurrentLanguageModel": guards.lstm_streams,
    "QuestionAnswering": lambda files: smoothed(guards.gpt_perceiver(files)),
    "MaskedLanguageModel": lambda files: smoothed(guards.bert_pretraining(files)),
    "TextToText": lambda files: dataclasses.replace(
        translation(files), task=TextToText(label_smoothing=0.1), best_metric="loss"
    ),
    "Translation": translation,
    "Classification": lambda files: images_of_digits(),
    "Tagging": lambda files: small_tagger(),
    "Parsing": lambda files: small_parser(),
    "ExtractiveQA": lambda files: small_reader(),
    "ImageLanguageModel": lambda files: smoothed(pixels_of_digits()),
    "ImageClassification": lambda files: images.get_config(),
}


@pytest.fixture(scope="module", autouse=True)
def standard_promotion():
    """As users have it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


IN_ALL_TESTS = ("LanguageModel", "Translation", "Classification", "Tagging", "ImageClassification")
"""The tasks that make test looks at, with models of all kinds; make test-rest looks at the others."""


@pytest.fixture(
    scope="module",
    params=[name if name in IN_ALL_TESTS else pytest.param(name, marks=pytest.mark.thorough) for name in CONFIGS],
)
def config(request, files):
    """Of a task, with tiny data."""
    return CONFIGS[request.param](files)


@pytest.fixture(scope="module")
def setup(config):
    return set_up(begin(config))


@pytest.fixture(scope="module")
def validated(setup):
    """What validation measures of a model that is not trained."""
    task, split = setup.config.task, setup.corpus.split("validation")
    inputs = setup.config.model.inputs(setup.corpus.processor)
    params = jax.device_put(random_parameters(setup.model, *inputs, spread=0.02))
    scoring = SplitScoring(
        Trained(task, setup.model, params, setup.corpus.processor),
        split,
        "validation",
        training=setup.corpus.splits.get("train"),
        objective=setup.objective,
        layout=make_parallel("jit", jax.devices()[:1]),
        kept={},
    )
    return task.evaluators["validation"]()(scoring).metrics


def test_every_task_is_here(files):
    assert {task.__name__ for task in every_task() if task.objective is not Task.objective} <= CONFIGS.keys()
    assert all(type(make(files).task).__name__ == name for name, make in CONFIGS.items())


@pytest.mark.parametrize("task", every_task())
def test_help_of_a_trained_model_shows_each_argument_except_the_model(task):
    trained = Trained(task(), None, {}, None)
    for name, (function, *_) in task.methods.items():
        method = getattr(trained, name)
        wanted = [*inspect.signature(function).parameters][1:]
        assert [*inspect.signature(method).parameters] == wanted
        text = re.sub(
            r"\(\s+", "(", pydoc.render_doc(method, renderer=pydoc.plaintext)
        )  # on lines of their own from 3.13 on
        assert f"{name}({wanted[0]}: " in text
        described = re.findall(r"^ +(\w+): ", inspect.getdoc(method).partition("Args:")[2], re.MULTILINE)
        assert [one for one in described if one[0].islower()] == wanted


def test_warming_up_announces_compilation_and_takes_options_of_one_function():
    calls = []

    def warm_up(trained, *, num_beams: int = 1):
        calls.append(({"num_beams": num_beams}, compilation._watch.depth))

    methods = {"predict": Method(print, warm_up), "embed": Method(print, warm_up, lambda model: False)}
    task: Any = SimpleNamespace(methods=methods)
    trained = Trained(task, None, {}, None)
    trained.warm_up()
    trained.warm_up("predict", num_beams=2)
    assert calls == [({"num_beams": 1}, 1), ({"num_beams": 2}, 1)]
    with pytest.raises(ValueError, match=r"function must be one of predict, got \['predict'\]"):
        trained.warm_up(["predict"])
    with pytest.raises(ValueError, match="function must be one of predict, got 'embed'"):
        trained.warm_up("embed")
    with pytest.raises(ValueError, match="num_beams: name the function that has these options"):
        trained.warm_up(num_beams=2)
    with pytest.raises(ValueError, match="warm_up of predict takes num_beams, got beams, seed"):
        trained.warm_up("predict", beams=2, seed=0)
    with pytest.raises(ValueError, match="num_beams must be a whole number, got the text '2'"):
        trained.warm_up("predict", num_beams="2")


@pytest.mark.sweep(1)
def test_validation_measures_every_metric_that_may_select_the_best_checkpoint(setup, validated):
    allowed = {name for name, kind in setup.metrics.items() if not kind.training_only}
    assert validated.keys() == allowed
    for name in setup.metrics.keys() - allowed:
        with pytest.raises(ConfigError, match=f"best_metric must be one of .*loss.*, got '{name}'"):
            set_up(begin(dataclasses.replace(setup.config, best_metric=name)))


def test_abbreviations_have_capital_letters_in_the_titles_of_metrics(setup):
    words = {word for name in setup.metrics for word in title_of(name, setup.metrics).split()}
    assert not words & {"auc", "bleu", "chrf", "f1", "las", "mlm", "nll", "nsp", "pearson", "roc", "spearman", "uas"}


@pytest.mark.thorough  # the first task has no such metric
def test_metrics_without_a_unit_are_between_minus_1_and_1(setup, validated):
    for chart in charts(setup.metrics):
        if chart.unit == "":
            assert all(-1.0 <= validated[name].value <= 1.0 for name in chart.metrics)


def test_no_chart_shows_shares_next_to_other_quantities(setup):
    declared = setup.metrics
    for chart in charts(declared):
        units = {declared[name].unit for name in chart.metrics if name in declared}
        assert len(units) == 1
        if chart.unit == "":
            assert all(declared[name].better == "higher" for name in chart.metrics)
        if "perplexity" in chart.metrics or "positions_per_token" in chart.metrics:
            assert len(chart.metrics) == 1


def test_throughput_and_schedules_count_what_the_data_is_made_of(setup):
    counted = setup.metrics[setup.objective.progress].of
    assert counted in ("tokens", "words", "characters", "images", "windows", "pixels")


@pytest.mark.sweep(1)
def test_an_objective_is_for_the_platform_that_it_is_traced_for(config):
    setup = set_up(begin(config))
    state, batch = setup.abstract_state, next(iter(setup.corpus.train))
    batch = batch if not has_parts(batch) else next(iter(batch.values()))

    def program(built, traced):
        with compile_for(built):
            objective = setup.config.task.objective(setup.model, setup.corpus)
        with compile_for(traced):
            jaxpr = jax.make_jaxpr(objective.loss)(state.params, batch, jax.random.key(0), state.carry)
        return re.sub("0x[0-9a-f]+", "", str(jaxpr))

    on_tpu = program("tpu", "tpu")
    assert program("cpu", "tpu") == on_tpu
    assert program("cpu", "cpu") != on_tpu


def equations(jaxpr):
    """Of a program and of all programs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from equations(getattr(inner, "jaxpr", inner))


IN_FLOAT32 = ("exp", "exp2", "log", "log1p", "rsqrt", "sqrt", "erf_inv", "cumsum")
"""Softmax, losses, normalisation and optimizers compute these. Sums are in float32 by the types of their operands."""


@pytest.mark.thorough
def test_on_accelerators_only_activations_are_in_bfloat16(setup):
    batch = make_parallel("jit", jax.devices()[:1]).put_batch(
        next(iter(setup.corpus.train)), setup.config.accumulation_steps
    )
    with compile_for("tpu"):
        program = jax.make_jaxpr(setup.step)(setup.abstract_state, batch)
    found: dict[str, set[str]] = {}
    for equation in equations(program.jaxpr):
        for value in (*equation.invars, *equation.outvars):
            found.setdefault(equation.primitive.name, set()).add(str(getattr(value.aval, "dtype", "")))
    assert "bfloat16" in found["dot_general"]
    assert not any("float16" in types for types in found.values())
    assert [name for name in IN_FLOAT32 if "bfloat16" in found.get(name, ())] == []


def first_losses(config, dtype, rate):
    """The loss at each of the first 100 steps, on one device, and the types of the state's arrays."""
    changes = {"total_steps": 100, "optimizer.schedule": "constant", "optimizer.learning_rate": rate}
    setup = set_up(begin(with_few_lengths(update(config, **{"model.compute.dtype": dtype}, **changes))))
    layout = make_parallel("jit", jax.devices()[:1])
    state, batches = layout.initialise(setup.initial_state, setup.given), iter(setup.corpus.train)
    step, losses = layout.compile_train(setup.step, setup.abstract_state), []
    for _ in range(100):
        state, output = step(state, layout.put_batch(next(batches), setup.config.accumulation_steps))
        losses.append(output.metrics["loss"])
    total, count = np.array(jax.device_get(losses)).T
    return total / count, jax.tree.map(lambda x: x.dtype, dataclasses.asdict(state))


FURTHER = {
    "synthesizer": guards.gpt_synthesizer,
    "attention_lstm": lambda files: dataclasses.replace(
        translation(files), model=AttentionLSTMConfig(embedding_width=8, width=8, embeddings="shared")
    ),
    "recurrent_parser": lambda files: dataclasses.replace(
        small_parser(), task=Parsing(), model=RecurrentParserConfig(word_width=8, recurrent_widths=(8,), hidden_width=8)
    ),
    "graph_parser": lambda files: small_graph_parser(),
    "text_rnn": lambda files: reviews(
        files,
        TextRNNConfig(embedding_width=8, widths=(8,), dropout_rate=0.1, embedding_dropout_rate=0.1),
        tokens="words",
    ),
    "text_cnn": lambda files: reviews(
        files,
        TextCNNConfig(embedding_width=8, feature_maps=8, windows=(2, 3), dropout_rate=0.1, embedding_dropout_rate=0.1),
        tokens="words",
    ),
    "bert_classifier": lambda files: dataclasses.replace(
        reviews(files, BertClassifierConfig(pooling="mean")), init_from=files("weights")
    ),
    "bert_tagger": lambda files: update(
        small_tagger(),
        **{"init_from": files("weights"), "model.bert": True, "data.max_pieces": 16, "data.max_length": 14},
    ),
    "llama": lambda files: dataclasses.replace(
        guards.gpt_characters(files),
        model=LlamaConfig(
            num_layers=1, num_heads=2, num_key_heads=1, width=8, feed_forward_width=12, context_length=12
        ),
    ),
    "t5": lambda files: dataclasses.replace(
        translation(files),
        model=translator(
            normalization="rms", use_bias=False, positions="shared_relative_bias", scale_attention=False, gated=True
        ),
    ),
    "bart": lambda files: dataclasses.replace(
        translation(files),
        model=translator(
            norm="post",
            positions="learned",
            activation="gelu",
            embedding_norm=True,
            output_bias=True,
            position_offset=2,
        ),
    ),
}
"""Families that share their task with another one."""


@pytest.mark.thorough
@pytest.mark.parametrize("family", [*CONFIGS, *FURTHER])
def test_the_first_losses_in_bfloat16_differ_from_those_in_float32_by_at_most_2_percent(family, files):
    config = (CONFIGS | FURTHER)[family](files)
    rate = 2.0 if config.optimizer.kind == "sgd" else 0.01
    if family == "text_rnn":
        rate = 0.03  # at 0.01 it has hardly learned anything after 100 steps
    if family == "text_cnn":
        rate = 0.005  # at 0.01 its maxima choose other windows, also after a change of all parameters by 0.01 %
    exact, types = first_losses(config, "float32", rate)
    rounded, types_of_rounded = first_losses(config, "bfloat16", rate)
    assert 0.0 < np.abs(rounded - exact).max() < 0.02 * exact[0]
    assert exact[-10:].mean() < 0.95 * exact[0]
    assert types == types_of_rounded  # the state stays in float32


def test_a_field_without_a_default_is_refused_by_name(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Parsing(Task):
        language: str

    monkeypatch.setattr("jaxnlp.tasks.text_to_text.Parsing", Parsing, raising=False)
    with pytest.raises(TypeError, match=r"Parsing\.language needs a default, like every field of a task"):
        every_task()
