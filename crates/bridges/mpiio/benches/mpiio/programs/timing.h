// The time of writing a file, and its bytes: one line of output, `SECONDS BYTES`.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;
static double started;

static void begin_program(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

// All processes begin to open the file.
static void begin_timing(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    started = MPI_Wtime();
}

// The file is closed. The slowest process counts.
static void end_program(long long bytes_of_process) {
    double seconds = MPI_Wtime() - started, slowest;
    long long bytes;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&bytes_of_process, &bytes, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%.6f %lld\n", slowest, bytes);
    MPI_Finalize();
}

// Memory for `count` numbers, different in each process.
static double *numbers(size_t count) {
    double *data = malloc(count * sizeof(double));
    if (!data) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < count; i++) data[i] = (double)rank * 1e9 + (double)i;
    return data;
}
