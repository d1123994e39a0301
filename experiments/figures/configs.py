"""The figures of the config files: their docstrings, and EXPECTED."""

from collections.abc import Callable, Sequence

from experiments.figures.kept import Kept
from experiments.figures.long_runs import MULTI30K, bleu, of_seeds
from experiments.figures.pieces import Page, figure

CITED = "in the paper or program that the text cites"
PLACE = "configs"  # of the configs, and of their runs in experiments/results
SEEDS_OWN = "what the seed says"


def characters(kept: Kept) -> Page:
    default, primer = kept.result(f"{PLACE}/characters"), kept.result(f"{PLACE}/characters_primer")
    cpu, fast = kept.result(f"{PLACE}/characters_nanogpt_cpu"), kept.result(f"{PLACE}/characters_fast")
    steps = {
        name: figure(kept.config(f"characters:{name}").train.steps, ",")
        for name in ("nanogpt_cpu", "nanogpt_gpu", "fast", "fast_160")
    }
    raced = next(row for row in kept.measured("race") if row["entry"] == "characters:fast_160" and row["seed"] == 0)
    return Page(
        [
            f"nanoGPT's recipe for a CPU, {steps['nanogpt_cpu']} steps        tinyshakespeare: validation_loss "
            f"{figure(cpu['validation_loss'], '.2f')}",
            f"nanoGPT's recipe for a GPU, {steps['nanogpt_gpu']} steps",
            f"{steps['fast']} steps with Muon, half the size             tinyshakespeare: validation_loss "
            f"{figure(fast['validation_loss'], '.2f')}",
            f"{steps['fast_160']} steps with longer windows, three layers  tinyshakespeare: validation_loss "
            f"{figure(raced['validation_loss'], '.2f')}",
            f"Goethe's Faust: accuracy {figure(primer['accuracy'], '.2f')}",
            f'EXPECTED = {{"": {{"test_loss": {figure(default["test_loss"], ".2f")}, "bits_per_character": '
            f"{figure(default['bits_per_character'], '.2f')}}}}}  # seed 0",
        ],
        {
            CITED: ["nanoGPT reports 1.4697"],
            "the run of a figure": ["expect (seed 0)", "# seed 0"],
            "a size of what is named": ["GPT-2's 124M", "124M weights for its 50,257 tokens"],
            SEEDS_OWN: ["one bilayer predicts the next letter from 16 one-hot letters", "(2e-2, batches of 20)"],
            "of the config": ["batches of 64."],
        },
    )


def translation(kept: Kept) -> Page:
    french, de, deen = kept.result(f"{PLACE}/translation"), kept.seeds(MULTI30K), kept.result("multi30k_deen")
    six = kept.config("translation:six")
    width = kept.config("translation:multi30k_de").decode.beam_width
    return Page(
        [
            f"all six right after {figure(six.train.steps)} steps",
            f"de: test BLEU {figure(bleu(de), '.1f')}, beam of {figure(width)}, {of_seeds(de, each=False)}",
            f"German to English, greedy                            test BLEU {figure(deen['bleu'], '.1f')}",
            f'{{"bleu": {figure(french["bleu"], ".1f")}, "exact_match": {figure(french["exact_match"], ".2f")}}}',
            f"Adam at 1e-4, {figure(six.train.steps)} steps, a beam of {figure(six.decode.beam_width)}, lower case",
        ],
        {
            "the run of a figure": ["expect (seed 0)", "# seed 0"],
            SEEDS_OWN: ["Adam at 1e-4", "than its 16 sentences"],
        },
    )


def reversal(kept: Kept) -> Page:
    config = kept.config("reversal").task
    examples = [kept.result(f"{PLACE}/reversal_example{number}/seed_0") for number in range(3)]
    each = [result["examples"] for result in examples]
    exact = min(result["exact_match"] for result in [kept.result(f"{PLACE}/reversal"), *examples])
    return Page(
        [
            f"{figure(config.n_tokens)} symbols, lengths {figure(config.min_length)} to {figure(config.max_length)}",
            f"{figure(kept.result(f'{PLACE}/reversal')['examples'], ',')} unseen sequences",
            f"all {figure(each[0])}, {figure(each[1])}, {figure(each[2])} sequences",
            f'{{"exact_match": {figure(exact, "g")}}}',
        ],
        {
            "arguments": ["example0, 1, 2 ", "notebook0, 1, 2 "],
            "the rule of `make seeds`": ["a loss of at most 0.3 after"],
            "of the sweep": ["The sweep has 24 runs"],
        },
    )


