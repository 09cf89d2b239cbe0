"""The PyTorch models of the benchmarks are the same functions as ours and have the same size."""

import dataclasses

import jax
import numpy as np
import pytest
import torch

from benchmarks import awd_lstm, bert_finetune, crf, gpt2_124m, gpt_names, lstm_lm, parse, predict, text_cnn, vit
from benchmarks.torch_bert import TorchBert
from benchmarks.torch_gpt import TorchGPT
from benchmarks.torch_lstm import TorchAWDLSTM, TorchLSTM
from benchmarks.torch_parser import TorchParser
from benchmarks.torch_text_cnn import TorchTextCNN
from benchmarks.torch_transformer import TorchTransformer
from benchmarks.torch_vit import TorchViT
from configs import bert_cfimdb, lstm_lm_hw4
from configs.gpt_shakespeare_cpu import get_config
from jaxnlp.convert.encoder_weights import to_huggingface
from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.generation import target_decoder_of
from jaxnlp.models import parameter_shapes
from jaxnlp.models.bert_classifier import BertClassifier, Head
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.models.text_cnn import TextCNN
from jaxnlp.models.vit import ViT
from jaxnlp.models.word_encoder import WordEncoderCompute
from jaxnlp.nn.compute import Compute, TransformerCompute
from jaxnlp.nn.recurrent import RecurrentCompute
from jaxnlp.ops.crf import Chain, crf_log_likelihood
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from tests.processors import sized, translating

BATCH, POSITIONS, VOCABULARY = 2, 6, 11
TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, POSITIONS)).astype(np.int32)
TARGETS = np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, POSITIONS)).astype(np.int32)
TINY = {"num_layers": 2, "num_heads": 2, "width": 8, "context_length": 9, "compute": TransformerCompute()}


def random_params(init):
    """Parameters of ordinary size, none of them zero, in the shapes that `init` gives."""
    generator = np.random.default_rng(2)
    return jax.tree.map(lambda x: generator.normal(scale=0.4, size=x.shape).astype(np.float32), jax.eval_shape(init))


def load(model, weights):
    """Copies weights into a PyTorch model: exactly those that it has."""
    model.load_state_dict({name: torch.tensor(np.asarray(value)) for name, value in weights.items()}, strict=True)
    return model.eval()


def size(params):
    return sum(x.size for x in jax.tree.leaves(params))


def size_of(model):
    return sum(parameter.numel() for parameter in model.parameters())


def norm(name, ours):
    return {f"{name}.weight": ours["scale"]} | ({f"{name}.bias": ours["bias"]} if "bias" in ours else {})


def dense(name, ours):
    kernel = ours["kernel"].reshape(len(ours["kernel"]), -1)
    return {f"{name}.weight": kernel.T} | ({f"{name}.bias": ours["bias"].reshape(-1)} if "bias" in ours else {})


def columns(ours, part):
    """One of several dense layers that ours has in one, [D, n, H, K]."""
    return {name: value[..., part, :, :] for name, value in ours.items()}


