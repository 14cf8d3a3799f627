#!/usr/bin/env python3
"""Derives the node maps cori.csv and edison.csv from the machines' own tables.

    python3 machines/xtdb2proc.py cori   > machines/cori.csv
    python3 machines/xtdb2proc.py edison > machines/edison.csv

Input: xtdb2proc/<machine>.xtdb2proc.gz, the output of Cray's xtdb2proc on the machine, from the
data of TOKIO-ABC (licence: xtdb2proc/LICENSE.md). One line a node, fields name=value:

    x_coord      the group: two neighbouring cabinets of a row
    y_coord      the chassis in the group, 0 to 5: three of the first cabinet, three of the second
    z_coord      the router in the chassis: the blade's slot, 0 to 15
    processor_type   'compute' or 'service'

Edison's coordinates run over holes in its floor plan; groups are numbered here in the order of
their x_coord without gaps.

Output: the format of node maps: group,chassis,slot,nodes with one letter a node (C compute,
B burst buffer, L LNET, S service).

A choice: the table does not say which service nodes are burst buffers (DataWarp) and which are
LNET routers. Both sit on service blades of two nodes, so of Cori's 234 such blades in the order of
the machine every 234/144-th becomes a burst-buffer blade (288 nodes), and of the 90 others every
90/65-th an LNET blade (130 nodes). Service nodes on blades of four stay service nodes. Edison has no
burst buffers; 21 of its blades of two service nodes become LNET blades, one node for each two servers of its
three file systems, as at KAUST.
"""

import gzip
import pathlib
import sys

# Machine: burst-buffer nodes and LNET nodes to place on blades of two service nodes.
CHOICES = {"cori": (288, 130), "edison": (0, 42)}


def routers(path):
    """(group, chassis, slot) -> letters of the nodes, compute and service only."""
    found = {}
    with gzip.open(path, "rt", encoding="ascii") as table:
        for line in table:
            if line.startswith("#") or not line.strip():
                continue
            fields = dict(field.split("=", 1) for field in line.strip().split(","))
            x, y, z = (int(fields[axis]) for axis in ("x_coord", "y_coord", "z_coord"))
            # The coordinates have to agree with the floor plan.
            cabinet, cage, slot = (int(fields[k]) for k in ("cab_position", "cage", "slot"))
            if (y, z) != (cabinet % 2 * 3 + cage, slot):
                raise SystemExit(f"{path}: coordinates do not fit the cabinet: {line}")
            letter = {"'compute'": "C", "'service'": "S"}[fields["processor_type"]]
            found.setdefault((x, y, z), []).append((int(fields["cpu"]), letter))
    numbers = {x: group for group, x in enumerate(sorted({x for x, _, _ in found}))}
    return {
        (numbers[x], y, z): "".join(letter for _, letter in sorted(nodes))
        for (x, y, z), nodes in sorted(found.items())
    }


def evenly(items, count):
    """`count` of the items, as evenly spread as can be."""
    return [items[(2 * i + 1) * len(items) // (2 * count)] for i in range(count)]


def main():
    machine = sys.argv[1] if len(sys.argv) == 2 else ""
    if machine not in CHOICES:
        raise SystemExit(f"usage: xtdb2proc.py {' | '.join(CHOICES)}")
    table = pathlib.Path(__file__).parent / "xtdb2proc" / f"{machine}.xtdb2proc.gz"
    nodes = routers(table)
    burst_buffers, lnet = CHOICES[machine]
    for letters, count in (("BB", burst_buffers // 2), ("LL", lnet // 2)):
        blades = [router for router, found in nodes.items() if found == "SS"]
        for router in evenly(blades, count):
            nodes[router] = letters
    print(f"# {machine}: derived from xtdb2proc/{table.name} by xtdb2proc.py; licence in xtdb2proc/LICENSE.md")
    print("group,chassis,slot,nodes")
    for (group, chassis, slot), found in nodes.items():
        print(f"{group},{chassis},{slot},{found}")


if __name__ == "__main__":
    main()
