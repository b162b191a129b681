"""Kimi-Linear for serving, in JAX: reads an HF folder with the published tensor names and runs prefill and decode.

Axes: B rows, T tokens, L cached tokens, D hidden, H heads, K channels of a KDA head, R latent, E experts, F expert width.
A cache is {latent [M,B,L,R+rope], state [A,B,H,K,K], tail [A,B,3,3P]} for M MLA and A KDA layers.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open

TILE, BLOCK = 16, 4
HIGH = jax.lax.Precision.HIGHEST


def rms(x, weight, eps):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def unit(x):
    return x / jnp.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


class Model:
    """Weights in the layout the programs want, and the programs: `decode` and `prefill`."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.config = c = json.loads((folder / "config.json").read_text())
        kda = c["linear_attn_config"]
        self.heads, self.channels = kda["num_heads"], kda["head_dim"]
        self.width = self.heads * self.channels
        self.full = {i - 1 for i in kda["full_attn_layers"]}
        with safe_open(folder / "model.safetensors", "numpy") as f:
            self.tensors = {n: np.asarray(f.get_tensor(n), np.float32) for n in f.keys()}
        self.layers = [self.mixer(i) | self.feed_forward(i) for i in range(c["num_hidden_layers"])]

    def get(self, layer, name):
        return self.tensors[f"model.layers.{layer}.{name}"]

    def linear(self, layer, *names):
        """Several linear weights side by side, as [in, sum of outs]."""
        return jnp.asarray(np.concatenate([self.get(layer, n + ".weight").T for n in names], -1))

    def mixer(self, i):
        c, at = self.config, "self_attn."
        out = {
            "norm1": jnp.asarray(self.get(i, "input_layernorm.weight")),
            "norm2": jnp.asarray(self.get(i, "post_attention_layernorm.weight")),
            "o": self.linear(i, at + "o_proj"),
        }
        if i in self.full:
            kv_b = self.get(i, at + "kv_b_proj.weight").reshape(c["num_attention_heads"], -1, c["kv_lora_rank"])
            return out | {
                "in": self.linear(i, at + "q_proj", at + "kv_a_proj_with_mqa"),
                "latent_norm": jnp.asarray(self.get(i, at + "kv_a_layernorm.weight")),
                "key": jnp.asarray(kv_b[:, : c["qk_nope_head_dim"]]),
                "value": jnp.asarray(kv_b[:, c["qk_nope_head_dim"] :].transpose(0, 2, 1)),
            }
        names = ["q_proj", "k_proj", "v_proj", "f_a_proj", "g_a_proj", "b_proj"]
        conv = np.concatenate([self.get(i, f"{at}{x}_conv1d.weight")[:, 0].T for x in "qkv"], -1)
        return out | {
            "in": self.linear(i, *[at + n for n in names]),
            "conv": jnp.asarray(conv),
            "f_b": self.linear(i, at + "f_b_proj"),
            "g_b": self.linear(i, at + "g_b_proj"),
            "rate": jnp.exp(jnp.asarray(self.get(i, at + "A_log").reshape(-1, 1))),
            "dt_bias": jnp.asarray(self.get(i, at + "dt_bias")),
            "o_norm": jnp.asarray(self.get(i, at + "o_norm.weight")),
        }

    def feed_forward(self, i):
        c = self.config
        if i < c["first_k_dense_replace"]:
            return {"gate_up": self.linear(i, "mlp.gate_proj", "mlp.up_proj"), "down": self.linear(i, "mlp.down_proj")}
        at = "block_sparse_moe."
        experts = lambda w: [self.get(i, f"{at}experts.{e}.{w}.weight").T for e in range(c["num_experts"])]
        shared = lambda n: self.get(i, f"{at}shared_experts.{n}_proj.weight").T
        wide = lambda w, n: np.concatenate([*experts(w), shared(n)], -1)
        return {
            "router": self.linear(i, at + "gate"),
            "bias": jnp.asarray(self.get(i, at + "gate.e_score_correction_bias")),
            "gate_up": jnp.asarray(np.concatenate([wide("w1", "gate"), wide("w3", "up")], -1)),
            "down": jnp.asarray(np.concatenate([*experts("w2"), shared("down")], 0)),
        }

    def groups(self):
        """(layers before, period, repeats): the longest repeated run that ends the stack, for the scan layout."""
        kinds = [tuple(sorted((n, x.shape) for n, x in w.items())) for w in self.layers]
        best = (len(kinds), 1, 0)
        for period in range(1, len(kinds)):
            repeats = 1
            while (repeats + 1) * period <= len(kinds) and kinds[-(repeats + 1) * period :][:period] == kinds[-period:]:
                repeats += 1
            if repeats > 1 and repeats * period > best[1] * best[2]:
                best = (len(kinds) - repeats * period, period, repeats)
        return best

    def weights(self, layout):
        """The argument of the programs; with `scan` the repeated layers are stacked."""
        ends = {
            "embed": jnp.asarray(self.tensors["model.embed_tokens.weight"]),
            "norm": jnp.asarray(self.tensors["model.norm.weight"]),
            "head": jnp.asarray(self.tensors["lm_head.weight"].T),
        }
        if layout == "unrolled":
            return ends | {"layers": self.layers}
        before, period, repeats = self.groups()
        if not repeats:
            raise SystemExit("no group of layers repeats up to the end: nothing to scan over")
        stacked = [
            jax.tree.map(lambda *x: jnp.stack(x), *[self.layers[before + r * period + p] for r in range(repeats)]) for p in range(period)
        ]
        return ends | {"layers": self.layers[:before], "stacked": stacked}

    def empty(self, rows, length):
        c, mla = self.config, len(self.full)
        kda = c["num_hidden_layers"] - mla
        return {
            "latent": jnp.zeros((mla, rows, length, c["kv_lora_rank"] + c["qk_rope_head_dim"])),
            "state": jnp.zeros((kda, rows, self.heads, self.channels, self.channels)),
            "tail": jnp.zeros((kda, rows, 3, 3 * self.width)),
        }

    def run(self, weights, cache, x, kda, mla, layout):
        """All layers. kda(w, cache, index, x) and mla(...) return (output, cache)."""

        def layer(x, cache, w, is_mla, index):
            y, cache = (mla if is_mla else kda)(w, cache, index, rms(x, w["norm1"], self.config["rms_norm_eps"]))
            x = x + y
            return x + self.mlp(w, rms(x, w["norm2"], self.config["rms_norm_eps"])), cache

        seen = [0, 0]
        for i, w in enumerate(weights["layers"]):
            x, cache = layer(x, cache, w, i in self.full, seen[i in self.full])
            seen[i in self.full] += 1
        if layout == "scan":
            before, period, repeats = self.groups()
            kinds = [before + p in self.full for p in range(period)]
            start = tuple(seen)

            def body(carry, stacked):
                x, cache, r = carry
                at = [start[0] + r * kinds.count(False), start[1] + r * kinds.count(True)]
                for w, is_mla in zip(stacked, kinds):
                    x, cache = layer(x, cache, w, is_mla, at[is_mla])
                    at[is_mla] = at[is_mla] + 1
                return (x, cache, r + 1), None

            (x, cache, _), _ = jax.lax.scan(body, (x, cache, 0), weights["stacked"])
        return rms(x, weights["norm"], self.config["rms_norm_eps"]), cache

    def mlp(self, w, x):
        """Dense, or every expert on every token as two wide products: at this size cheaper than gathering."""
        gate, up = jnp.split(x @ w["gate_up"], 2, -1)
        h = jax.nn.silu(gate) * up
        if "router" not in w:
            return h @ w["down"]
        c = self.config
        score = jax.nn.sigmoid(jnp.dot(x, w["router"], precision=HIGH))
        _, chosen = jax.lax.top_k(score + w["bias"], c["num_experts_per_token"])
        weight = score * jax.nn.one_hot(chosen, c["num_experts"]).sum(-2)
        if c["moe_renormalize"]:
            weight = weight / (weight.sum(-1, keepdims=True) + 1e-20)
        weight = weight * c["routed_scaling_factor"]
        weight = jnp.repeat(weight, c["moe_intermediate_size"], -1)
        routed = weight.shape[-1]
        h = jnp.concatenate([h[..., :routed] * weight, h[..., routed:]], -1)
        return h @ w["down"]

    def gates(self, w, mixed):
        """(forget: log decay [...,H,K], output gate [...,H,K], beta [...,H]) from the tail of the input product."""
        f, g, beta = jnp.split(mixed, [self.channels, 2 * self.channels], -1)
        split = lambda y: y.reshape(*y.shape[:-1], self.heads, self.channels)
        return -w["rate"] * split(jax.nn.softplus(f @ w["f_b"] + w["dt_bias"])), jax.nn.sigmoid(split(g @ w["g_b"])), jax.nn.sigmoid(beta)

    def finish(self, w, o, gate):
        o = rms(o, w["o_norm"], self.config["rms_norm_eps"]) * gate
        return o.reshape(*o.shape[:-2], self.width) @ w["o"]

    def kda_step(self, w, cache, index, x):
        """One token per row. x [B,D]."""
        mixed = x @ w["in"]
        p = 3 * self.width
        window = jnp.concatenate([cache["tail"][index], mixed[:, None, :p]], 1)
        qkv = jax.nn.silu((window * w["conv"]).sum(1)).reshape(-1, 3, self.heads, self.channels)
        g, gate, beta = self.gates(w, mixed[:, p:])
        q, k, v = unit(qkv[:, 0]) * self.channels**-0.5, unit(qkv[:, 1]), qkv[:, 2]
        state = cache["state"][index] * jnp.exp(g)[..., None]
        delta = (v - jnp.einsum("bhk,bhkv->bhv", k, state)) * beta[..., None]
        state = state + k[..., None] * delta[..., None, :]
        o = jnp.einsum("bhk,bhkv->bhv", q, state)
        cache = cache | {"state": cache["state"].at[index].set(state), "tail": cache["tail"].at[index].set(window[:, 1:])}
        return self.finish(w, o, gate), cache

    def mla_parts(self, w, x):
        """(absorbed queries [...,H,R+rope], cache line [...,R+rope])."""
        c = self.config
        h, nope, rope = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        q, latent, shared = jnp.split(x @ w["in"], [h * (nope + rope), h * (nope + rope) + c["kv_lora_rank"]], -1)
        q = q.reshape(*q.shape[:-1], h, nope + rope) * (nope + rope) ** -0.5
        absorbed = jnp.einsum("...hn,hnr->...hr", q[..., :nope], w["key"])
        line = jnp.concatenate([rms(latent, w["latent_norm"], 1e-6), shared], -1)
        return jnp.concatenate([absorbed, q[..., nope:]], -1), line

    def mla_out(self, w, read):
        o = jnp.einsum("...hr,hrv->...hv", read, w["value"])
        return o.reshape(*o.shape[:-2], -1) @ w["o"]

    def decode(self, weights, cache, tokens, position, layout):
        """tokens, position [B] -> (cache, next tokens [B]); position is the number of tokens already cached."""
        rows, rank = jnp.arange(tokens.shape[0]), self.config["kv_lora_rank"]

        def mla(w, cache, index, x):
            q, line = self.mla_parts(w, x)
            latent = cache["latent"].at[index, rows, position].set(line)
            lines = latent[index]
            scores = jnp.einsum("bhr,blr->bhl", q, lines)
            scores = jnp.where(jnp.arange(lines.shape[1]) <= position[:, None, None], scores, -jnp.inf)
            read = jnp.einsum("bhl,blr->bhr", jax.nn.softmax(scores), lines[..., :rank])
            return self.mla_out(w, read), cache | {"latent": latent}

        x, cache = self.run(weights, cache, weights["embed"][tokens], self.kda_step, mla, layout)
        return cache, jnp.argmax(x @ weights["head"], -1).astype(jnp.int32)

    def kda_chunk(self, w, cache, index, x):
        """Many tokens from the cached state. x [B,T,D], T a multiple of TILE."""
        b, t, _ = x.shape
        mixed = x @ w["in"]
        p = 3 * self.width
        window = jnp.concatenate([cache["tail"][index], mixed[..., :p]], 1)
        qkv = jax.nn.silu(sum(window[:, i : i + t] * w["conv"][i] for i in range(4)))
        q, k, v = jnp.split(qkv.reshape(b, t, 3 * self.heads, self.channels), 3, 2)
        g, gate, beta = self.gates(w, mixed[..., p:])
        o, state = chunked(unit(q) * self.channels**-0.5, unit(k), v, g, beta, cache["state"][index])
        cache = cache | {"state": cache["state"].at[index].set(state), "tail": cache["tail"].at[index].set(window[:, -3:])}
        return self.finish(w, o, gate), cache

    def prefill(self, weights, cache, ids, position, layout):
        """A chunk ids [B,T] behind `position` cached tokens -> (cache, next tokens [B])."""
        t, rank = ids.shape[1], self.config["kv_lora_rank"]

        def mla(w, cache, index, x):
            q, line = self.mla_parts(w, x)
            latent = jax.lax.dynamic_update_slice(cache["latent"], line[None], (index, 0, position, 0))
            lines = latent[index]
            scores = (q.reshape(q.shape[0], -1, q.shape[-1]) @ lines.mT).reshape(*q.shape[:-1], -1)
            seen = jnp.arange(lines.shape[1]) <= position + jnp.arange(t)[:, None, None]
            weight = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
            read = weight.reshape(q.shape[0], -1, weight.shape[-1]) @ lines[..., :rank]
            return self.mla_out(w, read.reshape(*q.shape[:-1], rank)), cache | {"latent": latent}

        x, cache = self.run(weights, cache, weights["embed"][ids], self.kda_chunk, mla, layout)
        return cache, jnp.argmax(x[:, -1] @ weights["head"], -1).astype(jnp.int32)


