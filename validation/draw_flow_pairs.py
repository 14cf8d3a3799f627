"""Draws pairs of jobs for validation/flow.toml: `python3 validation/draw_flow_pairs.py SEED COUNT`.

The rule was written before any of the pairs was simulated. Machines come in turn. Both jobs have the same one to four
storage nodes; each has 4 to 20 compute nodes, 1 to 3 processes of a node, transfers of 128 KiB to 4 MiB, 4 to 16 of
them in a block, a file for each process or one file, and writes, reads or both. A draw is repeated while a job moves
less than 64 MiB or more than 4 GiB a phase, or the transfers of one job are 16 times as large as those of the other,
or more: results of such pairs have a warning. Nothing else is rejected.
"""

import random
import sys

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MACHINES = ["toy", "cori-phase1", "toy-plus", "toy-tree"]


def pick(draw, values):
    return values[int(draw.random() * len(values))]


def text(size):
    return f"{size // MIB}m" if size % MIB == 0 else f"{size // KIB}k"


def job(draw):
    while True:
        nodes, ppn = 4 + int(draw.random() * 17), 1 + int(draw.random() * 3)
        transfer, calls = pick(draw, [KIB << shift for shift in range(7, 13)]), pick(draw, [4, 6, 8, 12, 16])
        if 64 * MIB <= nodes * ppn * transfer * calls <= 4 * GIB:
            break
    access, files = pick(draw, ["-w", "-r", "-w -r"]), pick(draw, [" -F", ""])
    line = f"{access}{files} -t {text(transfer)} -b {text(transfer * calls)}"
    return transfer, f'{{ nodes = {nodes}, ppn = {ppn}, ior = "{line}" }}'


def main():
    draw, count = random.Random(int(sys.argv[1])), int(sys.argv[2])
    for number in range(count):
        storage = 1 + int(draw.random() * 4)
        while True:
            (one, first), (other, second) = job(draw), job(draw)
            if max(one, other) < 16 * min(one, other):
                break
        print(f'\n[[pair]]\nset = "test"\nmachine = "{MACHINES[number % len(MACHINES)]}"')
        print(f"storage-nodes = {storage}\njobs = [\n    {first},\n    {second},\n]")


main()
