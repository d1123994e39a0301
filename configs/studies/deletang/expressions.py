"""Problems of arithmetic modulo 5: expressions without and with brackets, and equations (Delétang et al. 2022).

Each function draws the symbols of a string of n symbols in an array [P], the symbols of its answer, and their number.
"""

import jax
import jax.numpy as jnp

from .problem import Draw

MODULUS = 5
PLUS, MINUS, TIMES, OPEN, CLOSE = range(MODULUS, MODULUS + 5)
# Equations have no products, with which they could have several solutions; later symbols move down by one.
UNKNOWN, EQUALS = CLOSE, CLOSE + 1


def apply(operator: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns a + b, a - b or a * b, modulo 5."""
    return jnp.where(operator == PLUS, a + b, jnp.where(operator == MINUS, a - b, a * b)) % MODULUS


def modular_arithmetic(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The value of digits with + - * between them; products come first."""
    of_digits, of_operators = jax.random.split(key)
    digits = jax.random.randint(of_digits, (P,), 0, MODULUS)
    operators = jax.random.randint(of_operators, (P,), PLUS, TIMES + 1)

    def read(state: tuple, each: tuple) -> tuple[tuple, None]:
        (total, product), (place, operator, digit) = state, each
        times = operator == TIMES
        new = jnp.where(times, total, total + product), apply(operator, jnp.where(times, product, 0), digit)
        return jax.tree.map(lambda x, old: jnp.where(place < n, x, old), new, state), None

    before = jnp.pad(operators, (1, 0), constant_values=PLUS)[:P]  # the operator before each digit
    each = (jnp.arange(0, P, 2), before[::2], digits[::2])
    (total, product), _ = jax.lax.scan(read, (jnp.int32(0), jnp.int32(0)), each)
    symbols = jnp.where(jnp.arange(P) % 2 == 0, digits, operators)
    return symbols, (total + product)[None] % MODULUS, 1


def draw_expression(key: jax.Array, n: jax.Array, P: int, n_operators: int) -> jax.Array:
    """Returns a random expression of n symbols with brackets, int32 [P].

    One symbol is a digit d, two are -d, three (d), four (-d). A longer expression is (left operator right), where the
    length of the left part is uniform.

    Args:
      n_operators: 2 for + and -, 3 for * too.
    """
    turns = 2 * P  # each symbol is written in one turn, and each expression is opened in one
    of_digits, of_operators, of_lengths = jax.random.split(key, 3)
    digits = jax.random.randint(of_digits, (turns,), 0, MODULUS)
    operators = jax.random.randint(of_operators, (turns,), PLUS, PLUS + n_operators)
    shares = jax.random.uniform(of_lengths, (turns,))

    def turn(i: jax.Array, state: tuple) -> tuple:
        todo, height, symbols, written = state
        # What is to do: -1 - symbol writes a symbol, and a positive number is the length of an expression to open.
        item = jnp.where(height > 0, todo[jnp.maximum(height - 1, 0)], 0)
        n_left = 1 + (shares[i] * (item - 4)).astype(jnp.int32)
        close, minus, opening, digit = -1 - CLOSE, -1 - MINUS, -1 - OPEN, -1 - digits[i]
        by_length = jnp.array(
            [
                [digit, 0, 0, 0, 0],
                [digit, minus, 0, 0, 0],
                [close, digit, opening, 0, 0],
                [close, digit, minus, opening, 0],
                [close, item - n_left - 3, -1 - operators[i], n_left, opening],
            ]
        )
        row = jnp.where(item > 0, by_length[jnp.clip(item - 1, 0, 4)], 0)
        todo = todo.at[jnp.where(row != 0, height - 1 + jnp.arange(5), len(todo))].set(row, mode="drop")
        symbols = symbols.at[jnp.where(item < 0, written, P)].set(-1 - item, mode="drop")
        return todo, jnp.where(height > 0, height - 1 + jnp.sum(row != 0), 0), symbols, written + (item < 0)

    todo = jnp.zeros(4 * P + 5, jnp.int32).at[0].set(n)
    return jax.lax.fori_loop(0, turns, turn, (todo, jnp.int32(1), jnp.zeros(P, jnp.int32), jnp.int32(0)))[2]


def value_of(symbols_P: jax.Array, n: jax.Array) -> jax.Array:
    """Returns the value of the first n symbols, an expression with brackets, int32 scalar."""

    def read(place: jax.Array, state: tuple) -> tuple:
        values, operators, depth, negative, after_value = state
        symbol = symbols_P[place]
        is_open, is_close, is_digit = symbol == OPEN, symbol == CLOSE, symbol < MODULUS
        # A minus that does not follow a value is a sign, which only digits have.
        is_sign = (symbol == MINUS) & ~after_value
        is_operator = (symbol >= PLUS) & (symbol <= TIMES) & ~is_sign
        inner = jnp.where(is_close, values[depth], jnp.where(negative, -symbol, symbol))
        depth = depth + is_open.astype(jnp.int32) - is_close.astype(jnp.int32)
        joined = apply(operators[depth], values[depth], inner)
        value = jnp.where(is_open, 0, jnp.where(is_digit | is_close, joined, values[depth]))
        operator = jnp.where(is_open, PLUS, jnp.where(is_operator, symbol, operators[depth]))
        return values.at[depth].set(value), operators.at[depth].set(operator), depth, is_sign, is_digit | is_close

    values, operators = jnp.zeros(len(symbols_P) + 1, jnp.int32), jnp.full(len(symbols_P) + 1, PLUS, jnp.int32)
    return jax.lax.fori_loop(0, n, read, (values, operators, jnp.int32(0), jnp.bool_(False), jnp.bool_(False)))[0][0]


def modular_arithmetic_brackets(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The value of an expression with brackets and + - *."""
    symbols = draw_expression(key, n, P, 3)
    return symbols, value_of(symbols, n)[None], 1


def solve_equation(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The digit after x in an expression with brackets, + and -, that is set equal to its value.

    Fewer than three symbols are zeros, and so is their answer.
    """
    of_expression, of_unknown = jax.random.split(key)
    n_left, places = jnp.maximum(n - 2, 1), jnp.arange(P)
    symbols = draw_expression(of_expression, n_left, P, 2)
    first = jax.random.randint(of_unknown, (), 0, n_left)
    # From a random place on, the first digit becomes the unknown.
    is_digit = (symbols < MODULUS) & (places < n_left)
    unknown = jnp.argmin(jnp.where(is_digit, (places - first) % n_left, P))
    equation = jnp.where(places == unknown, UNKNOWN, symbols - (symbols > TIMES))
    right = jnp.where(places == n_left, EQUALS, value_of(symbols, n_left))
    equation = jnp.where(places < n_left, equation, right)
    return jnp.where(n >= 3, equation, 0), jnp.where(n >= 3, symbols[unknown], 0)[None], 1
