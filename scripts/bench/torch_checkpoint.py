#!/usr/bin/env python3
"""torch.distributed.checkpoint with the same tensors on as many ranks: `torchrun --nproc-per-node 2 torch_checkpoint.py
save|load DIR --shapes FILE --layout fsdp|tp`. Prints the seconds between two barriers, of rank 0.

FILE holds a JSON object of shapes by name; every tensor is there thrice, as a weight and two moments. fsdp cuts dim 0 of
every tensor, tp columns and rows in turn as a Transformer's tensor parallelism does.
"""
import argparse
import json
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

KINDS = ("weights", "exp_avg", "exp_avg_sq")


def placement_of(name, shape, layout):
    if layout == "fsdp":
        return Shard(0)
    if len(shape) == 1:
        return Replicate()
    return Shard(1) if name.endswith(("attention.o.weight", "mlp.down.weight")) else Shard(0)


def local_shape(shape, placement, ranks):
    if placement == Replicate():
        return shape
    return [size // ranks if dim == placement.dim else size for dim, size in enumerate(shape)]


def make_state(shapes, layout):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {}
    for name, shape in shapes.items():
        placement = placement_of(name, shape, layout)
        for kind in KINDS:
            local = torch.rand(local_shape(shape, placement, dist.get_world_size()))
            state[f"{kind}/{name}"] = DTensor.from_local(local, mesh, [placement], run_check=False)
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("save", "load"))
    parser.add_argument("dir")
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--layout", choices=("fsdp", "tp"), default="fsdp")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with open(args.shapes, encoding="utf-8") as file:
        state = make_state(json.load(file), args.layout)
    run = checkpoint.save if args.action == "save" else checkpoint.load
    dist.barrier()
    begin = time.monotonic()
    run(state, checkpoint_id=args.dir)
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"seconds {time.monotonic() - begin:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
