#!/usr/bin/env python3
"""Times whole training steps of a GPT-2-shaped model in PyTorch on the CPU: fp32, AdamW, random tokens.

The opponent of run_cpu.py, which prepares its environment (threads, malloc). The model does what ours does: learned
positions, pre-LayerNorm with biases, fused causal attention, tanh GELU, a head tied to the token embedding, no dropout;
weight decay on matrices only; gradients clipped by nothing. Prints one JSON object:
step_ms of every step, loss of the first and last, and peak memory in bytes (after the import alone, and of the whole run).
"""
import argparse
import json
import resource
import time

import torch
from torch import nn
from torch.nn import functional as F

IMPORT_BYTES = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class DecoderBlock(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(hidden_size)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.attention_output = nn.Linear(hidden_size, hidden_size)
        self.ffn_norm = nn.LayerNorm(hidden_size)
        self.ffn = nn.Sequential(nn.Linear(hidden_size, 4 * hidden_size), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * hidden_size, hidden_size))

    def attend(self, hidden):
        heads = [part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(hidden).chunk(3, dim=-1)]
        context = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.attention_output(context.transpose(1, 2).flatten(2))

    def forward(self, hidden):
        hidden = hidden + self.attend(self.attention_norm(hidden))
        return hidden + self.ffn(self.ffn_norm(hidden))


class Gpt(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.token_embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.position_embedding = nn.Embedding(shape.seq_len, shape.hidden_size)
        self.blocks = nn.Sequential(*(DecoderBlock(shape.hidden_size, shape.num_heads)
                                      for _ in range(shape.num_layers)))
        self.final_norm = nn.LayerNorm(shape.hidden_size)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        hidden = self.token_embedding(tokens) + self.position_embedding.weight
        logits = F.linear(self.final_norm(self.blocks(hidden)), self.token_embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("num-layers", "hidden-size", "num-heads", "seq-len", "batch-size", "vocab-size", "threads", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    return parser.parse_args()


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95))


def main():
    args = parse_arguments()
    torch.manual_seed(1234)
    torch.set_num_threads(args.threads)
    model = Gpt(args)
    optimizer = make_optimizer(model)
    run = torch.compile(model) if args.compile else model

    step_ms, losses = [], []
    for _ in range(args.steps):
        tokens = torch.randint(args.vocab_size, (args.batch_size, args.seq_len + 1))
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        step_ms.append((time.perf_counter() - begin) * 1e3)
        losses.append(loss.item())

    print(json.dumps({
        "torch": torch.__version__, "step_ms": step_ms, "first_loss": losses[0], "last_loss": losses[-1],
        "import_bytes": IMPORT_BYTES, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