def length(kept: Kept) -> Page:
    result, config = kept.result(f"{PLACE}/length"), kept.config("length")
    trained = config.task.max_length
    worst = max(value for name, value in result.items() if name.startswith("exact_match_"))
    return Page(
        [
            f"at most {figure(trained)} symbols in training, up to {figure(config.task.longest)} in scoring",
            f"strings of up to {figure(trained)} symbols (exact_match {figure(result['exact_match'], 'g')}, seed 0), "
            f"and hardly any longer one (exact_match at most {figure(worst, 'g')})",
        ],
        {"the run of a figure": ["seed 0)"], CITED: ["(arXiv 2207.02098, 2305.16843)"]},
    )


def length_tape(kept: Kept) -> Page:
    config = kept.config("length_tape")
    return Page(
        [
            f"dropout {figure(config.model.dropout)}, batches of {figure(config.train.batch_size)} strings of one "
            f"length, Adam at 1e-3, the mean accuracy of symbols over all lengths from "
            f"{figure(config.task.max_length + 1)} on",
            f"longer than these {figure(config.train.steps, ',')} steps",
            f"not {figure(config.task.longest)}.",
        ],
        {CITED: ["(arXiv 2207.02098, 2305.16843)", "strings of up to 500 symbols"], "of the config": ["Adam at 1e-3"]},
    )


def masking(kept: Kept) -> Page:
    result = kept.result(f"{PLACE}/masking")
    return Page(
        [
            f'{{"accuracy": {figure(result["accuracy"], ".2f")}, "perplexity": {figure(result["perplexity"], ".0f")}}}',
        ],
        {"the run of a figure": ["# on the test part, seed 0"]},
    )


def documents(kept: Kept) -> Page:
    bpe, by_character = (kept.result(f"{PLACE}/documents{more}")["bits_per_byte"] for more in ("", "_characters"))
    return Page(
        [
            f'{{"": {{"bits_per_byte": {figure(bpe, ".2f")}}}',
            f'"characters": {{"bits_per_byte": {figure(by_character, ".2f")}}}}}',
        ],
        {"the run of a figure": ["# seed 0"], "a size of what is named": ["12M weights"]},
    )


def time_series(kept: Kept) -> Page:
    config, result = kept.config("time_series").task, kept.result(f"{PLACE}/time_series")
    return Page(
        [
            f"numbers 0 to {figure(config.base - 1)} and delay {figure(config.delay)}",
            f"It reaches exact_match {figure(result['exact_match'], 'g')} in seconds",
            f'{{"exact_match": {figure(result["exact_match"], "g")}}}',
        ],
        {"what numbers begin with": ["numbers 0 to"]},
    )


def boolean_map(kept: Kept) -> Page:
    result, config = kept.result(f"{PLACE}/boolean_map"), kept.config("boolean_map")
    return Page(
        [
            f"the {figure(config.train.steps, ',')} steps are the seed's",
            f'"solved": {figure(result["solved"], "g")}}}',
        ],
        {
            SEEDS_OWN: ["The seed stops at 1e-4"],
            f"a bound on the largest of the errors, which was {result['squared_error']:.1g}": [
                '"squared_error": 1e-11'
            ],
        }
        if result["squared_error"] <= 1e-11
        else {},
    )


def only(*texts: str) -> Callable[[Kept], Page]:
    """Returns a page of a study's config, whose docstring asks a question and gives no results."""
    said: dict[str, Sequence[str]] = {"the question of the study": texts} if texts else {}
    return lambda kept: Page([], said)


PAGES: dict[str, Callable[[Kept], Page]] = {
    f"{PLACE}/boolean_map.py": boolean_map,
    f"{PLACE}/characters.py": characters,
    f"{PLACE}/documents.py": documents,
    f"{PLACE}/length.py": length,
    f"{PLACE}/length_tape.py": length_tape,
    f"{PLACE}/masking.py": masking,
    f"{PLACE}/reversal.py": reversal,
    f"{PLACE}/time_series.py": time_series,
    f"{PLACE}/translation.py": translation,
    f"{PLACE}/studies/blocks.py": only(),
    f"{PLACE}/studies/characters.py": only(),
    f"{PLACE}/studies/expressive.py": only(),
    f"{PLACE}/studies/positions.py": only("to reverse at most 10 symbols, reverse 15, 20, 25 and 30"),
    f"{PLACE}/studies/length.py": only("at 500 symbols after training on at most 40"),
    f"{PLACE}/studies/width.py": only("widths 64 to 512"),
    f"{PLACE}/studies/turns.py": only("reverse 1,000 symbols after training on at most 40"),
}
