import jax
import numpy as np
import pytest

from jaxnlp.tasks.parsing.objectives import graph_objective
from tests.jaxnlp.models.parser_helpers import SENTENCES
from tests.jaxnlp.tasks.parsing.graph_helpers import CONFIG, NEW, PROCESSOR, batch, log_softmax, trained_of


@pytest.mark.thorough
def test_the_loss_of_a_graph_parser_is_the_cross_entropy_of_heads_and_of_known_relations():
    trained, arrays = trained_of(), batch()
    loss = graph_objective(trained.model, l2=0.5).loss
    values = jax.jit(lambda params, key: loss(params, arrays, key, ()))
    scalar, (metrics, _) = jax.device_get(values(trained.params, None))
    inputs = [arrays[name] for name in CONFIG.reads]
    scores = jax.device_get(jax.jit(trained.model.apply)({"params": trained.params}, arrays["heads"], *inputs))
    total, words, known, right_heads, right_relations = 0.0, 0, 0, 0, 0
    for row, one in enumerate((*SENTENCES, NEW)):
        n = len(one.words)
        for word, (head, relation) in enumerate(zip(one.heads, one.relations, strict=True)):
            others = [h for h in range(n + 1) if h != word + 1]
            arcs = scores.arcs[row, word, others]
            total -= log_softmax(arcs)[others.index(head)]
            words += 1
            right_heads += others[arcs.argmax()] == head
            if relation in PROCESSOR.relations:
                known += 1
                index = PROCESSOR.relations.index(relation)
                total -= log_softmax(scores.relations[row, word])[index]
                right_relations += scores.relations[row, word].argmax() == index
    assert (words, known) == (10, 9)
    np.testing.assert_allclose(metrics["loss"], (total, words), rtol=1e-4)
    np.testing.assert_allclose(scalar, total / words, rtol=1e-4)
    assert metrics["head_accuracy"] == (right_heads, words)
    assert metrics["relation_accuracy"] == (right_relations, known)
    assert "objective" not in metrics  # L2 is part of training only


def test_training_adds_the_squared_parameters():
    trained, arrays = trained_of(), batch()
    losses = [graph_objective(trained.model, l2=l2).loss for l2 in (0.0, 0.5)]
    both = jax.jit(lambda params, key: [loss(params, arrays, key, ()) for loss in losses])
    plain, regularised = both(trained.params, jax.random.key(0))
    squares = sum(float((np.asarray(x, np.float64) ** 2).sum()) for x in jax.tree.leaves(trained.params))
    np.testing.assert_allclose(regularised[0] - plain[0], 0.25 * squares, rtol=1e-3)
    total, count = regularised[1][0]["objective"]
    np.testing.assert_allclose(total / count, regularised[0], rtol=1e-5)
    assert "objective" not in plain[1][0]
