"""Problems of arithmetic modulo 5: expressions without and with brackets, and equations (Delétang et al. 2022)."""

import jax
import jax.numpy as jnp

from fxf.tasks.length.problem import Drawn, Problem, drawn

MODULUS = 5
PLUS, MINUS, TIMES, OPEN, CLOSE = range(MODULUS, MODULUS + 5)
# In equations there is no product, by which an equation could have several solutions.
WITHOUT_TIMES = {PLUS: PLUS, MINUS: MINUS, OPEN: TIMES, CLOSE: OPEN}
UNKNOWN, EQUALS = CLOSE, CLOSE + 1


def apply(operator: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns a + b, a - b or a * b, modulo 5."""
    return jnp.where(operator == PLUS, a + b, jnp.where(operator == MINUS, a - b, a * b)) % MODULUS


def modular_arithmetic(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The value of digits with + - * between them; products come first. An even length is one symbol shorter."""
    of_digits, of_operators = jax.random.split(key)
    digits = jax.random.randint(of_digits, (longest,), 0, MODULUS)
    operators = jax.random.randint(of_operators, (longest,), PLUS, TIMES + 1)
    symbols, length = jnp.where(jnp.arange(longest) % 2 == 0, digits, operators), length - (length % 2 == 0)

    def read(state: tuple, each: tuple) -> tuple[tuple, None]:
        (total, product, operator), (place, symbol) = state, each
        is_digit = symbol < MODULUS
        times = operator == TIMES
        new_total = jnp.where(times, total, total + product) % MODULUS
        new_product = apply(operator, jnp.where(times, product, 0), symbol)
        after_digit, after_operator = (new_total, new_product, operator), (total, product, symbol)
        new = jax.tree.map(lambda x, y: jnp.where(is_digit, x, y), after_digit, after_operator)
        return jax.tree.map(lambda x, old: jnp.where(place < length, x, old), new, state), None

    start = (jnp.int32(0), jnp.int32(0), jnp.int32(PLUS))
    (total, product, _), _ = jax.lax.scan(read, start, (jnp.arange(longest), symbols))
    return drawn(symbols, length, (total + product)[None] % MODULUS, 1)


def draw_expression(key: jax.Array, length: jax.Array, longest: int, n_operators: int) -> jax.Array:
    """Returns a random expression with brackets, int32 [P].

    One symbol is a digit d, two are -d, three (d), four (-d). A longer expression is (left operator right), where the
    length of the left part is uniform.

    Args:
      n_operators: 2 for + and -, 3 for * too.
    """
    turns = 2 * longest  # each symbol is written in one turn, and each expression is opened in one
    of_digits, of_operators, of_lengths = jax.random.split(key, 3)
    digits = jax.random.randint(of_digits, (turns,), 0, MODULUS)
    operators = jax.random.randint(of_operators, (turns,), PLUS, PLUS + n_operators)
    shares = jax.random.uniform(of_lengths, (turns,))

    def turn(i: jax.Array, state: tuple) -> tuple:
        todo, height, symbols, written = state
        # What is to do: -1 - symbol writes a symbol, and a positive number is the length of an expression to open.
        item = jnp.where(height > 0, todo[jnp.maximum(height - 1, 0)], 0)
        n_left = 1 + (shares[i] * (item - 4)).astype(jnp.int32)
        write = [-1 - symbol for symbol in (CLOSE, MINUS, OPEN)]
        close, minus, opening, digit = *write, -1 - digits[i]
        by_length = jnp.array(
            [
                [digit, 0, 0, 0, 0],
                [digit, minus, 0, 0, 0],
                [close, digit, opening, 0, 0],
                [close, digit, minus, opening, 0],
                [close, item - n_left - 3, -1 - operators[i], n_left, opening],
            ]
        )
        opened = item > 0
        row = jnp.where(opened, by_length[jnp.clip(item - 1, 0, 4)], 0)
        places = jnp.where(row != 0, height - 1 + jnp.arange(5), len(todo))
        todo = todo.at[places].set(row, mode="drop")
        symbols = symbols.at[jnp.where(item < 0, written, longest)].set(-1 - item, mode="drop")
        height = jnp.where(height > 0, height - 1 + jnp.sum(row != 0), 0)
        return todo, height, symbols, written + (item < 0)

    todo = jnp.zeros(4 * longest + 5, jnp.int32).at[0].set(length)
    start = (todo, jnp.int32(1), jnp.zeros(longest, jnp.int32), jnp.int32(0))
    return jax.lax.fori_loop(0, turns, turn, start)[2]


def value_of(symbols_P: jax.Array, length: jax.Array) -> jax.Array:
    """Returns the value of the first `length` symbols, an expression with brackets, int32 scalar."""
    longest = len(symbols_P)

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

    start = (jnp.zeros(longest + 1, jnp.int32), jnp.full(longest + 1, PLUS, jnp.int32), jnp.int32(0))
    no = jnp.bool_(False)
    return jax.lax.fori_loop(0, length, read, (*start, no, no))[0][0]


def modular_arithmetic_brackets(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The value of an expression with brackets and + - *."""
    symbols = draw_expression(key, length, longest, 3)
    return drawn(symbols, length, value_of(symbols, length)[None], 1)


def solve_equation(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The digit after x in an expression with brackets, + and -, that is set equal to its value.

    Fewer than three symbols are zeros, and so is their answer.
    """
    of_expression, of_unknown = jax.random.split(key)
    n, places = jnp.maximum(length - 2, 1), jnp.arange(longest)
    symbols = draw_expression(of_expression, n, longest, 2)
    first = jax.random.randint(of_unknown, (), 0, n)
    # From a random place on, the first digit becomes the unknown.
    is_digit = (symbols < MODULUS) & (places < n)
    unknown = jnp.argmin(jnp.where(is_digit, (places - first) % n, longest))
    equation = jnp.where(places == unknown, UNKNOWN, _without_times(symbols))
    equation = jnp.where(places == n, EQUALS, jnp.where(places == n + 1, value_of(symbols, n), equation))
    enough = length >= 3
    return drawn(jnp.where(enough, equation, 0), length, jnp.where(enough, symbols[unknown], 0)[None], 1)


def _without_times(symbols: jax.Array) -> jax.Array:
    names = jnp.array([WITHOUT_TIMES.get(symbol, symbol) for symbol in range(CLOSE + 1)])
    return names[symbols]


PROBLEMS = {
    "modular_arithmetic": Problem("01234+-*", "01234", modular_arithmetic),
    "modular_arithmetic_brackets": Problem("01234+-*()", "01234", modular_arithmetic_brackets),
    "solve_equation": Problem("01234+-()x=", "01234", solve_equation),
}
