// Writes variables with PnetCDF: filled, then put by blocks of ranks; overlapping puts of one rank; a
// record variable; a strided put: pnetcdf PATH.
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>

enum { SIZE = 24 };

static void must(int code, int line) {
    if (code == NC_NOERR) return;
    fprintf(stderr, "line %d: %s\n", line, ncmpi_strerror(code));
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, __LINE__)

int main(int argc, char **argv) {
    int rank, ranks, file, dimensions[3], fixed, records, overlap, strided;
    int data[SIZE * SIZE];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MUST(ncmpi_create(MPI_COMM_WORLD, argv[1], NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    MUST(ncmpi_def_dim(file, "time", NC_UNLIMITED, &dimensions[0]));
    MUST(ncmpi_def_dim(file, "y", SIZE, &dimensions[1]));
    MUST(ncmpi_def_dim(file, "x", SIZE, &dimensions[2]));
    MUST(ncmpi_def_var(file, "fixed", NC_INT, 2, dimensions + 1, &fixed));
    MUST(ncmpi_def_var(file, "overlap", NC_INT, 2, dimensions + 1, &overlap));
    MUST(ncmpi_def_var(file, "strided", NC_INT, 2, dimensions + 1, &strided));
    MUST(ncmpi_def_var(file, "records", NC_INT, 3, dimensions, &records));
    MUST(ncmpi_def_var_fill(file, fixed, 0, NULL));
    MUST(ncmpi_def_var_fill(file, strided, 0, NULL));
    MUST(ncmpi_def_var_fill(file, records, 0, NULL));
    MUST(ncmpi_put_att_text(file, NC_GLOBAL, "title", 4, "test"));
    MUST(ncmpi_enddef(file));
    for (int i = 0; i < SIZE * SIZE; i++) data[i] = rank * 10000 + i;
    // Columns of the rank, over the fill values that other ranks have written.
    MPI_Offset width = SIZE / ranks, start[3] = {0, rank * width, 0}, count[3] = {SIZE - 1, width, 0};
    MUST(ncmpi_put_vara_int_all(file, fixed, start, count, data));
    // Of two puts of one rank the second counts.
    MPI_Offset rows = SIZE / ranks, first[2] = {rank * rows, 0}, block[2] = {rows, SIZE};
    MUST(ncmpi_put_vara_int_all(file, overlap, first, block, data));
    MPI_Offset part[2] = {rank * rows + 1, 3}, small[2] = {rows - 1, 5};
    MUST(ncmpi_put_vara_int_all(file, overlap, part, small, data + 100));
    MPI_Offset from[2] = {rank, 0}, number[2] = {SIZE / ranks, SIZE / 2}, stride[2] = {ranks, 2};
    MUST(ncmpi_put_vars_int_all(file, strided, from, number, stride, data));
    for (MPI_Offset record = 0; record < 4; record++) {
        MPI_Offset at[3] = {record, rank * rows, 0}, length[3] = {1, rows, SIZE};
        MUST(ncmpi_put_vara_int_all(file, records, at, length, data + record));
        MUST(ncmpi_fill_var_rec(file, records, 4 + record));
    }
    int request[2], status[2];
    MPI_Offset at[3] = {4, rank * rows, 0}, length[3] = {1, rows, SIZE};
    MUST(ncmpi_iput_vara_int(file, records, at, length, data, &request[0]));
    at[0] = 5;
    MUST(ncmpi_iput_vara_int(file, records, at, length, data + 7, &request[1]));
    MUST(ncmpi_wait_all(file, 2, request, status));
    MUST(ncmpi_sync(file));
    MUST(ncmpi_begin_indep_data(file));
    int value = 77 + rank;
    MPI_Offset place[2] = {SIZE - 1, rank};
    MUST(ncmpi_put_var1_int(file, fixed, place, &value));
    MUST(ncmpi_end_indep_data(file));
    MUST(ncmpi_sync(file));
    int found[SIZE * SIZE];
    MUST(ncmpi_get_vara_int_all(file, strided, start, count, found));
    MUST(ncmpi_close(file));
    MPI_Finalize();
    return 0;
}
