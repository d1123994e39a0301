import jax
import numpy as np
import pytest

from fxf.data.documents import DocumentsConfig
from fxf.data.text import EncodedText, TextConfig, draw_windows, read_text, scoring_windows
from fxf.data.tokenizer import BOS, TOKENIZERS, UNK
from fxf.tasks.language_model import LanguageModelConfig, language_model
from fxf.tasks.task import RunInfo
from fxf.training.step import TrainConfig

LINES = "".join(f"line {i} of a small text\n" for i in range(40))


def config(tmp_path, content=LINES, **changes):
    path = tmp_path / "text.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return TextConfig(path=str(path), **changes)


def test_the_parts_follow_each_other_and_without_a_share_the_test_is_the_validation_as_in_nanogpt(tmp_path):
    text = read_text(config(tmp_path, validation=0.2, test=0.1))
    assert "".join(text.values()) == LINES
    assert [len(part) / len(LINES) for part in text.values()] == pytest.approx([0.7, 0.2, 0.1], abs=2 / len(LINES))
    text = read_text(config(tmp_path))
    assert text["train"] == LINES[: int(len(LINES) * 0.9)]
    assert text["test"] == text["validation"] == LINES[len(text["train"]) :]
    assert len({str(EncodedText(config(tmp_path, x), None, 2).digests()) for x in (LINES, LINES[:-1] + "a")}) == 2


def test_line_ends_a_byte_order_mark_and_case_follow_the_config(tmp_path, caplog):
    read_text(config(tmp_path, '{"text": "one"}\n'))
    assert f"data.path: {tmp_path}/text.txt looks like lines of JSON; it is read as plain text" in caplog.text
    text = read_text(config(tmp_path, b"\xef\xbb\xbfAb\r\nC\rD" * 9, lower_case=True))
    assert text["train"] + text["validation"] == ("ab\nc\rd" + "\ufeffab\nc\rd" * 8)


def test_a_part_may_be_one_window_and_what_the_vocabulary_lacks_is_counted(tmp_path):
    EncodedText(config(tmp_path), None, 95).figures()
    text = EncodedText(config(tmp_path, "abcd" * 25, vocab_size=8), None, 2)
    assert text.figures()["unknown_share"] == pytest.approx(0.25, abs=0.01) and UNK in text.tokens("validation")
    assert [*text.figures().values()][:3] == [90, 10, 8]  # tokens for training and for validation, and the vocabulary


def test_windows_start_anywhere_and_are_pieces_of_the_text():
    tokens = np.arange(11, dtype=np.uint16)
    windows = np.asarray(draw_windows(jax.random.key(0), tokens, (499, 7)))
    assert windows.dtype == np.int32
    np.testing.assert_array_equal(windows - windows[:, :1], np.tile(np.arange(7), (499, 1)))
    assert set(windows[:, 0].tolist()) == set(range(5))


@pytest.mark.parametrize(("n", "length"), [(2, 5), (5, 5), (6, 5), (9, 5), (10, 5), (13, 2), (7, 7)])
def test_scoring_windows_count_every_token_once_after_the_one_before_it(n, length):
    tokens = np.arange(5, 5 + n, dtype=np.uint16)
    targets, weights = scoring_windows(tokens, length)
    assert targets.shape == weights.shape == (len(targets), length)
    np.testing.assert_array_equal(targets[weights > 0], tokens)
    for row, counts in zip(targets[1:], weights[1:], strict=True):
        assert counts[0] == 0
        for i in np.flatnonzero(counts):
            assert row[i] == row[i - 1] + 1
    assert weights[-1].any() and BOS not in targets


# White space before line ends, empty lines, indents, and characters that split lines without being \n.
ODD_LINES = "A rose,  \nis red.\n\n\n  So are \tyou.  \r no\x0cpage \u2028  x\n" * 40


def asked(task, text):
    """Returns the tokens of a prompt, without the one in front."""
    (group,) = task.to_prompts([text], 1, 10**6)
    return group.prompts["tokens"][0, : group.prompts["lengths"][0]].tolist()


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_prompt_has_the_tokens_of_the_text_or_document_in_training(kind, tmp_path):
    (tmp_path / "texts").mkdir()
    texts = [ODD_LINES[: 200 + 9 * n] for n in range(9)]
    for n, text in enumerate(texts):
        (tmp_path / f"texts/{n}").write_bytes(text.replace("\n", "\r\n").encode())
    (tmp_path / "text").write_bytes((ODD_LINES * 4).replace("\n", "\r\n").encode())
    for place, keys in (("text", {}), ("texts", {"format": "files", "validation": 0.4})):
        data = DocumentsConfig(path=str(tmp_path / place), tokenizer=kind, vocab_size=300, **keys)
        task = language_model(LanguageModelConfig(length=8), RunInfo(TrainConfig(batch_size=2), data))
        if place == "text":
            text = task.text.parts()["train"]
            assert asked(task, text.replace("\n", "\r\n")) == task.text.tokens("train").tolist()
        else:
            tokens = [task.prepared[""].tokens(part) for part in ("train", "validation")]
            cuts = [np.split(part, np.flatnonzero(part == task.end_token) + 1)[:-1] for part in tokens]
            found = [row[:-1].tolist() for rows in cuts for row in rows]
            assert sorted(found) == sorted(asked(task, text) for text in texts)
