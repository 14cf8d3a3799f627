// Puts of PnetCDF in an order that a log has to keep: puts PATH end|kill [RUN]. Each value that must be
// in the file is read back from there by `puts PATH check [RUN]`. Runs put different values. With `kill` the program is killed behind a
// sync instead of closing the file.
#include <mpi.h>
#include <pnetcdf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, COLUMNS = 1024, ROUNDS = 6 };

static int rank, ranks, number_of_run, data[ROWS * COLUMNS];

static void must(int code, int line) {
    if (code == NC_NOERR) return;
    fprintf(stderr, "line %d: %s\n", line, ncmpi_strerror(code));
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, __LINE__)

// Value of a round's put; different for each run, rank and round.
static int value(int round) { return 1000000 * number_of_run + 1000 * (round + 1) + rank; }

// The rows of this rank that a round puts: overlapping those of the round before in different ways.
static void rows_of(int round, MPI_Offset *first, MPI_Offset *number) {
    static const int from[ROUNDS] = {0, 8, 0, 20, 10, 12}, many[ROUNDS] = {32, 8, 12, 12, 20, 2};
    *first = from[round], *number = many[round];
}

// The last round that puts a row of this rank, or -1.
static int last_round(int row) {
    int last = -1;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Offset first, number;
        rows_of(round, &first, &number);
        if (row >= first && row < first + number) last = round;
    }
    return last;
}

static void put(int file, int variable) {
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Offset start[2], count[2] = {0, COLUMNS};
        rows_of(round, &start[0], &count[0]);
        start[0] += (MPI_Offset)rank * ROWS, start[1] = 0;
        for (int i = 0; i < count[0] * COLUMNS; i++) data[i] = value(round);
        MUST(ncmpi_put_vara_int_all(file, variable, start, count, data));
    }
}

static void write_all(const char *path, int is_killed) {
    int file, dimensions[3], overlap, records;
    int fill = -7;
    MUST(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    MUST(ncmpi_def_dim(file, "time", NC_UNLIMITED, &dimensions[0]));
    MUST(ncmpi_def_dim(file, "row", (MPI_Offset)ROWS * ranks, &dimensions[1]));
    MUST(ncmpi_def_dim(file, "column", COLUMNS, &dimensions[2]));
    MUST(ncmpi_def_var(file, "overlap", NC_INT, 2, dimensions + 1, &overlap));
    MUST(ncmpi_def_var_fill(file, overlap, 0, &fill));
    MUST(ncmpi_def_var(file, "records", NC_INT, 3, dimensions, &records));
    MUST(ncmpi_def_var_fill(file, records, 0, &fill));
    MUST(ncmpi_enddef(file));
    put(file, overlap);
    // Record 0 is put and then filled, record 1 is filled and then put.
    MPI_Offset start[3] = {0, (MPI_Offset)rank * ROWS, 0}, count[3] = {1, ROWS, COLUMNS};
    for (int i = 0; i < ROWS * COLUMNS; i++) data[i] = value(ROUNDS);
    MUST(ncmpi_put_vara_int_all(file, records, start, count, data));
    MUST(ncmpi_fill_var_rec(file, records, 0));
    MUST(ncmpi_fill_var_rec(file, records, 1));
    start[0] = 1;
    MUST(ncmpi_put_vara_int_all(file, records, start, count, data));
    MUST(ncmpi_sync(file));
    if (is_killed) {
        MPI_Barrier(MPI_COMM_WORLD);
        raise(SIGKILL);
    }
    MUST(ncmpi_close(file));
}

static void expect(int found, int expected, const char *where, int row) {
    if (found == expected) return;
    fprintf(stderr, "%s, row %d of rank %d: %d instead of %d\n", where, row, rank, found, expected);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(const char *path) {
    int file, overlap, records;
    MUST(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &file));
    MUST(ncmpi_inq_varid(file, "overlap", &overlap));
    MUST(ncmpi_inq_varid(file, "records", &records));
    MPI_Offset start[3] = {0, (MPI_Offset)rank * ROWS, 0}, count[3] = {1, ROWS, COLUMNS};
    MUST(ncmpi_get_vara_int_all(file, overlap, start + 1, count + 1, data));
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        int round = last_round(i / COLUMNS);
        expect(data[i], round < 0 ? -7 : value(round), "overlap", i / COLUMNS);
    }
    for (int record = 0; record < 2; record++) {
        start[0] = record;
        MUST(ncmpi_get_vara_int_all(file, records, start, count, data));
        for (int i = 0; i < ROWS * COLUMNS; i++)
            expect(data[i], record == 0 ? -7 : value(ROUNDS), record ? "put" : "filled", i / COLUMNS);
    }
    MUST(ncmpi_close(file));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3 && argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
    if (argc == 4) number_of_run = atoi(argv[3]);
    if (!strcmp(argv[2], "check")) check(argv[1]);
    else write_all(argv[1], !strcmp(argv[2], "kill"));
    MPI_Finalize();
    return 0;
}
