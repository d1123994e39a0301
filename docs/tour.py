# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A tour: from a token to logits, and back to tokens
#
# Each cell computes one step of a transformer by its formula, with plain `jax.numpy` and the model's params. It then
# asserts that fxf's own function gives the same numbers. The model is the default one, the TransformerLM of seed 004
# ([Sources](architecture.md#sources)), so small that its arrays can be printed.
#
# `python docs/tour.py` runs it in seconds. As a notebook: `pip install jupytext notebook`, then
# `jupytext --to ipynb docs/tour.py` and `jupyter notebook docs/tour.ipynb`.
#
# The name of an array ends in a letter for each axis: B rows, T tokens, C the tokens that are seen, D the width of the
# stream, H heads, K the width of a head, F the width inside the feed-forward layer, V the vocabulary.

# %%
import jax
import jax.numpy as jnp
import numpy as np

import fxf
from fxf.layers.attention import Attention
from fxf.layers.embedding import embedding, final_layer
from fxf.layers.feed_forward import Dense
from fxf.layers.layer import whole_rows
from fxf.layers.loss import cross_entropy
from fxf.layers.normalization import normalize

jax.config.update("jax_default_matmul_precision", "highest")  # on accelerators too

VOCAB_SIZE = 11
keys = {"n_layers": 1, "d_model": 32, "d_ff": 64, "n_heads": 2, "max_len": 10}
config = fxf.layer_config(**keys)
model = fxf.model("transformer_lm", vocab_size=VOCAB_SIZE, **keys)
params = fxf.initialize(model, seed=0)


def same(ours, theirs, tolerance=1e-5):
    """Asserts that two arrays are equal but for rounding."""
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=0, atol=tolerance)


# %% [markdown]
# ## The tokens
#
# Ten sequences, each of which counts up modulo 10 from another number. The model reads them behind a token 0, without
# the last token, and predicts each token from those before it.

# %%
targets_BT = 1 + (jnp.arange(10)[:, None] + jnp.arange(9)) % 10
inputs_BT = jnp.concatenate([jnp.zeros((10, 1), jnp.int32), targets_BT[:, :-1]], axis=1)

batch = fxf.language_model_batch(targets_BT)
same(inputs_BT, batch["inputs"])
print("reads   ", inputs_BT[2])
print("predicts", targets_BT[2])

# %% [markdown]
# ## Embedding and positions
#
# A token's vector is its row of a table. The row of its position in another table is added:
#
# $$x_t = E_{\mathrm{token}_t} + P_t, \qquad
# P_{t,2i} = \sin\frac{t + 1}{10000^{2i/D}}, \quad P_{t,2i+1} = \cos\frac{t + 1}{10000^{2i/D}}$$
#
# Here $t$ counts from 0. Training then moves $P$ as any other weight.

# %%
axis_D = np.arange(config.d_model)
angles_TD = (np.arange(config.max_len)[:, None] + 1) / 10000 ** ((axis_D - axis_D % 2) / config.d_model)
table_TD = np.where(axis_D % 2 == 0, np.sin(angles_TD), np.cos(angles_TD))
same(table_TD, params["embedding"]["positions"])

n_tokens = inputs_BT.shape[1]
positions_1T = jnp.arange(n_tokens)[None]
x_BTD = params["embedding"]["table"][inputs_BT] + params["embedding"]["positions"][:n_tokens]
same(x_BTD, embedding(config, params["embedding"], inputs_BT, positions_1T))
print("the stream of vectors:", x_BTD.shape)

# %% [markdown]
# ## Norm
#
# Before each layer of a block every vector is standardized by itself, then scaled and shifted by weights:
#
# $$N(x) = \frac{x - \mathrm{mean}(x)}{\mathrm{deviation}(x) + \varepsilon} \odot \gamma + \beta$$


# %%
@jax.jit
def norm(weights, x_BTD):
    centered_BTD = x_BTD - x_BTD.mean(axis=-1, keepdims=True)
    deviation_BT1 = jnp.sqrt((centered_BTD**2).mean(axis=-1, keepdims=True))
    return centered_BTD / (deviation_BT1 + config.norm_epsilon) * weights["scale"] + weights["bias"]


block = params["blocks"]["0"]
normalized_BTD = norm(block["attention_norm"], x_BTD)
same(normalized_BTD, normalize(config, block["attention_norm"], x_BTD))

# %% [markdown]
# ## Attention
#
# Each head $h$ makes a query, a key and a value of every vector. A token gets a mean of the values, and the softmax of
# the products of its query with the keys says how much each value weighs. A token sees itself and those before it; all
# others have the score $-\infty$. The heads' outputs $O^h$ are added up by one more linear map:
#
# $$Q^h = N W_Q^h, \quad K^h = N W_K^h, \quad V^h = N W_V^h, \qquad
# A^h = \mathrm{softmax}\Bigl(\frac{Q^h {K^h}^\top}{\sqrt{K}} + M\Bigr), \quad O^h = A^h V^h, \qquad
# \sum_h O^h W_O^h + b$$


# %%
@jax.jit
def attend(weights, x_BTD):
    q_BHTK, k_BHCK, v_BHCK = (jnp.einsum("BTD,DHK->BHTK", x_BTD, weights[name]) for name in ("query", "key", "value"))
    scores_BHTC = jnp.einsum("BHTK,BHCK->BHTC", q_BHTK, k_BHCK) / jnp.sqrt(config.head_width)
    not_later_TC = jnp.tril(jnp.ones(scores_BHTC.shape[-2:], bool))
    weights_BHTC = jax.nn.softmax(jnp.where(not_later_TC, scores_BHTC, -jnp.inf))
    heads_BHTK = jnp.einsum("BHTC,BHCK->BHTK", weights_BHTC, v_BHCK)
    return jnp.einsum("BHTK,HKD->BTD", heads_BHTK, weights["output"]) + weights["output_bias"], weights_BHTC


