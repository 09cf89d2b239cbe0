"""The parser of Chen and Manning in PyTorch, with `nn.Embedding` and `nn.Linear`."""

import torch
from torch import nn

from jaxnlp.models.feed_forward_parser import FeedForwardParserConfig
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.transitions import LABELLED, NODES


class TorchParser(nn.Module):
    """The model of `models.feed_forward_parser` with tags and ReLU, for configurations of any sentences."""

    def __init__(self, config: FeedForwardParserConfig, processor: ParserProcessor):
        super().__init__()
        self.words = nn.Embedding(processor.inputs.vocabulary_size + 1, config.word_width)
        self.tags = nn.Embedding(processor.num_tags + 1, config.tag_width)
        self.labels = nn.Embedding(processor.num_relations + 1, config.label_width)
        width = NODES * (config.word_width + config.tag_width) + (NODES - LABELLED) * config.label_width
        self.hidden = nn.Linear(width, config.hidden_width)
        self.output = nn.Linear(config.hidden_width, processor.num_transitions)

    def forward(self, words: torch.Tensor, tags: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Args: words [B, 18], tags [B, 18], labels [B, 12], int64; -1 = ROOT. Returns: logits [B, C]."""
        parts = []
        for table, ids in ((self.words, words), (self.tags, tags), (self.labels, labels)):
            parts.append(table(ids % table.num_embeddings).flatten(1))
        return self.output(torch.relu(self.hidden(torch.cat(parts, dim=1))))
