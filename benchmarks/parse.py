"""`jaxnlp parse` over 2,000 sentences of the small grammar with the model of the recipe `ud_parser`, without printing.

From words and tags to trees. The opponent is the parser of CS224N's assignment 3: partial parses are Python objects,
and a PyTorch model predicts legal transitions for a batch of them.
"""

import functools
from collections.abc import Callable

import numpy as np

from benchmarks.case import OURS, Case, Step
from configs import ud_parser
from data.small_grammar import grammar_sentences
from jaxnlp.models.feed_forward_parser import FeedForwardParserConfig
from jaxnlp.models.graph_parser import GraphParserConfig
from jaxnlp.text.conllu import TreeSentence, sentence_of
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.transitions import ABSENT, LABELLED, Configuration, System, kinds_of_transitions
from jaxnlp.text.word_inputs import WordInputs

SENTENCES, BATCH = 2_000, 1_024
SYSTEM: System = "arc_standard"


@functools.cache
def sentences() -> tuple[TreeSentence, ...]:
    """The sentences with gold tags."""
    found = grammar_sentences(SENTENCES, seed=0)
    return tuple(sentence_of(one.words, one.tags, one.heads, one.relations) for one in found)


@functools.cache
def processor() -> ParserProcessor:
    """The vocabularies of both implementations."""
    inputs = WordInputs.of_sentences([one.words for one in sentences()])
    return ParserProcessor.of_sentences(sentences(), inputs, tag_column="upos", subtypes=True, system=SYSTEM)


def config() -> FeedForwardParserConfig:
    """The model of the recipe."""
    found = ud_parser.get_config().model
    assert isinstance(found, FeedForwardParserConfig)
    return found


def ours() -> Step:
    return parser(config(), processor())


def parser(config: FeedForwardParserConfig | GraphParserConfig, reader: ParserProcessor) -> Step:
    """`jaxnlp parse` of the sentences with a random model."""
    import jax

    from jaxnlp.tasks import Trained
    from jaxnlp.tasks.parsing import Parsing
    from jaxnlp.tasks.parsing.parser import SentenceParser

    model, shapes = config.build(reader), config.inputs(reader)
    params = model.init(jax.random.key(0), *(np.zeros(x.shape, x.dtype) for x in shapes))["params"]
    parse = SentenceParser(Trained(Parsing(), model, params, reader))
    return lambda: parse(sentences())


def theirs(*, bfloat16: bool) -> Step:
    """As in the assignment, with the features of `Configuration`."""
    import torch

    from benchmarks.torch_parser import TorchParser

    reader = processor()
    model = TorchParser(config(), reader).eval()
    kinds = np.array(kinds_of_transitions(reader.num_relations))
    encoded = [reader.encode(sentence) for sentence in sentences()]

    @torch.no_grad()
    def step() -> list[list[int]]:
        parses = [Configuration(SYSTEM, len(sentence.words)) for sentence in sentences()]
        relations = [[0] * (parse.length + 1) for parse in parses]
        unfinished = list(range(len(parses)))
        while unfinished:
            batch = unfinished[:BATCH]
            nodes = np.array([parses[number].nodes() for number in batch])
            words, tags = (
                np.array([_of_nodes(encoded[number][name], row) for number, row in zip(batch, nodes, strict=True)])
                for name in ("words", "tags")
            )
            labels = np.array(
                [
                    [relations[number][node] if node != ABSENT else reader.num_relations for node in row[LABELLED:]]
                    for number, row in zip(batch, nodes, strict=True)
                ]
            )
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
                scores = model(*map(torch.from_numpy, (words, tags, labels))).float().numpy()
            legal = np.array([(*parses[number].legal(), False) for number in batch])[:, kinds]
            for number, chosen in zip(batch, np.where(legal, scores, -np.inf).argmax(axis=1).tolist(), strict=True):
                dependent = parses[number].apply(int(kinds[chosen]))
                if dependent != ABSENT:
                    relations[number][dependent] = (chosen - 2) % reader.num_relations
            unfinished = [number for number in unfinished if not parses[number].finished]
        return [parse.heads for parse in parses]

    return step


def _of_nodes(ids: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The ids of nodes; 0 for a missing node, and for ROOT the last row of the table, -1."""
    return np.where(nodes > 0, ids[np.maximum(nodes, 1) - 1], np.where(nodes == 0, -1, 0))


def case(name: str, ours: Callable[[], Step], theirs: Callable[..., Step]) -> Case:
    """A case of these sentences."""
    opponents = {
        "eager_f32": functools.partial(theirs, bfloat16=False),
        "eager_bf16": functools.partial(theirs, bfloat16=True),
    }
    words = sum(len(sentence.words) for sentence in sentences())
    return Case(name, {OURS: ours, **opponents}, tokens=words)


def cases() -> list[Case]:
    return [case("parse", ours, theirs)]
