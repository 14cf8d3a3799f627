"""Random operations on files of a directory, some by child processes. Prints every result: a directory
of an instance and one of another file system have the same, with and without the interception library.

random_operations.py DIRECTORY SEED COUNT
"""

import errno
import mmap
import os
import random
import subprocess
import sys

directory, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.chdir(directory)
draw = random.Random(seed)
NAMES = ["a", "b", "c", "d/a", "d/b", "e/a", "absent/a"]
open_files = []


def data():
    return bytes([draw.randrange(256)]) * draw.choice([1, 17, 4096, 70_000])


def offset():
    return draw.choice([0, 1, 5000, 65_536, 100_001])


def name():
    return draw.choice(NAMES)


def opened():
    flags = draw.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR])
    for flag in (os.O_CREAT, os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND):
        if draw.random() < 0.3:
            flags |= flag
    if flags & os.O_EXCL and not flags & os.O_CREAT:
        flags &= ~os.O_EXCL
    if flags & os.O_TRUNC and flags & os.O_ACCMODE == os.O_RDONLY:
        flags &= ~os.O_TRUNC
    fd = os.open(name(), flags, draw.choice([0o600, 0o644]))
    open_files.append(fd)
    return f"opened {len(open_files)}"


def closed():
    os.close(open_files.pop(draw.randrange(len(open_files))))


def digest(content):
    return len(content), hash(bytes(content)) % 1_000_003


def mapped(fd):
    size = os.fstat(fd).st_size
    if size == 0:
        return 0
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as memory:
        return digest(memory[:])


def in_child(fd):
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(os.write(fd, b"child") if draw.random() < 0.5 else len(os.read(fd, 7)))
        except OSError as error:
            os._exit(100 + error.errno)
    return os.waitpid(pid, 0)[1] >> 8


def by_program(fd):
    return subprocess.run(["echo", "program"], stdout=fd, stderr=subprocess.DEVNULL).returncode


def found(path):
    stat = os.stat(path)
    return stat.st_size, oct(stat.st_mode), stat.st_nlink if os.path.isfile(path) else 0


def with_file(operation):
    def run():
        fd = draw.choice(open_files)
        return operation(fd)

    return run


OPERATIONS = [
    (9, opened),
    (5, closed),
    (9, with_file(lambda fd: os.write(fd, data()))),
    (9, with_file(lambda fd: digest(os.read(fd, draw.choice([1, 100, 80_000]))))),
    (6, with_file(lambda fd: os.pwrite(fd, data(), offset()))),
    (6, with_file(lambda fd: digest(os.pread(fd, 90_000, offset())))),
    (5, with_file(lambda fd: os.lseek(fd, offset(), os.SEEK_SET))),
    (3, with_file(lambda fd: os.lseek(fd, 0, os.SEEK_CUR))),
    (3, with_file(lambda fd: os.lseek(fd, -1, os.SEEK_END))),
    (3, with_file(lambda fd: os.ftruncate(fd, offset()))),
    (2, with_file(lambda fd: os.fstat(fd).st_size)),
    (2, with_file(lambda fd: open_files.append(os.dup(fd)))),
    (1, with_file(mapped)),
    (1, with_file(in_child)),
    (1, with_file(by_program)),
    (1, with_file(os.fsync)),
    (4, lambda: found(name())),
    (2, lambda: os.unlink(name())),
    (2, lambda: os.rename(name(), name())),
    (1, lambda: os.rename(draw.choice("de"), draw.choice("de"))),
    (1, lambda: os.mkdir(draw.choice("de"))),
    (1, lambda: os.rmdir(draw.choice("de"))),
    (1, lambda: os.truncate(name(), offset())),
    (1, lambda: sorted(os.listdir("."))),
]
INDEX_OF = {run: index for index, (_, run) in enumerate(OPERATIONS)}
WEIGHTS = [weight for weight, _ in OPERATIONS]

for number in range(count):
    operation = draw.choices([run for _, run in OPERATIONS], WEIGHTS)[0]
    if len(open_files) > 12:
        operation = closed
    try:
        result = operation()
    except OSError as error:
        result = errno.errorcode[error.errno]
    except (IndexError, ValueError):
        result = "no open file"
    print(number, f"operation {INDEX_OF[operation]}", result, flush=True)