def gpt_weights(params, config, theirs, *, fused):
    weights = {"tokens.weight": params["tokens"]["embedding"], "positions.weight": params["positions"]}
    weights |= norm("norm", params["final_norm"])
    head = params["tokens"]["embedding"] if config.tie_embeddings else params["head"]["kernel"].T
    weights["head.weight"] = head
    for number in range(config.num_layers):
        ours, block = jax.tree.map(lambda x, n=number: x[n], params["blocks"]), f"blocks.{number}"
        weights |= norm(f"{block}.attention_norm", ours["attention_norm"])
        weights |= norm(f"{block}.feed_forward_norm", ours["feed_forward_norm"])
        weights |= dense(f"{block}.attention.out", ours["attention"]["out"])
        weights |= dense(f"{block}.feed_forward.0", ours["feed_forward"]["up"])
        weights |= dense(f"{block}.feed_forward.2", ours["feed_forward"]["down"])
        if fused:
            weights |= dense(f"{block}.attention.qkv", ours["attention"]["qkv"])
        else:
            for part, name in enumerate("qkv"):
                weights |= dense(f"{block}.attention.{name}", columns(ours["attention"]["qkv"], part))
            weights[f"{block}.attention.past"] = theirs.state_dict()[f"{block}.attention.past"]
    return weights


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("config", "fused"),
    [(gpt_names.CONFIG, True), (gpt_names.CONFIG, False), (get_config().model, True)],
    ids=["gpt_names", "gpt_names as courses write it", "gpt_shakespeare_cpu"],
)
def test_gpt_gives_our_logits_and_loss_and_has_as_many_parameters(config, fused):
    tiny = dataclasses.replace(config, **TINY)
    ours = tiny.build(sized(VOCABULARY))
    params = random_params(lambda: ours.init(jax.random.key(0), TOKENS)["params"])
    theirs = TorchGPT(tiny, VOCABULARY, fused=fused)
    load(theirs, gpt_weights(params, tiny, theirs, fused=fused))
    if not fused:  # courses write GELU with erf, which is the only difference
        for block in theirs.blocks:
            block.feed_forward[1] = torch.nn.GELU(approximate="tanh")
    found = theirs.logits(torch.tensor(TOKENS).long()).detach()
    expected = jax.jit(ours.apply)({"params": params}, TOKENS)
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert size_of(theirs) == size(params)

    losses = -jax.nn.log_softmax(expected)[np.arange(BATCH)[:, None], np.arange(POSITIONS), TARGETS]
    loss = theirs(torch.tensor(TOKENS).long(), torch.tensor(TARGETS).long())
    np.testing.assert_allclose(loss.item(), losses.mean(), rtol=1e-5)


HUGGINGFACE = {
    "embeddings.word_embeddings": "tokens",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "segments",
    "embeddings.LayerNorm": "norm",
    "pooler.dense": "pooler",
    "encoder.layer": "layers",
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "output_norm",
}
"""Parts of names, and what `TorchBert` calls them."""


def bert_weights(params, config):
    weights = dense("output", params["head"])
    for name, x in to_huggingface(params["encoder"], config, VOCABULARY).items():
        for theirs, opponents in HUGGINGFACE.items():
            name = name.replace(theirs, opponents)
        weights[name] = x
    return weights


@pytest.mark.sweep(1)
@pytest.mark.parametrize("fused", [True, False])
def test_bert_gives_our_logits_and_has_as_many_parameters(fused):
    width, heads, layers, classes = 8, 2, 2, 2
    shape = {"num_layers": layers, "num_heads": heads, "width": width, "max_positions": POSITIONS}
    config = dataclasses.replace(
        bert_finetune.CONFIG,
        encoder=dataclasses.replace(bert_finetune.CONFIG.encoder, **shape),
        compute=TransformerCompute(),
    )
    ours, lengths = (
        BertClassifier(config, VOCABULARY, (("", Head(classes, classes, False)),)),
        np.array([POSITIONS, 4], np.int32),
    )
    inputs = TOKENS, np.arange(POSITIONS) < lengths[:, None], np.zeros_like(TOKENS)
    params = random_params(lambda: ours.init(jax.random.key(0), *inputs)["params"])
    theirs = TorchBert(VOCABULARY, width, heads, layers, POSITIONS, classes, bert_finetune.DROPOUT, fused=fused)
    load(theirs, bert_weights(params, config.encoder))
    found = theirs(torch.tensor(TOKENS).long(), torch.tensor(lengths).long()).detach()
    expected = jax.jit(ours.apply)({"params": params}, *inputs)
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert size_of(theirs) == size(params)


