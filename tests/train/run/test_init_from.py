"""Runs that begin with pretrained weights, or with the parameters of another run."""

import dataclasses
import functools
import json
import re
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxnlp
from configs import bert_sst
from data.masked_text import MaskedText
from jaxnlp.convert.pretrained_encoder import Pretrained, read_pretrained, save_pretrained
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.runs import RunError, load, load_run
from jaxnlp.saving.serialization import ConfigError, to_json
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.commands import pretrained_of
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel
from tests import text_task_files
from tests.random_parameters import random_parameters
from tests.text_task_files import SHAPE, VOCABULARY, encoder_params, train, write_tables, write_weights
from train.config import TrainConfig, update
from train.run.folder import ENVIRONMENT_FILE, RunMismatchError, read_config
from train.run.init_from import begin, params_digest
from train.run.setup import merge, set_up


def test_a_config_without_a_beginning_is_given_nothing(tiny_config):
    begun = begin(tiny_config())
    assert (begun.params, begun.processor, begun.digest, begun.notes) == ({}, None, None, ())


def test_given_parameters_replace_those_at_their_places():
    merged = merge({"a": {"x": jnp.zeros(2), "y": jnp.zeros(3)}}, {"a": {"y": jnp.ones(3)}})
    assert (merged["a"]["x"].sum(), merged["a"]["y"].sum()) == (0.0, 3.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": {"z": jnp.ones(2)}}, "the parameter a/z, which the model does not have"),
        ({"a": {"x": jnp.ones(3)}}, r"a/x has the shape \(2,\), but its given value has \(3,\)"),
    ],
)
def test_given_parameters_of_unknown_names_or_other_shapes_are_refused(given, message):
    with pytest.raises(RunError, match=message):
        merge({"a": {"x": jnp.zeros(2)}}, given)


def test_the_digest_changes_with_names_shapes_and_values():
    trees = [
        {"a": jnp.zeros(4)},
        {"b": jnp.zeros(4)},
        {"a": jnp.zeros((2, 2))},
        {"a": jnp.ones(4)},
    ]
    assert len({params_digest(tree) for tree in trees}) == len(trees)
    assert params_digest(trees[0]) == params_digest({"a": jnp.zeros(4)})


def test_a_place_with_nothing_to_begin_with_is_refused_by_its_name(tiny_config, tmp_path):
    with pytest.raises(RunError, match=r"--init-from: there is no folder .*absent$"):
        begin(tiny_config(init_from=str(tmp_path / "absent")))


def test_a_name_that_the_hub_does_not_give_is_one_line_that_names_the_option(tiny_config, monkeypatch):
    def fetch(*_, **__):
        raise ConnectionError("no route to the Hub.\nTry again.")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    message = r"--init-from: there is no folder some/model, .*: no route to the Hub; [^\n]* --init-from FOLDER\)"
    with pytest.raises(RunError) as caught:
        begin(tiny_config(init_from="some/model"))
    assert re.fullmatch(message, str(caught.value))
    with pytest.raises(ValueError, match=r"some/model, .* give a folder of weights instead of the name"):
        jaxnlp.load_pretrained("some/model")


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """A folder with the random weights of a small BERT."""
    return write_weights(tmp_path_factory.mktemp("weights") / "tiny-bert")


@pytest.fixture(scope="session")
def make_config(tmp_path_factory, weights):
    return functools.partial(text_task_files.make_config, write_tables(tmp_path_factory.mktemp("tables")), weights)


def step_flops(config):
    setup = set_up(begin(config))
    batch = next(iter(setup.corpus.train))
    return jax.jit(setup.step).lower(setup.abstract_state, batch).compile().cost_analysis()["flops"]


def initial_params(config):
    setup = set_up(begin(config))
    return setup, jax.jit(setup.initial_state)(setup.given).params


def test_a_run_begins_with_the_weights_of_a_folder_and_keeps_its_own_dropout(make_config, weights):
    setup, params = initial_params(make_config(**{"model.encoder.dropout_rate": 0.3}))
    encoder = setup.config.model.encoder
    assert (encoder.width, encoder.num_layers, encoder.epsilon) == (8, 1, 1e-6)
    assert (encoder.dropout_rate, encoder.attention_dropout_rate) == (0.3, 0.1)
    chex.assert_trees_all_equal(params["encoder"], read_pretrained(weights).params)
    assert setup.corpus.processor.vocabulary == VOCABULARY
    assert params.keys() == {"encoder", "heads_sst"}


