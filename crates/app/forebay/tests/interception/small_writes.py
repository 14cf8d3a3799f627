"""Writes small pieces in sequence, and ends in one of several ways: small_writes.py WAY PATH"""
import os
import signal
import subprocess
import sys

way, path = sys.argv[1:]
piece = bytes(range(250)) * 4
fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)


def write(pieces, to=fd):
    for _ in range(pieces):
        assert os.write(to, piece) == len(piece)


write(250)
if way == "dup":
    os.dup2(fd, 9)
    write(125, 9)
    os.close(fd)
    write(125, 9)
elif way == "fork":
    child = os.fork()
    if child == 0:
        write(125)
        os._exit(0)
    os.waitpid(child, 0)
    write(125)
elif way == "spawn":
    subprocess.run(["wc", "-c", path], check=True)
    write(250)
elif way == "rename":
    os.rename(path, path + ".new")
    write(250)
    os.rename(path + ".new", path)
else:
    write(250)
assert os.stat(path).st_size == 500 * len(piece)
if way == "exec":
    os.execvp("wc", ["wc", "-c", path])
elif way == "_exit":
    write(1)
    os.ftruncate(fd, 250 * len(piece))
    os.lseek(fd, 250 * len(piece), os.SEEK_SET)
    write(250)
    os._exit(0)
elif way in ("abort", "kill"):
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    write(500)
    os.kill(os.getpid(), signal.SIGKILL) if way == "kill" else os.abort()