def lstm_weights(params, *, fused):
    output = {"kernel": params["head_kernel"], "bias": params["head_bias"]}
    weights = {"embedding.weight": params["tokens"]["embedding"]} | dense("output", output)
    for number in range(2):
        ours = params["recurrent"][f"layer_{number}_forward"]
        before, after = ("lstm.", f"_l{number}") if fused else (f"cells.{number}.", "")
        kernel, recurrent_kernel, bias = (np.asarray(ours[name]) for name in ("kernel", "recurrent_kernel", "bias"))
        weights[f"{before}weight_ih{after}"] = kernel.reshape(len(kernel), -1).T
        weights[f"{before}weight_hh{after}"] = recurrent_kernel.reshape(len(recurrent_kernel), -1).T
        weights[f"{before}bias_ih{after}"] = bias.reshape(-1)
        weights[f"{before}bias_hh{after}"] = np.zeros(bias.size, bias.dtype)
    return weights


@pytest.mark.sweep(1)
@pytest.mark.parametrize("fused", [True, False])
def test_lstm_gives_our_logits_and_loss_and_has_a_second_bias_a_layer(fused):
    width, layers = 8, 2
    config = dataclasses.replace(
        lstm_lm.CONFIG,
        embedding_width=width,
        widths=(width,) * layers,
        scale_embeddings=False,
        compute=RecurrentCompute(),
    )
    ours = config.build(sized(VOCABULARY))
    params = random_params(lambda: ours.init(jax.random.key(0), TOKENS[:1, :1])["params"])
    theirs = load(TorchLSTM(VOCABULARY, width, layers, fused=fused), lstm_weights(params, fused=fused))
    found = theirs.logits(torch.tensor(TOKENS).long()).detach()
    expected = jax.jit(ours.apply)({"params": params}, TOKENS)
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert size_of(theirs) == size(params) + layers * 4 * width

    batch = {"tokens": TOKENS, "targets": TARGETS, "loss_mask": np.ones(TOKENS.shape, bool)}
    objective = RecurrentLanguageModel().objective(ours, None)
    loss, _ = jax.jit(objective.loss)(params, batch, None, ())
    theirs_loss = theirs(torch.tensor(TOKENS).long(), torch.tensor(TARGETS).long())
    np.testing.assert_allclose(theirs_loss.item(), loss, rtol=1e-5)


def transformer_weights(params):
    """Our encoder-decoder's parameters under the names of `TorchTransformer`."""
    found = {"tokens.weight": params["tokens"]["embedding"]}
    for side in ("encoder", "decoder"):
        attentions = {"attention": "self_attn"} | ({"cross_attention": "multihead_attn"} if side == "decoder" else {})
        found |= norm(f"transformer.{side}.norm", params[side]["final_norm"])
        for number in range(TINY["num_layers"]):
            block = jax.tree.map(lambda x, number=number: x[number], params[side]["blocks"])
            name = f"transformer.{side}.layers.{number}"
            for ours, theirs in attentions.items():
                parts = [block[ours][part] for part in (("qkv",) if "qkv" in block[ours] else ("q", "kv"))]
                width = TINY["width"]
                found |= {
                    f"{name}.{theirs}.in_proj_weight": np.concatenate(
                        [p["kernel"].reshape(width, -1).T for p in parts]
                    ),
                    f"{name}.{theirs}.in_proj_bias": np.concatenate([p["bias"].reshape(-1) for p in parts]),
                    f"{name}.{theirs}.out_proj.weight": block[ours]["out"]["kernel"].T,
                    f"{name}.{theirs}.out_proj.bias": block[ours]["out"]["bias"],
                }
            for layer, ours in (("1", "up"), ("2", "down")):
                found[f"{name}.linear{layer}.weight"] = block["feed_forward"][ours]["kernel"].T
                found[f"{name}.linear{layer}.bias"] = block["feed_forward"][ours]["bias"]
            for place, ours in enumerate([*(f"{attention}_norm" for attention in attentions), "feed_forward_norm"], 1):
                found |= norm(f"{name}.norm{place}", block[ours])
    return found


