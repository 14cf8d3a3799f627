"""Draws cases for the set "test" of validation/flow.toml: `python3 validation/draw_flow_cases.py SEED [DIVISOR]`.

The rule was written before any of the cases was simulated. Four strata, each with machines in turn:

    few     burst buffer, at most 32,768 requests a phase (they are simulated one by one, since the third draw up to 65,536)
    many    burst buffer, 32,769 to 150,000 requests
    links   burst buffer, most nodes of a group: its links to others are nearly full
    pfs     parallel file system, with the numbers of targets in the order below

Within a stratum nodes are drawn uniformly by their logarithm (in `links` uniformly), processes of a node, transfer
and calls of a process uniformly among the values below. A draw is repeated until its requests are in the range of
the stratum, a phase moves between 64 MiB and 24 GiB, and a process at most 512 MiB. Nothing else is rejected. With a
DIVISOR each stratum has that part of its cases, rounded up.
"""

import math
import random
import sys

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LIMIT = 32_768
PPN = [1, 2, 3, 4, 6, 8]
TRANSFERS = [KIB << shift for shift in range(6, 16)]  # 64 KiB to 32 MiB
CALLS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
TOYS = {"toy", "toy-plus", "toy-tree"}  # 56 compute nodes; requests of 512 KiB
ALL = ["toy", "cori-phase1", "trinity-phase2", "cori", "shaheen2", "toy-plus", "trinity", "toy-tree"]
STRATA = [
    ("few", ALL, 14, (1, LIMIT)),
    ("many", ALL, 8, (LIMIT + 1, 150_000)),
    ("links", ["cori-phase1", "toy", "trinity-phase2", "cori-phase1", "shaheen2"], 5, (1, 150_000)),
    ("pfs", ["shaheen2", "cori-phase1", "cori"], 10, (1, 150_000)),
]
TARGETS = [4, 12, 20, 32, 1, 24, 8, 48, 2, 16]


def pick(draw, values):
    return values[int(draw.random() * len(values))]


def nodes_of(draw, stratum, machine):
    most = 56 if machine in TOYS else 130
    if stratum == "links":
        least = 40 if machine in TOYS else 80
        return least + int(draw.random() * (most + 1 - least))
    return int(math.exp(draw.random() * math.log(most + 1)))


def largest_request(stratum, machine):
    if machine in TOYS:
        return 512 * KIB
    return MIB if stratum == "pfs" else 8 * MIB


def case(draw, stratum, machine, requests):
    while True:
        nodes, ppn = nodes_of(draw, stratum, machine), pick(draw, PPN)
        transfer, calls = pick(draw, TRANSFERS), pick(draw, CALLS)
        tasks, block = nodes * ppn, transfer * calls
        of_phase = tasks * calls * -(-transfer // largest_request(stratum, machine))
        fits = requests[0] <= of_phase <= requests[1] and 64 * MIB <= tasks * block <= 24 * GIB
        if fits and block <= 512 * MIB:
            return nodes, ppn, transfer, block


def size(number):
    return f"{number // MIB}m" if number % MIB == 0 else f"{number // KIB}k"


def main():
    draw = random.Random(int(sys.argv[1]))
    divisor = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for stratum, machines, count, requests in STRATA:
        for number in range(-(-count // divisor)):
            machine = machines[number % len(machines)]
            nodes, ppn, transfer, block = case(draw, stratum, machine, requests)
            print(f'\n[[group]]\nset = "test"\nmachine = "{machine}"\nnodes = [{nodes}]\nppn = [{ppn}]')
            print(f'transfers = ["{size(transfer)}"]\nblock = "{size(block)}"')
            if stratum == "pfs":
                print(f"stripe-counts = [{TARGETS[number]}]")


main()
