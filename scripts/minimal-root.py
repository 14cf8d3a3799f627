#!/usr/bin/env python3
"""Makes a root file system of installed Debian packages: the essential ones, those given, and those
they depend on. Files are copied from this host, and dpkg's database lists only these packages, so that
neither a network nor debootstrap is needed.

    scripts/minimal-root.py DIRECTORY PACKAGE...
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

INFO = Path("var/lib/dpkg/info")


def installed():
    """The stanza of each installed package, by name, as a dictionary and as text."""
    found = {}
    for text in Path("/var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", text, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            found[fields["Package"]] = (fields, text)
    return found


def plain_name(dependency):
    return re.sub(r"\(.*\)|:\w+", "", dependency).strip()


def closure(packages, wanted):
    """The packages that `wanted` and the essential ones need."""
    provider = {}
    for name, (fields, _) in packages.items():
        for provided in fields.get("Provides", "").split(","):
            provider.setdefault(plain_name(provided), name)
    queue = list(wanted)
    queue += [name for name, (fields, _) in packages.items() if fields.get("Essential") == "yes"]
    chosen = set()
    while queue:
        name = queue.pop()
        if name in chosen:
            continue
        chosen.add(name)
        fields = packages[name][0]
        for dependency in (fields.get("Pre-Depends", "") + "," + fields.get("Depends", "")).split(","):
            names = [plain_name(alternative) for alternative in dependency.split("|")]
            names = [name if name in packages else provider.get(name) for name in names]
            queue += [name for name in names if name][:1]
    return chosen


def files_of(fields):
    name = fields["Package"]
    lists = [f"{name}.list", f"{name}:{fields['Architecture']}.list"]
    for path in (Path("/") / INFO / file for file in lists):
        if path.exists():
            return path.read_text().split("\n")
    return []


def main():
    root = Path(sys.argv[1])
    packages = installed()
    missing = [name for name in sys.argv[2:] if name not in packages]
    if missing:
        sys.exit(f"not installed: {' '.join(missing)}")
    chosen = sorted(closure(packages, sys.argv[2:]))
    # /bin, /lib and /sbin are links on hosts with a merged /usr.
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if (link := Path("/") / name).is_symlink():
            (root / link.readlink()).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(link.readlink())
    paths = {path for name in chosen for path in files_of(packages[name][0])}
    # Links of update-alternatives belong to no package.
    paths |= {"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.conf"}
    paths |= {str(link) for link in Path("/etc/alternatives").iterdir()}
    paths |= {"/usr/bin/awk", "/usr/bin/which", "/usr/bin/pager"}
    paths = sorted(path for path in paths if path and path != "/." and Path(path).exists())
    copy = ["tar", "-C", "/", "--create", "--no-recursion", "--null", "--files-from=-"]
    pack = subprocess.Popen(copy, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unpack = subprocess.Popen(
        ["tar", "--extract", "--keep-directory-symlink", "-C", root], stdin=pack.stdout
    )
    pack.stdin.write(b"\0".join(b"." + path.encode() for path in paths))
    pack.stdin.close()
    if unpack.wait() != 0:
        sys.exit("the files cannot be copied")
    if pack.wait() != 0:
        sys.exit("the files cannot be read")
    info = root / INFO
    info.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path("/") / INFO / "format", info)
    (root / "var/lib/dpkg/updates").mkdir(exist_ok=True)
    (root / "var/lib/dpkg/status").write_text(
        "\n\n".join(packages[name][1].strip("\n") for name in chosen) + "\n"
    )
    for name in chosen:
        fields = packages[name][0]
        for file in (Path("/") / INFO).glob(f"{name}.*"):
            shutil.copy(file, info)
        for file in (Path("/") / INFO).glob(f"{name}:{fields['Architecture']}.*"):
            shutil.copy(file, info)
    for directory in ("proc", "sys", "dev", "run", "tmp", "root", "etc"):
        (root / directory).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


main()