@pytest.mark.thorough
def test_transformer_gives_our_logits_and_its_search_our_translations():
    config = EncoderDecoderConfig(**TINY | {"context_length": 16}, embeddings="shared", dropout_rate=0.0)
    model = config.build(translating(VOCABULARY))
    params = random_params(lambda: model.init(jax.random.key(0), TOKENS, TARGETS)["params"])
    theirs = load(TorchTransformer(config, VOCABULARY), transformer_weights(params))
    assert size_of(theirs) == size(params)
    mask = np.arange(POSITIONS)[None] < np.array([[6], [4]])
    source, padding = torch.from_numpy(TOKENS).long(), torch.from_numpy(~mask)
    expected = jax.jit(model.apply)({"params": params}, TOKENS, TARGETS, mask)
    found = theirs(source, padding, torch.from_numpy(TARGETS).long())
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=2e-4)
    ours = beam_search(
        target_decoder_of(model),
        params,
        np.full((BATCH, 1), 2, np.int32),
        num_beams=3,
        max_new_tokens=5,
        cache=model.initial_cache(params, TOKENS, mask),
    )
    np.testing.assert_array_equal(theirs.translate(source, padding, 2, 3, 5).numpy(), ours.tokens)


@pytest.mark.thorough
def test_models_have_the_same_size_in_the_benchmarks_themselves():
    with torch.device("meta"):
        gpts = [TorchGPT(gpt_names.CONFIG, gpt_names.VOCABULARY, fused=fused) for fused in (True, False)]
        bert = TorchBert(
            bert_finetune.VOCABULARY,
            bert_finetune.WIDTH,
            bert_finetune.HEADS,
            bert_finetune.LAYERS,
            bert_finetune.POSITIONS,
            bert_finetune.CLASSES,
            bert_finetune.DROPOUT,
            fused=True,
        )
        opponent = TorchLSTM(lstm_lm.VOCABULARY, lstm_lm.WIDTH, lstm_lm.LAYERS, fused=True)
        awd = TorchAWDLSTM(awd_lstm.config(), awd_lstm.VOCABULARY)
        gpt2 = TorchGPT(gpt2_124m.config(0.1), gpt2_124m.VOCABULARY, fused=True)
    gpt = gpt_names.CONFIG.build(sized(gpt_names.VOCABULARY))
    expected = size(jax.eval_shape(lambda: gpt.init(jax.random.key(0), TOKENS)["params"]))
    assert [size_of(model) for model in gpts] == [expected, expected]

    classifier = bert_finetune.CONFIG.build(bert_finetune.processor())
    inputs = bert_finetune.CONFIG.inputs(bert_finetune.processor())
    expected = size(parameter_shapes(classifier, *inputs))
    assert size_of(bert) == expected

    lstm = lstm_lm.CONFIG.build(sized(lstm_lm.VOCABULARY))
    expected = size(jax.eval_shape(lambda: lstm.init(jax.random.key(0), TOKENS[:1, :1])["params"]))
    assert size_of(opponent) == expected + lstm_lm.LAYERS * 4 * lstm_lm.WIDTH

    for case, theirs, second_biases in ((awd_lstm, awd, 4 * sum(awd_lstm.config().widths)), (gpt2_124m, gpt2, 0)):
        config = case.config() if case is awd_lstm else case.config(0.1)
        ours = config.build(sized(case.VOCABULARY))
        assert size_of(theirs) == size(parameter_shapes(ours, TOKENS[:1, :1])) + second_biases


def test_the_cases_have_the_models_of_recipes():
    assert lstm_lm_hw4.get_config().model == lstm_lm.CONFIG
    recipe = bert_cfimdb.get_config().model
    # The recipe's encoder is that of the pretrained weights, its pooling is another one, and it hides tokens.
    expected = dataclasses.replace(recipe, encoder=bert_finetune.CONFIG.encoder, token_dropout_rate=0.0)
    assert dataclasses.replace(bert_finetune.CONFIG, pooling=recipe.pooling) == expected


