import dataclasses
import json
import re
import shutil

import jax
import numpy as np
import pytest
import scipy.special

from jaxnlp.__main__ import main
from jaxnlp.inference import compilation
from jaxnlp.inference.compilation import compilation_announced
from jaxnlp.runs import load_pretrained, load_run
from jaxnlp.tasks.language_model import commands
from jaxnlp.tasks.language_model.commands import Generate
from jaxnlp.text.characters import CharacterVocabulary, UnknownCharacterError
from jaxnlp.text.words import WordVocabulary
from tests.decoder_folders import write_folder


def generate(run, *options):
    return main(["generate", str(run), *options])


def continue_greedily(run, prompt, count):
    """Without a cache: the whole text is read for each character."""
    forward = jax.jit(lambda tokens: run.model.apply({"params": run.params}, tokens))
    ids = run.processor.encode(prompt).tolist()
    for _ in range(count):
        padded = np.array([ids + [0] * (20 - len(ids))], np.int32)
        ids.append(int(np.argmax(forward(padded)[0, len(ids) - 1])))
    return run.processor.decode(ids)


@pytest.mark.thorough
def test_prints_the_prompt_and_its_most_probable_continuation(finished_run, capsys):
    status = generate(finished_run.folder, "--prompt", "the t", "--max-new-tokens", "12", "--temperature", "0")
    assert status == 0
    expected = continue_greedily(load_run(finished_run.folder, checkpoint="best"), "the t", 12)
    assert capsys.readouterr().out == expected + "\n"


@pytest.mark.thorough
def test_prints_several_samples_and_the_same_for_the_same_seed(finished_run, capsys):
    options = ["--prompt", "ta", "--max-new-tokens", "30", "--num-samples", "3", "--temperature", "5"]
    outputs = []
    for seed in ("1", "1", "2"):
        assert generate(finished_run.folder, *options, "--seed", seed) == 0
        outputs.append(capsys.readouterr().out)
    first, again, other = outputs
    assert first == again
    assert first != other
    samples = re.fullmatch(
        "--- sample 1 ---\n(.*)\n--- sample 2 ---\n(.*)\n--- sample 3 ---\n(.*)\n", first, re.DOTALL
    ).groups()
    assert [len(sample) for sample in samples] == [32, 32, 32]
    assert {sample[:2] for sample in samples} == {"ta"}
    assert len(set(samples)) == 3


def sum_of_log_probabilities(run, text, prompt):
    """Scores of the characters after the prompt."""
    ids = run.processor.encode(text)
    logits = jax.jit(run.model.apply)({"params": run.params}, ids[None, :-1])
    found = scipy.special.log_softmax(logits[0], axis=-1)[np.arange(len(ids) - 1), ids[1:]]
    return float(found[len(prompt) - 1 :].sum())


@pytest.mark.thorough
def test_beams_print_the_most_probable_continuations_best_first(finished_run, capsys):
    run = load_run(finished_run.folder)
    options = ["--prompt", "the t", "--max-new-tokens", "12", "--num-beams", "4"]
    assert generate(finished_run.folder, *options) == 0
    (best,) = re.fullmatch("(.{17})\n", capsys.readouterr().out, re.DOTALL).groups()
    assert generate(finished_run.folder, *options, "--num-samples", "2") == 0
    first, second = re.fullmatch(
        "--- sample 1 ---\n(.{17})\n--- sample 2 ---\n(.{17})\n", capsys.readouterr().out, re.DOTALL
    ).groups()
    assert first == best
    scores = [sum_of_log_probabilities(run, text, "the t") for text in (first, second)]
    assert first != second
    assert scores[0] >= scores[1]
    assert scores[0] >= sum_of_log_probabilities(run, continue_greedily(run, "the t", 12), "the t")


