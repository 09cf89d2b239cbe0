"""Batches of sentences with their trees: the transitions that build them, or the heads of the words."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data import NumpyBatch, Split
from data.pipelines.epochs import Epochs
from data.pipelines.shapes import Shapes
from data.pipelines.transition_oracle import Derivation, derivation, lifted
from jaxnlp.text.conllu import TreeSentence
from jaxnlp.text.parser_processor import EncodedSentence, ParserProcessor
from jaxnlp.text.transitions import NODES


class DerivedTree(NamedTuple):
    """A sentence, and the heads or the transitions of its tree.

    Attributes:
      encoded: the sentence of n words, see `ParserProcessor.encode`.
      relations: the id of each word's relation; -1 = no training sentence has it [n].
      heads: the head of each word; 0 = the root [n].
      derivation: transitions of the tree; if it is not projective, transitions of the lifted tree. None = the parser
        has no transitions.
    """

    encoded: EncodedSentence
    relations: tuple[int, ...]
    heads: tuple[int, ...]
    derivation: Derivation | None


def derived(sentence: TreeSentence, processor: ParserProcessor) -> DerivedTree:
    """The heads or the transitions of a sentence's tree. A sentence without a tree has those of a chain, for no use.

    Raises: ValueError for a sentence that is too long.
    """
    encoded = processor.encode(sentence)
    heads = tuple(range(len(sentence.words))) if sentence.heads is None else sentence.heads
    ids = [processor.relation_id(relation) for relation in sentence.relations or ()]
    relations = [-1 if relation is None else relation for relation in ids] or [0] * len(sentence.words)
    if processor.system == "graph":
        return DerivedTree(encoded, tuple(relations), heads, None)
    transitions = derivation(
        lifted(heads),
        [max(relation, 0) for relation in relations],
        processor.system,
        num_relations=processor.num_relations,
    )
    return DerivedTree(encoded, tuple(relations), heads, transitions)


def tree_batch(processor: ParserProcessor, trees: Sequence[DerivedTree], size: int, length: int) -> NumpyBatch:
    """Sentences with their trees as a batch of B rows of T words, or tokens of BERT; the last rows are padding.

    Returns:
      What `ParserProcessor.batch` returns, and the arrays of `_head_targets` or of `_transition_targets`.
    """
    batch = processor.batch([tree.encoded for tree in trees], size, length)
    targets = _head_targets if processor.system == "graph" else _transition_targets
    return batch | targets(trees, size, length)


def _head_targets(trees: Sequence[DerivedTree], size: int, length: int) -> NumpyBatch:
    """The heads and relations of words.

    Returns:
      `heads` [B, T] int32, 0 for the root and at padding;
      `relations` [B, T] int32, -1 for a relation that no training sentence has;
      `loss_mask` [B, T] bool, False for padding.
    """
    heads, relations = np.zeros((2, size, length), np.int32)
    loss_mask = np.zeros((size, length), bool)
    for row, tree in enumerate(trees):
        count = len(tree.heads)
        heads[row, :count], relations[row, :count] = tree.heads, tree.relations
        loss_mask[row, :count] = True
    return {"heads": heads, "relations": relations, "loss_mask": loss_mask}


def _transition_targets(trees: Sequence[DerivedTree], size: int, length: int) -> NumpyBatch:
    """The S = 2 T transitions of each sentence.

    Returns:
      `nodes` [B, S, 18] int32, the nodes of the configurations, -1 for a missing node;
      `relations` [B, T + 1] int32, the relation of each word, by the word's number;
      `legal` [B, S, 5] bool, which kinds of transitions are allowed;
      `transitions` [B, S] int32, their ids;
      `loss_mask` [B, S] bool, False for padding, and for relations that no training sentence has.
    """
    steps = 2 * length
    nodes = np.full((size, steps, NODES), -1, np.int32)
    relations = np.zeros((size, length + 1), np.int32)
    legal = np.zeros((size, steps, 5), bool)
    legal[:, :, 0] = True  # at padding, so that each row of logits has a legal transition
    transitions = np.zeros((size, steps), np.int32)
    loss_mask = np.zeros((size, steps), bool)
    for row, (_, gold, _, oracle) in enumerate(trees):
        assert oracle is not None
        count = len(oracle.transitions)
        nodes[row, :count], legal[row, :count] = oracle.nodes, oracle.legal
        transitions[row, :count] = oracle.transitions
        relations[row, 1 : len(gold) + 1] = np.maximum(gold, 0)
        loss_mask[row, :count] = np.array([0, *gold])[np.maximum(oracle.dependents, 0)] >= 0
    targets = {"nodes": nodes, "relations": relations, "legal": legal, "transitions": transitions}
    return targets | {"loss_mask": loss_mask}


def training_batches(trees: Sequence[DerivedTree], processor: ParserProcessor, shapes: Shapes, *, seed: int) -> Epochs:
    """Endless batches, shuffled in each epoch; batches have about the same number of words."""
    length, batch = functools.partial(tree_length, processor), functools.partial(tree_batch, processor)
    return shapes.epochs(lambda _: trees, length, batch, seed=seed)


def tree_split(
    sentences: Sequence[TreeSentence],
    trees: Sequence[DerivedTree],
    processor: ParserProcessor,
    shapes: Shapes,
    *,
    notes: tuple[str, ...] = (),
) -> Split[TreeSentence]:
    """One pass over sentences, shorter ones first. Batches have targets if all sentences have trees."""
    length, batch = functools.partial(tree_length, processor), functools.partial(tree_batch, processor)
    batches, rows = shapes.one_pass(trees, length, batch)
    return Split(
        batches,
        examples=tuple(sentences),
        rows=rows,
        scored=all(sentence.heads is not None for sentence in sentences),
        notes=notes,
    )


def tree_length(processor: ParserProcessor, tree: DerivedTree) -> int:
    """The number of words, or with a BERT of its tokens."""
    return processor.inputs.encoded_length(tree.encoded)
