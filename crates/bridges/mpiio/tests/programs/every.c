// Calls every function of MPI-IO on one file and prints the results: every PATH.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int rank, ranks;

static void must(int code, const char *call) {
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "rank %d: %s: error %d\n", rank, call, code);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, #call)

static int data[64], found[64];
static MPI_File file;
static MPI_Status status;
static MPI_Request request;

static void report(const char *what) {
    int count;
    MPI_Get_count(&status, MPI_INT, &count);
    if (rank == 0) printf("%s %d %d\n", what, count, found[0]);
    memset(found, 0, sizeof found);
}
#define STATUS(call) (MUST(call), report(#call))
#define NEXT MPI_Barrier(MPI_COMM_WORLD)
#define REQUEST(call) (MUST(call), MUST(MPI_Wait(&request, &status)), report(#call))
#define SPLIT(begin, end) (MUST(begin), MUST(end), report(#begin))

static void synchronize(void) {
    MUST(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(MPI_File_sync(file));
}

static void explicit_offsets(void) {
    MPI_Offset at = rank * 64;
    STATUS(MPI_File_write_at(file, at, data, 8, MPI_INT, &status));
    STATUS(MPI_File_write_at_all(file, at + 8, data, 8, MPI_INT, &status));
    REQUEST(MPI_File_iwrite_at(file, at + 16, data, 8, MPI_INT, &request));
    REQUEST(MPI_File_iwrite_at_all(file, at + 24, data, 8, MPI_INT, &request));
    SPLIT(MPI_File_write_at_all_begin(file, at + 32, data, 8, MPI_INT), MPI_File_write_at_all_end(file, data, &status));
    STATUS(MPI_File_read_at(file, at, found, 8, MPI_INT, &status));
    STATUS(MPI_File_read_at_all(file, at + 8, found, 8, MPI_INT, &status));
    REQUEST(MPI_File_iread_at(file, at + 16, found, 8, MPI_INT, &request));
    REQUEST(MPI_File_iread_at_all(file, at + 24, found, 8, MPI_INT, &request));
    SPLIT(MPI_File_read_at_all_begin(file, at + 32, found, 8, MPI_INT), MPI_File_read_at_all_end(file, found, &status));
#if MPI_VERSION >= 4
    STATUS(MPI_File_write_at_c(file, at + 40, data, 4, MPI_INT, &status));
    STATUS(MPI_File_write_at_all_c(file, at + 44, data, 4, MPI_INT, &status));
    REQUEST(MPI_File_iwrite_at_c(file, at + 48, data, 4, MPI_INT, &request));
    REQUEST(MPI_File_iwrite_at_all_c(file, at + 52, data, 4, MPI_INT, &request));
    SPLIT(MPI_File_write_at_all_begin_c(file, at + 56, data, 4, MPI_INT), MPI_File_write_at_all_end(file, data, &status));
    STATUS(MPI_File_read_at_c(file, at + 40, found, 4, MPI_INT, &status));
    STATUS(MPI_File_read_at_all_c(file, at + 44, found, 4, MPI_INT, &status));
    REQUEST(MPI_File_iread_at_c(file, at + 48, found, 4, MPI_INT, &request));
    REQUEST(MPI_File_iread_at_all_c(file, at + 52, found, 4, MPI_INT, &request));
    SPLIT(MPI_File_read_at_all_begin_c(file, at + 56, found, 4, MPI_INT), MPI_File_read_at_all_end(file, found, &status));
#endif
}

static void individual_pointers(void) {
    MPI_Offset at = 1000 + rank * 64, position, bytes;
    MUST(MPI_File_seek(file, at, MPI_SEEK_SET));
    STATUS(MPI_File_write(file, data, 8, MPI_INT, &status));
    STATUS(MPI_File_write_all(file, data, 8, MPI_INT, &status));
    REQUEST(MPI_File_iwrite(file, data, 8, MPI_INT, &request));
    REQUEST(MPI_File_iwrite_all(file, data, 8, MPI_INT, &request));
    SPLIT(MPI_File_write_all_begin(file, data, 8, MPI_INT), MPI_File_write_all_end(file, data, &status));
#if MPI_VERSION >= 4
    STATUS(MPI_File_write_c(file, data, 4, MPI_INT, &status));
    STATUS(MPI_File_write_all_c(file, data, 4, MPI_INT, &status));
    REQUEST(MPI_File_iwrite_c(file, data, 4, MPI_INT, &request));
    REQUEST(MPI_File_iwrite_all_c(file, data, 4, MPI_INT, &request));
    SPLIT(MPI_File_write_all_begin_c(file, data, 4, MPI_INT), MPI_File_write_all_end(file, data, &status));
    MUST(MPI_File_seek(file, -20, MPI_SEEK_CUR));
    STATUS(MPI_File_read_c(file, found, 4, MPI_INT, &status));
    STATUS(MPI_File_read_all_c(file, found, 4, MPI_INT, &status));
    REQUEST(MPI_File_iread_c(file, found, 4, MPI_INT, &request));
    REQUEST(MPI_File_iread_all_c(file, found, 4, MPI_INT, &request));
    SPLIT(MPI_File_read_all_begin_c(file, found, 4, MPI_INT), MPI_File_read_all_end(file, found, &status));
    MUST(MPI_File_seek(file, -20, MPI_SEEK_CUR));
#endif
    MUST(MPI_File_seek(file, -40, MPI_SEEK_CUR));
    STATUS(MPI_File_read(file, found, 8, MPI_INT, &status));
    STATUS(MPI_File_read_all(file, found, 8, MPI_INT, &status));
    REQUEST(MPI_File_iread(file, found, 8, MPI_INT, &request));
    REQUEST(MPI_File_iread_all(file, found, 8, MPI_INT, &request));
    SPLIT(MPI_File_read_all_begin(file, found, 8, MPI_INT), MPI_File_read_all_end(file, found, &status));
    MUST(MPI_File_get_position(file, &position));
    MUST(MPI_File_get_byte_offset(file, position, &bytes));
    if (rank == 0) printf("position %lld, byte %lld\n", (long long)position, (long long)bytes);
}

static void shared_pointers(void) {
    MPI_Offset position;
    synchronize();
    MUST(MPI_File_seek_shared(file, 2000, MPI_SEEK_SET));
    NEXT;
    STATUS(MPI_File_write_ordered(file, data, 8, MPI_INT, &status));
    NEXT;
    SPLIT(MPI_File_write_ordered_begin(file, data, 8, MPI_INT), MPI_File_write_ordered_end(file, data, &status));
    NEXT;
#if MPI_VERSION >= 4
    STATUS(MPI_File_write_ordered_c(file, data, 4, MPI_INT, &status));
    NEXT;
    SPLIT(MPI_File_write_ordered_begin_c(file, data, 4, MPI_INT), MPI_File_write_ordered_end(file, data, &status));
    NEXT;
#endif
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) {
            STATUS(MPI_File_write_shared(file, data, 8, MPI_INT, &status));
            REQUEST(MPI_File_iwrite_shared(file, data, 8, MPI_INT, &request));
#if MPI_VERSION >= 4
            STATUS(MPI_File_write_shared_c(file, data, 4, MPI_INT, &status));
            REQUEST(MPI_File_iwrite_shared_c(file, data, 4, MPI_INT, &request));
#endif
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MUST(MPI_File_get_position_shared(file, &position));
    if (rank == 0) printf("shared position %lld\n", (long long)position);
    synchronize();
    MUST(MPI_File_seek_shared(file, 2000, MPI_SEEK_SET));
    NEXT;
    STATUS(MPI_File_read_ordered(file, found, 8, MPI_INT, &status));
    NEXT;
    SPLIT(MPI_File_read_ordered_begin(file, found, 8, MPI_INT), MPI_File_read_ordered_end(file, found, &status));
    NEXT;
#if MPI_VERSION >= 4
    STATUS(MPI_File_read_ordered_c(file, found, 4, MPI_INT, &status));
    NEXT;
    SPLIT(MPI_File_read_ordered_begin_c(file, found, 4, MPI_INT), MPI_File_read_ordered_end(file, found, &status));
    NEXT;
#endif
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) {
            STATUS(MPI_File_read_shared(file, found, 8, MPI_INT, &status));
            REQUEST(MPI_File_iread_shared(file, found, 8, MPI_INT, &request));
#if MPI_VERSION >= 4
            STATUS(MPI_File_read_shared_c(file, found, 4, MPI_INT, &status));
            REQUEST(MPI_File_iread_shared_c(file, found, 4, MPI_INT, &request));
#endif
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    synchronize();
}

static void queries(void) {
    MPI_Offset size, displacement;
    MPI_Aint extent;
    MPI_Datatype etype, filetype;
    MPI_Group group;
    MPI_Info info;
    MPI_Errhandler handler;
    char representation[MPI_MAX_DATAREP_STRING];
    int mode, members, atomic, named;
    MUST(MPI_File_get_size(file, &size));
    MUST(MPI_File_get_amode(file, &mode));
    MUST(MPI_File_get_group(file, &group));
    MPI_Group_size(group, &members);
    MPI_Group_free(&group);
    MUST(MPI_File_get_view(file, &displacement, &etype, &filetype, representation));
    named = etype == MPI_INT && filetype == MPI_INT;
    MUST(MPI_File_get_type_extent(file, MPI_INT, &extent));
#if MPI_VERSION >= 4
    MPI_Count large_extent;
    MUST(MPI_File_get_type_extent_c(file, MPI_INT, &large_extent));
#endif
    MUST(MPI_File_get_info(file, &info));
    MUST(MPI_File_set_info(file, info));
    MPI_Info_free(&info);
    MUST(MPI_File_get_errhandler(file, &handler));
    MUST(MPI_File_set_errhandler(file, handler));
    MPI_Errhandler_free(&handler);
    MUST(MPI_File_get_atomicity(file, &atomic));
    if (rank == 0)
        printf("size %lld mode %d members %d displacement %lld named %d %s extent %ld atomic %d\n", (long long)size,
               mode, members, (long long)displacement, named, representation, (long)extent, atomic);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 64; i++) data[i] = 1000 * (rank + 1) + i;
    MUST(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    MUST(MPI_File_set_view(file, 16, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    MUST(MPI_File_preallocate(file, 4096));
    synchronize();
    explicit_offsets();
    synchronize();
    individual_pointers();
    shared_pointers();
    queries();
    MUST(MPI_File_set_atomicity(file, 1));
    STATUS(MPI_File_write_at(file, 3000 + rank, data, 1, MPI_INT, &status));
    MUST(MPI_File_set_atomicity(file, 0));
    synchronize();
    // Open MPI 4.1 sets the size and reports an error on all ranks but the first.
    MPI_File_set_size(file, 13000);
    queries();
    MUST(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 2 && rank == 0) MUST(MPI_File_delete(argv[2], MPI_INFO_NULL));
    MPI_Finalize();
    return 0;
}
