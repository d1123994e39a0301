import dataclasses
import random
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
import tokenizers

from fxf.base.errors import UserError
from fxf.data.corpus import DataConfig, read_corpus
from fxf.data.tokenizer import EOS
from fxf.runs import run
from fxf.runs.generation import Answering, score_pairs, write_answers
from fxf.runs.probe import what_is_read
from fxf.tasks.task import Evaluator, RunInfo, Task
from fxf.tasks.translation import Translation, TranslationConfig, scores
from fxf.training.step import TrainConfig
from helpers import generated, in_groups

WORDS = {"a": "un", "b": "deux", "c": "trois", "d": "quatre", "e": "cinq"}


def sentences():
    """English TAB French lines, word for word."""
    rng = random.Random(0)
    sources = sorted({" ".join(rng.choices(list(WORDS), k=rng.randint(1, 40))) for _ in range(120)})
    rng.shuffle(sources)
    return "".join(f"{source}\t{translated(source)}\n" for source in sources)


def translated(source):
    return " ".join(WORDS[word] for word in source.split())


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text(sentences())
    sides = {"columns": "en,fr", "held_out": 0.2}
    return DataConfig(name="pairs", path=str(path), tokenizer="word", vocab_size=99, max_length=41, **sides)


def make(data, folder=None, **keys):
    return Translation(TranslationConfig(**keys), RunInfo(TrainConfig(batch_size=8), data, folder=folder))


def evaluator_of(task, spoil=0):
    """Translates word for word by token ids; changes the first word of the first `spoil` rows."""
    encode, decode, special = task.tokenizer.encode, task.tokenizer.decode, task.tokenizer.special

    def decode_prompts(prompts, max_tokens):
        rows = []
        for i, (source, mask) in enumerate(zip(prompts["source"], prompts["source_mask"], strict=True)):
            tokens = encode(translated(decode(source[mask][:-1].tolist())))
            if i < spoil:
                tokens[0] = encode("cinq" if tokens[0] != encode("cinq")[0] else "un")[0]
            rows.append(([*tokens] + [special.eos] * max_tokens)[:max_tokens])
        best = np.array(rows)
        return np.stack([best, best[:, ::-1]], axis=1), None  # the second hypothesis is nonsense

    return Evaluator(in_groups(decode_prompts), lambda batch: (3.0, 2.0), None)  # translation reads no logits


