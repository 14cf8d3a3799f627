// Patterns of writing with MPI-IO: patterns PATTERN PATH.
#include "timing.h"
#include "runs.h"
#include <string.h>

static void must(int code) {
    if (code != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, code);
}

static MPI_File create(const char *path) {
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    return file;
}

// NAS BTIO, "full": a cube of GRID^3 cells with 5 numbers, divided into SIDE^3 cells of which each of
// the SIDE^2 processes has SIDE, on diagonals. File and memory are nested types; memory has ghost cells.
static long long btio(const char *path) {
    enum { GRID = 64, STEPS = 20, GHOST = 2 };
    int side = 1;
    while (side * side < ranks) side++;
    if (side * side != ranks || GRID % side) MPI_Abort(MPI_COMM_WORLD, 2);
    int width = GRID / side, cell = width + 2 * GHOST;
    MPI_Datatype point, in_file[16], memory, view;
    must(MPI_Type_contiguous(5, MPI_DOUBLE, &point));
    int sizes[3] = {GRID, GRID, GRID}, subsizes[3] = {width, width, width};
    int lengths[16];
    MPI_Aint places[16];
    for (int c = 0; c < side; c++) {
        int x = rank % side, y = rank / side;
        int starts[3] = {c * width, (y + c) % side * width, (x + c) % side * width};
        must(MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, point, &in_file[c]));
        lengths[c] = 1, places[c] = 0;
    }
    must(MPI_Type_create_struct(side, lengths, places, in_file, &view));
    int cells[4] = {side, cell, cell, cell}, inner[4] = {side, width, width, width};
    int ghosts[4] = {0, GHOST, GHOST, GHOST};
    must(MPI_Type_create_subarray(4, cells, inner, ghosts, MPI_ORDER_C, point, &memory));
    must(MPI_Type_commit(&view)), must(MPI_Type_commit(&memory));
    double *data = numbers((size_t)side * cell * cell * cell * 5);
    long long step_bytes = (long long)side * width * width * width * 5 * sizeof(double);
    begin_timing();
    MPI_File file = create(path);
    must(MPI_File_set_view(file, 0, MPI_DOUBLE, view, "native", MPI_INFO_NULL));
    for (int step = 0; step < STEPS; step++) {
        MPI_Offset at = step * (step_bytes / (MPI_Offset)sizeof(double));
        must(MPI_File_write_at_all(file, at, data, 1, memory, MPI_STATUS_IGNORE));
    }
    must(MPI_File_close(&file));
    return step_bytes * STEPS;
}

