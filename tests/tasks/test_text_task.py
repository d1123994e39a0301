from fxf.data.tokenizer import train_tokenizer
from fxf.tasks.text_task import warn_of_unknown


def test_of_many_prompts_the_first_are_named(caplog):
    tokenizer = train_tokenizer("word", 100, ["a"])
    warn_of_unknown(tokenizer, [["a"], ["a b"], *[["c " * 3, "a"]] * 8])
    assert caplog.messages[0] == "warning: prompt 2: the vocabulary lacks 'b'; read as <unk>"
    assert caplog.messages[-2:] == [
        "warning: prompt 9: the vocabulary lacks 'c'; read as <unk>",
        "warning: 1 more prompts have words that the vocabulary lacks",
    ]
    caplog.clear()
    warn_of_unknown(tokenizer, [[" ".join(f"{i:050}" for i in range(99))]])
    (message,) = caplog.messages
    assert " … " in message and len(message) < 1100
    caplog.clear()
    warn_of_unknown(train_tokenizer("bpe", 300, ["a"]), [["anything ß"]])
    assert not caplog.messages