def pairs(rows, k, total):
    """sum_c rows_ic k_jc exp(G_ic - G_jc) for j <= i, zero above. rows [...,2C,K]: two sets of C rows; k, G [...,C,K].

    In blocks of BLOCK rows: below the diagonal blocks the decay is split at the row before the block, where neither factor
    can exceed one; on them it is formed pair by pair. Safe for any decay.
    """
    c, out = TILE, []
    rows = rows.reshape(*rows.shape[:-2], 2, c, rows.shape[-1])
    lower = jnp.tril(jnp.ones((BLOCK, BLOCK), bool))[..., None]
    for s in range(0, c, BLOCK):
        at, g = slice(s, s + BLOCK), total[..., s : s + BLOCK, :]
        here = rows[..., at, :]
        pair = jnp.exp(jnp.where(lower, g[..., :, None, :] - g[..., None, :, :], -jnp.inf)) * k[..., None, at, :]
        parts = [(here[..., :, None, :] * pair[..., None, :, :, :]).sum(-1)]
        if s:
            base = total[..., s - 1 : s, :]
            left, right = here * jnp.exp(g - base)[..., None, :, :], k[..., :s, :] * jnp.exp(base - total[..., :s, :])
            parts.insert(0, (left.reshape(*left.shape[:-3], 2 * BLOCK, -1) @ right.mT).reshape(*here.shape[:-1], s))
        out.append(jnp.pad(jnp.concatenate(parts, -1), [(0, 0)] * (here.ndim - 1) + [(0, c - s - BLOCK)]))
    return jnp.concatenate(out, -2)