// IOR -t 64k -b 64k -s 640, with -c if collective: blocks of the processes in turn.
static long long ior(const char *path, int collective) {
    enum { BLOCK = 64 << 10, SEGMENTS = 640 };
    double *data = numbers(BLOCK / sizeof(double));
    begin_timing();
    MPI_File file = create(path);
    for (int segment = 0; segment < SEGMENTS; segment++) {
        MPI_Offset at = ((MPI_Offset)segment * ranks + rank) * BLOCK;
        must((collective ? MPI_File_write_at_all
                         : MPI_File_write_at)(file, at, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    must(MPI_File_close(&file));
    return (long long)BLOCK * SEGMENTS;
}

// E3SM: the fields of an atmosphere, each one collective write of very many small pieces.
static long long e3sm(const char *path) {
    long long starts[RUNS], mine;
    int lengths[RUNS];
    long long columns = deal_runs(rank, ranks, starts, lengths, &mine);
    int *blocks = malloc(LEVELS * RUNS * sizeof(int));
    MPI_Aint *places = malloc(LEVELS * RUNS * sizeof(MPI_Aint));
    for (int level = 0; level < LEVELS; level++)
        for (int run = 0; run < RUNS; run++) {
            blocks[level * RUNS + run] = lengths[run];
            places[level * RUNS + run] = (level * columns + starts[run]) * (MPI_Aint)sizeof(double);
        }
    MPI_Datatype view;
    must(MPI_Type_create_hindexed(LEVELS * RUNS, blocks, places, MPI_DOUBLE, &view));
    must(MPI_Type_commit(&view));
    double *data = numbers(LEVELS * mine);
    begin_timing();
    MPI_File file = create(path);
    for (int field = 0; field < FIELDS; field++) {
        MPI_Offset at = field * LEVELS * columns * (MPI_Offset)sizeof(double);
        must(MPI_File_set_view(file, at, MPI_DOUBLE, view, "native", MPI_INFO_NULL));
        must(MPI_File_write_all(file, data, LEVELS * mine, MPI_DOUBLE, MPI_STATUS_IGNORE));
    }
    must(MPI_File_close(&file));
    return FIELDS * LEVELS * mine * (long long)sizeof(double);
}

// Each process writes 250,000 blocks of 8 to 64 bytes at irregular places, with gaps up to the fourfold that
// no process writes, in one collective write. With `scattered` the gaps are those of 64 KiB: nothing is
// near anything else.
static long long sparse(const char *path, int scattered) {
    enum { BLOCKS = 250000 };
    int count = scattered ? BLOCKS / 100 : BLOCKS, *blocks = malloc(count * sizeof(int));
    MPI_Aint *places = malloc(count * sizeof(MPI_Aint)), at = 0;
    unsigned long long state = 1;
    long long mine = 0;
    for (int block = 0; block < count; block++)
        for (int owner = 0; owner < ranks; owner++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int length = 1 + (int)(state >> 40) % 8, gap = (int)(state >> 50) % (4 * length);
            if (owner == rank) blocks[block] = length, places[block] = at, mine += length;
            at += (length + gap) * (MPI_Aint)sizeof(double) + (scattered ? 64 << 10 : 0);
        }
    MPI_Datatype view;
    must(MPI_Type_create_hindexed(count, blocks, places, MPI_DOUBLE, &view));
    must(MPI_Type_commit(&view));
    double *data = numbers(mine);
    begin_timing();
    MPI_File file = create(path);
    // The MPI-IO of MPICH leaves other data in gaps behind the end of a file; that of Open MPI 4.1 sets the
    // size and reports an error on all processes but the first.
    MPI_File_set_size(file, at);
    must(MPI_File_set_view(file, 0, MPI_DOUBLE, view, "native", MPI_INFO_NULL));
    must(MPI_File_write_all(file, data, mine, MPI_DOUBLE, MPI_STATUS_IGNORE));
    must(MPI_File_close(&file));
    return mine * (long long)sizeof(double);
}

// Each process writes its part of the file in blocks of 8 MiB.
static long long large(const char *path) {
    enum { BLOCK = 8 << 20, BLOCKS = 12 };
    double *data = numbers(BLOCK / sizeof(double));
    begin_timing();
    MPI_File file = create(path);
    for (int block = 0; block < BLOCKS; block++) {
        MPI_Offset at = ((MPI_Offset)rank * BLOCKS + block) * BLOCK;
        must(MPI_File_write_at(file, at, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    must(MPI_File_close(&file));
    return (long long)BLOCK * BLOCKS;
}

int main(int argc, char **argv) {
    begin_program(&argc, &argv);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    const char *pattern = argv[1], *path = argv[2];
    if (!strcmp(pattern, "btio")) end_program(btio(path));
    else if (!strcmp(pattern, "ior")) end_program(ior(path, 1));
    else if (!strcmp(pattern, "ior-independent")) end_program(ior(path, 0));
    else if (!strcmp(pattern, "e3sm")) end_program(e3sm(path));
    else if (!strcmp(pattern, "sparse")) end_program(sparse(path, 0));
    else if (!strcmp(pattern, "scattered")) end_program(sparse(path, 1));
    else if (!strcmp(pattern, "large")) end_program(large(path));
    else MPI_Abort(MPI_COMM_WORLD, 2);
    return 0;
}
