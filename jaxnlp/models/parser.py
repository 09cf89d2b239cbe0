"""The base of transition-based dependency parsers: vectors of words, and scores of transitions.

The first part of a parser computes a vector for each word of a sentence, once. The second part scores the transitions
of a configuration, from the vectors x of some of the 18 nodes that describe it, and the vectors y of the labels of the
dependents (Chen and Manning 2014, section 3.1):

    h = f(sum_k x_k W_k + sum_l y_l U_l + b),   scores = h W_out + b_out

f is cubic, ReLU or tanh. E is the width of the words' vectors, F the width of h, C the number of transitions, S the
number of configurations of a sentence, and N the number of nodes that the parser reads, at most 18.
"""

import dataclasses
from typing import Any, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.config import Count, Natural, Rate
from jaxnlp.models import ModelConfig, parameter_table
from jaxnlp.models.parameter_table import Table
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.embedding import Embed
from jaxnlp.ops.matrix_products import added, matmul
from jaxnlp.text.transitions import LABELLED, NODES

Activation = Literal["cube", "relu", "tanh"]
ACTIVATIONS = {"cube": lambda x: x * x * x, "relu": jax.nn.relu, "tanh": jnp.tanh}
EMBEDDING_BOUND = 0.01
"""Random vectors are initially uniform between minus and plus this (Chen and Manning 2014, section 3.2)."""
CONFIGURATION = (
    jax.ShapeDtypeStruct((1, 1, NODES), jnp.int32),
    jax.ShapeDtypeStruct((1, 1, NODES - LABELLED), jnp.int32),
)
"""Shapes of the nodes and of the labels of one configuration of one sentence."""


