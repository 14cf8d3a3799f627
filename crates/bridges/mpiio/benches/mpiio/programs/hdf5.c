// Collective writes with parallel HDF5: hdf5 PATTERN PATH.
#include "timing.h"
#include <hdf5.h>

static hid_t must(hid_t id) {
    if (id < 0) MPI_Abort(MPI_COMM_WORLD, 1);
    return id;
}

// Datasets of a cube that is divided among the processes along its last two dimensions.
int main(int argc, char **argv) {
    enum { SETS = 12, GRID = 128 };
    begin_program(&argc, &argv);
    int side = 1;
    while (side * side < ranks) side++;
    if (argc != 3 || side * side != ranks || GRID % side) MPI_Abort(MPI_COMM_WORLD, 2);
    hsize_t sizes[3] = {GRID, GRID, GRID}, count[3] = {GRID, GRID / side, GRID / side};
    hsize_t start[3] = {0, rank / side * count[1], rank % side * count[2]};
    double *data = numbers(count[0] * count[1] * count[2]);
    begin_timing();
    hid_t access = must(H5Pcreate(H5P_FILE_ACCESS)), transfer = must(H5Pcreate(H5P_DATASET_XFER));
    must(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    must(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE));
    hid_t file = must(H5Fcreate(argv[2], H5F_ACC_TRUNC, H5P_DEFAULT, access));
    hid_t space = must(H5Screate_simple(3, sizes, NULL)), memory = must(H5Screate_simple(3, count, NULL));
    // Times of creation would differ from run to run.
    hid_t creation = must(H5Pcreate(H5P_DATASET_CREATE));
    must(H5Pset_obj_track_times(creation, 0));
    must(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    for (int s = 0; s < SETS; s++) {
        char name[16];
        sprintf(name, "set%d", s);
        hid_t set = must(H5Dcreate(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
        must(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, transfer, data));
        must(H5Dclose(set));
    }
    must(H5Sclose(space)), must(H5Sclose(memory)), must(H5Pclose(transfer)), must(H5Pclose(access));
    must(H5Pclose(creation));
    must(H5Fclose(file));
    end_program((long long)SETS * count[0] * count[1] * count[2] * sizeof(double));
    return 0;
}
