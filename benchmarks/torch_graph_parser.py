"""The graph parser of Dozat and Manning in PyTorch, with `nn.LSTM`; and Chu-Liu-Edmonds for one sentence in NumPy."""

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from jaxnlp.models.graph_parser import SLOPE, GraphParserConfig
from jaxnlp.text.parser_processor import ParserProcessor


class TorchGraphParser(nn.Module):
    """The model of `models.graph_parser` with words and characters, without tags and dropout."""

    def __init__(self, config: GraphParserConfig, processor: ParserProcessor):
        super().__init__()
        self.widths = (config.arc_width, config.arc_width, 2 * config.relation_width)
        self.words = nn.Embedding(processor.inputs.vocabulary_size, config.word_width)
        self.characters = nn.Embedding(processor.inputs.num_characters, config.character_width)
        self.window = config.character_window
        self.convolution = nn.Conv1d(
            config.character_width, config.character_features, self.window, padding=self.window - 1
        )
        (width, *others) = config.recurrent_widths
        assert set(others) <= {width}
        self.recurrent = nn.LSTM(
            config.word_width + config.character_features,
            width,
            num_layers=len(config.recurrent_widths),
            bidirectional=True,
            batch_first=True,
        )
        self.root = nn.Parameter(torch.zeros(2 * width))
        self.vectors = nn.Linear(2 * width, sum(self.widths))
        self.arcs = nn.Linear(config.arc_width, config.arc_width)
        size = config.relation_width + 1
        self.relations = nn.Parameter(torch.zeros(size, processor.num_relations, size))

    def forward(
        self, words: torch.Tensor, characters: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Args: words [B, T], characters [B, T, W], int64, 0 = padding; lengths [B].

        Returns: scores of arcs [B, T, T + 1], and the vectors for `score_relations`.
        """
        x = torch.cat([self.words(words), self._features(characters)], dim=-1)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True, total_length=words.shape[1])
        x = torch.cat([self.root.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
        dependents, heads, relations = nn.functional.leaky_relu(self.vectors(x), SLOPE).split(self.widths, dim=-1)
        return self.arcs(dependents[:, 1:]) @ heads.transpose(1, 2), relations

    def _features(self, characters: torch.Tensor) -> torch.Tensor:
        """The features of words [B, T, F]."""
        batch, length, most = characters.shape
        ids = characters.reshape(batch * length, most)
        there = (ids > 0)[:, :, None]
        y = self.convolution((self.characters(ids) * there).transpose(1, 2))
        some = torch.arange(y.shape[-1]) < there.sum(dim=1) + self.window - 1
        y = y.masked_fill(~(some & there.any(dim=1))[:, None], 0.0)  # 0 does not change the maximum after ReLU
        return torch.relu(y).amax(dim=-1).reshape(batch, length, -1)

    def score_relations(self, vectors: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        """Scores of relations [B, T, C]. Args: vectors: of `forward`; heads [B, T] int64, 0 = ROOT."""
        dependents, of_heads = vectors.chunk(2, dim=-1)
        chosen = of_heads.gather(1, heads[:, :, None].expand(-1, -1, of_heads.shape[-1]))
        x, y = (nn.functional.pad(part, (0, 1), value=1.0) for part in (dependents[:, 1:], chosen))
        products = (x @ self.relations.flatten(1)).unflatten(-1, self.relations.shape[1:])
        scores = (products @ y[..., None]).squeeze(-1)
        is_root = torch.arange(scores.shape[-1]) == 0
        return scores.masked_fill(is_root != (heads == 0)[:, :, None], -1e30)


def best_tree(scores: np.ndarray) -> np.ndarray:
    """The heads of the best tree with one root [T]. Args: scores: of arcs [T, T + 1].

    The score of an arc from ROOT is lowered so far that a tree with fewer roots is always better.
    """
    size = len(scores) + 1
    arcs = np.vstack([np.zeros(size), scores])  # float64
    arcs[1:, 0] -= size * (np.ptp(scores) + 1.0)
    np.fill_diagonal(arcs, -np.inf)
    return _spanning_tree(arcs)[1:]


def _spanning_tree(arcs: np.ndarray) -> np.ndarray:
    """The heads of all nodes; node 0 is ROOT, with the head 0. Args: arcs: scores by dependent and head."""
    heads = arcs.argmax(axis=1)
    heads[0] = 0
    cycle = _cycle(heads.tolist())
    if not cycle:
        return heads
    inside = np.array(cycle)
    outside = np.setdiff1d(np.arange(len(arcs)), inside)
    entering = arcs[np.ix_(inside, outside)] - arcs[inside, heads[inside]][:, None]
    leaving = arcs[np.ix_(outside, inside)]
    contracted = np.full((len(outside) + 1,) * 2, -np.inf)  # the last node is the cycle
    contracted[:-1, :-1] = arcs[np.ix_(outside, outside)]
    contracted[-1, :-1], contracted[:-1, -1] = entering.max(axis=0), leaving.max(axis=1)
    *others, head = _spanning_tree(contracted)
    for number, found in enumerate(others[1:], 1):
        heads[outside[number]] = outside[found] if found < len(outside) else inside[leaving[number].argmax()]
    heads[inside[entering[:, head].argmax()]] = outside[head]
    return heads


def _cycle(heads: list[int]) -> list[int]:
    """The nodes of one cycle; empty if there is none."""
    finished = {0}
    for node in range(1, len(heads)):
        path = []
        while node not in finished:
            finished.add(node)
            path.append(node)
            node = heads[node]
        if node in path:
            return path[path.index(node) :]
    return []
