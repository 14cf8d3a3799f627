"""Writes files of slots, syncs them, and notes what a reader must find.

    writer.py write DIRECTORY SEED STOP LEDGER   until the file STOP exists
    writer.py verify DIRECTORY LEDGER            compares the files with the ledger

A slot whose write and fsync succeeded has that version. After an error it is unknown until it is
written again: the write may have happened or not. The same holds for the name of a file that is made
or removed, with the fsync of its directory.
"""

import errno
import hashlib
import json
import os
import random
import sys
import time

SLOT = 64 * 1024
SLOTS = 24
FILES = 6


def contents(file, slot, version):
    seed = f"{file}/{slot}/{version}".encode()
    return hashlib.shake_128(seed).digest(SLOT)


class Writer:
    def __init__(self, directory, seed, ledger):
        self.directory = directory
        self.path = ledger
        self.random = random.Random(seed)
        self.files = {}  # name: {slot: version, or None if it is unknown}
        self.unknown = set()  # names that may exist or not
        self.removed = set()
        self.version = 0
        self.counts = {"writes": 0, "failures": 0, "checks": 0, "wrong": []}

    def sync_directory(self):
        handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def create(self):
        self.version += 1
        name = f"{os.path.basename(self.path)}-{self.version}"
        self.unknown.add(name)
        os.close(os.open(os.path.join(self.directory, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        self.sync_directory()
        self.unknown.discard(name)
        self.files[name] = {}

    def remove(self, name):
        del self.files[name]
        self.unknown.add(name)
        os.unlink(os.path.join(self.directory, name))
        self.sync_directory()
        self.unknown.discard(name)
        self.removed.add(name)

    def write(self, name):
        slots = [self.random.randrange(SLOTS) for _ in range(self.random.randint(1, 4))]
        versions = {}
        for slot in slots:
            self.version += 1
            versions[slot] = self.version
            self.files[name][slot] = None
        handle = os.open(os.path.join(self.directory, name), os.O_WRONLY)
        try:
            for slot, version in versions.items():
                data = contents(name, slot, version)
                if os.pwrite(handle, data, slot * SLOT) != SLOT:
                    raise OSError(errno.EIO, "short write")
            os.fsync(handle)
        finally:
            os.close(handle)
        self.files[name].update(versions)
        self.counts["writes"] += 1

    def check(self, name):
        wrong = wrong_slots(self.directory, name, self.files[name])
        self.counts["checks"] += 1
        self.counts["wrong"] += wrong

    def step(self):
        choice = self.random.random()
        names = sorted(self.files)
        if not names or (choice < 0.1 and len(names) < FILES):
            self.create()
        elif choice < 0.13 and len(names) > 2:
            self.remove(self.random.choice(names))
        elif choice < 0.3:
            self.check(self.random.choice(names))
        else:
            self.write(self.random.choice(names))

    def run(self, stop):
        while not os.path.exists(stop):
            try:
                self.step()
            except OSError as error:
                self.counts["failures"] += 1
                self.counts[errno.errorcode.get(error.errno, "?")] = (
                    self.counts.get(errno.errorcode.get(error.errno, "?"), 0) + 1
                )
                time.sleep(0.1)
        ledger = {
            "files": self.files,
            "unknown": sorted(self.unknown),
            "removed": sorted(self.removed),
            "counts": self.counts,
        }
        with open(self.path, "w") as file:
            json.dump(ledger, file)


def wrong_slots(directory, name, slots):
    wrong = []
    with open(os.path.join(directory, name), "rb") as file:
        for slot, version in slots.items():
            if version is None:
                continue
            found = os.pread(file.fileno(), SLOT, int(slot) * SLOT)
            if found != contents(name, slot, version):
                kind = "zeros" if not found.strip(b"\0") else f"{len(found)} other bytes"
                wrong.append(f"{name}, slot {slot}, version {version}: {kind}")
    return wrong


def verify(directory, path):
    with open(path) as file:
        ledger = json.load(file)
    wrong = list(ledger["counts"]["wrong"])
    for name, slots in ledger["files"].items():
        try:
            wrong += wrong_slots(directory, name, slots)
        except OSError as error:
            wrong.append(f"{name}: {error}")
    present = set(os.listdir(directory))
    wrong += [f"{name}: removed, but present" for name in ledger["removed"] if name in present]
    own = os.path.basename(path) + "-"
    known = set(ledger["files"]) | set(ledger["unknown"])
    wrong += [f"{name}: unexpected" for name in present if name.startswith(own) and name not in known]
    counts = dict(ledger["counts"])
    counts["slots"] = sum(v is not None for slots in ledger["files"].values() for v in slots.values())
    counts["wrong"] = wrong
    print(json.dumps(counts))


if sys.argv[1] == "write":
    Writer(sys.argv[2], sys.argv[3], sys.argv[5]).run(sys.argv[4])
else:
    verify(sys.argv[2], sys.argv[3])
