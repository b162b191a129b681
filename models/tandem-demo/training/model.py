"""Kimi-Linear in JAX, in the form that trains fast on a CPU.

Axes: B sequences, T tokens, D hidden, H heads, K channels of a head, N tiles of C tokens, E experts, F expert width.
"""

import dataclasses

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 2048
    hidden: int = 128
    layers: int = 8
    heads: int = 4
    head: int = 32
    latent: int = 64
    rope: int = 8
    dense: int = 256
    expert: int = 64
    experts: int = 8
    chosen: int = 2
    scale: float = 2.446
    eps: float = 1e-5
    tile: int = 16
    capacity: float = 1.5  # rows of an expert over its fair share of the choices; training only

    def exact(self):
        """The same model without a limit on an expert's tokens: what a checkpoint's users compute."""
        return dataclasses.replace(self, capacity=self.experts / self.chosen)

    def is_mla(self, layer):
        return layer % 4 == 3


def init(config, key):
    """Random weights, `{name: array}`; a matrix is [in, out] and is applied from the right."""
    d, p, k, h = config.hidden, config.heads * config.head, config.head, config.heads
    out = {}

    def matrix(name, *shape, fan=None, gain=1.0):
        nonlocal key
        key, sub = jax.random.split(key)
        out[name] = jax.random.normal(sub, shape) * gain * (fan or shape[-2]) ** -0.5

    residual = (2 * config.layers) ** -0.5
    matrix("embed", config.vocab, d, fan=1, gain=0.05)
    matrix("head", d, config.vocab, gain=0.5)
    out["norm"] = jnp.ones(d)
    for i in range(config.layers):
        n = f"{i}."
        out[n + "attn_norm"] = jnp.ones(d)
        out[n + "mlp_norm"] = jnp.ones(d)
        if config.is_mla(i):
            matrix(n + "q", d, h * (k + config.rope))
            matrix(n + "kv_a", d, config.latent + config.rope)
            out[n + "kv_norm"] = jnp.ones(config.latent)
            matrix(n + "kv_b", config.latent, h * 2 * k)
        else:
            for name in "qkv":
                matrix(n + name, d, p)
                matrix(n + "conv_" + name, 4, p, fan=1, gain=0.1)
                out[n + "conv_" + name] = out[n + "conv_" + name].at[3].add(1.0)
            matrix(n + "f_a", d, k)
            matrix(n + "f_b", k, p)
            matrix(n + "g_a", d, k)
            matrix(n + "g_b", k, p)
            matrix(n + "beta", d, h)
            # Time constants from a few tokens to a few hundred, spread over the channels of a head.
            rate = jnp.exp(jnp.linspace(jnp.log(0.003), jnp.log(0.3), k))
            out[n + "dt_bias"] = jnp.tile(jnp.log(jnp.expm1(rate)), h)
            out[n + "A_log"] = jnp.zeros(h)
            out[n + "o_norm"] = jnp.ones(k)
        matrix(n + "o", p, d, gain=residual)
        if i == 0:
            matrix(n + "gate", d, config.dense)
            matrix(n + "up", d, config.dense)
            matrix(n + "down", config.dense, d, gain=residual)
        else:
            e = config.experts + 1  # the last one is the shared expert
            matrix(n + "router", d, config.experts)
            matrix(n + "gate", e, d, config.expert)
            matrix(n + "up", e, d, config.expert)
            matrix(n + "down", e, config.expert, d, gain=residual)
    return out


def rms(x, weight, eps):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def short_conv(x, weight):
    """Causal depthwise convolution of width 4, then SiLU. x [B,T,P], weight [4,P], the last row for the current token."""
    t = x.shape[1]
    padded = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
    return jax.nn.silu(sum(padded[:, i : i + t] * weight[i] for i in range(4)))


