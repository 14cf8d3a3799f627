// Views that are set and queried: views PATH. Prints what the queries return on each process, in the order
// of the ranks; each process then writes through its view, with and without atomic mode.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void must(int code) {
    if (code != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, code);
}

static void query(MPI_File file, char *text, size_t room) {
    MPI_Offset displacement, first, third;
    MPI_Datatype etype, filetype;
    char representation[MPI_MAX_DATAREP_STRING];
    int integers, addresses, types, combiner, size, file_size;
    MPI_Aint lower, extent;
    must(MPI_File_get_view(file, &displacement, &etype, &filetype, representation));
    must(MPI_Type_size(etype, &size));
    must(MPI_Type_size(filetype, &file_size));
    must(MPI_Type_get_extent(filetype, &lower, &extent));
    must(MPI_File_get_byte_offset(file, 0, &first));
    must(MPI_File_get_byte_offset(file, 3, &third));
    snprintf(text + strlen(text), room - strlen(text), "%d: %lld %d %d %ld %s %lld %lld\n", rank,
             (long long)displacement, size, file_size, (long)extent, representation,
             (long long)first, (long long)third);
    must(MPI_Type_get_envelope(filetype, &integers, &addresses, &types, &combiner));
    if (combiner != MPI_COMBINER_NAMED) must(MPI_Type_free(&filetype));
    must(MPI_Type_get_envelope(etype, &integers, &addresses, &types, &combiner));
    if (combiner != MPI_COMBINER_NAMED) must(MPI_Type_free(&etype));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    char text[4096] = "";
    query(file, text, sizeof text);
    for (int round = 0; round < 4; round++) {
        MPI_Datatype etype, filetype;
        must(MPI_Type_contiguous(2, MPI_INT, &etype));
        must(MPI_Type_vector(3, 2, 2 * ranks, etype, &filetype));
        must(MPI_Type_commit(&etype));
        must(MPI_Type_commit(&filetype));
        MPI_Offset at = round * 4096 + rank * 16;
        must(MPI_File_set_view(file, at, etype, filetype, "native", MPI_INFO_NULL));
        must(MPI_Type_free(&etype));
        must(MPI_Type_free(&filetype));
        query(file, text, sizeof text);
        // Rounds: log; MPI library with the view of before; its own view; log again.
        if (round == 1 || round == 3) must(MPI_File_set_atomicity(file, round == 1));
        query(file, text, sizeof text);
        int data[12];
        for (int i = 0; i < 12; i++) data[i] = 1000 * round + 100 * rank + i;
        must(MPI_File_write_at_all(file, 0, data, 12, MPI_INT, MPI_STATUS_IGNORE));
    }
    must(MPI_File_close(&file));
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank) fputs(text, stdout), fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
