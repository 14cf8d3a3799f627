// The patterns of applications: codes CASE PATH, on 4 processes. Each writes its file or files, and reads
// them again.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void must(int code, int line) {
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "rank %d: line %d fails\n", rank, line);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, __LINE__)

static void expect(int equal, int line) { must(equal ? MPI_SUCCESS : MPI_ERR_OTHER, line); }

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (!memory) MPI_Abort(MPI_COMM_WORLD, 2);
    return memory;
}

static MPI_File opened(MPI_Comm comm, const char *path, int mode) {
    MPI_File file;
    MUST(MPI_File_open(comm, path, mode, MPI_INFO_NULL, &file));
    return file;
}

// FLASH: unknowns of the blocks of a mesh, one collective write each; guard cells in memory. The header is
// that of the first process.
static void flash(const char *path) {
    enum { CELLS = 8, GUARD = 4, WIDTH = CELLS + 2 * GUARD, MESH = 6, UNKNOWNS = 24, HEADER = 1024 };
    int all[4] = {MESH, WIDTH, WIDTH, WIDTH}, inner[4] = {MESH, CELLS, CELLS, CELLS}, at[4] = {0, GUARD, GUARD, GUARD};
    size_t cells = (size_t)MESH * WIDTH * WIDTH * WIDTH, own = (size_t)MESH * CELLS * CELLS * CELLS;
    double *unknown = allocate(cells * sizeof(double)), *found = allocate(cells * sizeof(double));
    MPI_Datatype memory;
    MUST(MPI_Type_create_subarray(4, all, inner, at, MPI_ORDER_C, MPI_DOUBLE, &memory));
    MUST(MPI_Type_commit(&memory));
    MPI_File file = opened(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR);
    char header[HEADER];
    memset(header, 'h', sizeof header);
    if (rank == 0) MUST(MPI_File_write_at(file, 0, header, HEADER, MPI_BYTE, MPI_STATUS_IGNORE));
    for (int u = 0; u < UNKNOWNS; u++) {
        for (size_t i = 0; i < cells; i++) unknown[i] = u * 1e6 + rank * 1e5 + (double)i;
        MPI_Offset start = HEADER + (MPI_Offset)((u * ranks + rank) * own * sizeof(double));
        MUST(MPI_File_write_at_all(file, start, unknown, 1, memory, MPI_STATUS_IGNORE));
    }
    MPI_Offset last = HEADER + (MPI_Offset)(((UNKNOWNS - 1) * ranks + rank) * own * sizeof(double));
    MUST(MPI_File_read_at_all(file, last, found, 1, memory, MPI_STATUS_IGNORE));
    size_t cell = ((size_t)GUARD * WIDTH + GUARD) * WIDTH + GUARD;
    expect(found[cell] == unknown[cell] && found[0] == 0, __LINE__);
    MUST(MPI_File_close(&file));
}

// BTIO, full: each process has cells on the diagonals of a cube, nested types in file and memory, and reads
// all at the end.
static void btio(const char *path) {
    enum { GRID = 16, STEPS = 6, GHOST = 2, SIDE = 2, WIDTH = GRID / SIDE, CELL = WIDTH + 2 * GHOST };
    MPI_Datatype point, cells[SIDE], view, memory;
    MUST(MPI_Type_contiguous(5, MPI_DOUBLE, &point));
    int sizes[3] = {GRID, GRID, GRID}, widths[3] = {WIDTH, WIDTH, WIDTH}, lengths[SIDE];
    MPI_Aint places[SIDE];
    for (int c = 0; c < SIDE; c++) {
        int starts[3] = {c * WIDTH, (rank / SIDE + c) % SIDE * WIDTH, (rank % SIDE + c) % SIDE * WIDTH};
        MUST(MPI_Type_create_subarray(3, sizes, widths, starts, MPI_ORDER_C, point, &cells[c]));
        lengths[c] = 1, places[c] = 0;
    }
    MUST(MPI_Type_create_struct(SIDE, lengths, places, cells, &view));
    int all[4] = {SIDE, CELL, CELL, CELL}, inner[4] = {SIDE, WIDTH, WIDTH, WIDTH}, at[4] = {0, GHOST, GHOST, GHOST};
    MUST(MPI_Type_create_subarray(4, all, inner, at, MPI_ORDER_C, point, &memory));
    MUST(MPI_Type_commit(&view)), MUST(MPI_Type_commit(&memory));
    size_t count = (size_t)SIDE * CELL * CELL * CELL * 5;
    double *data = allocate(count * sizeof(double)), *found = allocate(count * sizeof(double));
    MPI_Offset step_numbers = (MPI_Offset)SIDE * WIDTH * WIDTH * WIDTH * 5;
    MPI_File file = opened(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR);
    MUST(MPI_File_set_view(file, 0, MPI_DOUBLE, view, "native", MPI_INFO_NULL));
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < count; i++) data[i] = step * 1e7 + rank * 1e6 + (double)i;
        MUST(MPI_File_write_at_all(file, step * step_numbers, data, 1, memory, MPI_STATUS_IGNORE));
    }
    MUST(MPI_File_close(&file));
    file = opened(MPI_COMM_WORLD, path, MPI_MODE_RDONLY);
    MUST(MPI_File_set_view(file, 0, MPI_DOUBLE, view, "native", MPI_INFO_NULL));
    MUST(MPI_File_read_at_all(file, (STEPS - 1) * step_numbers, found, 1, memory, MPI_STATUS_IGNORE));
    size_t cell = (((size_t)GHOST * CELL + GHOST) * CELL + GHOST) * 5;
    expect(found[cell] == data[cell] && found[0] == 0, __LINE__);
    MUST(MPI_File_close(&file));
}