@jax.custom_vjp
def states(a, b):
    """States before each tile of S[n+1] = a[n] S[n] + b[n], S[0] = 0. a [N,M,K,K], b [N,M,K,V] -> [N,M,K,V]."""
    step = lambda s, ab: (ab[0] @ s + ab[1], s)
    return jax.lax.scan(step, jnp.zeros_like(b[0]), (a, b))[1]


def states_forward(a, b):
    s = states(a, b)
    return s, (a, s)


def states_backward(saved, grad):
    """The adjoint runs the same recurrence backwards; everything else is batched over the tiles."""
    a, s = saved
    step = lambda adj, ag: (ag[0].mT @ adj + ag[1], adj)
    adjoint = jax.lax.scan(step, jnp.zeros_like(s[0]), (a, grad), reverse=True)[1]
    return adjoint @ s.mT, adjoint


states.defvjp(states_forward, states_backward)


def unit_lower_inverse(n):
    """(I + n)^-1 for strictly lower n [..., C, C], C a power of two, by doubling."""
    size = n.shape[-1]
    eye = jnp.eye(size, dtype=n.dtype)
    inverse, power, width = eye - n, n @ n, 2
    while width < size:
        inverse = inverse + inverse @ power
        width *= 2
        if width < size:
            power = power @ power
    return inverse


