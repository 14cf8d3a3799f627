// Orders of writes that a log must keep:
//     order early|error|names|nothing PATH
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAR = 1 << 20 };

static int rank;
static char data[8192];

static void must(int code, const char *call) {
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "rank %d: %s fails\n", rank, call);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, #call)

static MPI_File opened(const char *path) {
    MPI_File file;
    MUST(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    return file;
}

static void put(MPI_File file, MPI_Offset offset, int value, int length) {
    memset(data, value, sizeof data);
    MUST(MPI_File_write_at(file, offset, data, length, MPI_BYTE, MPI_STATUS_IGNORE));
}

static int put_all(MPI_File file, MPI_Offset offset, int value) {
    memset(data, value, sizeof data);
    return MPI_File_write_at_all(file, offset, data, 100, MPI_BYTE, MPI_STATUS_IGNORE);
}

// The log of the first rank fills when the other has written over its data, past the log.
static void early(const char *path) {
    MPI_File file = opened(path);
    if (rank == 0) put(file, 0, 'a', 100);
    MUST(put_all(file, FAR + rank * 100, 'c'));
    if (rank == 1) put(file, 0, 'b', 4096);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        for (int i = 0; i < 40; i++) put(file, 2 * FAR + i * 1000, 'd', 1000);
    MUST(MPI_File_close(&file));
}

// Collective calls fail on the first rank only, which then writes last.
static void error(const char *path) {
    MPI_File file = opened(path);
    for (int i = 0; i < 40; i++) {
        int code = put_all(file, rank == 0 ? -1 : FAR, 'c');
        if ((code == MPI_SUCCESS) == (rank == 0)) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 1) put(file, 0, 'a', 100);
    MUST(put_all(file, FAR + rank * 100, 'c'));
    if (rank == 0) put(file, 0, 'b', 100);
    MUST(MPI_File_close(&file));
}

// Two handles of a file that has several names, and of two files that were opened in turn.
static void names(const char *path) {
    char other[4000];
    snprintf(other, sizeof other, "%s.link", path);
    MPI_File first = opened(path);
    put(first, rank * 100, 'a', 100);
    MPI_File second = opened(other);
    memset(data, 0, sizeof data);
    MUST(MPI_File_read_at(second, rank * 100, data, 100, MPI_BYTE, MPI_STATUS_IGNORE));
    if (data[0] != 'a' || data[99] != 'a') {
        fprintf(stderr, "rank %d: the write is not visible under the other name\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    put(second, rank * 100, 'b', 50);
    MUST(MPI_File_sync(second));
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(MPI_File_sync(first));
    put(first, rank * 100, 'e', 10);
    MUST(MPI_File_sync(first));
    MUST(MPI_File_close(&second));
    MUST(MPI_File_close(&first));
    // Many handles, with data in each, when the file is opened once more.
    MPI_File many[12];
    for (int i = 0; i < 12; i++) {
        char name[4000];
        snprintf(name, sizeof name, "%s.many", path);
        many[i] = opened(name);
        put(many[i], 1000 * i + 100 * rank, 'a' + i, 100);
    }
    for (int i = 0; i < 12; i++) MUST(MPI_File_close(&many[i]));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 3) return 1;
    if (!strcmp(argv[1], "early")) early(argv[2]);
    else if (!strcmp(argv[1], "error")) error(argv[2]);
    else if (!strcmp(argv[1], "names")) names(argv[2]);
    else {
        MPI_File file = opened(argv[2]);
        MUST(MPI_File_close(&file));
    }
    MPI_Finalize();
    return 0;
}
