"""The graph parser of Dozat and Manning: scores of all arcs of a sentence, and of the relations of its arcs.

A word encoder gives each word a vector v; ROOT has a learned one. From v, four layers compute vectors as dependent and
as head of an arc, and of a relation, whose products are the scores:

    x = f(v W + b), divided into x_arc, y_arc, x_rel, y_rel            f: leaky ReLU
    arc[d, h]         = x_arc[d] A y_arc[h] + a . y_arc[h]
    relation[d, h, c] = [x_rel[d]; 1] U_c [y_rel[h]; 1]

P(h | d) is the softmax of arc[d] over ROOT and all other words; or with `model.normalised_over trees`, a tree has the
probability exp(sum of its arcs' scores) / Z, where Z is a sum over all trees with one root. Only the relation root has
the head ROOT.

E is the width of the encoder's vectors, D that of the vectors of arcs or of relations, and C the number of relations.

Source: Dozat and Manning 2017; Koo et al. 2007 for probabilities of trees. Differs: characters instead of tags; ROOT
has a vector after the encoder, not before it; relations are scored for the chosen head only.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import Count, Rate
from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.word_encoder import WordEncoder, WordEncoderConfig
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import LockedDropout
from jaxnlp.nn.embedding import Embed
from jaxnlp.ops.dependency_trees import allowed_arcs, tree_scores
from jaxnlp.ops.matrix_products import matmul
from jaxnlp.ops.projective_trees import eisner
from jaxnlp.ops.spanning_trees import chu_liu_edmonds, tree_log_normalizer

SLOPE = 0.1
"""Slope of the leaky ReLU for negative values."""


@dataclasses.dataclass(frozen=True)
class GraphParserConfig(WordEncoderConfig):
    """Shape and regularisers of a graph parser. Its processor is a `ParserProcessor`."""

    tag_width: Count = 25
    """Width of the vectors of tags, if the data has tags."""
    arc_width: Count = 400
    """Width of a word's vectors as dependent and as head of an arc."""
    relation_width: Count = 100
    """Width of a word's vectors as dependent and as head of a relation."""
    dropout_rate: Rate = 0.33
    """Share of the features of these vectors dropped in training, the same ones for all words of a sentence."""
    normalised_over: Literal["heads", "trees"] = "heads"
    """Train probabilities of each word's head, or of whole trees by the matrix-tree theorem."""
    decoder: Literal["mst", "eisner"] = "mst"
    """Search for the best tree: maximum spanning tree by Chu-Liu-Edmonds; or by Eisner, without crossing arcs."""

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("tags", *super().reads)

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return ids, ids, *super().inputs(processor)

    def check(self, processor: Any) -> None:
        super().check(processor)
        if processor.system != "graph":
            raise ValueError(f"a graph parser has no transitions; set data.system graph, not {processor.system}")

    def build(self, processor: Any) -> "GraphParser":
        return GraphParser(self, processor.num_tags, processor.num_relations, *self.sizes(processor.inputs))

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        table = parameter_table.entries({("tags", "embedding"): "VD"}) | parameter_table.entries({("root",): "E"})
        table |= parameter_table.entries(parameter_table.dense(("words",), "ED"))
        heads: dict[tuple[str, ...], str] = {("arcs_kernel",): "DD", ("arcs_bias",): "D", ("relations_kernel",): "DCD"}
        table |= parameter_table.entries(heads, head=True)
        parameter: Parameter = self.find_parameter(table, path)
        return parameter

    def architecture(self) -> dict[str, Any]:
        fields = super().architecture()
        del fields["normalised_over"], fields["decoder"]  # all of them use the same scores
        return fields

    def best_heads(self, arcs: jax.Array, lengths: jax.Array) -> jax.Array:
        """The heads of the best trees [B, T] int32. Args: arcs: scores [B, T, T + 1]; lengths: in words [B] int."""
        return {"mst": chu_liu_edmonds, "eisner": eisner}[self.decoder](arcs, lengths)

    def log_probability(self, arcs: jax.Array, heads: jax.Array, lengths: jax.Array) -> jax.Array:
        """The log-probability of all heads of each sentence [B]. Args: as `best_heads`; heads [B, T] int."""
        if self.normalised_over == "trees":
            return tree_scores(arcs, heads, lengths) - tree_log_normalizer(arcs, lengths)
        return tree_scores(jax.nn.log_softmax(allowed_arcs(arcs, lengths), axis=-1), heads, lengths)


class ArcScores(NamedTuple):
    """The outputs of a graph parser.

    Attributes:
      arcs: by word and head; heads are numbered from 1, 0 = ROOT [B, T, T + 1] float32.
      relations: of the words to their given heads [B, T, C] float32.
    """

    arcs: jax.Array
    relations: jax.Array


