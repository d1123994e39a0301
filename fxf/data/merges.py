"""Segmentations of a text by byte-pair encoding that skips merges at random, as regularization in training.

Source: BPE-dropout, Provilkov et al., 2020, https://arxiv.org/abs/1910.13267, algorithm 1. The library's own dropout
draws from a generator of each thread, so a resumed run would not get the same tokens.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fxf.data.lines import lines_of
from fxf.data.tokenizer import EOS, TOKENIZERS, UNK, Tokenizer
from fxf.errors import UserError

NO_TOKEN, NO_MERGE = -1, np.iinfo(np.int32).max
WIDTHS = (2, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)  # symbols; words are segmented together up to each of them
SHARED = 16  # a word that occurs n times has min(n, SHARED) segmentations in an epoch, or n / SHARED if that is more


class Merges:
    """The merges of a tokenizer of kind "bpe" as arrays, by which many words are segmented at once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        model = json.loads(tokenizer.to_json())["model"]
        self.vocabulary: dict[str, int] = model["vocab"]
        self._base, self._reserved = max(self.vocabulary.values()) + 2, tokenizer.special.reserved
        both = [(self.vocabulary[a], self.vocabulary[b], self.vocabulary[a + b]) for a, b in model["merges"]]
        left_M, right_M, self._merged_M = np.array(both, np.int64).reshape(-1, 3).T
        self._order_M = np.argsort(self._keys(left_M, right_M))
        self._sorted_M = self._keys(left_M, right_M)[self._order_M]

    def __len__(self) -> int:
        return len(self._sorted_M)

    def symbols(self, word: str) -> list[int]:
        """Returns the tokens of the bytes of a word, which the library writes as characters."""
        return [self.vocabulary[symbol] for symbol in word if symbol in self.vocabulary]

    def segment(self, symbols_WL: np.ndarray, skipped: float, rng: np.random.Generator) -> np.ndarray:
        """Returns the tokens of words [W, L], from their symbols; both have `NO_TOKEN` after each word.

        Each round of a word skips each of its possible merges with probability `skipped`, and makes the first of the
        others in the tokenizer's order, at its leftmost place. A word is done when a round leaves none. With
        `skipped` 0 the tokens are the tokenizer's.
        """
        found_WL = symbols_WL.copy()
        words_A = np.arange(len(symbols_WL))  # those not done
        tokens_AL = np.pad(symbols_WL, ((0, 0), (0, 1)), constant_values=NO_TOKEN)
        ranks_AL = self._ranks(tokens_AL[:, :-1], tokens_AL[:, 1:])
        columns_L = np.arange(symbols_WL.shape[1])
        while len(words_A):
            left_AL = ranks_AL
            if skipped:
                left_AL = np.where(rng.random(ranks_AL.shape, np.float32) < skipped, NO_MERGE, ranks_AL)
            place_A = left_AL.argmin(1)
            rank_A = left_AL[np.arange(len(words_A)), place_A]
            goes_on_A = rank_A < NO_MERGE
            found_WL[words_A[~goes_on_A]] = tokens_AL[~goes_on_A, :-1]
            words_A, tokens_AL, ranks_AL = words_A[goes_on_A], tokens_AL[goes_on_A], ranks_AL[goes_on_A]
            place_A, rank_A = place_A[goes_on_A], rank_A[goes_on_A]
            rows_A, after_AL = np.arange(len(words_A)), columns_L > place_A[:, None]
            tokens_AL[:, :-1][after_AL] = tokens_AL[:, 1:][after_AL]
            ranks_AL[:, :-1][after_AL[:, :-1]] = ranks_AL[:, 1:][after_AL[:, :-1]]
            tokens_AL[rows_A, place_A] = self._merged_M[rank_A]
            for pair_A in (place_A, place_A - 1):
                there_A = pair_A >= 0
                rows, pair = rows_A[there_A], pair_A[there_A]
                ranks_AL[rows, pair] = self._ranks(tokens_AL[rows, pair], tokens_AL[rows, pair + 1])
        return np.where((found_WL >= 0) & (found_WL < self._reserved), UNK, found_WL)

    def _keys(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Returns a number of its own for each pair of tokens, `NO_TOKEN` included."""
        return (left.astype(np.int64) + 1) * self._base + right + 1

    def _ranks(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Returns the places of the pairs in the order of merges, `NO_MERGE` for a pair that is not merged."""
        keys = self._keys(left, right)
        place = np.searchsorted(self._sorted_M, keys).clip(max=len(self._sorted_M) - 1)
        return np.where(self._sorted_M[place] == keys, self._order_M[place], NO_MERGE).astype(np.int32)


class Texts(NamedTuple):
    """The tokens of many texts, one after the other, and the places where each begins and the last one ends."""

    tokens_N: np.ndarray
    bounds: np.ndarray

    def text(self, i: int) -> list[int]:
        """Returns the tokens of text i."""
        return self.tokens_N[self.bounds[i] : self.bounds[i + 1]].tolist()


class Segmentations:
    """Texts whose words are segmented anew in each epoch, with each merge skipped with some probability.

    A word has fewer segmentations in an epoch than it has occurrences if these are many; they take them in turn.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str], skipped: float) -> None:
        """Cuts the texts into words.

        Raises:
          UserError: the tokenizer merges nothing.
        """
        self._merges, self._skipped = Merges(tokenizer), skipped
        if not len(self._merges):
            wanted = f"expected merges to skip; the vocabulary of {tokenizer.vocab_size} tokens has none"
            raise UserError(f"data.bpe_dropout: {wanted}; take a larger data.vocab_size, or leave it at 0.0")
        numbers: dict[str, int] = {}
        words, n_words = [], []
        for text in texts:
            cut = [word for line in lines_of(text) for word, _ in TOKENIZERS["bpe"].cut.pre_tokenize_str(line)]
            words += [numbers.setdefault(word, len(numbers)) for word in cut]
            n_words.append(len(cut))
        self._ends = np.cumsum(n_words)
        symbols = [self._merges.symbols(word) for word in numbers]
        widths = np.searchsorted(WIDTHS, [len(each) for each in symbols])
        counts = np.bincount(words, minlength=len(numbers))
        draws = np.maximum(np.minimum(counts, SHARED), counts // SHARED)
        self._groups, firsts, n_draws = [], np.zeros(len(numbers), int), 0
        for width in np.unique(widths):
            members = np.flatnonzero(widths == width)
            self._groups.append((_matrix([symbols[i] for i in members], WIDTHS[width]), draws[members]))
            firsts[members] = n_draws + np.cumsum(draws[members]) - draws[members]
            n_draws += int(draws[members].sum())
        self._draw_of_word = firsts[words] + _earlier(np.array(words)) % draws[words]

    def drawn(self, *seed: int) -> Texts:
        """Returns the tokens of the texts in an epoch, each with the end token: a function of the seed's numbers."""
        rng = np.random.default_rng(seed)
        parts, counts = [], []
        for symbols_WL, draws_W in self._groups:
            found_DL = self._merges.segment(np.repeat(symbols_WL, draws_W, axis=0), self._skipped, rng)
            parts.append(found_DL[found_DL != NO_TOKEN])
            counts.append((found_DL != NO_TOKEN).sum(1))
        tokens_N, counts_D = np.concatenate(parts), np.concatenate(counts)
        starts_D = np.cumsum(counts_D) - counts_D
        lengths = counts_D[self._draw_of_word]
        ends = np.cumsum(lengths)
        places = np.repeat(starts_D[self._draw_of_word] - (ends - lengths), lengths) + np.arange(ends[-1])
        text_ends = np.concatenate([[0], ends])[self._ends]
        all_N = np.insert(tokens_N[places], text_ends, EOS).astype(np.int32)
        return Texts(all_N, np.concatenate([[0], text_ends + np.arange(1, len(text_ends) + 1)]))


def _matrix(symbols: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """Returns the symbols of words, int32 [W, width], with `NO_TOKEN` after each word."""
    matrix_WL = np.full((len(symbols), width), NO_TOKEN, np.int32)
    for row, each in enumerate(symbols):
        matrix_WL[row, : len(each)] = each
    return matrix_WL


def _earlier(words: np.ndarray) -> np.ndarray:
    """Returns for each word how often it occurs before its place."""
    order = np.argsort(words, kind="stable")
    first = np.searchsorted(words[order], words[order])
    earlier = np.empty(len(words), int)
    earlier[order] = np.arange(len(words)) - first
    return earlier