@pytest.mark.thorough
def test_a_run_begins_with_the_encoder_of_a_run_of_parts_and_with_heads_of_the_same_labels(
    make_config, weights, tmp_path
):
    outcome = train(make_config(("sst",), total_steps=2, **{"optimizer.frozen": ("encoder",)}), tmp_path / "frozen")
    before = outcome.state.params
    chex.assert_trees_all_equal(before["encoder"], read_pretrained(weights).params)
    all_flops, flops = (
        step_flops(make_config(("sst",), **{"optimizer.frozen": names})) for names in ((), ("encoder",))
    )
    assert flops < 0.6 * all_flops
    _, params = initial_params(make_config(("sst",), init_from=str(tmp_path / "frozen")))
    chex.assert_trees_all_equal(params, before)
    changes = {"init_from": str(tmp_path / "frozen"), "model.head_dropout_rate": 0.1}
    setup, params = initial_params(make_config(("sts",), **changes))
    assert params.keys() == {"encoder"}
    chex.assert_trees_all_equal(params["encoder"], before["encoder"])
    assert [name for name, _ in setup.corpus.processor.parts] == ["sts"]
    tables = {"data.path": setup.config.data.path, "data.max_length": 16}
    classifier = update(bert_sst.get_config(), init_from=str(tmp_path / "frozen"), **tables)
    setup, params = initial_params(classifier)
    assert params.keys() == {"encoder", "head"}
    chex.assert_trees_all_equal(params["encoder"], before["encoder"])
    assert setup.corpus.processor.vocabulary == VOCABULARY


@pytest.fixture(scope="session")
def pretraining_config(tmp_path_factory):
    """BERT's pretraining for two steps on the words of the vocabulary."""
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("".join("good film\nbad plot\nred sea\n\n" for _ in range(12)))
    return TrainConfig(
        recipe="tiny",
        data=MaskedText(source="text_file", path=str(file), sequence_length=16, batch_size=2, vocabulary_size=40),
        model=BertPretrainingConfig(encoder=SHAPE),
        task=MaskedLanguageModel(),
        total_steps=2,
        evaluate_every_steps=2,
    )


