#!/usr/bin/env python3
"""How many threads do the storage nodes of a machine need for a checkpoint of a file per process?

    PYTHONPATH=python python3 examples/threads.py [MACHINE [DIRECTORY]]

Simulates IOR with numbers of threads and of nodes, prints a table of the write rates, and makes a
picture, threads.png in DIRECTORY: with matplotlib, if it is installed, else that of the program.
"""

import shutil
import sys
from pathlib import Path

import forebay

TEST = "-a POSIX -F -w -t 1m -b 16m"
THREADS = [1, 2, 4, 8]
NODES = [1, 4, 16]


def print_table(rates):
    print("threads", *(f"{nodes:>4} nodes" for nodes in NODES), sep="  ")
    for threads in THREADS:
        print(f"{threads:7}", *(f"{rates[nodes, threads]:5.2f} GB/s" for nodes in NODES), sep="  ")


def draw(rates, path):
    """Draws the rates, and returns whether that was possible."""
    try:
        from matplotlib import pyplot
    except ImportError:
        return False
    for nodes in NODES:
        pyplot.plot(THREADS, [rates[nodes, threads] for threads in THREADS], "o-", label=nodes)
    pyplot.xlabel("threads of a storage node")
    pyplot.ylabel("write rate in GB/s")
    pyplot.legend(title="compute nodes")
    pyplot.savefig(path)
    return True


def main(machine="toy", directory="."):
    result = forebay.ior(
        TEST,
        machine=machine,
        nodes=1,
        fidelity="flow",
        sweep={"nodes": NODES, "burst_buffer.threads": THREADS},
    )
    rates = {(row["nodes"], row["burst_buffer.threads"]): row["write_GBps"] for row in result.rows()}
    print_table(rates)
    slowest = min(result.points, key=lambda point: point.value("write_GBps"))
    print(f"with {slowest.settings} the limit is: {slowest.note}")
    picture = Path(directory, "threads.png")
    if not draw(rates, picture):
        shutil.copy(result.picture, picture)
    print(f"numbers {result.file('sweep.csv')}, picture {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
