// A file is removed and created again, or renamed, after it was closed:
//     again delete|unlink|only-unlink|rename PATH
// `only-unlink` does not create it again; `rename` gives it the name PATH.final. `again only-delete PATH` deletes a file.
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;

static void must(int code, int line) {
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "rank %d: line %d fails\n", rank, line);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, __LINE__)

static void write_file(const char *path, int value, int length) {
    MPI_File file;
    MPI_Offset size;
    char data[1000];
    memset(data, value, sizeof data);
    MUST(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    MUST(MPI_File_write_at(file, rank * length, data, length, MPI_BYTE, MPI_STATUS_IGNORE));
    MUST(MPI_File_get_size(file, &size));
    if (size > ranks * length) {
        fprintf(stderr, "the new file has %lld bytes\n", (long long)size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MUST(MPI_File_close(&file));
}

int main(int argc, char **argv) {
    char final[4000];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(final, sizeof final, "%s.final", argv[2]);
    if (!strcmp(argv[1], "only-delete")) {
        if (rank == 0) MUST(MPI_File_delete(argv[2], MPI_INFO_NULL));
        MPI_Finalize();
        return 0;
    }
    write_file(argv[2], 'o', 1000);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        if (!strcmp(argv[1], "delete")) MUST(MPI_File_delete(argv[2], MPI_INFO_NULL));
        else if (strstr(argv[1], "unlink")) must(unlink(argv[2]), __LINE__);
        else must(rename(argv[2], final), __LINE__);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(argv[1], "rename") && strcmp(argv[1], "only-unlink")) write_file(argv[2], 'n', 10);
    MPI_Finalize();
    return 0;
}
