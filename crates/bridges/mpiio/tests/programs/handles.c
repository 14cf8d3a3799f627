// Several handles of one file: handles CASE PATH. Each case ends the program with an error if a read
// does not find what was written and synced, or written before a handle was closed.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 65536, BLOCKS = 600 };

static int rank, ranks;
static char data[BLOCK];

static void must(int code, const char *call, int line) {
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "rank %d, line %d: %s fails\n", rank, line, call);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, #call, __LINE__)

static MPI_File opened(MPI_Comm comm, const char *path, int mode) {
    MPI_File file;
    MUST(MPI_File_open(comm, path, mode, MPI_INFO_NULL, &file));
    return file;
}

static MPI_File opened_by_all(const char *path) {
    return opened(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR);
}

static void put(MPI_File file, MPI_Offset offset, int value, int length) {
    memset(data, value, sizeof data);
    MUST(MPI_File_write_at(file, offset, data, length, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void expect(MPI_File file, MPI_Offset offset, int value, const char *what) {
    char found[4] = "....";
    MPI_Status status;
    int count;
    MUST(MPI_File_read_at(file, offset, found, 4, MPI_BYTE, &status));
    MPI_Get_count(&status, MPI_BYTE, &count);
    for (int i = 0; i < 4; i++)
        if (count != 4 || found[i] != (char)value) {
            fprintf(stderr, "rank %d: %s: %d bytes '%.4s' instead of '%c'\n", rank, what, count, found, value);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

// A sync of a handle for reading, for which Open MPI reports an error.
static void sync_reader(MPI_File file) { MPI_File_sync(file); }

// A sync of both handles, so that each sees what was written through the other.
static void sync_both(MPI_File one, MPI_File other) {
    MUST(MPI_File_sync(one));
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(MPI_File_sync(other));
}

// Processes of another communicator open a file whose writes are synced, and write over some of them.
static void others(const char *path, MPI_Comm comm, int mode) {
    MPI_File first = opened_by_all(path);
    put(first, rank * 100, 'a' + rank, 100);
    sync_both(first, first);
    // The halves of the processes open the file one after the other.
    int second_half = rank / 2;
    if (second_half) {
        MPI_Status status;
        if (mode == MPI_MODE_RDWR && rank == 2) MPI_Recv(data, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &status);
    }
    MPI_File second = opened(comm, path, mode);
    int next = (rank + 1) % ranks;
    // The second half reads the bytes that the first half does not write over.
    expect(second, rank * 100 + 50, 'a' + rank, "own synced data");
    expect(second, next * 100 + 50, 'a' + next, "synced data of the next rank");
    if (mode == MPI_MODE_RDWR) {
        put(second, rank * 100, 'A' + rank, 50);
        // The first half also writes what the second half has synced.
        if (!second_half) put(second, (rank + 2) * 100 + 60, 'P' + rank, 40);
        MUST(MPI_File_sync(second));
        if (rank == 0) MPI_Send(data, 1, MPI_BYTE, 2, 1, MPI_COMM_WORLD);
    }
    MUST(MPI_File_close(&second));
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(MPI_File_sync(first));
    if (mode == MPI_MODE_RDWR) expect(first, next * 100, 'A' + next, "data of the second handle");
    MUST(MPI_File_close(&first));
}

static void split(const char *path, int mode) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &comm);
    others(path, comm, mode);
}

static void reversed(const char *path) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &comm);
    others(path, comm, MPI_MODE_RDONLY);
}

// The first of two handles is closed, and what it wrote is read and replaced through the second.
static void first_closed(const char *path, MPI_Comm comm) {
    MPI_File first = opened_by_all(path), second = opened(comm, path, MPI_MODE_RDWR);
    for (int i = 0; i < BLOCKS; i++) put(first, ((MPI_Offset)i * ranks + rank) * BLOCK, 'a', BLOCK);
    MPI_Offset last = ((MPI_Offset)(BLOCKS - 1) * ranks + rank) * BLOCK;
    MUST(MPI_File_close(&first));
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(MPI_File_sync(second));
    expect(second, last, 'a', "data of the handle that was closed");
    put(second, last, 'b', BLOCK);
    MUST(MPI_File_close(&second));
}

// The second of two handles is closed, and what it wrote is read and replaced through the first.
static void second_closed(const char *path) {
    MPI_File first = opened_by_all(path), second = opened_by_all(path);
    put(second, rank * 100, 'b', 100);
    MUST(MPI_File_close(&second));
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(MPI_File_sync(first));
    expect(first, rank * 100, 'b', "data of the handle that was closed");
    put(first, rank * 100, 'a', 50);
    MUST(MPI_File_close(&first));
}

// A handle for reading is opened before or after the one that writes.
static void reader(const char *path, int before) {
    if (rank == 0) {
        MPI_File file = opened(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_WRONLY);
        MUST(MPI_File_close(&file));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File reader = MPI_FILE_NULL;
    if (before) reader = opened(MPI_COMM_WORLD, path, MPI_MODE_RDONLY);
    MPI_File writer = opened_by_all(path);
    if (!before) reader = opened(MPI_COMM_WORLD, path, MPI_MODE_RDONLY);
    int next = (rank + 1) % ranks;
    put(writer, rank * 100, 'a' + rank, 100);
    MUST(MPI_File_sync(writer));
    MPI_Barrier(MPI_COMM_WORLD);
    sync_reader(reader);
    expect(reader, next * 100, 'a' + next, "synced data");
    MPI_Barrier(MPI_COMM_WORLD);
    put(writer, rank * 100, 'k' + rank, 100);
    MUST(MPI_File_close(&writer));
    MPI_Barrier(MPI_COMM_WORLD);
    sync_reader(reader);
    expect(reader, next * 100, 'k' + next, "data of the handle that was closed");
    MUST(MPI_File_close(&reader));
}

// Calls on a second handle that a process has alone.
static void alone(const char *path) {
    MPI_File all = opened_by_all(path);
    put(all, rank * 100, 'a' + rank, 100);
    sync_both(all, all);
    if (rank == 0) {
        int atomic = 0, number = 0x01020304;
        MPI_File file = opened(MPI_COMM_SELF, path, MPI_MODE_RDWR);
        put(file, 50, 'c', 10);
        MUST(MPI_File_set_size(file, 150));
        MUST(MPI_File_preallocate(file, 120));
        MUST(MPI_File_set_atomicity(file, 1));
        MUST(MPI_File_get_atomicity(file, &atomic));
        if (!atomic) MPI_Abort(MPI_COMM_WORLD, 1);
        put(file, 10, 'd', 10);
        expect(file, 10, 'd', "atomic write");
        MUST(MPI_File_set_atomicity(file, 0));
        MUST(MPI_File_close(&file));
        file = opened(MPI_COMM_SELF, path, MPI_MODE_RDWR);
        put(file, 30, 'e', 10);
        MUST(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL));
        MUST(MPI_File_write_at(file, 5, &number, 1, MPI_INT, MPI_STATUS_IGNORE));
        MUST(MPI_File_close(&file));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(MPI_File_sync(all));
    MPI_Offset size;
    MUST(MPI_File_get_size(all, &size));
    expect(all, 10, 'd', "atomic write");
    expect(all, 120, 'a' + 1, "data below the new end");
    if (size != 150) {
        fprintf(stderr, "rank %d: %lld bytes instead of 150\n", rank, (long long)size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MUST(MPI_File_preallocate(all, 0));
    MUST(MPI_File_close(&all));
}

// The file is open when MPI ends.
static void open_at_end(const char *path) {
    MPI_File file = opened_by_all(path);
    put(file, rank * 1000, 'x', 1000);
}

static void handler(MPI_File *file, int *code, ...) {
    MPI_File_set_errhandler(*file, MPI_ERRORS_RETURN);
    expect(*file, rank * 4, 'h', "read in the error handler");
    printf("handled\n");
    (void)code;
}

// An error handler of the program reads the file.
static void error(const char *path) {
    MPI_File file = opened_by_all(path);
    MPI_Errhandler errors;
    char nothing[4];
    MPI_File_create_errhandler(handler, &errors);
    MPI_File_set_errhandler(file, errors);
    put(file, rank * 4, 'h', 4);
    MPI_File_write_at(file, -5, nothing, 4, MPI_BYTE, MPI_STATUS_IGNORE);
    MUST(MPI_File_close(&file));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3) return 1;
    const char *name = argv[1], *path = argv[2];
    if (!strcmp(name, "split")) split(path, MPI_MODE_RDWR);
    else if (!strcmp(name, "split-read")) split(path, MPI_MODE_RDONLY);
    else if (!strcmp(name, "reversed")) reversed(path);
    else if (!strcmp(name, "first-closed")) first_closed(path, MPI_COMM_WORLD);
    else if (!strcmp(name, "first-closed-alone")) first_closed(path, MPI_COMM_SELF);
    else if (!strcmp(name, "second-closed")) second_closed(path);
    else if (!strcmp(name, "reader-before")) reader(path, 1);
    else if (!strcmp(name, "reader-after")) reader(path, 0);
    else if (!strcmp(name, "alone")) alone(path);
    else if (!strcmp(name, "open-at-end")) open_at_end(path);
    else if (!strcmp(name, "error")) error(path);
    else return 1;
    MPI_Finalize();
    return 0;
}