@pytest.fixture(scope="session")
def pretrained_run(pretraining_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained") / "run"
    train(pretraining_config, folder)
    return folder


@pytest.mark.thorough
def test_a_run_of_pretraining_begins_a_classifier_without_an_export(make_config, pretrained_run):
    before = load_run(pretrained_run, checkpoint="latest")
    begun = begin(make_config(("sst",), init_from=str(pretrained_run)))
    assert begun.params.keys() == {"encoder"}
    chex.assert_trees_all_equal(begun.params["encoder"], before.params["encoder"])
    assert begun.processor == before.processor
    assert begun.config.model.encoder == before.model.config.encoder
    assert begun.notes == ("encoder from tiny: 1 layers, 8 wide, 2 heads",)
    setup, params = initial_params(make_config(("sst",), init_from=str(pretrained_run)))
    assert setup.corpus.processor.vocabulary == before.processor
    assert "heads_sst" in params


def test_fields_of_the_pretrained_model_that_a_classifier_never_reads_do_not_matter(make_config, pretraining_config):
    """Its heads, its task and its compute are not part of the encoder."""
    config = make_config(("sst",))
    pretrained = update(pretraining_config, **{"model.compute.scan_layers": True, "task.z_loss": 0.1})
    found = type("Found", (), {})()
    found.model = pretrained.model.build(VOCABULARY)
    found.processor, found.name = VOCABULARY, "earlier"
    found.params = {"encoder": encoder_params(), "heads": {}}
    adopted = config.model.adopt(found)
    assert adopted.config.encoder == SHAPE
    assert adopted.config.compute == config.model.compute


@pytest.mark.parametrize(
    ("field", "value", "theirs"), [("width", 24, 8), ("num_layers", 3, 1), ("positions", "sinusoidal", "learned")]
)
def test_a_typed_field_that_contradicts_the_pretrained_encoder_is_refused_by_its_name(
    make_config, tmp_path, field, value, theirs
):
    config = make_config(**{f"model.encoder.{field}": value})
    expected = rf"sets these fields of the model; remove them:\n  model\.encoder\.{field}: '?{value}'? -> '?{theirs}'?$"
    with pytest.raises(ConfigError, match=expected):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    begin(make_config(**{"model.encoder.num_heads": 2, f"model.encoder.{field}": theirs}))


@pytest.mark.parametrize("names", [("tokens",), ("vocabulary_size", "minimum_count")], ids="-".join)
def test_an_option_of_a_vocabulary_that_is_given_is_refused_by_its_name(make_config, names):
    values = {"tokens": "words", "vocabulary_size": 99, "minimum_count": 3}
    config = make_config(**{f"data.{name}": values[name] for name in names})
    with pytest.raises(ConfigError, match=f"has a tokenizer; remove {', '.join(f'data.{name}' for name in names)}$"):
        begin(config)


def test_a_recipe_may_have_an_encoder_of_another_shape(weights):
    recipe = bert_sst.get_config()
    begun = begin(dataclasses.replace(recipe, init_from=str(weights), data=update(recipe.data, max_length=16)))
    assert begun.config.model.encoder.width == 8 != recipe.model.encoder.width
    assert begun.typed_model == to_json(recipe.model)
    typed = update(recipe, **{"init_from": str(weights), "model.encoder.width": 48})
    with pytest.raises(ConfigError, match=r"sets these fields of the model; remove them:\n  model\.encoder\.width: 48"):
        begin(typed)


@pytest.mark.thorough
def test_embeddings_beyond_the_tokenizer_are_trained_and_written_back(make_config, tmp_path):
    size = VOCABULARY.size + 3
    save_pretrained(tmp_path / "padded", Pretrained(SHAPE, encoder_params(size), None, VOCABULARY))
    train(make_config(("sst",), total_steps=1, init_from=str(tmp_path / "padded")), tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert (run.processor.vocabulary.size, len(run.params["encoder"]["tokens"]["embedding"])) == (size - 3, size)
    assert load(tmp_path / "padded").model.vocabulary_size == size
    save_pretrained(tmp_path / "back", pretrained_of(run))
    assert read_pretrained(tmp_path / "back").config.padded_vocabulary_size == size
    with pytest.raises(ConfigError, match="padded_vocabulary_size must be at least the tokenizer's 15 tokens, got 14"):
        BertConfig(padded_vocabulary_size=14).embeddings(VOCABULARY.size)


def test_other_weights_have_another_digest(make_config):
    begun = begin(make_config())
    assert begun.digest == params_digest(begun.params)
    changed = jax.tree.map(np.array, begun.params)
    changed["encoder"]["positions"][3, 2] += 1e-3
    assert params_digest(changed) != begun.digest


@pytest.mark.thorough
def test_the_digest_covers_heads_that_the_data_decides_on(make_config, monkeypatch):
    config = make_config(("sst",))
    processor = config.data.load(0, VOCABULARY).processor
    model, inputs = config.model.build(processor), config.model.inputs(processor)
    params = jax.jit(model.init)(jax.random.key(0), *(jnp.zeros(x.shape, x.dtype) for x in inputs))["params"]
    earlier = Trained(config.task, model, jax.device_get(params), processor)

    def digest(**changes):
        monkeypatch.setattr("train.run.init_from.load", lambda *_, **__: dataclasses.replace(earlier, **changes))
        return begin(config).digest

    heads = jax.tree.map(lambda x: x + 1.0, params["heads_sst"])
    assert digest() == digest() == params_digest(params)
    assert digest(params=params | {"heads_sst": heads}) == params_digest(params | {"heads_sst": heads}) != digest()


@pytest.mark.thorough
def test_a_run_continues_without_the_weights_that_it_began_with(make_config, weights, stop_at, tmp_path):
    gone = shutil.copytree(weights, tmp_path / "weights")
    config = make_config(("sst",), init_from=str(gone))
    whole = train(config, tmp_path / "whole")
    with stop_at(2):
        train(config, tmp_path / "parts")
    before = json.loads((tmp_path / "parts" / ENVIRONMENT_FILE).read_text())["pretrained_sha256"]
    shutil.rmtree(gone)
    parts = train(config, tmp_path / "parts")
    chex.assert_trees_all_equal(parts.state.params, whole.state.params)
    assert json.loads((tmp_path / "parts" / ENVIRONMENT_FILE).read_text())["pretrained_sha256"] == before is not None
    assert read_config(tmp_path / "parts").model.encoder.width == 8
    with pytest.raises(RunMismatchError, match=r"head_dropout_rate"):
        train(update(config, **{"model.head_dropout_rate": 0.1}), tmp_path / "parts")


@pytest.mark.thorough
def test_a_run_killed_during_its_first_save_begins_with_its_weights_again(make_config, tmp_path):
    config = make_config(("sst",), total_steps=1)
    whole = train(config, tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "checkpoints")
    (tmp_path / "killed" / "checkpoints" / "1.orbax-checkpoint-tmp-0").mkdir(parents=True)
    again = train(config, tmp_path / "killed")
    chex.assert_trees_all_equal(again.state.params, whole.state.params)


@pytest.mark.thorough
def test_pretraining_continues_with_a_model_of_masked_tokens_and_initialises_what_it_lacks(
    weights, pretraining_config, tmp_path
):
    """As BertForMaskedLM: no pooler, and no head of next sentences."""
    before = read_pretrained(weights)
    encoder = {name: value for name, value in before.params.items() if name != "pooler"}
    model = BertPretrainingConfig(encoder=SHAPE).build(VOCABULARY)
    heads = random_parameters(model, np.zeros((1, 1), np.int32))["heads"]
    masked = {"token_bias": heads["token_bias"] + 1.0, "transform": heads["transform"], "norm": heads["norm"]}
    config = dataclasses.replace(SHAPE, use_pooler=False)
    save_pretrained(tmp_path / "masked", Pretrained(config, encoder, masked, VOCABULARY))
    changed = update(pretraining_config, init_from=str(tmp_path / "masked"), model=BertPretrainingConfig())
    changed = update(changed, **{"data.vocabulary_size": MaskedText.vocabulary_size})
    begun = begin(changed)
    missing = "does not have the pooler, the next-sentence head: initialised at random"
    assert any(missing in note for note in begun.notes)
    setup, params = initial_params(changed)
    chex.assert_trees_all_equal({k: v for k, v in params["encoder"].items() if k != "pooler"}, encoder)
    chex.assert_trees_all_equal({name: params["heads"][name] for name in masked}, masked)
    tokens = next(iter(setup.corpus.train))["tokens"]
    hidden, follows = jax.jit(setup.model.apply)({"params": params}, tokens)
    assert (hidden.shape, follows.shape) == ((2, 16, 8), (2, 2))


def test_weights_that_cannot_be_read_or_do_not_fit_are_refused_before_anything_is_written(
    make_config, weights, tmp_path
):
    found = read_pretrained(weights)
    params = {name: value for name, value in found.params.items() if name != "pooler"}
    plain = found._replace(config=dataclasses.replace(found.config, use_pooler=False), params=params)
    save_pretrained(tmp_path / "plain", plain)
    without_pooler = {"init_from": str(tmp_path / "plain"), "model.pooling": "pooler", "optimizer.frozen": ("encoder",)}
    for error, changes, message in (
        (RunError, {"init_from": "/nowhere"}, r"--init-from: there is no folder /nowhere"),
        (ConfigError, without_pooler, r"keeps encoder/pooler/bias, which .*plain does not have: .* stay random"),
        (
            RunError,
            {"data.max_length": 17},
            r"the model reads at most 16; lower data.max_length, or raise .*, unless init_from gives it",
        ),
        (ConfigError, {"best_metric": "exact_match"}, r"best_metric must be one of .*mean_score"),
    ):
        with pytest.raises(error, match=message):
            train(make_config(**changes), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_a_model_without_a_bert_begins_no_classifier():
    found = type("Found", (), {"model": type("Model", (), {"config": BertConfig()})()})()
    with pytest.raises(ValueError, match="it does not have a BERT: its model is a BertConfig"):
        BertClassifierConfig().adopt(found)
