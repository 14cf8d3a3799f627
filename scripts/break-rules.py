#!/usr/bin/env python3
"""Break the rules of the buffer one by one, and check that its fault simulations detect that.

The rules are in crates/buffer/daemon/tests/cluster_simulation/broken_rules.toml. They are broken in
target/broken-rules, a copy of HEAD with a target directory of its own. Prints a line for each rule:
the first seed that failed, the expected one, and the message of the check. Fails if a rule is not
detected in the first SEEDS seeds, or those that it names (`seeds`), or if its text is not found.

usage: break-rules.py [WORDS]  only rules whose names contain WORDS
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

SEEDS = 2000
ROOT = Path(__file__).resolve().parent.parent
TABLE = "crates/buffer/daemon/tests/cluster_simulation/broken_rules.toml"
COPY = ROOT / "target" / "broken-rules"
SIMULATIONS = {
    "cluster_simulation": ("forebay-daemon", "invariants_hold_under_faults"),
    "striped": ("forebay-store", ""),
    "simulation": ("forebay-store", ""),
    "leases": ("forebay-store", ""),
}


def git(*arguments, at=ROOT):
    subprocess.run(["git", "-C", at, *arguments], check=True, stdout=subprocess.DEVNULL)


def simulate(simulation, first, count):
    """The output of a simulation, or None if all seeds passed."""
    package, test = SIMULATIONS[simulation]
    command = ["cargo", "test", "-q", "-p", package, "--test", simulation, "--", test]
    seeds = {"FOREBAY_FIRST_SEED": str(first), "FOREBAY_SEEDS": str(count)}
    run = subprocess.run(
        command, cwd=COPY, env=os.environ | seeds, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    if "running " not in run.stdout:
        sys.exit(run.stdout)
    return run.stdout if run.returncode else None


def first_failure(simulation, seeds):
    """The first seed that fails and the message of its check, or None if all seeds pass."""
    output = simulate(simulation, 0, seeds)
    if output is None:
        return None
    seed = min(int(seed) for seed in re.findall(r"seed (\d+) failed", output))
    # Several seeds run at a time: the message is that of a run of its own.
    output = simulate(simulation, seed, 1) or ""
    place, message = (re.findall(r"panicked at ([^\n]*):\n([^\n]*)", output) or [("?", "?")])[0]
    return seed, f"{message} ({place})"


def main():
    words = " ".join(sys.argv[1:])
    if words.startswith("-"):
        sys.exit(__doc__)
    if not COPY.exists():
        git("worktree", "prune")
        git("worktree", "add", "--detach", COPY)
    head = subprocess.check_output(["git", "-C", ROOT, "rev-parse", "HEAD"], text=True).strip()
    git("checkout", "--detach", "--force", head, at=COPY)
    rules = tomllib.loads((ROOT / TABLE).read_text())["rule"]
    undetected = 0
    for rule in rules:
        if words not in rule["rule"]:
            continue
        file = COPY / "crates/buffer" / rule["file"]
        source = file.read_text()
        if source.count(rule["find"]) != 1:
            print(f"STALE       {rule['rule']}: its text is not found once in {rule['file']}", flush=True)
            undetected += 1
            continue
        file.write_text(source.replace(rule["find"], rule["replace"]))
        try:
            simulation = rule.get("simulation", "cluster_simulation")
            found = first_failure(simulation, rule.get("seeds", SEEDS))
        finally:
            file.write_text(source)
        if found is None:
            print(f"UNDETECTED  {rule['rule']}", flush=True)
            undetected += 1
            continue
        seed, message = found
        print(f"seed {seed} (expected {rule['seed']})  {rule['rule']}: {message}", flush=True)
    sys.exit(undetected > 0)


main()
