// Writes a NetCDF-4 file in parallel: netcdf PATH.
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>
#include <stdio.h>

enum { SIZE = 32 };

static void must(int code, int line) {
    if (code == NC_NOERR) return;
    fprintf(stderr, "line %d: %s\n", line, nc_strerror(code));
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, __LINE__)

int main(int argc, char **argv) {
    int rank, ranks, file, dimensions[2], variable;
    double data[SIZE * SIZE], found[SIZE * SIZE];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MUST(nc_create_par(argv[1], NC_CLOBBER | NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
    MUST(nc_def_dim(file, "y", SIZE, &dimensions[0]));
    MUST(nc_def_dim(file, "x", SIZE, &dimensions[1]));
    MUST(nc_def_var(file, "v", NC_DOUBLE, 2, dimensions, &variable));
    MUST(nc_enddef(file));
    MUST(nc_var_par_access(file, variable, NC_COLLECTIVE));
    for (int i = 0; i < SIZE * SIZE; i++) data[i] = rank * 10000 + i;
    size_t start[2] = {0, rank * (SIZE / ranks)}, count[2] = {SIZE, SIZE / ranks};
    MUST(nc_put_vara_double(file, variable, start, count, data));
    MUST(nc_sync(file));
    MUST(nc_get_vara_double(file, variable, start, count, found));
    for (int i = 0; i < (int)(count[0] * count[1]); i++)
        if (found[i] != data[i]) must(NC_EINVAL, __LINE__);
    MUST(nc_close(file));
    MPI_Finalize();
    return 0;
}