update_BTD, weights_BHTC = attend(block["attention"], normalized_BTD)
context = whole_rows(x_BTD.shape[1])
same(update_BTD, Attention(config).apply(block["attention"], normalized_BTD, context)[0])
print("head 0: how much each of four tokens sees of each, in percent")
print(np.round(100 * np.asarray(weights_BHTC[0, 0, :4, :4])).astype(int))

# %% [markdown]
# The output is added to the stream, which so keeps what it had.

# %%
middle_BTD = x_BTD + update_BTD

# %% [markdown]
# ## Feed-forward layer
#
# Two linear maps with an activation between them, for each vector alone:
#
# $$\mathrm{FF}(x) = \max(0,\; x W_1 + b_1)\, W_2 + b_2$$


# %%
@jax.jit
def feed(weights, x_BTD):
    hidden_BTF = jnp.maximum(x_BTD @ weights["up"] + weights["up_bias"], 0)
    return hidden_BTF @ weights["down"] + weights["down_bias"]


normalized_BTD = norm(block["feed_forward_norm"], middle_BTD)
update_BTD = feed(block["feed_forward"], normalized_BTD)
same(update_BTD, Dense(config).apply(block["feed_forward"], normalized_BTD, context)[0])
stream_BTD = middle_BTD + update_BTD

# %% [markdown]
# ## Final layer
#
# After the last block come a norm and a linear map. It gives a logit for each token of the vocabulary; their softmax is
# the probability that the token comes next.

# %%
features_BTD = norm(params["norm"], stream_BTD)
logits_BTV = features_BTD @ params["final"]["kernel"] + params["final"]["bias"]
same(logits_BTV, final_layer(config, params["final"], features_BTD))

# %% [markdown]
# All of it in one function, which is the whole model:


# %%
def logits(params, inputs_BT):
    """Returns the logits [B, T, V] of tokens [B, T]."""
    x_BTD = params["embedding"]["table"][inputs_BT] + params["embedding"]["positions"][: inputs_BT.shape[1]]
    for weights in params["blocks"].values():
        x_BTD = x_BTD + attend(weights["attention"], norm(weights["attention_norm"], x_BTD))[0]
        x_BTD = x_BTD + feed(weights["feed_forward"], norm(weights["feed_forward_norm"], x_BTD))
    return norm(params["norm"], x_BTD) @ params["final"]["kernel"] + params["final"]["bias"]


logits = jax.jit(logits)
same(logits(params, inputs_BT), logits_BTV)
same(logits(params, inputs_BT), jax.jit(model.apply)(params, batch))

# %% [markdown]
# ## Loss
#
# The mean over all tokens of minus the log-probability of the right one. A model that knows nothing has $\log V$, here
# 2.4; random weights are somewhat worse.
#
# $$L = -\frac{1}{BT} \sum_{b,t} \log \mathrm{softmax}(\mathrm{logits}_{bt})_{\mathrm{target}_{bt}}$$


# %%
def mean_loss(params):
    log_probabilities_BTV = jax.nn.log_softmax(logits(params, inputs_BT))
    return -jnp.take_along_axis(log_probabilities_BTV, targets_BT[..., None], axis=-1).mean()


loss_sum, weight_sum = cross_entropy(
    lambda x_ND: final_layer(config, params["final"], x_ND), features_BTD, targets_BT, batch["weights"]
)
same(mean_loss(params), loss_sum / weight_sum)
print("loss", mean_loss(params), "of", np.log(VOCAB_SIZE))

# %% [markdown]
# ## A step, and many
#
# Gradient descent moves each weight against its gradient: $\theta \leftarrow \theta - \eta\, \nabla L$.


# %%
@jax.jit
def step(params):
    loss, gradient = jax.value_and_grad(mean_loss)(params)
    return loss, jax.tree.map(lambda weight, slope: weight - 0.1 * slope, params, gradient)


loss, trained = step(params)
stepped, losses = fxf.fit(model, lambda key, step: batch, steps=1, params=params, optimizer="sgd", learning_rate=0.1)
same(loss, losses[0])
jax.tree.map(same, trained, stepped)

# %% [markdown]
# After more of them the model counts. The first token of a sequence can be any of ten, and nothing tells which. So the
# loss cannot fall below $\log(10) / 9$, which is 0.26.

# %%
for i in range(200):
    loss, trained = step(trained)
    if i % 40 == 0:
        print("loss", loss)

# %% [markdown]
# ## Generation
#
# The most probable token is written behind the prompt, and the model reads all of it again. What stands behind a token
# does not change its logits, so zeros can fill the rows. `fxf.decode` reads each token once and keeps its keys and
# values in a cache; the answer is the same.

# %%
prompt, n_new = [9, 10], 4
row = [0, *prompt]
for _ in range(n_new):
    padded_BT = jnp.array([row + [0] * (n_tokens - len(row))])
    row.append(int(logits(trained, padded_BT)[0, len(row) - 1].argmax()))
answer = row[1 + len(prompt) :]

assert answer == fxf.decode(model, trained, [prompt], max_tokens=n_new)[0] == [1, 2, 3, 4]
print(prompt, "→", answer)
