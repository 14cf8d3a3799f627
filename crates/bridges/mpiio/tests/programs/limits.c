// Programs that reach limits: limits PATH many|fine|fill COUNT.
// many: after a collective write, COUNT independent writes of 8 bytes by the first process, and more over
// some of them. fine: reads COUNT MiB of interleaved pieces of 4 bytes. fill: COUNT writes of 9000 bytes.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int rank, ranks;

static void check(int code, const char *call) {
    if (code == MPI_SUCCESS) return;
    printf("rank %d: %s fails\n", rank, call);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK(call) check(call, #call)

static void write_at(MPI_File file, MPI_Offset at, const void *data, int length) {
    CHECK(MPI_File_write_at(file, at, data, length, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void many(MPI_File file, long count) {
    char end[8] = "the end";
    CHECK(MPI_File_write_at_all(file, rank * 8, end, 8, MPI_BYTE, MPI_STATUS_IGNORE));
    for (long i = 1; i < count && rank == 0; i++) write_at(file, i * ranks * 8, &i, 8);
    for (long i = 1; i < count && rank == 0; i += 1000) write_at(file, i * ranks * 8, end, 8);
    if (rank == 0) {
        long found[2];
        CHECK(MPI_File_read_at(file, 2 * ranks * 8, &found[0], 8, MPI_BYTE, MPI_STATUS_IGNORE));
        CHECK(MPI_File_read_at(file, 1001 * ranks * 8, &found[1], 8, MPI_BYTE, MPI_STATUS_IGNORE));
        if (found[0] != 2 || memcmp(&found[1], end, 8)) printf("wrong data\n");
    }
}

static long resident(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

static void fine(MPI_File file, long count) {
    long bytes = count << 20;
    char *data = malloc(bytes);
    MPI_Datatype strided;
    MPI_Type_vector(bytes / 4 / ranks, 1, ranks, MPI_INT, &strided);
    MPI_Type_commit(&strided);
    memset(data, 'a' + rank, bytes);
    CHECK(MPI_File_set_view(file, rank * 4, MPI_INT, strided, "native", MPI_INFO_NULL));
    CHECK(MPI_File_write_all(file, data, bytes / 4 / ranks, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_sync(file));
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    long before = resident();
    CHECK(MPI_File_read_at(file, 0, data, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    if (rank == 0) printf("grew by %ld MiB\n", resident() - before);
    for (long i = 0; i < bytes; i++)
        if (data[i] != 'a' + i / 4 % ranks) {
            printf("wrong data\n");
            break;
        }
}

static void fill(MPI_File file, long count) {
    char data[9000];
    for (long i = 0; i < count; i++) {
        memset(data, 'a' + (i + rank) % 26, sizeof data);
        write_at(file, (i * ranks + rank) * sizeof data, data, sizeof data);
    }
}

int main(int argc, char **argv) {
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    long count = atol(argv[3]);
    if (!strcmp(argv[2], "many")) many(file, count);
    if (!strcmp(argv[2], "fine")) fine(file, count);
    if (!strcmp(argv[2], "fill")) fill(file, count);
    CHECK(MPI_File_close(&file));
    MPI_Finalize();
    return 0;
}
