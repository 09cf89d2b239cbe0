"""CS224N, assignment 3: a trained parser as the model that `minibatch_parse` asks for transitions.

    model = ParserModel(run, [["parse", "this", "sentence"]])
    dependencies = minibatch_parse(model.sentences, model, batch_size=64)

`PartialParse` and `minibatch_parse` are the library's, or one's own.

Source: Stanford CS224N, assignment 3, for the signatures. Differs: the parser predicts relations too, and reads them.
"""

import functools
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.coursework import require_run
from jaxnlp.ops.transitions import node_labels
from jaxnlp.tasks import Trained
from jaxnlp.tasks.parsing import Parsing
from jaxnlp.tasks.parsing.commands import sentence_of_text
from jaxnlp.tasks.parsing.parser import encoded_sentence
from jaxnlp.tasks.parsing.predicted_tags import require_tags, with_predicted_tags
from jaxnlp.text.conllu import TreeSentence
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.transitions import (
    ABSENT,
    LEFT,
    NODES,
    SHIFT,
    Configuration,
    PartialParse,
    kinds_of_transitions,
    minibatch_parse,
)
from jaxnlp.typing import Array, Batch, Params

__all__ = ["ParserModel", "PartialParse", "Word", "minibatch_parse"]
RECIPE = "ud_parser"
Sentence = Sequence[str] | TreeSentence
"""A list of words, or a sentence of a CoNLL-U file, which has tags."""


class Word(str):
    """A word with its place: a sentence may have equal words.

    Attributes:
      sentence: the index of its sentence.
      position: its position in the sentence, from 1.
    """

    sentence: int
    position: int

    @classmethod
    def at(cls, word: str, sentence: int, position: int) -> Self:
        """The word with its attributes."""
        found = cls(word)
        found.sentence, found.position = sentence, position
        return found


class ParserModel:
    """A trained parser with the method that `minibatch_parse` calls.

    Each step encodes the words again, which costs little for the assignment's parser, `ud_parser`; `run.parse` is
    faster.

    Attributes:
      sentences: the sentences to give to `minibatch_parse`, as lists of `Word`.
    """

    def __init__(self, run: Trained, sentences: Sequence[Sentence], *, tagger: Trained | None = None):
        """Reads the sentences.

        Args:
          run: a parser by arc_standard.
          sentences: lists of words, or sentences of a CoNLL-U file.
          tagger: a run that predicts Universal POS tags, for a parser that reads them; None = those of the sentences.

        Raises: ValueError for a run of another task or system; for a sentence that is too long, has no words, or lacks
          the tags that the parser reads.
        """
        run = require_run(run, Parsing, RECIPE)
        self._processor: ParserProcessor = run.processor
        if self._processor.system != "arc_standard":
            raise ValueError(
                f"the assignment's transitions are those of arc_standard, and {run.name or 'this parser'} was trained "
                f"with data.system {self._processor.system}; give a run with --data.system arc_standard"
            )
        read = [
            one if isinstance(one, TreeSentence) else sentence_of_text(one, number)
            for number, one in enumerate(sentences, 1)
        ]
        if tagger is None:
            require_tags(read, self._processor)
        else:
            read = with_predicted_tags(tagger, read, self._processor)
        self._model, self._params = run.model, run.inference_params
        self._encoded = [encoded_sentence(sentence, self._processor) for sentence in read]
        self._length = max(map(self._processor.inputs.encoded_length, self._encoded), default=1)
        self._rows = 0  # of the largest batch so far: smaller ones are padded, so that one program is compiled
        self._relations = dict[tuple[int, int, int], int]()  # sentence, head, dependent -> the relation of the arc
        self.sentences = [
            [Word.at(word, index, position) for position, word in enumerate(sentence.words, 1)]
            for index, sentence in enumerate(read)
        ]

    def predict(self, partial_parses: Sequence[PartialParse]) -> list[str]:
        """The most probable transition of each parse, S, LA or RA, among those that lead to a tree with one root.

        Raises: ValueError for a parse of other sentences, with an arc that was not predicted here, or that is finished.
        """
        indices = [self._index(parse) for parse in partial_parses]
        states = [self._configuration(index, parse) for index, parse in zip(indices, partial_parses, strict=True)]
        self._rows = max(self._rows, len(states))
        kinds = np.array(kinds_of_transitions(self._processor.num_relations))
        nodes = np.full((self._rows, NODES), ABSENT, np.int32)
        relations = np.zeros((self._rows, self._length + 1), np.int32)
        legal = np.ones((self._rows, len(kinds)), bool)
        for row, (index, state) in enumerate(zip(indices, states, strict=True)):
            nodes[row], legal[row] = state.nodes(), np.array((*state.legal(), False))[kinds]
            for word, head in enumerate(state.heads):
                if head != ABSENT:
                    relations[row, word] = self._relations[index, head, word]
        batch = self._processor.batch([self._encoded[index] for index in indices], self._rows, self._length)
        chosen = np.asarray(_best(self._model, self._params, batch, nodes, relations, legal)).tolist()
        names = []
        for index, state, transition in zip(indices, states, chosen, strict=False):
            kind = int(kinds[transition])
            dependent = state.apply(kind)
            if dependent != ABSENT:
                relation = (transition - 2) % self._processor.num_relations
                self._relations[index, state.heads[dependent], dependent] = relation
            names.append("S" if kind == SHIFT else "LA" if kind == LEFT else "RA")
        return names

    def _index(self, parse: PartialParse) -> int:
        first = next(iter(parse.sentence), None)
        if not isinstance(first, Word) or self.sentences[first.sentence : first.sentence + 1] != [[*parse.sentence]]:
            raise ValueError(
                f"expected a parse of one of the model's sentences, got {[*parse.sentence]}; call "
                "minibatch_parse(model.sentences, model, batch_size)"
            )
        return first.sentence

    def _configuration(self, index: int, parse: PartialParse) -> Configuration:
        """The state of a parse, by word positions."""
        state = Configuration("arc_standard", len(parse.sentence))
        state.stack = [_position(word) for word in parse.stack]
        state.following = state.length - len(parse.buffer) + 1
        for arc in parse.dependencies:
            head, dependent = map(_position, arc)
            if (index, head, dependent) not in self._relations:
                raise ValueError(f"the arc {arc} was not predicted by this model, so its relation is not known")
            state.heads[dependent] = head
            state.children[dependent > head][head].append(dependent)
        return state


def _position(word: str) -> int:
    """The position of a word; 0 = ROOT."""
    return word.position if isinstance(word, Word) else 0


@functools.partial(jax.jit, static_argnums=0)
def _best(model: Any, params: Params, batch: Batch, nodes: Array, relations: Array, legal: Array) -> Array:
    """The best legal transition of each sentence [B] int, from nodes [B, 18], relations [B, T + 1], legal [B, C]."""
    labels = jax.vmap(node_labels, in_axes=(0, 0, None))(nodes, relations, model.num_relations)
    inputs = (batch[name] for name in model.config.reads)
    scores = model.apply({"params": params}, nodes[:, None], labels[:, None], *inputs)[:, 0]
    return jnp.where(legal, scores, -jnp.inf).argmax(axis=-1)