class GraphParser(nn.Module):
    """Scores arcs and relations.

    Attributes:
      config: shape and variants.
      num_tags: number of tag ids; 0 = the parser does not read tags.
      num_relations: C.
      vocabulary_size: V, of words.
      num_characters: V, of characters.
      num_pieces: V, of BERT's tokens; 0 = there is no BERT.

    Parameters besides those of layers: root [E], arcs_kernel [D, D], arcs_bias [D], relations_kernel [D + 1, C, D + 1].
    """

    config: GraphParserConfig
    num_tags: int
    num_relations: int
    vocabulary_size: int
    num_characters: int
    num_pieces: int = 0

    def setup(self):
        """The encoder, the vectors of tags and of ROOT, and the scorers."""
        config = self.config
        self.encoder = WordEncoder(config, self.vocabulary_size, self.num_characters, self.num_pieces)
        width = config.width
        if self.num_tags:
            initial = nn.initializers.normal(config.tag_width**-0.5)
            self.tags = Embed(self.num_tags, config.tag_width, config.compute.activation_dtype, embedding_init=initial)
            width += 0 if config.recurrent_widths else config.tag_width
        self.root = self.param("root", nn.initializers.normal(0.1), (width,))
        xavier = nn.initializers.xavier_uniform()
        features = 2 * (config.arc_width + config.relation_width)
        self.words = Dense(features, kernel_init=xavier, compute=config.compute)
        self.dropout = LockedDropout(config.dropout_rate)
        self.arcs_kernel = self.param("arcs_kernel", xavier, (config.arc_width, config.arc_width))
        self.arcs_bias = self.param("arcs_bias", nn.initializers.zeros, (config.arc_width,))
        shape = (config.relation_width + 1, self.num_relations, config.relation_width + 1)
        initial = nn.initializers.normal(1.0 / config.relation_width)
        self.relations_kernel = self.param("relations_kernel", initial, shape)

    def __call__(self, heads: jax.Array, *inputs: jax.Array, deterministic: bool = True) -> ArcScores:
        """Scores all arcs, and the relations of the words to given heads.

        Args:
          heads: [B, T] int, from 0 to T.
          inputs: the arrays that `config.reads` names.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.
        """
        arcs, vectors = self.score_arcs(*inputs, deterministic=deterministic)
        return ArcScores(arcs, self.score_relations(vectors, heads))

    def score_arcs(self, *inputs: jax.Array, deterministic: bool = True) -> tuple[jax.Array, jax.Array]:
        """Args: as `__call__`. Returns: scores of arcs [B, T, T + 1], float32; and vectors for `score_relations`,
        [B, T + 1, 2 D]."""
        tags, *words = inputs
        config, compute = self.config, self.config.compute
        chex.assert_rank(tags, 2)
        x = self.encoder(*words, further=self.tags(tags) if self.num_tags else None, deterministic=deterministic)
        batch, length, width = x.shape
        root = jnp.broadcast_to(self.root.astype(x.dtype)[None, None], (batch, 1, width))
        x = jnp.concatenate([root, x], axis=1)
        x = jax.nn.leaky_relu(self.words(x.reshape(-1, width)), SLOPE).reshape(batch, length + 1, -1)
        x = self.dropout(x, deterministic=deterministic)
        dependents, heads, relations = jnp.split(x, (config.arc_width, 2 * config.arc_width), axis=-1)
        kernel = self.arcs_kernel.astype(compute.activation_dtype)
        product = matmul(dependents[:, 1:].reshape(batch * length, -1), kernel, compute.operand_dtype)
        product = product.reshape(batch, length, -1) + self.arcs_bias.astype(x.dtype)[None, None]
        arcs = jnp.einsum("btd,bsd->bts", product, heads, preferred_element_type=jnp.float32)
        chex.assert_shape(arcs, (batch, length, length + 1))
        return arcs.astype(jnp.float32), relations

    def score_relations(self, vectors: jax.Array, heads: jax.Array) -> jax.Array:
        """Scores of relations [B, T, C], float32. Args: vectors: of `score_arcs`; heads [B, T] int, 0 = ROOT.

        The relation root has a very low score for other heads than ROOT, and all other relations for ROOT.
        """
        compute = self.config.compute
        dependents, of_heads = jnp.split(vectors, 2, axis=-1)
        batch, length = heads.shape
        chex.assert_shape(vectors, (batch, length + 1, 2 * self.config.relation_width))
        chosen = jnp.take_along_axis(of_heads, heads[:, :, None], axis=1)
        x, y = (_with_one(part.reshape(batch * length, -1)) for part in (dependents[:, 1:], chosen))
        kernel = self.relations_kernel.astype(compute.activation_dtype)
        products = matmul(x, kernel.reshape(len(kernel), -1), compute.operand_dtype)
        scores = jnp.einsum("ncd,nd->nc", products.reshape(batch * length, -1, len(kernel)), y)
        scores = scores.astype(jnp.float32).reshape(batch, length, -1)
        is_root = jnp.arange(self.num_relations)[None, None] == 0
        return jnp.where(is_root == (heads == 0)[:, :, None], scores, jnp.finfo(jnp.float32).min / 2)


def _with_one(x: jax.Array) -> jax.Array:
    return jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)
