import functools

from jaxnlp.nn.attention import CrossAttention, SelfAttention
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.feed_forward import FeedForward
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.transformer import TransformerBlock

COMPUTE = TransformerCompute()
BATCH, POSITIONS, WIDTH, HEADS, HIDDEN = 2, 5, 8, 2, 12


def layers(
    mixer=SelfAttention,
    *,
    num_heads=HEADS,
    feed_forward_width=HIDDEN,
    activation="gelu_tanh",
    epsilon=1e-5,
    use_bias=True,
    residual_stddev=0.02,
    attention_dropout_rate=0.0,
    residual_dropout_rate=0.0,
    compute=COMPUTE,
    **of_mixer,
):
    """The mixer, the feed-forward layer and the normalisation of a block, of equal options."""
    common = {"use_bias": use_bias, "compute": compute}
    branch = common | {"dropout_rate": residual_dropout_rate, "output_stddev": residual_stddev}
    return (
        functools.partial(
            mixer, num_heads=num_heads, attention_dropout_rate=attention_dropout_rate, **branch, **of_mixer
        ),
        functools.partial(FeedForward, feed_forward_width, activation=activation, **branch),
        functools.partial(LayerNorm, epsilon, **common),
    )


def make_block(*, cross=False, order="pre", name=None, **options):
    """A block, which also attends to a memory if `cross`."""
    own = layers(**options)
    memory = functools.partial(CrossAttention, own[0].keywords["num_heads"], use_bias=options.get("use_bias", True))
    return TransformerBlock(*own, cross=memory if cross else None, order=order, name=name)
