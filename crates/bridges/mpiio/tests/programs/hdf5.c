// Writes two datasets with parallel HDF5, one collectively by interleaved rows, one independently by
// columns, and reads them back: hdf5 PATH.
#include <hdf5.h>
#include <stdlib.h>

enum { ROWS = 48, COLUMNS = 40 };

static int rank, ranks;

static hid_t must(hid_t id) {
    if (id < 0) MPI_Abort(MPI_COMM_WORLD, 1);
    return id;
}

static void transfer(hid_t file, const char *name, int collective, int read) {
    int mine = collective ? ROWS / ranks : ROWS, columns = collective ? COLUMNS : COLUMNS / ranks;
    hsize_t start[2] = {collective ? rank : 0, collective ? 0 : rank * columns};
    hsize_t stride[2] = {collective ? ranks : 1, 1}, count[2] = {mine, columns}, sizes[2] = {ROWS, COLUMNS};
    hid_t space = must(H5Screate_simple(2, sizes, NULL)), memory = must(H5Screate_simple(2, count, NULL));
    hid_t access = must(H5Pcreate(H5P_DATASET_XFER)), creation = must(H5Pcreate(H5P_DATASET_CREATE));
    must(H5Pset_obj_track_times(creation, 0));
    must(H5Pset_dxpl_mpio(access, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT));
    hid_t set = must(read ? H5Dopen(file, name, H5P_DEFAULT)
                          : H5Dcreate(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
    must(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL));
    double *data = malloc(sizeof(double) * mine * columns);
    for (int i = 0; i < mine * columns; i++) data[i] = read ? 0 : rank * 10000 + i;
    must(read ? H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, access, data)
              : H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, access, data));
    for (int i = 0; i < mine * columns; i++)
        if (data[i] != rank * 10000 + i) must(-1);
    free(data);
    must(H5Dclose(set)), must(H5Sclose(space)), must(H5Sclose(memory));
    must(H5Pclose(access)), must(H5Pclose(creation));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    hid_t parallel = must(H5Pcreate(H5P_FILE_ACCESS));
    must(H5Pset_fapl_mpio(parallel, MPI_COMM_WORLD, MPI_INFO_NULL));
    hid_t file = must(H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, parallel));
    transfer(file, "rows", 1, 0);
    transfer(file, "columns", 0, 0);
    must(H5Fflush(file, H5F_SCOPE_GLOBAL));
    transfer(file, "rows", 1, 1);
    transfer(file, "columns", 0, 1);
    must(H5Fclose(file));
    file = must(H5Fopen(argv[1], H5F_ACC_RDWR, parallel));
    transfer(file, "columns", 0, 1);
    transfer(file, "more", 1, 0);
    must(H5Fclose(file));
    must(H5Pclose(parallel));
    MPI_Finalize();
    return 0;
}
