// The decomposition of a climate model: the columns of a grid in runs of 4 to 28, dealt to the
// processes, at each of 72 levels. A process has RUNS runs of a level.
enum { LEVELS = 72, RUNS = 240, FIELDS = 29 };

// Length of a run: a pseudo-random number that all processes know.
static int run_length(int run) {
    unsigned x = (unsigned)run * 2654435761u;
    return 4 + (int)((x >> 16) % 25);
}

// Starts and lengths of the runs of this process in a level. Returns the columns of a level, and in
// `mine` those of this process.
static long long deal_runs(int rank, int ranks, long long *starts, int *lengths, long long *mine) {
    long long at = 0;
    *mine = 0;
    for (int run = 0; run < RUNS * ranks; run++) {
        int length = run_length(run);
        if (run % ranks == rank) {
            starts[run / ranks] = at;
            lengths[run / ranks] = length;
            *mine += length;
        }
        at += length;
    }
    return at;
}