def test_text_cnn_gives_our_logits_and_has_as_many_parameters():
    config = dataclasses.replace(text_cnn.CONFIG, embedding_width=5, feature_maps=3, compute=Compute())
    ours, classes = TextCNN(config, VOCABULARY, 2), 2
    mask = np.ones_like(TOKENS, bool)
    params = random_params(lambda: ours.init(jax.random.key(0), TOKENS, mask)["params"])
    weights = {"embedding.weight": params["tokens"]["embedding"]} | dense("output", params["head"])
    for number, window in enumerate(config.windows):
        found = params[f"convolution_{window}"]
        kernel = found["kernel"].reshape(window, config.embedding_width, -1).transpose(2, 1, 0)
        weights |= {f"convolutions.{number}.weight": kernel, f"convolutions.{number}.bias": found["bias"]}
    theirs = load(TorchTextCNN(config, VOCABULARY, classes), weights)
    expected = jax.jit(ours.apply)({"params": params}, TOKENS, mask)
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(theirs(torch.tensor(TOKENS).long()).detach(), expected, atol=1e-4)
    assert size_of(theirs) == size(params)


@pytest.mark.thorough
def test_parser_gives_our_logits_and_has_as_many_parameters():
    config = dataclasses.replace(
        parse.config(), word_width=5, tag_width=3, hidden_width=4, compute=WordEncoderCompute()
    )
    reader = parse.processor()
    ours = config.build(reader)
    params = random_params(lambda: ours.init(jax.random.key(0), *_zeros(config.inputs(reader)))["params"])
    scorer = params["scorer"]
    # Ours has the vectors of the word and the tag of a node side by side, theirs those of all words, then of all tags.
    kernel = scorer["words_kernel"].reshape(18, 8, 4)
    kernel = np.concatenate([kernel[:, :5].reshape(-1, 4), kernel[:, 5:].reshape(-1, 4), scorer["labels_kernel"]])
    weights = {f"{name}.weight": params[name]["embedding"] for name in ("words", "tags")}
    weights |= {
        "labels.weight": scorer["labels"]["embedding"],
        "hidden.weight": kernel.T,
        "hidden.bias": scorer["bias"],
    }
    theirs = load(TorchParser(config, reader), weights | dense("output", scorer["head"]))
    sentence = parse.sentences()[0]
    encoded, n = reader.encode(sentence), len(sentence.words)
    generator = np.random.default_rng(3)
    nodes, labels = generator.integers(-1, n + 1, (6, 18)), generator.integers(0, reader.num_relations + 1, (6, 12))
    inputs = [np.stack([parse._of_nodes(encoded[name], row) for row in nodes]) for name in ("words", "tags")]
    found = theirs(*map(torch.from_numpy, (*inputs, labels))).detach()
    expected = ours.apply({"params": params}, nodes[None], labels[None], encoded["words"][None], encoded["tags"][None])
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(found, expected[0], atol=1e-4)
    assert size_of(theirs) == size(params)


@pytest.mark.thorough
def test_both_implementations_of_parse_find_trees_of_all_sentences(monkeypatch):
    sentences = parse.sentences()[:20]
    monkeypatch.setattr(parse, "sentences", lambda: sentences)
    ours, theirs = parse.ours()(), parse.theirs(bfloat16=False)()
    assert [len(tree.heads) for tree in ours] == [len(heads) - 1 for heads in theirs]
    assert all(list(tree.heads).count(0) == 1 for tree in ours)


def _zeros(shapes):
    return [np.zeros(x.shape, x.dtype) for x in shapes]


def vit_weights(params, config):
    weights = {"positions": params["positions"]}
    weights |= dense("project", params["stem"]["project"]) | dense("output", params["head"])
    weights |= norm("encoder.norm", params["final_norm"])
    for number in range(config.convolutions):
        found = params["stem"][f"convolution_{number}"]
        kernel = found["kernel"].reshape(3, 3, -1, found["kernel"].shape[-1]).transpose(3, 2, 0, 1)
        weights |= {f"convolutions.{number}.weight": kernel, f"convolutions.{number}.bias": found["bias"]}
        weights |= norm(f"norms.{number}", params["stem"][f"norm_{number}"])
    for number in range(config.num_layers):
        ours, layer = jax.tree.map(lambda x, n=number: x[n], params["blocks"]), f"encoder.layers.{number}"
        weights |= norm(f"{layer}.norm1", ours["attention_norm"]) | norm(f"{layer}.norm2", ours["feed_forward_norm"])
        weights |= dense(f"{layer}.self_attn.out_proj", merged_heads(ours["attention"]["out"]))
        weights |= dense(f"{layer}.linear1", ours["feed_forward"]["up"])
        weights |= dense(f"{layer}.linear2", ours["feed_forward"]["down"])
        qkv = dense("qkv", ours["attention"]["qkv"])
        weights |= {f"{layer}.self_attn.in_proj_{name}": qkv[f"qkv.{name}"] for name in ("weight", "bias")}
    return weights


