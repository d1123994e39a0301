"""The statements of the seeds that cannot both hold, and which of them fxf follows."""

from typing import NamedTuple

from experiments.seeds.claims import Rule, at_least, at_most, equal


class Contradiction(NamedTuple):
    """Two statements of the seeds that cannot both hold.

    Attributes:
      name: the name of the figure.
      seed, section: where.
      one, other: the two statements.
      fxf: which way fxf goes, and why.
      what, rule: the figure that shows it, and what accepts it.
    """

    name: str
    seed: str
    section: str
    one: str
    other: str
    fxf: str
    what: str
    rule: Rule


FOUND = (
    Contradiction(
        "alibi", "002", "ALiBi positional encoding",
        "text: slopes 1 / A^(h/N), A = 2⁸, h = 1 … N: 1/16 and 1/256 for two heads",
        "code: 1 / 2^(h/N), h = 0 … N−1: 1 and 0.71",
        "the text, as in Press et al. 2022", "slopes of two heads", equal("0.0625 0.00390625"),
    ),
    Contradiction(
        "period_2", "002", "generating training data, XOR code", "table: base 2, delay 9: period 2889",
        "its own rule gives 889", "the rule", "period", equal(889),
    ),
    Contradiction(
        "period_8", "002", "generating training data, XOR code", "table: base 8, delay 9: period 3558",
        "its own rule gives 3556 = 4 · 889", "the rule", "period", equal(3556),
    ),
    Contradiction(
        "norm", "002", "transfomer bilayer code",
        "text: attention and feed-forward layer are followed by a normalization",
        "code: it normalizes over all tokens, and drops the result",
        "the code: no norm. Over all tokens, it would also see later ones", "weights of norms in a bilayer", equal(0),
    ),
    Contradiction(
        "sign", "002", "micro transformer code", "basic code: tanh(W x − b)", "micro code: tanh(W x + b)",
        "the first; the sign of a trained bias changes no result", "output at x = 0 with b = 1: sign of tanh",
        equal(-1),
    ),
    Contradiction(
        "lower", "002", "basic transformer, complete code", "comment: lower case reduces the vocabulary",
        "code: the letters are taken before the text is made lower case",
        "the code: capitals stay, unless data.lower_case is set",
        "data.lower_case by default", equal("False"),
    ),
    Contradiction(
        "scale", "002, 000", "dot-product attention", "002: scores Q·K", "000, 001, 003 and 004: Q·K / √d",
        "√d; the bilayer, which is 002's, has Q·K", "score of two equal keys of 16 ones", equal(4),
    ),
    Contradiction(
        "block", "004", "inspirational idea", "definition: X + CA(N X) + FF(X + CA(N X))",
        "code: X + FF(X + CA(N X)), the “idea”", "the definition; model.block=idea is the other",
        "default of model.block", equal("pre_norm"),
    ),
    Contradiction(
        "slice", "004", "The code for the loss function", "text: the first n rows T(X)|n are scored",
        "code: T(X)[:n, :] cuts the batch to n sequences", "the text: a model reads n tokens, and n outputs are scored",
        "outputs for 3 sequences of 5 tokens", equal("3 x 5"),
    ),
    Contradiction(
        "table", "004", "Positional Encoding", "text: the table starts from sines and cosines of 1, 2, …",
        "code: it starts from random numbers between −½ and ½",
        "the text; model.init=uniform is the other", "largest |first row − sines and cosines of 1|", at_most(1e-6),
    ),
    Contradiction(
        "overflow", "004", "Rowwise and autoregressive matrix operations",
        "text: softmax of scores with −∞ above the diagonal",
        "code: tril(exp(A)) / sum, which is not a number from a score of 89 on",
        "the text: the largest score is subtracted first", "sum of the weights of scores of 100", equal(1),
    ),
    Contradiction(
        "lengths", "004", "The dataset for demo purposes", "text: a matrix of loss weights lets rows differ",
        "code: all sequences of a batch have one length", "lengths are drawn for each row",
        "lengths in a batch of 64", at_least(2),
    ),
    Contradiction(
        "linear_map", "004", "Positional Encoding", "T_k maps the vector PE_pos to PE_pos+k",
        "later: T_k maps each number PE(pos, i) to PE(pos + k, i)",
        "the first; no factor maps sin 1 to sin 2 and sin 2 to sin 3", "|sin 2 / sin 1 − sin 3 / sin 2|", at_least(0.1),
    ),
    Contradiction(
        "concatenated", "000", "Embedding", "text: sines and cosines take turns, with ℓ_max",
        "code: all sines, then all cosines, with 10000",
        "the code is sinusoidal_concatenated; 003's and 004's are sinusoidal", "largest |first half − sines|",
        at_most(1e-5),
    ),
    Contradiction(
        "future", "000", "Masked SelfAttention Algorithm", "formula: Mask = 0 where t_z < t_x, which hides the past",
        "text: each location sees only those before it", "the text: what comes later is hidden",
        "change of outputs with later tokens", equal(0),
    ),
    Contradiction(
        "cross_norm", "000", "Decoder", "picture: a norm before each sublayer normalizes its queries",
        "code: cross-attention normalizes the encoder's output, and not its queries",
        "the code, with model.cross_norm=source; the default is queries", "norms of the seed's cross-attention",
        equal("source"),
    ),
    Contradiction(
        "update", "000", "Training Transformer Model", "formula: θ ← θ − θ η ∇loss",
        "code: NetTrain, whose default is Adam",
        "θ − η ∇loss, or what optimizer.name says", "step of sgd at θ = 3, gradient 1, rate 0.5", equal(0.5),
    ),
    Contradiction(
        "product_mask", "001", "General attention", "softmax(M ⊙ scores): a hidden key has score 0, and so a weight",
        "text: unidirectional attention hides later tokens", "−∞ in place of a product", "weight of hidden keys",
        equal(0),
    ),
    Contradiction(
        "start", "003, 004", "Positional Encoding", "003: positions count from 0", "000 and 004: from 1",
        "each as it says: sinusoidal from 0, sinusoidal_trained and _concatenated from 1",
        "first sine of 003 and of 004", equal("0 and 0.8415"),
    ),
    Contradiction(
        "epsilon", "004, 003", "Normalization layers", "004: divide by σ + ε", "000 and 003: divide by √(σ² + ε)",
        "model.norm_epsilon_in: deviation by default, variance in the presets of 000 and 003",
        "presets with variance", equal(2),
    ),
)  # fmt: skip

HEADER = ["seed", "section", "one statement", "the other", "fxf follows"]


def statements() -> list[list[str]]:
    """Returns a row for every contradiction."""
    return [[c.seed, c.section, c.one, c.other, c.fxf] for c in FOUND]