def uniform_vectors(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    """Initial vectors of words, tags and labels, such as [V, E]: uniform in a small interval around 0."""
    return jax.random.uniform(key, shape, dtype, -EMBEDDING_BOUND, EMBEDDING_BOUND)


@dataclasses.dataclass(frozen=True)
class ParserConfig(ModelConfig):
    """The base of parsers' configs. Their processor is a `ParserProcessor`.

    `reads` names the arrays of the encoder, which follow a batch of configurations in the module's arguments.
    """

    hidden_width: Count = 200
    """Width of the hidden layer, F."""
    activation: Activation = "cube"
    """Function of the hidden layer: x^3, ReLU or tanh."""
    label_width: Natural = 50
    """Width of the vectors of labels; 0 = labels are not read."""
    dropout_rate: Rate = 0.5
    """Share of the hidden layer dropped in training."""

    def check(self, processor: Any) -> None:
        if processor.system == "graph":
            raise ValueError("this parser builds trees by transitions; set data.system arc_standard or arc_eager")

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that the parser reads, among the 18 of `Configuration.nodes`."""
        return tuple(range(NODES))

    def scorer_parameters(self) -> Table:
        """Table entries of the second part, the scorer."""
        axes: dict[tuple[str, ...], str] = {("words_kernel",): "EF", ("bias",): "F"}
        if self.label_width:
            axes |= {("labels_kernel",): "DF"}
        table = parameter_table.entries(axes, prefix=("scorer",))
        if self.label_width:
            table |= parameter_table.entries({("scorer", "labels", "embedding"): "CD"}, "below")
        return table | parameter_table.entries(parameter_table.dense(("scorer", "head"), "FC"), head=True)


class Parser(nn.Module):
    """Scores the transitions of sentences; a subclass defines `encode`.

    Attributes:
      config: shape and variants.
      num_tags: number of tag ids; 0 = the parser does not read tags.
      num_relations: R.
      num_transitions: C.
    """

    config: ParserConfig
    num_tags: int
    num_relations: int
    num_transitions: int

    def setup(self):
        """The scorer of transitions; a subclass adds its encoder."""
        self.scorer = TransitionScorer(self.config, self.vector_width, self.num_relations, self.num_transitions)

    @property
    def vector_width(self) -> int:
        """E, the width of the words' vectors."""
        raise TypeError(f"{type(self).__name__} does not define vector_width")

    def __call__(
        self, nodes: jax.Array, labels: jax.Array, *inputs: jax.Array, deterministic: bool = True
    ) -> jax.Array:
        """Scores the transitions of S configurations of each sentence.

        Args:
          nodes: the nodes of the configurations, as `Configuration.nodes` [B, S, 18] int.
          labels: the labels of the dependents among them; R = no dependent [B, S, 12] int.
          inputs: the arrays that `config.reads` names.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          Logits [B, S, C], float32.
        """
        vectors = self.encode(*inputs, deterministic=deterministic)
        return self.scorer(vectors, nodes, labels, deterministic=deterministic)

    def encode(self, *inputs: jax.Array, deterministic: bool = True) -> jax.Array:
        """Vectors [B, T + 2, E] of no word, of ROOT and of the T words of each sentence. Arguments: as `__call__`."""
        raise TypeError(f"{type(self).__name__} does not define encode()")

    def score(self, vectors: jax.Array, nodes: jax.Array, labels: jax.Array) -> jax.Array:
        """The logits [B, S, C] of `__call__`, from the vectors [B, T + 2, E] that `encode` returned."""
        return self.scorer(vectors, nodes, labels)


class TransitionScorer(nn.Module):
    """Logits of transitions, from vectors of words and labels.

    Attributes:
      config: shape and variants.
      width: width of the words' vectors, E.
      num_relations: R.
      num_transitions: C.

    Parameters: words_kernel [N E, F], labels_kernel [12 D, F], bias [F].
    """

    config: ParserConfig
    width: int
    num_relations: int
    num_transitions: int

    def setup(self):
        """The kernels, the vectors of labels and the output layer."""
        config = self.config
        xavier = nn.initializers.xavier_uniform()
        shape = (len(config.nodes) * self.width, config.hidden_width)
        self.words_kernel = self.param("words_kernel", xavier, shape)
        self.bias = self.param("bias", nn.initializers.zeros, shape[1:])
        if config.label_width:
            shape = ((NODES - LABELLED) * config.label_width, config.hidden_width)
            self.labels_kernel = self.param("labels_kernel", xavier, shape)
            self.labels = Embed(self.num_relations + 1, config.label_width, embedding_init=uniform_vectors)
        self.dropout = Dropout(config.dropout_rate)
        self.head = Dense(self.num_transitions, kernel_init=xavier, compute=config.compute)

    def __call__(
        self, vectors: jax.Array, nodes: jax.Array, labels: jax.Array, *, deterministic: bool = True
    ) -> jax.Array:
        """Args: vectors [B, T + 2, E]; nodes [B, S, 18]; labels [B, S, 12]. Returns: logits [B, S, C], float32."""
        chex.assert_rank([vectors, nodes, labels], 3)
        batch, steps, _ = nodes.shape
        chex.assert_shape(nodes, (vectors.shape[0], steps, NODES))
        chex.assert_shape(labels, (batch, steps, NODES - LABELLED))
        indices = nodes[:, :, np.array(self.config.nodes)] + 1  # the vector of no word, node -1, is the first one
        gathered = jax.vmap(lambda one, at: one[at])(vectors, indices)
        total = self._product(gathered.reshape(batch * steps, -1), self.words_kernel)
        if self.config.label_width:
            total += self._product(self.labels(labels).reshape(batch * steps, -1), self.labels_kernel)
        hidden = ACTIVATIONS[self.config.activation](added(total, self.bias[None]))
        logits = self.head(self.dropout(hidden, deterministic=deterministic))
        return logits.astype(jnp.float32).reshape(batch, steps, -1)

    def _product(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        compute = self.config.compute
        return matmul(
            x.astype(compute.activation_dtype), kernel.astype(compute.activation_dtype), compute.operand_dtype
        )