// WRF: patches of two-dimensional and three-dimensional fields, of single numbers, in records; dimension
// scales and the number of records are written by the first process alone.
static void wrf(const char *path) {
    enum { X = 26, Y = 18, Z = 5, FIELDS = 7, RECORDS = 3, HEADER = 512 };
    int columns = rank % 2, rows = rank / 2, field_numbers = X * Y * (Z + 1);
    // Patches of different sizes.
    int start[2] = {rows ? 8 : 0, columns ? 12 : 0}, width[2] = {rows ? Y - 8 : 8, columns ? X - 12 : 12};
    float *data = allocate(X * Y * Z * sizeof(float)), *found = allocate(X * Y * Z * sizeof(float));
    MPI_File file = opened(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR);
    for (int record = 0; record < RECORDS; record++) {
        for (int field = 0; field < FIELDS; field++)
            for (int flat = 0; flat < 2; flat++) {
                int levels = flat ? 1 : Z, sizes[3] = {levels, Y, X}, starts[3] = {0, start[0], start[1]};
                int widths[3] = {levels, width[0], width[1]}, numbers = levels * width[0] * width[1];
                MPI_Datatype patch;
                MUST(MPI_Type_create_subarray(3, sizes, widths, starts, MPI_ORDER_C, MPI_FLOAT, &patch));
                MUST(MPI_Type_commit(&patch));
                MPI_Offset at = ((MPI_Offset)record * FIELDS + field) * field_numbers + (flat ? X * Y * Z : 0);
                at = HEADER + at * (MPI_Offset)sizeof(float);
                for (int i = 0; i < numbers; i++) data[i] = (float)(record * 1000 + field * 100 + rank * 10 + i % 7);
                MUST(MPI_File_set_view(file, at, MPI_FLOAT, patch, "native", MPI_INFO_NULL));
                MUST(MPI_File_write_all(file, data, numbers, MPI_FLOAT, MPI_STATUS_IGNORE));
                if (field == FIELDS - 1) {
                    MUST(MPI_File_read_at_all(file, 0, found, numbers, MPI_FLOAT, MPI_STATUS_IGNORE));
                    expect(!memcmp(found, data, numbers * sizeof(float)), __LINE__);
                }
                MUST(MPI_Type_free(&patch));
            }
        MUST(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
        if (rank == 0) MUST(MPI_File_write_at(file, 4, &record, 1, MPI_INT, MPI_STATUS_IGNORE));
        MUST(MPI_File_sync(file));
    }
    MUST(MPI_File_close(&file));
}

// IOR: `mode` is a sum of 1 (collective), 2 (a file view), 4 (a file for each process), 8 (random
// offsets), 16 (one block for each process instead of segments), 32 (individual pointers), 64 (nonblocking).
static void ior(const char *path, int mode) {
    enum { TRANSFER = 6000, PER_BLOCK = 2, MOST_SEGMENTS = 3, MOST = PER_BLOCK * MOST_SEGMENTS };
    int collective = mode & 1, view = mode & 2, alone = mode & 4, segments = mode & 16 ? 1 : MOST_SEGMENTS;
    int per_block = MOST / segments, order[MOST];
    char name[4100], *data = allocate(TRANSFER), *found = allocate(TRANSFER);
    snprintf(name, sizeof name, alone ? "%s.%d" : "%s", path, rank);
    MPI_Comm comm = alone ? MPI_COMM_SELF : MPI_COMM_WORLD;
    int users = alone ? 1 : ranks;
    for (int i = 0; i < MOST; i++) order[i] = i;
    srand(mode);
    for (int i = MOST - 1; i > 0 && mode & 8; i--) {
        int other = rand() % (i + 1), kept = order[i];
        order[i] = order[other], order[other] = kept;
    }
    for (int write = 1; write >= 0; write--) {
        // The reader is the next process, which must find what it reads.
        int by = alone ? 0 : write ? rank : (rank + 1) % ranks, value = alone || write ? rank : by;
        MPI_File file = opened(comm, name, write ? MPI_MODE_CREATE | MPI_MODE_RDWR : MPI_MODE_RDONLY);
        MPI_Offset block = (MPI_Offset)TRANSFER * per_block;
        MPI_Datatype blocks, filetype;
        if (view) {
            MUST(MPI_Type_contiguous((int)block, MPI_BYTE, &blocks));
            MUST(MPI_Type_create_resized(blocks, 0, block * users, &filetype));
            MUST(MPI_Type_commit(&filetype));
            MUST(MPI_File_set_view(file, by * block, MPI_BYTE, filetype, "native", MPI_INFO_NULL));
            MUST(MPI_Type_free(&blocks)), MUST(MPI_Type_free(&filetype));
        }
        for (int i = 0; i < MOST; i++) {
            int number = order[i];
            MPI_Offset at = ((MPI_Offset)(number / per_block) * users + by) * block + number % per_block * TRANSFER;
            if (view) at = (MPI_Offset)number * TRANSFER;
            memset(data, 1 + value * MOST + number, TRANSFER);
            char *memory = write ? data : found;
            MPI_Request request = MPI_REQUEST_NULL;
            int how = (write ? 8 : 0) | (mode & 64 ? 4 : 0) | (mode & 32 ? 2 : 0) | collective;
            if (mode & 32) MUST(MPI_File_seek(file, at, MPI_SEEK_SET));
            switch (how) {
            case 0: MUST(MPI_File_read_at(file, at, memory, TRANSFER, MPI_BYTE, MPI_STATUS_IGNORE)); break;
            case 1: MUST(MPI_File_read_at_all(file, at, memory, TRANSFER, MPI_BYTE, MPI_STATUS_IGNORE)); break;
            case 2: MUST(MPI_File_read(file, memory, TRANSFER, MPI_BYTE, MPI_STATUS_IGNORE)); break;
            case 3: MUST(MPI_File_read_all(file, memory, TRANSFER, MPI_BYTE, MPI_STATUS_IGNORE)); break;
            case 4: MUST(MPI_File_iread_at(file, at, memory, TRANSFER, MPI_BYTE, &request)); break;
            case 5: MUST(MPI_File_iread_at_all(file, at, memory, TRANSFER, MPI_BYTE, &request)); break;
            case 6: MUST(MPI_File_iread(file, memory, TRANSFER, MPI_BYTE, &request)); break;
            case 7: MUST(MPI_File_iread_all(file, memory, TRANSFER, MPI_BYTE, &request)); break;
            case 8: MUST(MPI_File_write_at(file, at, memory, TRANSFER, MPI_BYTE, MPI_STATUS_IGNORE)); break;
            case 9: MUST(MPI_File_write_at_all(file, at, memory, TRANSFER, MPI_BYTE, MPI_STATUS_IGNORE)); break;
            case 10: MUST(MPI_File_write(file, memory, TRANSFER, MPI_BYTE, MPI_STATUS_IGNORE)); break;
            case 11: MUST(MPI_File_write_all(file, memory, TRANSFER, MPI_BYTE, MPI_STATUS_IGNORE)); break;
            case 12: MUST(MPI_File_iwrite_at(file, at, memory, TRANSFER, MPI_BYTE, &request)); break;
            case 13: MUST(MPI_File_iwrite_at_all(file, at, memory, TRANSFER, MPI_BYTE, &request)); break;
            case 14: MUST(MPI_File_iwrite(file, memory, TRANSFER, MPI_BYTE, &request)); break;
            default: MUST(MPI_File_iwrite_all(file, memory, TRANSFER, MPI_BYTE, &request)); break;
            }
            MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
            if (!write) expect(!memcmp(found, data, TRANSFER), __LINE__);
        }
        MUST(MPI_File_close(&file));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(data), free(found);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3 || ranks != 4) MPI_Abort(MPI_COMM_WORLD, 2);
    const char *name = argv[1], *path = argv[2];
    if (!strcmp(name, "flash")) flash(path);
    else if (!strcmp(name, "btio")) btio(path);
    else if (!strcmp(name, "wrf")) wrf(path);
    else if (!strcmp(name, "ior"))
        for (int mode = 0; mode < 128; mode++) {
            char each[4000];
            snprintf(each, sizeof each, "%s%d", path, mode);
            ior(each, mode);
        }
    else MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Finalize();
    return 0;
}
