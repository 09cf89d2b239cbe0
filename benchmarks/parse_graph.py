"""`jaxnlp parse` with the model of the recipe `ud_graph_parser`, over the sentences of `parse`, without printing.

From words to trees. The opponent has the same network in PyTorch, and Chu-Liu-Edmonds in NumPy as published parsers do.
"""

import functools

import numpy as np

from benchmarks.case import Case, Step
from benchmarks.parse import case, parser, sentences
from configs import ud_graph_parser
from jaxnlp.models.graph_parser import GraphParserConfig
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.word_inputs import WordInputs

BATCH = 64


@functools.cache
def processor() -> ParserProcessor:
    """The vocabularies of both implementations."""
    inputs = WordInputs.of_sentences([one.words for one in sentences()])
    return ParserProcessor.of_sentences(sentences(), inputs, tag_column="none", subtypes=True, system="graph")


def config() -> GraphParserConfig:
    """The model of the recipe."""
    found = ud_graph_parser.get_config().model
    assert isinstance(found, GraphParserConfig)
    return found


def ours() -> Step:
    return parser(config(), processor())


def theirs(*, bfloat16: bool) -> Step:
    """Batches of sentences of similar length."""
    import torch

    from benchmarks.torch_graph_parser import TorchGraphParser, best_tree

    reader = processor()
    model = TorchGraphParser(config(), reader).eval()

    @torch.no_grad()
    def step() -> list[list[list[int]]]:
        encoded = [reader.encode(sentence) for sentence in sentences()]
        order = sorted(range(len(encoded)), key=lambda number: len(encoded[number]["words"]))
        found: list[list[list[int]]] = [[] for _ in encoded]
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            lengths = [len(encoded[number]["words"]) for number in numbers]
            batch = reader.batch([encoded[number] for number in numbers], len(numbers), max(lengths))
            inputs = (torch.from_numpy(np.asarray(batch[name])).long() for name in ("words", "characters"))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
                arcs, vectors = model(*inputs, torch.tensor(lengths))
            heads = np.zeros(batch["words"].shape, np.int64)
            for row, (length, scores) in enumerate(zip(lengths, arcs.float().numpy(), strict=True)):
                heads[row, :length] = best_tree(scores[:length, : length + 1])
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
                relations = model.score_relations(vectors, torch.from_numpy(heads)).argmax(dim=-1)
            for row, number in enumerate(numbers):
                found[number] = [heads[row, : lengths[row]].tolist(), relations[row, : lengths[row]].tolist()]
        return found

    return step


def cases() -> list[Case]:
    return [case("parse_graph", ours, theirs)]
