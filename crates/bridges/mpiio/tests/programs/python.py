"""Writes and reads a file with mpi4py: python.py PATH."""

import sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
file = MPI.File.Open(comm, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
piece = MPI.BYTE.Create_vector(16, 8, 8 * ranks).Create_resized(0, 128 * ranks)
piece.Commit()
file.Set_view(rank * 8, MPI.BYTE, piece)
data = bytearray((rank * 50 + i) % 256 for i in range(512))
file.Write_all(data)
file.Write(data[:100])
request = file.Iwrite_at(700, data[:64])
request.Wait()
file.Sync()
comm.Barrier()
file.Sync()
file.Set_view(0, MPI.BYTE, MPI.BYTE)
found = bytearray(8 * ranks)
file.Read_at_all(0, found)
for other in range(ranks):
    assert found[8 * other : 8 * other + 8] == bytearray(other * 50 + i for i in range(8)), (rank, found)
file.Close()
