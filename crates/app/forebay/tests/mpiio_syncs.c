// Writes records of 1000 bytes, and syncs them, until it is killed: mpiio_syncs PATH STATE. Record i of a
// process is the (i * ranks + rank)th of the file, and has bytes of 1 + (its number) % 250. STATE.synced has the
// number of records of each process that are synced, STATE.pid.RANK the process.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD = 1000, MOST = 20000, SYNC = 4 };

static void note(const char *state, const char *what, int number) {
    char path[4000], next[4000];
    snprintf(path, sizeof path, "%.3000s.%s", state, what);
    snprintf(next, sizeof next, "%.3000s.%s.next", state, what);
    FILE *file = fopen(next, "w");
    if (!file) MPI_Abort(MPI_COMM_WORLD, 2);
    fprintf(file, "%d\n", number);
    fclose(file);
    rename(next, path);
}

int main(int argc, char **argv) {
    int rank, ranks;
    char data[RECORD], pid[40];
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(pid, sizeof pid, "pid.%d", rank);
    note(argv[2], pid, (int)getpid());
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file)) return 1;
    for (int i = 0; i < MOST; i++) {
        int number = i * ranks + rank;
        memset(data, 1 + number % 250, RECORD);
        if (MPI_File_write_at(file, (MPI_Offset)number * RECORD, data, RECORD, MPI_BYTE, MPI_STATUS_IGNORE)) return 1;
        if (i % SYNC != SYNC - 1) continue;
        if (MPI_File_sync(file)) return 1;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) note(argv[2], "synced", i + 1);
        usleep(5000);
    }
    return 1;
}