def merged_heads(out):
    return {"kernel": out["kernel"].reshape(-1, out["kernel"].shape[-1]), "bias": out["bias"]}


@pytest.mark.thorough
def test_vit_gives_our_logits_and_has_as_many_parameters():
    config = dataclasses.replace(
        vit.CONFIG, num_layers=2, num_heads=2, width=8, feed_forward_width=12, compute=TransformerCompute()
    )
    ours = ViT(config, 8, vit.MEAN, vit.STDDEV, 3)
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    params = random_params(lambda: ours.init(jax.random.key(0), images)["params"])
    theirs = load(TorchViT(config, 8, vit.MEAN, vit.STDDEV, 3), vit_weights(params, config))
    expected = jax.jit(ours.apply)({"params": params}, images)
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(theirs(torch.tensor(images)).detach(), expected, atol=1e-3)
    assert size_of(theirs) == size(params)


@pytest.mark.thorough
def test_both_implementations_predict_a_class_of_each_sentence(monkeypatch):
    monkeypatch.setattr(predict, "SENTENCES", 5)
    predict.sentences.cache_clear()
    encoder = dataclasses.replace(predict.CONFIG.encoder, num_layers=1, num_heads=2, width=8)
    monkeypatch.setattr(
        predict, "CONFIG", dataclasses.replace(predict.CONFIG, encoder=encoder, compute=TransformerCompute())
    )
    for name, value in (("WIDTH", 8), ("HEADS", 2), ("LAYERS", 1)):
        monkeypatch.setattr(predict, name, value)
    (case,) = predict.cases()
    for prepare in (case.implementations["ours"], case.implementations["eager_f32"]):
        found = prepare()()
        assert len(found) == 5
        assert {str(one) for one in found} <= {"0", "1"}
    predict.sentences.cache_clear()


def test_the_crf_of_the_package_has_our_loss_and_gradients():
    from torchcrf import CRF

    scores, labels = (array[:2, :5] for array in crf.batch())
    chain = Chain(*(np.float32(np.random.default_rng(3).normal(size=(20,) * rank)) for rank in (2, 1, 1)))
    lengths = np.array([5, 3])
    theirs = CRF(20, batch_first=True)
    load(theirs, {"transitions": chain.transitions, "start_transitions": chain.start, "end_transitions": chain.end})
    inputs = torch.tensor(scores, requires_grad=True)
    mask = torch.arange(5)[None] < torch.tensor(lengths)[:, None]
    loss = -theirs(inputs, torch.tensor(labels), mask=mask, reduction="sum")
    loss.backward()

    def ours(scores, chain):
        return -crf_log_likelihood(scores, labels, lengths, chain).sum()

    value, (dscores, dchain) = jax.jit(jax.value_and_grad(ours, argnums=(0, 1)))(scores, chain)
    np.testing.assert_allclose(value, loss.detach(), rtol=1e-5)
    np.testing.assert_allclose(dscores, inputs.grad, atol=1e-5)
    np.testing.assert_allclose(dchain.transitions, theirs.transitions.grad, atol=1e-5)
    np.testing.assert_allclose(dchain.start, theirs.start_transitions.grad, atol=1e-5)
    np.testing.assert_allclose(dchain.end, theirs.end_transitions.grad, atol=1e-5)