def test_a_perfect_translator_scores_100_on_every_sentence_once_and_a_wrong_word_costs_its_sentence(data):
    task = make(data)
    figures = task.test(evaluator_of(task))
    assert (figures["bleu"], figures["chrf"]) == (pytest.approx(100), pytest.approx(100))
    assert (figures["exact_match"], figures["examples"]) == (1, len({e.source for e in read_corpus(data).test}))
    assert all(expected == answer for _, expected, answer, _ in figures["samples"]) and len(figures["samples"]) == 10
    answers, few = figures["answers"], make(data, examples=3, tokenized=True).test(evaluator_of(task))
    assert few["answers"] == [answers[0], answers[(len(answers) - 1) // 2], answers[-1]]
    assert "tok:13a" in figures["bleu_signature"] and "tok:none" in few["bleu_signature"]
    assert task.validate(evaluator_of(task))["validation_loss"] == 1.5  # the quotient of sums
    figures = task.test(evaluator_of(task, spoil=1))  # one for each group of similar length
    assert 0.8 < figures["exact_match"] < 1 and figures["bleu"] < 100


def test_the_special_tokens_of_a_tokenizer_file_begin_end_and_fill_sentences(data, tmp_path):
    names = {"<pad>": 3, "</s>": 4, "<s>": 9, "<unk>": 12}
    numbers = [number for number in range(99) if number not in names.values()]
    vocabulary = {**names, **dict(zip((*WORDS, *WORDS.values()), numbers, strict=False))}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(list(names))
    backend.save(str(tmp_path / "words.json"))
    task = make(dataclasses.replace(data, tokenizer=str(tmp_path / "words.json"), vocab_size=8000))
    assert (task.end_token, task.around) == (4, (None, 4))
    batch = next(task.batches())
    assert {name: x.shape for name, x in task.largest_batch().items()}.keys() == batch.keys()
    assert (batch["inputs"][:, 0] == 9).all() and (batch["source"][~batch["source_mask"]] == 3).all()
    for targets, weights in zip(batch["targets"], batch["weights"], strict=True):
        assert targets[weights > 0][-1] == 4 and (targets[weights == 0] == 3).all()
    (group,) = task.to_prompts(["a b"], 0, 41)
    assert group.prompts["first"].tolist() == [9]
    assert group.prompts["source"][0, :4].tolist() == [*task.tokenizer.encode("a b"), 4, 3]
    np.testing.assert_array_equal(task.to_batch("a b", "un deux")["inputs"][0], [9, *task.tokenizer.encode("un deux")])
    assert task.test(evaluator_of(task))["exact_match"] == 1.0


def test_given_pairs_are_scored_in_place_of_the_test_and_the_answers_go_into_files(data, tmp_path, capsys, monkeypatch):
    task = make(dataclasses.replace(data, on_error="skip", max_length=30))
    experiment = SimpleNamespace(task=task, config={"task": {"name": "translation"}})
    (tmp_path / "given.txt").write_text("en\tFR\na b\tun deux\nc\tfalse\nc\ttrois\nd d d\tquatre\n")
    # Below, two references are the most.
    write_answers(experiment, tmp_path / "answers", [("a\r\nb", ["b", "c", "d"], "e")])
    assert (tmp_path / "answers/sources.txt").read_bytes() == b"a  b\n"
    monkeypatch.setattr(run, "load", lambda *_: (experiment, 7, None))
    monkeypatch.setattr(run, "Evaluators", lambda _: lambda _: evaluator_of(task))
    figures = run.evaluate("run", pairs=tmp_path / "given.txt", output=tmp_path / "answers")
    assert [figures[name] for name in ("step", "examples", "exact_match")] == [7, 3, pytest.approx(2 / 3)]
    assert not {"answers", "samples"} & {*figures}
    found = {path.name: path.read_text().split("\n") for path in (tmp_path / "answers").iterdir()}
    assert found == {
        "sources.txt": ["a b", "c", "d d d", ""],
        "hypotheses.txt": ["un deux", "trois", "quatre quatre quatre", ""],
        "references.txt": ["un deux", "false", "quatre", ""],
        "references_2.txt": ["un deux", "trois", "quatre", ""],
    }
    wrong = {"c": r"given.txt:2: expected 2 tab-.*, got 1 column", "c " * 30 + "\tun": "pair 2: source of 31 "}
    for line, message in wrong.items():
        (tmp_path / "given.txt").write_text(f"a b\tun\n{line}\n")
        with pytest.raises(UserError, match=message):
            score_pairs(experiment, None, tmp_path / "given.txt")
    assert f"warning: {24 - task.test(evaluator_of(task))['examples']} of 24 test pairs" in capsys.readouterr().err


def test_a_task_that_only_trains_and_scores_says_so_if_more_is_requested(tmp_path):
    for asked, message in (
        (score_pairs, "scores no given pairs"),
        (write_answers, "has no answers to write"),
        (Answering, "answers no prompts$"),
        (what_is_read, "answers no prompts: it has no to_batch"),
    ):
        with pytest.raises(UserError, match=f"task 'a' {message}"):
            asked(SimpleNamespace(task=Task(), config={"task": {"name": "a"}}), tmp_path, None)


def test_an_answer_may_be_as_long_as_the_longest_target_whatever_its_source_and_counts_where_it_is_cut_off(data):
    task = make(data)
    groups = task.groups([[5] * n for n in (1, data.max_length)])  # models may have this many positions
    assert [(group.max_tokens, group.prompts["source"].shape[1]) for group in groups] == [(41, 41), (41, 16)]
    endless = in_groups(lambda prompts, n: (np.full((len(prompts["tokens"]), 1, n), 7), None))
    figures = task.test(Evaluator(endless, None, None))
    assert figures["cut_off"] == figures["examples"] > 0
    assert all(sample[3] for sample in figures["samples"])
    ended = in_groups(lambda prompts, n: (np.array([[[7] * (n - 1) + [EOS]]] * len(prompts["tokens"])), None))
    figures = task.test(Evaluator(ended, None, None))
    assert figures["cut_off"] == 0 and not any(sample[3] for sample in figures["samples"])


def test_answers_come_in_the_order_of_their_prompts_without_the_text_it_learned_from(data, tmp_path):
    for name, text in make(data).files.items():
        (tmp_path / name).write_text(text)
    task = make(dataclasses.replace(data, path="absent"), tmp_path)
    prompts = ["a b", "", "c " * 39, "d", " "]
    answers = [answer[0][0] for answer in generated(task, evaluator_of(task), prompts, 0, 41)]
    assert answers == ["un deux", "", " ".join(["trois"] * 39), "quatre", ""]
    with pytest.raises(UserError, match=r"prompt 1: 42 tokens; data.max_length is 41"):  # with the end token
        task.to_prompts(["c " * 41], 0, 41)


def test_scores_are_sacrebleus_of_the_text_and_of_lower_cased_words_against_all_references():
    hypotheses = ["The cat, black and small, sleeps .", "It rains a lot tonight."]
    references = [["The cat, black and small, sleeps."], ["it rains a lot tonight ."]]
    figures, columns = scores(hypotheses, references, tokenized=False), [[r[0] for r in references]]
    assert figures["bleu"] == sacrebleu.corpus_bleu(hypotheses, columns).score < figures["bleu_lower_case"]
    assert figures["bleu_lower_case"] == sacrebleu.corpus_bleu(hypotheses, columns, lowercase=True).score
    assert figures["chrf"] == sacrebleu.corpus_chrf(hypotheses, columns).score
    tokenized = scores(hypotheses, references, tokenized=True)
    assert "tok:none" in tokenized["bleu_signature"] and tokenized["bleu"] < figures["bleu"]
    references = [["le chat noir dort bien"], ["il pleut beaucoup ce soir", "il pleut fort ce soir"]]
    for answer, right in ("il pleut fort ce soir", 1.0), ("il pleut fort ce matin", 0.5):
        figures = scores(["le chat noir dort bien", answer], references, tokenized=False)
        assert (figures["exact_match"], figures["examples"]) == (right, 2)
        assert (figures["bleu"] == pytest.approx(100)) == (right == 1)
