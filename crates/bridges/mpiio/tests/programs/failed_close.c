// Each process writes 1000 bytes, and closes the file while messages fail: failed_close PATH.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank;
    char data[1000];
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
    memset(data, 'a' + rank, sizeof data);
    int mode = MPI_MODE_CREATE | MPI_MODE_WRONLY;
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], mode, MPI_INFO_NULL, &file) != MPI_SUCCESS ||
        MPI_File_write_at(file, rank * 1000, data, 1000, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    setenv("MESSAGES_FAIL", "1", 1);
    int closed = MPI_File_close(&file);
    printf("close %s\n", closed == MPI_SUCCESS ? "succeeds" : "fails");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
