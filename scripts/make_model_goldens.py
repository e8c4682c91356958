#!/usr/bin/env python3
"""Writes the small HDF5 files that tests/model/golden_test.cpp holds the model to.

A float64 reference of the transformer in PyTorch, written for clarity: plain tensors, explicit masks, gradients by
autograd. It shares no code with the C++ model. Needs torch, numpy, h5py.

Usage: make_model_goldens.py [DIRECTORY]        default: tests/model/golden; one file for each entry of MODELS

Each file: weights/<name> and gradients/<name> (names of the C++ model), tokens, targets, positions, document_start
[tokens] int32, logits [tokens, vocab_size], loss_sum, grad_scale. Weights are float32, so that fp32 and fp64 tests
start from the same numbers; results are float64. Gradients are those of loss_sum * grad_scale, with grad_scale = 1 /
(number of targets that are not negative). tests/model/model_configs.h repeats MODELS for C++.
"""
import argparse
import dataclasses
import math
import os

import h5py
import numpy as np
import torch

DEFAULT_DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "model", "golden")
IGNORED = -1


@dataclasses.dataclass
class Model:
    norm: str  # layer_norm, rms_norm
    activation: str  # gelu_tanh, gelu_erf, relu_squared, swiglu, geglu
    position: str  # learned, rope
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_hidden_size: int
    bias: bool
    tie_embeddings: bool
    qk_norm: bool = False
    rope_theta: float = 10000.0
    rope_fraction: float = 1.0
    rope_scaling: dict = dataclasses.field(default_factory=lambda: {"kind": "none"})
    sliding_window: int = 0
    documents: tuple = ()  # lengths of the documents of each sequence; (): one document a sequence
    num_sequences: int = 2
    vocab_size: int = 61
    hidden_size: int = 24
    num_layers: int = 3
    seq_len: int = 13
    norm_eps: float = 1e-5

    @property
    def rotary_dim(self):
        return 2 * int(self.rope_fraction * self.head_dim / 2 + 1e-9)


MODELS = {
    "gpt2": Model(
        norm="layer_norm", activation="gelu_tanh", position="learned", num_heads=3, num_kv_heads=3, head_dim=8,
        ffn_hidden_size=40, bias=True, tie_embeddings=True, num_sequences=3),
    "llama": Model(
        norm="rms_norm", activation="swiglu", position="rope", num_heads=4, num_kv_heads=2, head_dim=10,
        ffn_hidden_size=28, bias=False, tie_embeddings=False, rope_theta=10000.0,
        rope_scaling={"kind": "llama3", "factor": 4.0, "original_seq_len": 64, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0}),
    "kitchen_sink": Model(
        norm="rms_norm", activation="geglu", position="rope", num_heads=5, num_kv_heads=1, head_dim=10,
        ffn_hidden_size=22, bias=True, tie_embeddings=True, qk_norm=True, rope_theta=500.0, rope_fraction=0.6,
        rope_scaling={"kind": "yarn", "factor": 8.0, "original_seq_len": 64, "beta_fast": 4.0, "beta_slow": 1.0},
        sliding_window=5, documents=((4, 1, 8), (13,), (7, 6)), num_sequences=3),
}


# ---- weights and tokens ------------------------------------------------------------------------------------------


def weight_shapes(m):
    """Name -> shape, with the names of the C++ model."""
    q_size, kv_size = m.num_heads * m.head_dim, m.num_kv_heads * m.head_dim
    shapes = {"embedding.token.weight": (m.vocab_size, m.hidden_size)}
    if m.position == "learned":
        shapes["embedding.position.weight"] = (m.seq_len, m.hidden_size)

    def add_linear(name, out_size, in_size):
        shapes[name + ".weight"] = (out_size, in_size)
        if m.bias:
            shapes[name + ".bias"] = (out_size,)

    def add_norm(name):
        shapes[name + ".weight"] = (m.hidden_size,)
        if m.bias and m.norm == "layer_norm":
            shapes[name + ".bias"] = (m.hidden_size,)

    for layer in range(m.num_layers):
        prefix = f"layers.{layer}."
        add_norm(prefix + "attention_norm")
        for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
            add_linear(prefix + "attention." + name, size, m.hidden_size)
        if m.qk_norm:
            shapes[prefix + "attention.q_norm.weight"] = (m.head_dim,)
            shapes[prefix + "attention.k_norm.weight"] = (m.head_dim,)
        add_linear(prefix + "attention.out", m.hidden_size, q_size)
        add_norm(prefix + "mlp_norm")
        if m.activation in ("swiglu", "geglu"):
            add_linear(prefix + "mlp.gate", m.ffn_hidden_size, m.hidden_size)
        add_linear(prefix + "mlp.up", m.ffn_hidden_size, m.hidden_size)
        add_linear(prefix + "mlp.down", m.hidden_size, m.ffn_hidden_size)
    add_norm("final_norm")
    if not m.tie_embeddings:
        shapes["head.weight"] = (m.vocab_size, m.hidden_size)
    return shapes


