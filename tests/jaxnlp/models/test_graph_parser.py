import dataclasses
import functools

import jax
import numpy as np
import pytest

from jaxnlp.models.bert import BertConfig
from jaxnlp.models.graph_parser import GraphParserConfig
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.jaxnlp.models.parameter_helpers import assert_described
from tests.jaxnlp.models.parser_helpers import INPUTS, LENGTHS, PROCESSOR, batch_of, processor_of
from tests.jaxnlp.ops.tree_helpers import by_enumeration, score
from tests.random_parameters import random_parameters

CONFIG = GraphParserConfig(
    word_width=4, character_width=3, character_features=4, tag_width=3, recurrent_widths=(5,), arc_width=6,
    relation_width=5,
)  # fmt: skip
GRAPH = dataclasses.replace(PROCESSOR, system="graph")
PIECES = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "dog", "cat", "##s", "a", "see", "sleep"])
WITH_BERT = dataclasses.replace(
    CONFIG,
    bert=True,
    encoder=BertConfig(num_layers=1, num_heads=2, width=8, max_positions=32),
    character_features=0,
    character_width=30,
)
BERT_PROCESSOR = dataclasses.replace(
    processor_of(inputs=dataclasses.replace(INPUTS, pieces=PIECES, max_pieces=32)), system="graph"
)
HEADS = np.array([[2, 3, 0, 5, 3, 0], [2, 0, 0, 0, 0, 0]], np.int32)


def inputs_of(batch):
    return [batch[name] for name in CONFIG.reads]


@pytest.fixture(scope="module")
def exact():
    """A parser in float32, its parameters, and a compiled function of heads and arrays."""
    compute = dataclasses.replace(CONFIG.compute, matmul_dtype=None)
    model = dataclasses.replace(CONFIG, compute=compute).build(GRAPH)
    params = random_parameters(model, *CONFIG.inputs(GRAPH))
    program = jax.jit(lambda heads, *inputs: model.apply({"params": params}, heads, *inputs))
    return model, params, lambda *arrays: jax.device_get(program(*arrays))


@pytest.mark.parametrize(
    ("config", "processor"),
    [
        (CONFIG, GRAPH),
        (dataclasses.replace(CONFIG, recurrent_widths=()), GRAPH),
        (CONFIG, dataclasses.replace(processor_of("none"), system="graph")),
        (WITH_BERT, BERT_PROCESSOR),
    ],
    ids=["words", "no layers", "no tags", "bert"],
)
def test_every_parameter_is_described_and_scores_have_their_shapes(config, processor):
    config.check(processor)
    shapes = config.inputs(processor)
    out, variables = jax.eval_shape(config.build(processor).init_with_output, jax.random.key(0), *shapes)
    assert_described(config, variables["params"])
    assert (out.arcs.shape, out.relations.shape) == ((1, 1, 2), (1, 1, processor.num_relations))


def test_scores_are_those_of_the_equations(exact):
    model, params, scores = exact
    batch = batch_of(GRAPH)
    arcs, relations = scores(HEADS, *inputs_of(batch))
    tags = params["tags"]["embedding"][batch["tags"]]
    apply = functools.partial(
        model.apply, method=lambda self, *arrays: self.encoder(*arrays, further=tags, deterministic=True)
    )
    vectors = jax.jit(apply)({"params": params}, *[batch[name] for name in CONFIG.reads[1:]])
    a, r = CONFIG.arc_width, CONFIG.relation_width
    for row, n in enumerate(LENGTHS):
        v = np.concatenate([params["root"][None], np.asarray(vectors)[row]])
        x = v @ params["words"]["kernel"] + params["words"]["bias"]
        x = np.where(x > 0, x, 0.1 * x)
        x_arc, y_arc, x_rel, y_rel = np.split(x, np.cumsum([a, a, r]), axis=1)
        expected = x_arc @ params["arcs_kernel"] @ y_arc.T + (y_arc @ params["arcs_bias"])[None]
        np.testing.assert_allclose(arcs[row, :n, : n + 1], expected[1 : n + 1, : n + 1], rtol=1e-4, atol=1e-5)
        for word, head in enumerate(HEADS[row, :n], 1):
            one, other = np.append(x_rel[word], 1.0), np.append(y_rel[head], 1.0)
            expected = np.einsum("i,icj,j->c", one, params["relations_kernel"], other)
            kept = np.arange(GRAPH.num_relations) == 0 if head == 0 else np.arange(GRAPH.num_relations) > 0
            np.testing.assert_allclose(relations[row, word - 1][kept], expected[kept], rtol=1e-4, atol=1e-5)
            assert (relations[row, word - 1][~kept] < -1e30).all()


