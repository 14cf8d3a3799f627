// Each process writes 1 MiB with one call; then the size of the file is set, if it is given: background
// PATH [SIZE].
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static char data[1 << 20];

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2 && argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    memset(data, 'a' + rank, sizeof data);
    int mode = MPI_MODE_CREATE | MPI_MODE_WRONLY;
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], mode, MPI_INFO_NULL, &file) != MPI_SUCCESS ||
        MPI_File_write_at(file, (MPI_Offset)rank * sizeof data, data, sizeof data, MPI_BYTE,
                          MPI_STATUS_IGNORE) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    // Open MPI 4.1 sets the size and reports an error on all ranks but the first.
    if (argc == 3) MPI_File_set_size(file, atoll(argv[2]));
    if (MPI_File_close(&file) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
