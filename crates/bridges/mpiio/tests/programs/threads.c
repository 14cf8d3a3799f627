// A thread uses files while another one waits in a collective call on one of them, for a process that
// waits for the first thread: threads write|open PATH.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static MPI_File file;
static char **arguments;

static void must(int code, int line) {
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "line %d fails\n", line);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, __LINE__)

static void *second_thread(void *nothing) {
    // The first thread is in its call by then.
    usleep(500000);
    if (!strcmp(arguments[1], "write")) {
        MUST(MPI_File_write_at(file, 100, "xxxxxxxx", 8, MPI_BYTE, MPI_STATUS_IGNORE));
    } else {
        MPI_File other;
        char name[4000];
        snprintf(name, sizeof name, "%s.other", arguments[2]);
        MUST(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &other));
        MUST(MPI_File_write_at(other, 0, "oooooooo", 8, MPI_BYTE, MPI_STATUS_IGNORE));
        MUST(MPI_File_close(&other));
    }
    MUST(MPI_Send(arguments[1], 1, MPI_BYTE, 1, 7, MPI_COMM_WORLD));
    return nothing;
}

int main(int argc, char **argv) {
    int rank, provided;
    char byte;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    arguments = argv;
    if (argc != 3 || provided < MPI_THREAD_MULTIPLE) MPI_Abort(MPI_COMM_WORLD, 2);
    MUST(MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    MUST(MPI_File_write_at(file, rank * 8, rank ? "bbbbbbbb" : "aaaaaaaa", 8, MPI_BYTE, MPI_STATUS_IGNORE));
    if (rank == 0) pthread_create(&thread, NULL, second_thread, NULL);
    else MUST(MPI_Recv(&byte, 1, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_File_sync(file));
    if (rank == 0) pthread_join(thread, NULL);
    MUST(MPI_File_close(&file));
    MPI_Finalize();
    return 0;
}
