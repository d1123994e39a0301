from fxf.data.tokenizer import train_tokenizer
from fxf.tasks.text_task import warn_of_unknown


def test_words_that_the_vocabulary_lacks_are_named_once_and_not_all_of_many(caplog):
    tokenizer = train_tokenizer("word", 100, ["a"])
    warn_of_unknown(tokenizer, ["a", "a b", *["c " * 3, "a"] * 8])
    assert caplog.messages == ["warning: the vocabulary lacks 'b', 'c'; read as <unk>"]
    caplog.clear()
    warn_of_unknown(tokenizer, [" ".join(f"{i:050}" for i in range(99))])
    (message,) = caplog.messages
    assert " … " in message and len(message) < 1100
    caplog.clear()
    warn_of_unknown(train_tokenizer("bpe", 300, ["a"]), ["anything ß"])
    assert not caplog.messages