def delta_attention(q, k, v, g, beta, tile):
    """Chunked KDA from a zero state. q, k, v, g [B,T,H,K], beta [B,T,H], g the log decay; T a multiple of the tile.

    Inside a tile the decays are taken relative to its middle token and clamped to e^+-40: exact as long as half a tile
    decays a channel by less than e^-40, which no trained layer does.
    """
    b, t, h, d = q.shape
    c, n = tile, t // tile
    tiles = lambda x: x.reshape(b, n, c, h, -1).transpose(1, 0, 3, 2, 4).reshape(n, b * h, c, -1)
    q, k, v, g, beta = map(tiles, (q, k, v, g, beta[..., None]))
    total = jnp.tril(jnp.ones((c, c), q.dtype)) @ g
    middle = total[..., c // 2 - 1 : c // 2, :]
    up = jnp.exp(jnp.clip(total - middle, -40.0, 40.0))
    down = jnp.exp(jnp.clip(middle - total, -40.0, 40.0))
    decay, last = jnp.exp(total), total[..., -1:, :]
    pairs = jnp.concatenate([k * up, q * up], -2) @ (k * down).mT
    strict = jnp.tril(jnp.ones((c, c), bool), -1)
    lower = jnp.tril(jnp.ones((c, c), bool))
    inverse = unit_lower_inverse(jnp.where(strict, pairs[..., :c, :], 0.0) * beta)
    scores = jnp.where(lower, pairs[..., c:, :], 0.0)
    wu = inverse @ (beta * jnp.concatenate([k * decay, v], -1))
    both = jnp.concatenate([(k * jnp.exp(last - total)).mT, scores], -2) @ wu
    moved, read = both[..., :d, :], both[..., d:, :]
    eye = jnp.eye(d, dtype=q.dtype)
    s = states(eye * jnp.exp(last) - moved[..., :d], moved[..., d:])
    out = (q * decay - read[..., :d]) @ s + read[..., d:]
    return out.reshape(n, b, h, c, -1).transpose(1, 0, 3, 2, 4).reshape(b, t, h, -1)


def kda(config, w, x):
    b, t, _ = x.shape
    h, k = config.heads, config.head
    p = h * k
    mixed = x @ jnp.concatenate([w["q"], w["k"], w["v"], w["f_a"], w["g_a"], w["beta"]], -1)
    qkv = short_conv(mixed[..., : 3 * p], jnp.concatenate([w["conv_q"], w["conv_k"], w["conv_v"]], -1))
    q, key, v = jnp.split(qkv.reshape(b, t, 3 * h, k), 3, axis=2)
    unit = lambda y: y * jax.lax.rsqrt((y * y).sum(-1, keepdims=True) + 1e-6)
    f, gate, beta = jnp.split(mixed[..., 3 * p :], [k, 2 * k], -1)
    g = -jnp.exp(w["A_log"])[:, None] * jax.nn.softplus(f @ w["f_b"] + w["dt_bias"]).reshape(b, t, h, k)
    o = delta_attention(unit(q) * k**-0.5, unit(key), v, g, jax.nn.sigmoid(beta), config.tile)
    o = rms(o, w["o_norm"], config.eps) * jax.nn.sigmoid(gate @ w["g_b"]).reshape(b, t, h, k)
    return o.reshape(b, t, p) @ w["o"]


BLOCK = 128


def blocks(t):
    """(first, end) of the query blocks; a block sees the keys before its end."""
    return [(i, min(i + BLOCK, t)) for i in range(0, t, BLOCK)]


@jax.custom_vjp
def attention(q, k, v):
    """Causal softmax attention, q already scaled. q, k [B,H,T,K], v [B,H,T,V] -> [B,H,T,V]."""
    return attention_forward(q, k, v)[0]


def attention_forward(q, k, v):
    outs, weights = [], []
    for first, end in blocks(q.shape[2]):
        scores = q[:, :, first:end] @ k[:, :, :end].mT
        scores = jnp.where(jnp.tril(jnp.ones((end - first, end), bool), first), scores, -1e30)
        weight = jnp.exp(scores - scores.max(-1, keepdims=True))
        weight = weight / weight.sum(-1, keepdims=True)
        weights.append(weight)
        outs.append(weight @ v[:, :, :end])
    return jnp.concatenate(outs, 2), (q, k, v, weights)


def attention_backward(saved, grad):
    q, k, v, weights = saved
    dq, dk, dv = [], jnp.zeros_like(k), jnp.zeros_like(v)
    for (first, end), weight in zip(blocks(q.shape[2]), weights):
        g = grad[:, :, first:end]
        slope = g @ v[:, :, :end].mT
        slope = weight * (slope - (weight * slope).sum(-1, keepdims=True))
        dq.append(slope @ k[:, :, :end])
        dk = dk.at[:, :, :end].add(slope.mT @ q[:, :, first:end])
        dv = dv.at[:, :, :end].add(weight.mT @ g)
    return jnp.concatenate(dq, 2), dk, dv


attention.defvjp(attention_forward, attention_backward)


def mla(config, w, x):
    b, t, _ = x.shape
    h, k, r = config.heads, config.head, config.rope
    q = (x @ w["q"]).reshape(b, t, h, k + r).transpose(0, 2, 1, 3) * (k + r) ** -0.5
    latent, shared = jnp.split(x @ w["kv_a"], [config.latent], -1)
    kv = (rms(latent, w["kv_norm"], 1e-6) @ w["kv_b"]).reshape(b, t, h, 2 * k).transpose(0, 2, 1, 3)
    keys = jnp.concatenate([kv[..., :k], jnp.broadcast_to(shared[:, None], (b, h, t, r))], -1)
    return attention(q, keys, kv[..., k:]).transpose(0, 2, 1, 3).reshape(b, t, h * k) @ w["o"]


def route(config, w, bias, x):
    """Weights [M,E], zero where an expert is not chosen, and the choice mask [M,E]. x [M,D]."""
    score = jax.nn.sigmoid(x @ w["router"])
    ranked = jax.lax.stop_gradient(score + bias)
    cut = ranked
    for _ in range(config.chosen - 1):
        cut = jnp.where(cut == cut.max(-1, keepdims=True), -jnp.inf, cut)
    mask = ranked >= cut.max(-1, keepdims=True)
    weight = jnp.where(mask, score, 0.0)
    return config.scale * weight / (weight.sum(-1, keepdims=True) + 1e-20), mask


def moe(config, w, bias, x):
    """Tokens are gathered into a fixed number of rows per expert; what does not fit goes through the shared expert alone
    (never with `capacity` = experts / chosen). Returns (output, load [E]: the share of choices each expert got)."""
    e, f, shape = config.experts, config.expert, x.shape
    x = x.reshape(-1, config.hidden)
    m = x.shape[0]
    rows = int(config.capacity * m * config.chosen / e)
    weight, mask = route(config, w, bias, x)
    place = jnp.cumsum(mask, 0) - 1
    slot = jnp.where(mask & (place < rows), place + jnp.arange(e) * rows, e * rows)
    token = jnp.full(e * rows + 1, m).at[slot.reshape(-1)].set(jnp.repeat(jnp.arange(m), e))[:-1]
    gathered = jnp.pad(x, ((0, 1), (0, 0)))[token].reshape(e, rows, -1)
    weight = jnp.pad(weight, ((0, 1), (0, 0)))[token, jnp.arange(e * rows) // rows].reshape(e, rows, 1)
    both = gathered @ jnp.concatenate([w["gate"][:e], w["up"][:e]], -1)
    y = (jax.nn.silu(both[..., :f]) * both[..., f:] * weight) @ w["down"][:e]
    routed = jnp.zeros((m + 1, config.hidden)).at[token].add(y.reshape(e * rows, -1))[:m]
    shared = (jax.nn.silu(x @ w["gate"][e]) * (x @ w["up"][e])) @ w["down"][e]
    return (routed + shared).reshape(shape), mask.mean(0) / config.chosen


def layer(config, index, w, bias, x):
    y = rms(x, w["attn_norm"], config.eps)
    x = x + (mla if config.is_mla(index) else kda)(config, w, y)
    y = rms(x, w["mlp_norm"], config.eps)
    if index == 0:
        return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"], None
    y, load = moe(config, w, bias, y)
    return x + y, load


def of_layer(params, index):
    prefix = f"{index}."
    return {n.removeprefix(prefix): x for n, x in params.items() if n.startswith(prefix)}


def hidden(config, params, bias, ids):
    """Final hidden states [B,T,D] and expert loads [layers-1,E]. bias [layers-1,E] steers the choice of experts only."""
    x, loads = params["embed"][ids], []
    for i in range(config.layers):
        x, load = layer(config, i, of_layer(params, i), bias[i - 1] if i else None, x)
        loads.append(load)
    return rms(x, params["norm"], config.eps), jnp.stack(loads[1:])


def logits(config, params, bias, ids):
    """Logits [B,T,V] of ids [B,T], T a multiple of the tile."""
    return hidden(config, params, bias, ids)[0] @ params["head"]


@jax.custom_vjp
def cross_entropy(x, head, targets):
    """-log softmax(x head)[target] for each row. x [M,D], head [D,V], targets [M] -> [M]."""
    return cross_entropy_forward(x, head, targets)[0]


def cross_entropy_forward(x, head, targets):
    logits = x @ head
    top = logits.max(-1, keepdims=True)
    weight = jnp.exp(logits - top)
    total = weight.sum(-1, keepdims=True)
    hit = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == targets[:, None]
    loss = (jnp.log(total) + top)[:, 0] - jnp.where(hit, logits, 0.0).sum(-1)
    return loss, (x, head, weight / total - hit)


def cross_entropy_backward(saved, grad):
    x, head, slope = saved
    slope = slope * grad[:, None]
    return slope @ head.T, x.T @ slope, None


cross_entropy.defvjp(cross_entropy_forward, cross_entropy_backward)


def losses(config, params, bias, ids):
    """Cross entropy of each next token [B*(T-1)], and the expert loads. ids [B,T], T-1 a multiple of the tile."""
    x, load = hidden(config, params, bias, ids[:, :-1])
    return cross_entropy(x.reshape(-1, config.hidden), params["head"], ids[:, 1:].reshape(-1)), load
