// Patterns of writing with PnetCDF: pnetcdf PATTERN PATH.
#include "timing.h"
#include "runs.h"
#include <pnetcdf.h>
#include <string.h>

static int must(int code) {
    if (code != NC_NOERR) {
        fprintf(stderr, "%s\n", ncmpi_strerror(code));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return code;
}

// Creates a file with `count` variables of the same dimensions.
static int create(const char *path, int count, int dimensions, const MPI_Offset *sizes, int *variables) {
    int file, ids[8];
    must(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    for (int d = 0; d < dimensions; d++) {
        char name[16];
        sprintf(name, "d%d", d);
        must(ncmpi_def_dim(file, name, sizes[d], &ids[d]));
    }
    for (int v = 0; v < count; v++) {
        char name[16];
        sprintf(name, "v%d", v);
        must(ncmpi_def_var(file, name, NC_DOUBLE, dimensions, ids, &variables[v]));
    }
    must(ncmpi_enddef(file));
    return file;
}

// FLASH-IO, checkpoint: 24 unknowns of the blocks of an adaptive mesh, each one blocking collective
// put. Blocks have guard cells in memory.
static long long flash(const char *path) {
    enum { BLOCKS = 40, CELLS = 16, GUARD = 4, UNKNOWNS = 24, ALL = CELLS + 2 * GUARD };
    MPI_Offset sizes[4] = {(MPI_Offset)BLOCKS * ranks, CELLS, CELLS, CELLS};
    MPI_Offset start[4] = {(MPI_Offset)BLOCKS * rank, 0, 0, 0}, count[4] = {BLOCKS, CELLS, CELLS, CELLS};
    double *data = numbers((size_t)BLOCKS * ALL * ALL * ALL * UNKNOWNS);
    int variables[UNKNOWNS];
    begin_timing();
    int file = create(path, UNKNOWNS, 4, sizes, variables);
    for (int u = 0; u < UNKNOWNS; u++) {
        int all[4] = {BLOCKS, ALL, ALL, ALL}, part[4] = {BLOCKS, CELLS, CELLS, CELLS};
        int first[4] = {0, GUARD, GUARD, GUARD};
        MPI_Datatype memory;
        MPI_Type_create_subarray(4, all, part, first, MPI_ORDER_C, MPI_DOUBLE, &memory);
        MPI_Type_commit(&memory);
        must(ncmpi_put_vara_all(file, variables[u], start, count, data + (size_t)u * BLOCKS * ALL * ALL * ALL, 1, memory));
        MPI_Type_free(&memory);
    }
    must(ncmpi_close(file));
    return (long long)UNKNOWNS * BLOCKS * CELLS * CELLS * CELLS * sizeof(double);
}

// BTIO: steps of a cube with 5 numbers a cell; a process writes a cell of each diagonal.
static long long btio(const char *path) {
    enum { GRID = 64, STEPS = 20 };
    int side = 1, variable;
    while (side * side < ranks) side++;
    if (side * side != ranks || GRID % side) MPI_Abort(MPI_COMM_WORLD, 2);
    int width = GRID / side;
    MPI_Offset sizes[5] = {STEPS, GRID, GRID, GRID, 5};
    double *data = numbers((size_t)side * width * width * width * 5);
    begin_timing();
    int file = create(path, 1, 5, sizes, &variable);
    for (int step = 0; step < STEPS; step++)
        for (int c = 0; c < side; c++) {
            int x = rank % side, y = rank / side;
            MPI_Offset start[5] = {step, (MPI_Offset)c * width, (MPI_Offset)((y + c) % side) * width,
                                   (MPI_Offset)((x + c) % side) * width, 0};
            MPI_Offset count[5] = {1, width, width, width, 5};
            must(ncmpi_put_vara_double_all(file, variable, start, count,
                                           data + (size_t)c * width * width * width * 5));
        }
    must(ncmpi_close(file));
    return (long long)STEPS * side * width * width * width * 5 * sizeof(double);
}

// IOR, strided: rows of 64 KiB of the processes in turn.
static long long ior(const char *path) {
    enum { ROW = (64 << 10) / sizeof(double), ROWS = 640 };
    int variable;
    MPI_Offset sizes[2] = {(MPI_Offset)ROWS * ranks, ROW};
    double *data = numbers(ROW);
    begin_timing();
    int file = create(path, 1, 2, sizes, &variable);
    for (int row = 0; row < ROWS; row++) {
        MPI_Offset start[2] = {(MPI_Offset)row * ranks + rank, 0}, count[2] = {1, ROW};
        must(ncmpi_put_vara_double_all(file, variable, start, count, data));
    }
    must(ncmpi_close(file));
    return (long long)ROW * ROWS * sizeof(double);
}

// E3SM: fields of an atmosphere, each one collective put of very many small subarrays.
static long long e3sm(const char *path) {
    long long runs[RUNS], mine;
    int lengths[RUNS], variables[FIELDS];
    MPI_Offset sizes[2] = {LEVELS, deal_runs(rank, ranks, runs, lengths, &mine)};
    MPI_Offset *numbers_of = malloc(LEVELS * RUNS * 4 * sizeof(MPI_Offset));
    MPI_Offset **starts = malloc(LEVELS * RUNS * sizeof(MPI_Offset *));
    MPI_Offset **counts = malloc(LEVELS * RUNS * sizeof(MPI_Offset *));
    for (int i = 0; i < LEVELS * RUNS; i++) {
        starts[i] = numbers_of + 4 * i, counts[i] = starts[i] + 2;
        starts[i][0] = i / RUNS, starts[i][1] = runs[i % RUNS];
        counts[i][0] = 1, counts[i][1] = lengths[i % RUNS];
    }
    double *data = numbers(LEVELS * mine);
    begin_timing();
    int file = create(path, FIELDS, 2, sizes, variables);
    for (int field = 0; field < FIELDS; field++)
        must(ncmpi_put_varn_double_all(file, variables[field], LEVELS * RUNS, starts, counts, data));
    must(ncmpi_close(file));
    return FIELDS * LEVELS * mine * (long long)sizeof(double);
}

int main(int argc, char **argv) {
    begin_program(&argc, &argv);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    const char *pattern = argv[1], *path = argv[2];
    if (!strcmp(pattern, "flash")) end_program(flash(path));
    else if (!strcmp(pattern, "btio")) end_program(btio(path));
    else if (!strcmp(pattern, "ior")) end_program(ior(path));
    else if (!strcmp(pattern, "e3sm")) end_program(e3sm(path));
    else MPI_Abort(MPI_COMM_WORLD, 2);
    return 0;
}
