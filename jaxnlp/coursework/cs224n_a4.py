"""CS224N, assignment 4: the methods of the assignment's class NMT, of a trained LSTM translator with attention.

Letters are the assignment's: b batch, e width of embeddings, h width of the decoder; the encoder's outputs are 2h wide.
Padded sources and targets are [length, b].

Source: Stanford CS224N, assignment 4, for the signatures; Luong et al. 2015. Differs: there is no dropout; the beam
search is `jaxnlp.decoding.beam`, which keeps its beams until no running one can win.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.coursework import require_run
from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.generation import target_decoder_of
from jaxnlp.models.attention_lstm import AttentionLSTM
from jaxnlp.ops import input_feeding, scores
from jaxnlp.ops.checks import expect, expect_tokens
from jaxnlp.ops.input_feeding import Decoded, DecoderState, Memory
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.tasks import Trained
from jaxnlp.tasks.translation import Translation
from jaxnlp.tasks.translation.search import padded_sources
from jaxnlp.text.padding import padded
from jaxnlp.text.translation import TranslationProcessor
from jaxnlp.typing import Array, Params

RECIPE = "chr_en_lstm"
State = tuple[Array, Array]
"""Hidden state and cell of the decoder, [b, h] each."""


class Hypothesis(NamedTuple):
    """A translation: its subwords, without the end symbol, and the sum of their log-probabilities."""

    value: list[str]
    score: float


class NMT:
    """A trained run with the methods of the assignment's model."""

    def __init__(self, run: Trained):
        """Args: run: a translator with the LSTM and multiplicative attention. Raises: ValueError for another one."""
        run = require_run(run, Translation, RECIPE)
        if not isinstance(run.model, AttentionLSTM) or run.model.config.attention != "multiplicative":
            raise ValueError(
                f"the assignment's model is an AttentionLSTM with model.attention multiplicative, as of the recipe "
                f"{RECIPE}, and {run.name or 'this run'} has another one: {type(run.model).__name__}"
            )
        self._model, self._params = run.model, run.params
        self._processor: TranslationProcessor = run.processor

    def forward(self, source: Sequence[Sequence[str]], target: Sequence[Sequence[str]]) -> np.ndarray:
        """The log-likelihood of each target, [b] float32.

        Args:
          source: subwords of each source, without an end symbol, which is added.
          target: subwords of each target, the symbols `<s>` and `</s>` included.

        Raises: ValueError for unequal numbers, and for a target without a symbol.
        """
        if len(source) != len(target) or not len(source):
            raise ValueError(f"expected a target for each source, got {len(source)} sources and {len(target)} targets")
        symbols, rows = self._processor.symbols, [self._target_ids(words) for words in target]
        for index, row in enumerate(rows):
            if len(row) < 2 or row[0] != symbols.start or row[-1] != symbols.end:
                raise ValueError(f"target {index} must start with <s> and end with </s>, got {list(target[index])}")
        ids = padded(rows)
        lengths = np.array([len(row) - 1 for row in rows])
        scored = np.arange(ids.shape[1] - 1)[None] < lengths[:, None]
        sources = padded_sources([self._source_ids(words) for words in source], None)
        return np.asarray(_likelihoods(self._model, self._params, *sources, ids, scored))

    def generate_sent_masks(self, enc_hiddens: Array, source_lengths: Sequence[int]) -> np.ndarray:
        """1 for padding and 0 for tokens, [b, src_len] float32: the opposite of `source_mask`.

        Args: enc_hiddens: [b, src_len, 2h]. source_lengths: of each source [b].
        """
        return (~_are_tokens(source_lengths, enc_hiddens.shape[1])).astype(np.float32)

    def encode(self, source_padded: Array, source_lengths: Sequence[int]) -> tuple[Array, State]:
        """The encoder's outputs [b, src_len, 2h], zeros at padding, and the decoder's first state.

        Args:
          source_padded: ids [src_len, b] int, each source with the end symbol last, as in training.
          source_lengths: of each source [b].

        Raises: ValueError for other shapes, and ids outside the vocabulary.
        """
        source = np.asarray(source_padded).T
        expect_tokens(source, self._processor.source.size, "source_padded, time last,")
        mask = _are_tokens(source_lengths, source.shape[1])
        expect(len(mask) == len(source), f"{len(mask)} sources, one for each length", source_padded=source_padded)
        cache = _encoded(self._model, self._params, source, mask)
        return cache.memory.values, (cache.state.h, cache.state.c)

    def att_projection(self, enc_hiddens: Array) -> Array:
        """The keys of attention, [b, src_len, h]. Args: enc_hiddens: [b, src_len, 2h]. Raises: ValueError otherwise."""
        hiddens, kernel = jnp.asarray(enc_hiddens), self._params["attention_keys"]["kernel"]
        fits = hiddens.ndim == 3 and hiddens.shape[2] == len(kernel)
        expect(fits, f"enc_hiddens [b, src_len, 2h] with 2h = {len(kernel)}", enc_hiddens=hiddens)
        return hiddens @ kernel

    def decode(self, enc_hiddens: Array, enc_masks: Array, dec_init_state: State, target_padded: Array) -> Array:
        """The combined outputs o_t of all steps, [tgt_len - 1, b, h]; the last token is not read.

        Args:
          enc_hiddens: [b, src_len, 2h].
          enc_masks: [b, src_len], 1 for padding.
          dec_init_state: hidden state and cell.
          target_padded: ids [tgt_len, b] int, from the start symbol on.

        Raises: ValueError for other shapes, and ids outside the vocabulary.
        """
        target = np.asarray(target_padded).T
        expect_tokens(target, self._model.vocabulary_size, "target_padded, time last,")
        h, c = map(jnp.asarray, dec_init_state)
        shape = len(target), self._model.config.width
        expect(h.shape == c.shape == shape, f"states [b, h], {shape}", hidden=h, cell=c)
        table = "tokens" if self._model.config.embeddings == "shared" else "target_tokens"
        embedded = self._params[table]["embedding"][target[:, :-1]]
        memory = _memory(len(target), enc_hiddens, self.att_projection(enc_hiddens), enc_masks)
        return _decoded(self._params, embedded, memory, DecoderState(h, c, jnp.zeros_like(h))).o.swapaxes(0, 1)

    def step(
        self, Ybar_t: Array, dec_state: State, enc_hiddens: Array, enc_hiddens_proj: Array, enc_masks: Array
    ) -> tuple[State, Array, Array]:
        """One step of the decoder: its state, the combined output o_t [b, h], and the scores e_t [b, src_len].

        Args:
          Ybar_t: the target token's embedding and the previous combined output [b, e + h].
          dec_state: hidden state and cell.
          enc_hiddens: [b, src_len, 2h].
          enc_hiddens_proj: the result of `att_projection`.
          enc_masks: [b, src_len], 1 for padding, whose scores are -inf; None = no padding.

        Raises: ValueError for other shapes.
        """
        h, c = map(jnp.asarray, dec_state)
        width, shape = self._model.config.embedding_width, (len(Ybar_t), self._model.config.width)
        expect(
            Ybar_t.shape == (shape[0], width + shape[1]) and h.shape == c.shape == shape,
            f"Ybar_t [b, e + h] with e = {width}, and states [b, h] with h = {shape[1]}",
            Ybar_t=Ybar_t,
            hidden=h,
            cell=c,
        )
        embedded, before = jnp.split(jnp.asarray(Ybar_t), [width], axis=-1)
        memory = _memory(len(h), enc_hiddens, enc_hiddens_proj, enc_masks)
        state = _decoded(self._params, embedded[:, None], memory, DecoderState(h, c, before)).state
        e_t = jnp.where(memory.mask, scores.dot(state.h[:, None], memory.keys)[:, 0], -jnp.inf)
        return (state.h, state.c), state.o, e_t

    def beam_search(
        self, src_sent: Sequence[str], beam_size: int = 5, max_decoding_time_step: int = 70
    ) -> list[Hypothesis]:
        """The best translations, best first, at most `beam_size`.

        Args:
          src_sent: subwords of the source, such as `run.processor.source.pieces(text)`.
          beam_size: number of beams.
          max_decoding_time_step: maximum number of subwords of a translation; longer ones are truncated.

        Raises: ValueError for numbers below 1.
        """
        target, symbols = self._processor.target, self._processor.symbols
        source, mask = padded_sources([self._source_ids(src_sent)], None)
        found = beam_search(
            target_decoder_of(self._model),
            self._params,
            np.full((1, 1), symbols.start, np.int32),
            num_beams=beam_size,
            max_new_tokens=max_decoding_time_step,
            stop=symbols.end,
            cache=_encoded(self._model, self._params, source, mask),
        )
        hypotheses = []
        for ids, length, score in zip(found.tokens[0], found.lengths[0], found.scores[0], strict=True):
            if length:  # there may be fewer translations than beams
                hypotheses.append(Hypothesis(target.tokens(i for i in ids[:length] if i != symbols.end), float(score)))
        return hypotheses

    def _source_ids(self, words: Sequence[str]) -> list[int]:
        source = self._processor.source
        return [*_ids(source, words), source.end]

    def _target_ids(self, words: Sequence[str]) -> list[int]:
        return _ids(self._processor.target, words)