@pytest.mark.thorough
def test_padding_and_other_sentences_change_nothing(exact):
    scores, batch = exact[2], batch_of(GRAPH)
    arcs, relations = scores(HEADS, *inputs_of(batch))
    longer = scores(np.pad(HEADS, ((0, 0), (0, 3))), *inputs_of(batch_of(GRAPH, length=9)))
    for row, n in enumerate(LENGTHS):
        np.testing.assert_allclose(longer.arcs[row, :n, : n + 1], arcs[row, :n, : n + 1], atol=1e-5)
        np.testing.assert_allclose(longer.relations[row, :n], relations[row, :n], atol=1e-5)
    changed = batch["words"].copy()
    changed[0, 4] = 1
    other = scores(HEADS, *inputs_of(batch | {"words": changed}))
    np.testing.assert_allclose(other.arcs[1], arcs[1], atol=1e-6)
    assert np.abs(other.arcs[0, 0, :3] - arcs[0, 0, :3]).max() > 1e-6  # the first word has read the last one


@pytest.mark.parametrize("over", ["heads", "trees"])
def test_probabilities_of_heads_or_of_trees_add_up_to_one(over):
    config = dataclasses.replace(CONFIG, normalised_over=over)
    draw = np.random.default_rng(0)
    arcs, lengths = draw.normal(size=(2, 3, 4)).astype(np.float32), np.array([3, 2])
    heads = np.array([[2, 0, 1], [0, 1, 0]], np.int32)
    found = jax.jit(config.log_probability)(arcs, heads, lengths)
    for row, n in enumerate(lengths):
        if over == "trees":
            log_z = by_enumeration(arcs[row], n, projective=False)[1]
        else:
            allowed = [[h for h in range(n + 1) if h != word + 1] for word in range(n)]
            log_z = sum(np.logaddexp.reduce(arcs[row, word, hs]) for word, hs in enumerate(allowed))
        np.testing.assert_allclose(found[row], score(heads[row, :n], arcs[row]) - log_z, rtol=1e-5)


@pytest.mark.thorough
def test_the_decoder_is_the_one_of_the_config():
    assert CONFIG.decoder == "mst"
    arcs = np.zeros((1, 4, 5), np.float32)
    arcs[0, [0, 1, 2, 3], [3, 0, 2, 2]] = 9.0  # 3 -> 1 crosses the arc from ROOT to 2
    arcs[0, 0, 2] = 1.0
    for decoder, first in (("mst", 3), ("eisner", 2)):
        heads = jax.jit(dataclasses.replace(CONFIG, decoder=decoder).best_heads)(arcs, np.array([4]))
        assert heads[0].tolist() == [first, 0, 2, 2]


def test_search_and_normalisation_are_no_part_of_the_architecture():
    other = dataclasses.replace(CONFIG, decoder="eisner", normalised_over="trees")
    assert other.architecture() == CONFIG.architecture()
    assert dataclasses.replace(CONFIG, arc_width=7).architecture() != CONFIG.architecture()


def test_transitions_and_bert_without_its_tokenizer_are_refused():
    with pytest.raises(ValueError, match=r"set data\.system graph, not arc_standard"):
        CONFIG.check(PROCESSOR)
    with pytest.raises(ValueError, match="give a BERT with --init-from"):
        WITH_BERT.check(GRAPH)
