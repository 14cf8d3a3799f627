// IOR's strided writes with MPI-IO: ior TRANSFER,SEGMENTS,COLLECTIVE PATH, as IOR -t T -b T -s S [-c].
// With 0 segments: the mean time of a reduction of 8 bytes.
#include "timing.h"

static void must(int code) {
    if (code != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, code);
}

static long long write_file(const char *path, long long transfer, long long segments, int collective) {
    char *data = malloc(transfer);
    if (!data) MPI_Abort(MPI_COMM_WORLD, 2);
    for (long long i = 0; i < transfer; i++) data[i] = (char)(i * 7 + rank);
    begin_timing();
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    for (long long segment = 0; segment < segments; segment++) {
        MPI_Offset at = (segment * ranks + rank) * transfer;
        must((collective ? MPI_File_write_at_all
                         : MPI_File_write_at)(file, at, data, transfer, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    must(MPI_File_close(&file));
    return transfer * segments;
}

static long long reduce(void) {
    enum { TIMES = 200 };
    double mine = rank, sum;
    begin_timing();
    for (int i = 0; i < TIMES; i++) MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return TIMES;
}

int main(int argc, char **argv) {
    long long transfer, segments;
    int collective;
    begin_program(&argc, &argv);
    if (argc != 3 || sscanf(argv[1], "%lld,%lld,%d", &transfer, &segments, &collective) != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    end_program(segments ? write_file(argv[2], transfer, segments, collective) : reduce());
    return 0;
}
