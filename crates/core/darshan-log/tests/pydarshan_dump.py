"""Prints what PyDarshan reads from a log, in the lines of pydarshan.rs; floats as the hexadecimal of their bits."""

import struct
import sys

from darshan.backend import cffi_backend as backend


def bits(value):
    return struct.pack(">d", float(value)).hex()


log = backend.log_open(sys.argv[1])
job = backend.log_get_job(log)
print("job", job["uid"], job["jobid"], job["nprocs"], bits(job["run_time"]), job["log_ver"])
for module in ("POSIX", "MPI-IO", "STDIO"):
    while (record := backend.log_get_generic_record(log, module)) is not None:
        counters = " ".join(str(value) for value in record["counters"])
        times = " ".join(bits(value) for value in record["fcounters"])
        print(module, record["id"], record["rank"], counters, times)
for module in ("DXT_POSIX", "DXT_MPIIO"):
    while (record := backend.log_get_dxt_record(log, module)) is not None:
        print(module, record["id"], record["rank"], record["hostname"])
        for access in ("write", "read"):
            for segment in record[access + "_segments"]:
                times = bits(segment["start_time"]), bits(segment["end_time"])
                print(access, segment["offset"], segment["length"], *times)
while (record := backend.log_get_record(log, "LUSTRE")) is not None:
    parts = ["LUSTRE", record["id"], record["rank"]]
    for component in record["components"]:
        parts += [int(value) for value in component["counters"][:2]]
        parts += [int(value) for value in component["ost_ids"]]
    print(*parts)
for mount, kind in sorted(backend.log_get_mounts(log)):
    print("mount", kind, mount)
names = backend.log_get_name_records(log)
for record_id in sorted(names):
    print("name", record_id, names[record_id])
backend.log_close(log)