def _ids(subwords: Any, words: Sequence[str]) -> list[int]:
    """The ids of subwords, unknown ones included."""
    if isinstance(words, str):
        raise ValueError(
            f"expected a list of subwords, got the text {words!r:.60}; split it with processor.source.pieces"
        )
    ids = (subwords.id_of(word) for word in words)
    return [subwords.unknown if one is None else one for one in ids]


def _are_tokens(lengths: Sequence[int], positions: int) -> np.ndarray:
    """Whether positions are tokens, [b, T] bool. Raises: ValueError for lengths that do not fit."""
    given = np.asarray(lengths)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer) or not ((given >= 1) & (given <= positions)).all():
        raise ValueError(f"expected lengths [b] of int from 1 to {positions}, got {given.tolist()}")
    return np.arange(positions)[None] < given[:, None]


def _memory(rows: int, enc_hiddens: Array, keys: Array, enc_masks: Array | None) -> Memory:
    """What the decoder attends to. Raises: ValueError for shapes that do not fit."""
    values, keys = jnp.asarray(enc_hiddens), jnp.asarray(keys)
    mask = jnp.ones(values.shape[:2], bool) if enc_masks is None else jnp.asarray(enc_masks) == 0
    expect(
        values.ndim == keys.ndim == 3 and len(values) == rows and values.shape[:2] == keys.shape[:2] == mask.shape,
        f"enc_hiddens [b, src_len, 2h], their projections [b, src_len, h] and masks [b, src_len] with b = {rows}",
        enc_hiddens=values,
        projections=keys,
        masks=mask,
    )
    return Memory(keys, values, mask)


@functools.partial(jax.jit, static_argnums=0)
def _encoded(model: AttentionLSTM, params: Params, source: Array, mask: Array) -> Any:
    return model.initial_cache(params, source, mask)


@jax.jit
def _decoded(params: Params, embedded: Array, memory: Memory, state: DecoderState) -> Decoded:
    """The steps of `ops.input_feeding` over embeddings [b, T, e]."""
    width = state.h.shape[1]
    kernel, bias = (params["decoder_input"][name] for name in ("kernel", "bias"))
    return input_feeding.decode(
        embedded @ kernel.reshape(-1, 4 * width) + bias.reshape(1, 1, -1),
        memory,
        state,
        w_h=params["decoder_kernel"].reshape(2 * width, 4 * width),
        w_o=params["output_kernel"],
    )


@functools.partial(jax.jit, static_argnums=0)
def _likelihoods(
    model: AttentionLSTM, params: Params, source: Array, mask: Array, target: Array, scored: Array
) -> Array:
    """Log-likelihoods [b] of the scored positions [b, T] of targets [b, T + 1]."""
    logits: Any = model.apply({"params": params}, source, target[:, :-1], mask)
    return -jax.vmap(cross_entropy)(logits, target[:, 1:], scored).nll
