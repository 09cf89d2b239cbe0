"""The graph parser of the benchmark in PyTorch gives our scores, and its decoding our trees."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from benchmarks import parse, parse_graph
from benchmarks.torch_graph_parser import TorchGraphParser, best_tree
from jaxnlp.convert.torch_recurrent import to_torch
from jaxnlp.models.word_encoder import WordEncoderCompute
from jaxnlp.ops.spanning_trees import chu_liu_edmonds
from tests.random_parameters import random_parameters

CONFIG = dataclasses.replace(
    parse_graph.config(),
    word_width=5,
    character_width=3,
    character_features=4,
    recurrent_widths=(6, 6),
    arc_width=7,
    relation_width=2,
    compute=WordEncoderCompute(),
)


def weights_of(params):
    encoder = params["encoder"]
    kernel = encoder["convolution"]["kernel"].reshape(3, CONFIG.character_width, -1).transpose(2, 1, 0)
    return {
        "words.weight": encoder["words"]["embedding"],
        "characters.weight": encoder["characters"]["embedding"],
        "convolution.weight": kernel,
        "convolution.bias": encoder["convolution"]["bias"],
        **to_torch(encoder["recurrent"], cell="lstm", num_layers=2, bidirectional=True, prefix="recurrent."),
        "root": params["root"],
        "vectors.weight": params["words"]["kernel"].T,
        "vectors.bias": params["words"]["bias"],
        "arcs.weight": params["arcs_kernel"].T,
        "arcs.bias": params["arcs_bias"],
        "relations": params["relations_kernel"],
    }


@pytest.mark.thorough
def test_it_gives_our_scores_and_has_as_many_parameters():
    reader = parse_graph.processor()
    ours = CONFIG.build(reader)
    params = random_parameters(ours, *CONFIG.inputs(reader), spread=1.0)
    theirs = TorchGraphParser(CONFIG, reader)
    theirs.load_state_dict({name: torch.tensor(np.asarray(x)) for name, x in weights_of(params).items()}, strict=True)
    encoded = [reader.encode(sentence) for sentence in parse.sentences()[:3]]
    lengths = [len(one["words"]) for one in encoded]
    batch = reader.batch(encoded, 3, max(lengths))
    heads = np.zeros(batch["words"].shape, np.int32)
    heads[:, 1:] = 1
    expected = ours.apply({"params": params}, heads, *(batch[name] for name in CONFIG.reads))
    words, characters = (torch.from_numpy(np.asarray(batch[name])).long() for name in ("words", "characters"))
    arcs, vectors = theirs(words, characters, torch.tensor(lengths))
    relations = theirs.score_relations(vectors, torch.from_numpy(heads).long())
    for row, n in enumerate(lengths):
        np.testing.assert_allclose(arcs[row, :n, : n + 1].detach(), expected.arcs[row, :n, : n + 1], atol=1e-4)
        found, wanted = relations[row, :n].detach().numpy(), np.asarray(expected.relations[row, :n])
        np.testing.assert_allclose(found[wanted > -1e9], wanted[wanted > -1e9], atol=1e-4)
        assert (found[wanted < -1e9] < -1e9).all()
    assert np.ptp(expected.arcs[0]) > 0.3
    assert sum(x.numel() for x in theirs.parameters()) == sum(x.size for x in jax.tree.leaves(params)) + 8 * 6 * 2


def test_its_trees_are_ours():
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(40, 7, 8)).astype(np.float32)
    expected = chu_liu_edmonds(jnp.asarray(scores), jnp.full(40, 7))
    np.testing.assert_array_equal([best_tree(one) for one in scores], expected)


@pytest.mark.thorough
def test_both_implementations_find_trees_of_all_sentences(monkeypatch):
    sentences = parse.sentences()[:20]
    monkeypatch.setattr(parse_graph, "sentences", lambda: sentences)
    monkeypatch.setattr(parse, "sentences", lambda: sentences)
    ours, theirs = parse_graph.ours()(), parse_graph.theirs(bfloat16=False)()
    assert [len(tree.heads) for tree in ours] == [len(heads) for heads, _ in theirs]
    for heads in (*(tree.heads for tree in ours), *(heads for heads, _ in theirs)):
        assert list(heads).count(0) == 1