def unit_lower_inverse(n):
    """(I + n)^-1 for strictly lower n of size TILE, by doubling."""
    inverse, power, width = jnp.eye(TILE) - n, n @ n, 2
    while width < TILE:
        inverse = inverse + inverse @ power
        power, width = power @ power, 2 * width
    return inverse


def chunked(q, k, v, g, beta, state):
    """KDA over tiles. q, k, v, g [B,T,H,K], beta [B,T,H], state [B,H,K,V] -> ([B,T,H,V], state)."""
    b, t, h, d = q.shape
    n, c = t // TILE, TILE
    tiles = lambda x: x.reshape(b, n, c, h, -1).transpose(1, 0, 3, 2, 4)
    q, k, v, g, beta = map(tiles, (q, k, v, g, beta[..., None]))
    total = jnp.tril(jnp.ones((c, c))) @ g
    both = pairs(jnp.concatenate([k, q], -2), k, total)
    inner, scores = jnp.tril(both[..., 0, :, :], -1) * beta, both[..., 1, :, :]
    solved = unit_lower_inverse(inner) @ (beta * jnp.concatenate([k * jnp.exp(total), v], -1))
    last = total[..., -1:, :]
    inputs = solved[..., :d], solved[..., d:], q * jnp.exp(total), scores, (k * jnp.exp(last - total)).mT, jnp.exp(last).mT

    def step(state, x):
        w, u, read, scores, write, decay = x
        new = u - w @ state
        return decay * state + write @ new, read @ state + scores @ new

    state, out = jax.lax.scan(step, state, inputs)
    return out.transpose(1, 0, 3, 2, 4).reshape(b, t, h, -1), state
