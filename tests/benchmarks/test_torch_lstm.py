"""AWD-LSTM in PyTorch is the same function as ours."""

import dataclasses

import jax
import numpy as np
import torch

from benchmarks import awd_lstm
from benchmarks.torch_lstm import TorchAWDLSTM
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from tests.benchmarks.test_opponents import TARGETS, TOKENS, VOCABULARY, load, random_params
from tests.processors import sized


def test_awd_lstm_gives_our_loss():
    config = dataclasses.replace(awd_lstm.config(), embedding_width=8, widths=(6, 8))
    ours = config.build(sized(VOCABULARY))
    params = random_params(lambda: ours.init(jax.random.key(0), TOKENS[:1, :1])["params"])
    weights = {"embedding.weight": params["tokens"]["embedding"], "bias": params["head_bias"]}
    for number in range(2):
        layer = params["recurrent"][f"layer_{number}_forward"]
        kernel, recurrent_kernel, bias = (layer[name] for name in ("kernel", "recurrent_kernel", "bias"))
        weights[f"layers.{number}.weight_ih_l0"] = kernel.reshape(len(kernel), -1).T
        weights[f"layers.{number}.weight_hh_l0"] = recurrent_kernel.reshape(len(recurrent_kernel), -1).T
        weights[f"layers.{number}.bias_ih_l0"] = bias.reshape(-1)
        weights[f"layers.{number}.bias_hh_l0"] = np.zeros(bias.size, bias.dtype)
    theirs = load(TorchAWDLSTM(config, VOCABULARY), weights)
    batch = {"tokens": TOKENS, "targets": TARGETS, "loss_mask": np.ones(TOKENS.shape, bool)}
    loss, _ = jax.jit(RecurrentLanguageModel().objective(ours, None).loss)(params, batch, None, ())
    found = theirs(torch.tensor(TOKENS).long(), torch.tensor(TARGETS).long())
    np.testing.assert_allclose(found.item(), loss, rtol=1e-5)
