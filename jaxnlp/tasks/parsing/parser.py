"""A trained parser as a function from sentences to trees."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.decoding.parsing import Trees, beam_parse
from jaxnlp.inference import batches
from jaxnlp.inference.batches import BatchFunction, Shape, decoding_shapes, in_batches, sentence_shapes
from jaxnlp.inference.exportable import Exportable, axes_of_batches
from jaxnlp.ops.compiler_options import jit
from jaxnlp.tasks import Trained
from jaxnlp.tasks.parsing.scores import Tree
from jaxnlp.text.conllu import TreeSentence
from jaxnlp.text.parser_processor import EncodedSentence, ParserProcessor
from jaxnlp.text.transitions import System
from jaxnlp.typing import Batch, Params

MANY = Shape(256, 32)
"""A further shape of batches of parsers by transitions: sentences are short, so many of them fit."""
STEP_COST = 64
"""Cost of a transition in positions, for parsers without BERT, which read a position fast."""


def parse_of(
    model: Any, processor: ParserProcessor, num_beams: int = 1, positions: int | None = None
) -> Callable[[Params, Batch], Trees]:
    """A function of parameters and a batch that parses the sentences of the batch; it can be jitted.

    Args:
      model: the module.
      processor: its processor.
      num_beams: N of transitions; 1 = greedy, the only choice for graph parsers.
      positions: the length of the results, at least the length of the batches; None = the batch's length.

    Raises: ValueError for beams of a graph parser.
    """
    if processor.system == "graph":
        if num_beams != 1:
            raise ValueError(f"num_beams is for parsers by transitions; a graph parser needs 1, got {num_beams}")
        trees_of_batch = _by_arcs(model)
    else:
        trees_of_batch = _by_transitions(model, processor.system, num_beams)

    def parse(params: Params, batch: Batch) -> Trees:
        trees = trees_of_batch(params, batch)
        more = 0 if positions is None else positions - batch["word_mask"].shape[1]
        heads, relations = (jnp.pad(x, [(0, 0), (0, more)]) for x in (trees.heads, trees.relations))
        return Trees(heads, relations, trees.scores)

    return parse


def _by_transitions(model: Any, system: System, num_beams: int) -> Callable[[Params, Batch], Trees]:
    """The trees of the most probable transitions."""

    def trees(params: Params, batch: Batch) -> Trees:
        variables = {"params": params}
        vectors = model.apply(variables, *(batch[name] for name in model.config.reads), method="encode")
        return beam_parse(
            lambda nodes, labels: model.apply(variables, vectors, nodes, labels, method="score"),
            batch["word_mask"].sum(axis=1, dtype=jnp.int32),
            batch["word_mask"].shape[1],
            num_relations=model.num_relations,
            system=system,
            num_beams=num_beams,
        )

    return trees


def _by_arcs(model: Any) -> Callable[[Params, Batch], Trees]:
    """The trees with the highest scores of arcs; each arc then gets its best relation."""

    def trees(params: Params, batch: Batch) -> Trees:
        variables, lengths = {"params": params}, batch["word_mask"].sum(axis=1, dtype=jnp.int32)
        arcs, vectors = model.apply(variables, *(batch[name] for name in model.config.reads), method="score_arcs")
        heads = model.config.best_heads(arcs, lengths)
        logprobs = jax.nn.log_softmax(model.apply(variables, vectors, heads, method="score_relations"), axis=-1)
        relations = jnp.where(batch["word_mask"], logprobs.argmax(axis=-1), 0).astype(jnp.int32)
        best = jnp.where(batch["word_mask"], logprobs.max(axis=-1), 0.0).sum(axis=-1)
        return Trees(heads, relations, model.config.log_probability(arcs, heads, lengths) + best)

    return trees


def trees_of(sentences: Sequence[TreeSentence], arrays: Trees, processor: ParserProcessor) -> list[Tree]:
    """Trees with the names of the relations, from arrays with one row for each sentence; the last rows are padding."""
    rows = zip(*map(np.asarray, arrays), strict=True)
    return [_tree_of(sentence, Trees(*row), processor) for sentence, row in zip(sentences, rows, strict=False)]


def _tree_of(sentence: TreeSentence, arrays: Trees, processor: ParserProcessor) -> Tree:
    heads, relations = (np.asarray(x)[: len(sentence.words)].tolist() for x in (arrays.heads, arrays.relations))
    return Tree(heads, [processor.relations[relation] for relation in relations])


@functools.partial(jit, static_argnums=(0, 1, 2))
def _parse(model: Any, processor: ParserProcessor, num_beams: int, params: Params, batch: Batch) -> Trees:
    return parse_of(model, processor, num_beams=num_beams)(params, batch)


class SentenceParser:
    """Parses sentences in batches of a few shapes."""

    def __init__(self, trained: Trained, *, num_beams: int = 1):
        self._trained = trained
        self._parse = functools.partial(_parse, trained.model, trained.processor, num_beams)

    def __call__(self, sentences: Sequence[TreeSentence], params: Params | None = None) -> list[Tree]:
        """The trees of sentences, in order. Args: params: None = the trained parameters.

        Raises: ValueError, naming the sentence, for a sentence that is too long.
        """
        encoded = [encoded_sentence(sentence, self._trained.processor) for sentence in sentences]
        return self._trees(sentences, encoded, params)

    def trees_or_problems(self, sentences: Sequence[TreeSentence]) -> list[Tree | str]:
        """The tree of each sentence; or a message that names a sentence that is too long."""
        encoded = dict[int, EncodedSentence]()
        results: list[Tree | str] = [""] * len(sentences)
        for index, sentence in enumerate(sentences):
            try:
                encoded[index] = encoded_sentence(sentence, self._trained.processor)
            except ValueError as error:
                results[index] = str(error)
        trees = self._trees([sentences[index] for index in encoded], list(encoded.values()), None)
        for index, tree in zip(encoded, trees, strict=True):
            results[index] = tree
        return results

    def warm_up(self) -> None:
        """Compiles the programs ahead."""
        batches.warm_up(self._shapes(), self._computed((), None))

    def _trees(
        self, sentences: Sequence[TreeSentence], encoded: Sequence[EncodedSentence], params: Params | None
    ) -> list[Tree]:
        processor: ParserProcessor = self._trained.processor
        lengths = list(map(processor.inputs.encoded_length, encoded))
        by_steps = processor.system != "graph" and processor.inputs.pieces is None
        step_cost = STEP_COST if by_steps else 0
        rows = in_batches(lengths, self._shapes(), self._computed(encoded, params), step_cost)
        return [_tree_of(sentence, one, processor) for sentence, one in zip(sentences, rows, strict=True)]

    def _shapes(self) -> tuple[Shape, ...]:
        processor: ParserProcessor = self._trained.processor
        longest = processor.inputs.longest
        if processor.system == "graph":  # one forward pass, without steps
            return sentence_shapes(longest)
        return tuple(dict.fromkeys((*decoding_shapes(longest), Shape(MANY.rows, min(MANY.length, longest)))))

    def _computed(self, encoded: Sequence[EncodedSentence], params: Params | None) -> BatchFunction:
        params = self._trained.inference_params if params is None else params

        def compute(indices: Sequence[int], shape: Shape) -> Trees:
            batch = self._trained.processor.batch([encoded[index] for index in indices], *shape)
            return self._parse(params, batch)

        return compute


def encoded_sentence(sentence: TreeSentence, processor: ParserProcessor) -> EncodedSentence:
    """The arrays of a sentence. Raises: ValueError, naming the sentence, when it is too long or has no words."""
    if not sentence.words:
        raise ValueError(f"{sentence.where}: a sentence needs at least one word, got none")
    try:
        return processor.encode(sentence)
    except ValueError as error:
        raise ValueError(f"{sentence.where}: {error}; split the sentence") from error


def exports(trained: Trained) -> dict[str, Exportable]:
    """`parse`: the trees of sentences; by transitions, greedy."""
    model: Any = trained.model
    processor: ParserProcessor = trained.processor
    parse = parse_of(model, processor)
    names = tuple(dict.fromkeys((*model.config.reads, "word_mask")))

    def apply(params: Params, inputs: Batch) -> dict[str, Any]:
        return parse(params, inputs)._asdict()

    axes, inputs = axes_of_batches(functools.partial(processor.batch, ()), names, longest=processor.inputs.longest)
    returns = "heads [B, T] of words, 0 = the root; their relations [B, T]; log-probabilities of the trees [B]"
    return {"parse": Exportable(returns, apply, axes, inputs, processor.relations, onnx=False)}
