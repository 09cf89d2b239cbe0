"""Batches of sentences with their trees: transitions, or the heads of the words."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from data import NumpyBatch, Split
from data.pipelines.buckets import Buckets, Size
from data.pipelines.transition_oracle import Derivation, derivation, lifted
from jaxnlp.text.conllu import TreeSentence
from jaxnlp.text.padding import padded, row_mask
from jaxnlp.text.parser_processor import EncodedSentence, ParserProcessor
from jaxnlp.text.transitions import NODES


class DerivedTree(NamedTuple):
    """A sentence, and the heads or the transitions of its tree.

    Attributes:
      encoded: the sentence of n words, see `ParserProcessor.encode`.
      relations: the id of each word's relation; -1 = not in the training sentences [n] int32.
      heads: the head of each word; 0 = the root [n] int32.
      derivation: transitions of the tree, or of the lifted tree if it is not projective; None = a graph parser.
    """

    encoded: EncodedSentence
    relations: np.ndarray
    heads: np.ndarray
    derivation: Derivation | None


def derived(sentence: TreeSentence, processor: ParserProcessor) -> DerivedTree:
    """The heads or the transitions of a sentence's tree; for a sentence without a tree an unused chain.

    Raises: ValueError for a sentence that is too long.
    """
    encoded = processor.encode(sentence)
    heads = tuple(range(len(sentence.words))) if sentence.heads is None else sentence.heads
    ids = [processor.relation_id(relation) for relation in sentence.relations or ()]
    relations = np.array([-1 if one is None else one for one in ids] or [0] * len(sentence.words), np.int32)
    tree = DerivedTree(encoded, relations, np.array(heads, np.int32), None)
    if processor.system == "graph":
        return tree
    known = np.maximum(relations, 0).tolist()
    transitions = derivation(lifted(heads), known, processor.system, num_relations=processor.num_relations)
    return tree._replace(derivation=transitions)


def tree_batch(processor: ParserProcessor, trees: Sequence[DerivedTree], size: int, length: int) -> NumpyBatch:
    """Sentences with their trees as a batch of B rows of T words, or tokens of BERT; the last rows are padding.

    Returns:
      The arrays of `ParserProcessor.batch`, and of `_head_targets` or `_transition_targets`.
    """
    batch = processor.batch([tree.encoded for tree in trees], size, length)
    targets = _head_targets if processor.system == "graph" else _transition_targets
    return batch | targets(trees, size, length)


def _head_targets(trees: Sequence[DerivedTree], size: int, length: int) -> NumpyBatch:
    """The heads and relations of words.

    Returns:
      `heads` [B, T] int32, 0 for the root and at padding;
      `relations` [B, T] int32, -1 for a relation that is not in the training sentences;
      `loss_mask` [B, T] bool, False for padding.
    """
    heads = [tree.heads for tree in trees]
    mask = row_mask(heads, size, length)
    relations = padded([tree.relations for tree in trees], mask)
    return {"heads": padded(heads, mask), "relations": relations, "loss_mask": mask}


def _transition_targets(trees: Sequence[DerivedTree], size: int, length: int) -> NumpyBatch:
    """The S = 2 T transitions of each sentence.

    Returns:
      `nodes` [B, S, 18] int32, the nodes of the configurations, -1 for a missing node;
      `relations` [B, T + 1] int32, the relation of each word, by the word's number;
      `legal` [B, S, 5] bool, whether each kind of transition is allowed;
      `transitions` [B, S] int32, their ids;
      `loss_mask` [B, S] bool, False for padding, and for relations that are not in the training sentences.
    """
    oracles: list[Any] = [tree.derivation for tree in trees]
    mask = row_mask([oracle.transitions for oracle in oracles], size, 2 * length)
    gold = [tree.relations for tree in trees]
    relations = np.pad(padded(gold, row_mask(gold, size, length)), [(0, 0), (1, 0)])
    legal = padded([oracle.legal for oracle in oracles], mask, dtype=bool, width=5)
    legal[:, :, 0] |= ~mask  # so that each row of logits has a legal transition
    dependents = np.maximum(padded([oracle.dependents for oracle in oracles], mask), 0)
    return {
        "nodes": padded([oracle.nodes for oracle in oracles], mask, fill=-1, width=NODES),
        "relations": np.maximum(relations, 0),
        "legal": legal,
        "transitions": padded([oracle.transitions for oracle in oracles], mask),
        "loss_mask": mask & (np.take_along_axis(relations, dependents, axis=1) >= 0),
    }


def tree_buckets(lengths: Sequence[int], processor: ParserProcessor) -> Buckets[DerivedTree]:
    """Batches of trees, with these lengths."""
    return Buckets(lengths, functools.partial(tree_length, processor), functools.partial(tree_batch, processor))


def tree_split(
    sentences: Sequence[TreeSentence],
    trees: Sequence[DerivedTree],
    buckets: Buckets[DerivedTree],
    size: Size,
    *,
    notes: tuple[str, ...] = (),
) -> Split[TreeSentence]:
    """One pass over sentences, shorter ones first. Batches have targets if all sentences have trees."""
    batches, rows = buckets.one_pass(trees, size)
    return Split(
        batches,
        examples=tuple(sentences),
        rows=rows,
        scored=all(sentence.heads is not None for sentence in sentences),
        notes=notes,
    )


def tree_length(processor: ParserProcessor, tree: DerivedTree) -> int:
    """The number of words, or of BERT's tokens."""
    return processor.inputs.encoded_length(tree.encoded)