def draw_weights(m, generator):
    """Larger than a fresh model's, so that every path (softmax, activation, norm) works away from its linear part."""
    weights = {}
    for name, shape in weight_shapes(m).items():
        normal = torch.randn(shape, generator=generator, dtype=torch.float32)
        is_norm_weight = name.endswith("norm.weight")
        weights[name] = (1 + 0.2 * normal) if is_norm_weight else 0.3 * normal
    return {name: w.double().requires_grad_() for name, w in weights.items()}


def draw_batch(m, generator):
    tokens = torch.randint(m.vocab_size, (m.num_sequences, m.seq_len + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[torch.rand(targets.shape, generator=generator) < 0.15] = IGNORED
    positions = torch.arange(m.seq_len).expand(m.num_sequences, -1)
    document_start = torch.zeros_like(positions)
    if m.documents:
        starts = [np.repeat(np.cumsum((0,) + lengths[:-1]), lengths) for lengths in m.documents]
        document_start = torch.tensor(np.stack(starts))
    return tokens[:, :-1], targets, positions, document_start


# ---- the model ---------------------------------------------------------------------------------------------------


def rope_frequencies(m):
    """Angle per position for each pair, [rotary_dim / 2]."""
    d, scaling = m.rotary_dim, m.rope_scaling
    frequencies = [m.rope_theta ** (-2.0 * i / d) for i in range(d // 2)]
    if scaling["kind"] == "llama3":
        return [llama3_frequency(f, scaling) for f in frequencies]
    if scaling["kind"] == "yarn":
        return yarn_frequencies(frequencies, m)
    return frequencies


def llama3_frequency(frequency, scaling):
    turns = scaling["original_seq_len"] * frequency / (2 * math.pi)  # over the original context
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = min(max((turns - low) / (high - low), 0.0), 1.0)
    return kept * frequency + (1 - kept) * frequency / scaling["factor"]


def yarn_frequencies(frequencies, m):
    scaling, d = m.rope_scaling, m.rotary_dim

    def pair_that_turns(times):
        return d * math.log(scaling["original_seq_len"] / (2 * math.pi * times)) / (2 * math.log(m.rope_theta))

    low = max(math.floor(pair_that_turns(scaling["beta_fast"])), 0)
    high = min(math.ceil(pair_that_turns(scaling["beta_slow"])), d - 1)
    ramp = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(len(frequencies))]
    return [f * (1 - r) + f / scaling["factor"] * r for f, r in zip(frequencies, ramp)]


def rotate(m, x, positions):
    """x [sequences, heads, seq, head_dim]: pairs (i, i + rotary_dim / 2) turn, the rest passes."""
    half = m.rotary_dim // 2
    angles = positions[:, None, :, None].double() * torch.tensor(rope_frequencies(m), dtype=torch.float64)
    scale = 0.1 * math.log(m.rope_scaling["factor"]) + 1 if m.rope_scaling["kind"] == "yarn" else 1.0
    cos, sin = scale * angles.cos(), scale * angles.sin()
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def norm(m, w, name, x):
    if m.norm == "rms_norm":
        return rms_norm(x, w[name + ".weight"], m.norm_eps)
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + m.norm_eps) * w[name + ".weight"]
    return y + w[name + ".bias"] if name + ".bias" in w else y


def linear(w, name, x):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def visible(m, positions, document_start):
    """[sequences, 1, queries, keys]: which keys a query sees."""
    query, key = positions[:, None, :, None], positions[:, None, None, :]
    seen = (key <= query) & (key >= document_start[:, None, :, None])
    return seen & (key > query - m.sliding_window) if m.sliding_window else seen


def attention(m, w, name, x, positions, document_start):
    sequences, seq_len, _ = x.shape

    def heads(part, count):
        return linear(w, f"{name}.{part}", x).view(sequences, seq_len, count, m.head_dim).transpose(1, 2)

    q, k, v = heads("q", m.num_heads), heads("k", m.num_kv_heads), heads("v", m.num_kv_heads)
    if m.qk_norm:
        q = rms_norm(q, w[name + ".q_norm.weight"], m.norm_eps)
        k = rms_norm(k, w[name + ".k_norm.weight"], m.norm_eps)
    if m.position == "rope":
        q, k = rotate(m, q, positions), rotate(m, k, positions)
    k, v = (t.repeat_interleave(m.num_heads // m.num_kv_heads, dim=1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(m.head_dim)
    scores = scores.masked_fill(~visible(m, positions, document_start), -math.inf)
    o = torch.softmax(scores, dim=-1) @ v
    return linear(w, name + ".out", o.transpose(1, 2).reshape(sequences, seq_len, -1))


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def mlp(m, w, name, x):
    up = linear(w, name + ".up", x)
    if m.activation == "swiglu":
        gate = linear(w, name + ".gate", x)
        activated = gate * torch.sigmoid(gate) * up
    elif m.activation == "geglu":
        activated = gelu_tanh(linear(w, name + ".gate", x)) * up
    elif m.activation == "gelu_tanh":
        activated = gelu_tanh(up)
    elif m.activation == "gelu_erf":
        activated = 0.5 * up * (1 + torch.erf(up / math.sqrt(2)))
    else:
        activated = torch.relu(up) ** 2
    return linear(w, name + ".down", activated)


def logits_of(m, w, tokens, positions, document_start):
    x = w["embedding.token.weight"][tokens]
    if m.position == "learned":
        x = x + w["embedding.position.weight"][positions]
    for layer in range(m.num_layers):
        prefix = f"layers.{layer}."
        x = x + attention(m, w, prefix + "attention", norm(m, w, prefix + "attention_norm", x), positions,
                          document_start)
        x = x + mlp(m, w, prefix + "mlp", norm(m, w, prefix + "mlp_norm", x))
    table = w["embedding.token.weight" if m.tie_embeddings else "head.weight"]
    return norm(m, w, "final_norm", x) @ table.T


def loss_sum_of(logits, targets):
    valid = targets >= 0
    log_probability = torch.log_softmax(logits, dim=-1)
    return -log_probability[valid].gather(-1, targets[valid][:, None]).sum()


# ---- the file ----------------------------------------------------------------------------------------------------


def write_golden(m, path, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = draw_weights(m, generator)
    tokens, targets, positions, document_start = draw_batch(m, generator)
    logits = logits_of(m, weights, tokens, positions, document_start)
    loss_sum = loss_sum_of(logits, targets)
    grad_scale = 1.0 / int((targets >= 0).sum())
    (loss_sum * grad_scale).backward()

    with h5py.File(path, "w", libver=("earliest", "v108")) as file:  # what HDF5 1.10 reads
        for name, weight in weights.items():
            file[f"weights/{name}"] = weight.detach().numpy().astype(np.float32)
            file[f"gradients/{name}"] = weight.grad.numpy()
        for name, ids in (("tokens", tokens), ("targets", targets), ("positions", positions),
                          ("document_start", document_start)):
            file[name] = ids.reshape(-1).numpy().astype(np.int32)
        file["logits"] = logits.detach().reshape(-1, m.vocab_size).numpy()
        file["loss_sum"] = loss_sum.item()
        file["grad_scale"] = grad_scale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default=DEFAULT_DIRECTORY)
    args = parser.parse_args()
    os.makedirs(args.directory, exist_ok=True)
    for seed, (name, model) in enumerate(MODELS.items(), start=1):
        path = os.path.join(args.directory, name + ".h5")
        write_golden(model, path, seed)
        print(f"{path}: {os.path.getsize(path):,} bytes")


if __name__ == "__main__":
    main()
