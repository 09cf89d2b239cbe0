"""What tests of recurrent layers share."""

import numpy as np

from jaxnlp.ops.recurrent_layers import GRU, LSTM, RNN_RELU, RNN_TANH

BATCH, POSITIONS, WIDTH, STATE = 3, 5, 4, 6
CELLS = {"rnn_tanh": RNN_TANH, "rnn_relu": RNN_RELU, "gru": GRU, "lstm": LSTM}
LENGTHS = np.array([5, 2, 1])


def random_layer(name, dtype=np.float32):
    generator = np.random.default_rng(2)
    cell = CELLS[name]
    gates = (cell.gates, STATE)
    shapes = {"w_x": (WIDTH, *gates), "w_h": (STATE, *gates), "b": gates, "b_h": gates}
    weights = {key: (0.5 * generator.normal(size=shape)).astype(dtype) for key, shape in shapes.items()}
    x = generator.normal(size=(BATCH, POSITIONS, WIDTH)).astype(dtype)
    state = tuple(generator.normal(size=(BATCH, STATE)).astype(dtype) for _ in range(cell.states))
    return cell, x, state, weights
