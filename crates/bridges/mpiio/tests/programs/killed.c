// Writes interleaved blocks and syncs; then writes others over a part of them, syncs and is killed:
// killed PATH kill|end [HINT VALUE]. With `end` it closes the file. Before that, when all is synced, it
// creates the file that SYNCED_MARK names.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1000, BLOCKS = 200 };

int main(int argc, char **argv) {
    int rank, ranks;
    char data[BLOCK];
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Info hints = MPI_INFO_NULL;
    if (argc > 4) {
        MPI_Info_create(&hints);
        MPI_Info_set(hints, argv[3], argv[4]);
    }
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, hints, &file)) return 1;
    for (int i = 0; i < BLOCKS; i++) {
        memset(data, rank * 100 + i % 100, BLOCK);
        MPI_File_write_at_all(file, (MPI_Offset)(i * ranks + rank) * BLOCK, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    // The next rank's blocks, which a replay must not put back.
    MPI_File_sync(file);
    memset(data, 7 + rank, BLOCK);
    int next = (rank + 1) % ranks;
    for (int i = 0; i < BLOCKS; i += 3)
        MPI_File_write_at(file, (MPI_Offset)(i * ranks + next) * BLOCK, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && getenv("SYNCED_MARK")) fclose(fopen(getenv("SYNCED_MARK"), "w"));
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 2 && !strcmp(argv[2], "kill")) raise(SIGKILL);
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