@pytest.mark.thorough
def test_no_more_continuations_are_printed_than_there_are(finished_run, capsys):
    options = ["--prompt", "t", "--max-new-tokens", "1", "--num-beams", "30", "--num-samples", "30"]
    assert generate(finished_run.folder, *options) == 0
    shown = capsys.readouterr().out
    assert shown.count("--- sample ") == load_run(finished_run.folder).processor.size == 11


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", ""], "the prompt is empty; the model needs at least one token to continue"),
        (["--prompt", "the Q?"], "not in the vocabulary of 11 characters: '?', 'Q' (first at character 5)"),
        (["--prompt", "the " * 6], "the prompt has 24 tokens, but the model's context has only 20; shorten it"),
        (["--checkpoint", "7"], "has no checkpoint of step 7; it has those of 1, 2"),
        (["--num-beams", "2", "--max-new-tokens", "30"], "need a context of 30, but the model's context has only 20"),
    ],
    ids=["empty prompt", "unknown characters", "long prompt", "unknown step", "beams beyond the context"],
)
def test_an_error_is_one_line_and_nothing_else_is_printed(finished_run, capsys, options, message):
    assert generate(finished_run.folder, *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(f"error: .*{re.escape(message)}.*\n", err)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top-p", "2"], "--top-p must be in (0, 1], got 2.0"),
        (["--top-k", "0"], "--top-k must be at least 1, got 0"),
        (["--temperature", "-1"], "temperature must be 0, or finite and at least 1e-06, got -1.0"),
        (["--max-new-tokens", "0"], "--max-new-tokens must be at least 1, got 0"),
        (["--num-samples", "0"], "--num-samples must be at least 1, got 0"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
        (["--num-beams", "0"], "--num-beams must be at least 1, got 0"),
        (["--num-beams", "4", "--temperature", "0.8"], "--num-beams cannot be combined with temperature"),
        (["--num-beams", "4", "--top-k", "3"], "--num-beams cannot be combined with temperature"),
        (["--num-beams", "4", "--seed", "3"], "--num-beams cannot be combined with temperature"),
        (["--num-beams", "4", "--num-samples", "5"], "--num-samples must be at most --num-beams, 4"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_options_end_with_status_2_and_their_value(finished_run, capsys, options, message):
    try:
        status = generate(finished_run.folder, *options)
    except SystemExit as exit_:  # tyro's, for what it finds wrong itself
        status = exit_.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert message in err


def test_help_names_every_option(finished_run, capsys):
    with pytest.raises(SystemExit) as exit_:
        generate(finished_run.folder, "--help")
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    for option in (
        "prompt",
        "max-new-tokens",
        "temperature",
        "top-k",
        "top-p",
        "seed",
        "num-samples",
        "num-beams",
        "checkpoint",
    ):
        assert f"--{option}" in shown


@pytest.mark.parametrize("missing", ["processor.json", "checkpoints"])
def test_a_run_that_lacks_a_file_is_named_without_a_traceback(finished_run, tmp_path, capsys, missing):
    copy = shutil.copytree(finished_run.folder, tmp_path / "run")
    shutil.rmtree(copy / missing) if (copy / missing).is_dir() else (copy / missing).unlink()
    assert generate(copy) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(f"error: .*{re.escape(str(copy))}.*\n", err)


@pytest.mark.thorough
def test_without_a_prompt_a_model_of_texts_without_line_breaks_starts_with_a_character_of_theirs(finished_run, capsys):
    trained = load_run(finished_run.folder)
    letters = CharacterVocabulary("abcdefghijklmnop"[: trained.processor.size])
    trained = dataclasses.replace(trained, processor=letters)
    Generate(max_new_tokens=3)(trained)
    text = capsys.readouterr().out
    assert re.fullmatch(r"a[a-p]{3}\n", text)
    assert trained.generate("\n", max_new_tokens=3) == text[:-1]
    with pytest.raises(UnknownCharacterError, match=r"characters: '\\n' "):
        Generate(prompt="a\n", max_new_tokens=3)(trained)


@pytest.mark.thorough
def test_a_word_model_prints_words_with_spaces_between_them(word_model, capsys):
    Generate(prompt="w1 w3", max_new_tokens=5)(word_model)
    assert re.fullmatch(r"w1 w3( (w\d+|<unk>)){5}\n", capsys.readouterr().out)


def test_unknown_words_of_a_prompt_are_counted_and_a_stop_must_be_known(word_model, capsys, caplog):
    Generate(prompt="w1 zzz w4\nyyy", max_new_tokens=2)(word_model)
    assert "unknown words of the prompt become <unk>; their number: 2" in caplog.text
    with pytest.raises(ValueError, match=r"^stop must be a word of the vocabulary, got 'zzz'"):
        Generate(prompt="w1", stop="zzz", max_new_tokens=2)(word_model)
    caplog.clear()
    word_model.generate(["w1", "w1 zzz"], max_new_tokens=2)
    assert caplog.messages == ["unknown words of the prompt become <unk>; their number: 1"]
    caplog.clear()
    Generate(prompt="w1", stop="<unk>", max_new_tokens=2)(word_model)
    assert not caplog.text


def test_a_word_model_without_an_unknown_token_refuses_unknown_words(word_model, capsys):
    words = WordVocabulary(tuple(f"w{i}" for i in range(word_model.processor.size)))
    with pytest.raises(ValueError, match=r"not in the vocabulary of 11 words: 'tide' \(first at word 2\)"):
        Generate(prompt="w1 tide")(dataclasses.replace(word_model, processor=words))
    assert capsys.readouterr().out == ""


@pytest.mark.thorough
def test_a_continuation_ends_with_its_stop(finished_run, capsys):
    options = ["--prompt", "the ", "--max-new-tokens", "40", "--num-samples", "3"]
    assert generate(finished_run.folder, *options) == 0
    whole = capsys.readouterr().out.split("--- sample ")[1:]
    stop = whole[0].split("---\n", 1)[1].removeprefix("the ")[3]
    assert generate(finished_run.folder, *options, "--stop", stop) == 0
    ended = capsys.readouterr().out.split("--- sample ")[1:]
    for text, all_of_it in zip(ended, whole, strict=True):
        added, everything = (t.split("---\n", 1)[1].rstrip("\n").removeprefix("the ") for t in (text, all_of_it))
        assert everything.startswith(added)
        assert stop not in added[:-1]
        assert added.endswith(stop) or added == everything
    assert len(ended[0]) < len(whole[0])


@pytest.mark.thorough
def test_beams_end_with_their_stop_and_a_stop_is_one_token(finished_run, capsys):
    options = ["--prompt", "the ", "--max-new-tokens", "12", "--num-beams", "3"]
    assert generate(finished_run.folder, *options, "--stop", " ", "--length-penalty", "1.0") == 0
    added = capsys.readouterr().out.rstrip("\n").removeprefix("the ")
    assert " " not in added[:-1]
    assert generate(finished_run.folder, *options, "--stop", "th") == 2
    assert ": stop must be one token, got 'th', which has 2 tokens" in capsys.readouterr().err
    with pytest.raises(ValueError, match="length_penalty applies only to beam search"):
        Generate(length_penalty=1.0)


def test_a_prompt_has_the_line_ends_of_training_texts(finished_run, capsys):
    trained = load_run(finished_run.folder, checkpoint="best")
    for prompt in ("a\r\nta", "a\rta"):
        assert trained.generate(prompt, max_new_tokens=4) == trained.generate("a\nta", max_new_tokens=4)
        assert generate(finished_run.folder, "--prompt", prompt, "--max-new-tokens", "4") == 0
        assert capsys.readouterr().out.startswith("a\nta")


def test_a_prompt_may_be_piped(finished_run, on_standard_input, capsys):
    on_standard_input(b"a\nta\n")
    assert generate(finished_run.folder, "--prompt", "-", "--max-new-tokens", "4") == 0
    piped = capsys.readouterr().out
    assert generate(finished_run.folder, "--prompt", "a\nta", "--max-new-tokens", "4") == 0
    assert piped == capsys.readouterr().out


@pytest.mark.thorough
def test_in_python_a_prompt_is_continued_as_by_the_command(finished_run, capsys):
    trained = load_run(finished_run.folder, checkpoint="best")
    greedy = {"max_new_tokens": 12, "temperature": 0.0}
    assert trained.generate("the t", **greedy) == continue_greedily(trained, "the t", 12)
    assert trained.generate(["the t", "a"], **greedy)[0] == trained.generate("the t", **greedy)
    options = ["--prompt", "ta", "--max-new-tokens", "9"]
    for more, fields in ((["--seed", "3"], {"seed": 3}), (["--num-beams", "2"], {"num_beams": 2})):
        assert generate(finished_run.folder, *options, *more) == 0
        assert capsys.readouterr().out == trained.generate("ta", max_new_tokens=9, **fields) + "\n"
    assert trained.generate(["", "the t", ""], **greedy) == ["", trained.generate("the t", **greedy), ""]
    with pytest.raises(UnknownCharacterError) as found:
        trained.generate(["ta", "\u20ac"])
    assert found.value.__notes__ == ["It is the prompt with the index 1."]
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1, got 0"):
        trained.generate("ta", max_new_tokens=0)
    with pytest.raises(ValueError, match="max_new_tokens must be a whole number, got the text '5'"):
        trained.generate("ta", max_new_tokens="5")
    with pytest.raises(ValueError, match="temperature must be a number, got the text 'hot'"):
        trained.generate("ta", temperature="hot")


@pytest.mark.thorough
def test_in_8_bits_the_command_and_python_generate_one_text_and_perplexities_are_near(finished_run, capsys):
    trained = load_run(finished_run.folder, checkpoint="best")
    rounded = trained.rounded("int8")
    assert repr(rounded).endswith(f"int8; {repr(trained).partition('; ')[2]}")
    text = "the dot is on the node"
    before, after = trained.perplexity(text), rounded.perplexity(text)
    assert before != after == pytest.approx(before, rel=0.02)
    assert (
        generate(finished_run.folder, "--weights", "int8", "--prompt", "the t", "--max-new-tokens", "9", "--seed", "3")
        == 0
    )
    assert capsys.readouterr().out == rounded.generate("the t", max_new_tokens=9, seed=3) + "\n"


@pytest.mark.sweep(1)
@pytest.mark.parametrize("options", [["--seed", "3"], ["--num-beams", "3"]], ids=["sampled", "beams"])
def test_as_json_each_text_is_whole_with_its_prompt(finished_run, capsys, options):
    options = ["--prompt", "ta", "--max-new-tokens", "9", "--num-samples", "2", *options]
    assert generate(finished_run.folder, *options) == 0
    plain = re.split("--- sample . ---\n", capsys.readouterr().out)[1:]
    assert generate(finished_run.folder, *options, "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [{"prompt": "ta", "text": text.removesuffix("\n")} for text in plain]


def test_a_start_token_that_the_model_writes_is_printed_as_in_the_text(tmp_path, monkeypatch, capsys):
    """As between two texts of its training."""
    write_folder(tmp_path, model_type="llama")
    trained = load_pretrained(tmp_path)
    ids = trained.processor.encode("sat on").tolist()
    monkeypatch.setattr(commands, "generate_tokens", lambda *_, **__: (np.array([token]) for token in ids))
    assert trained.generate("The cat") == "The cat<s> sat on"
    for options in ({}, {"json": True}):
        Generate(prompt="The cat", **options)(trained)
        assert "The cat<s> sat on" in capsys.readouterr().out
    for stop in (".", "\n", "</s>"):  # each is one token, without a blank before it
        assert trained.generate("The cat", stop=stop) == "The cat<s> sat on"


def test_no_program_is_compiled_or_announced_once_a_text_is_shown_in_part(finished_run, monkeypatch, capsys):
    trained, shown, drawn = load_run(finished_run.folder), [], commands.generate_tokens

    def watched(*arguments, **options):
        for tokens in drawn(*arguments, **options):
            shown.append(capsys.readouterr().out)
            yield tokens

    monkeypatch.setattr(commands, "generate_tokens", watched)
    with compilation_announced():
        Generate(prompt="the t", max_new_tokens=4)(trained)
        assert compilation._watch.spent >= compilation.PATIENCE_SECONDS
    assert [bool(text) for text in shown] == [False, False, True, True]
