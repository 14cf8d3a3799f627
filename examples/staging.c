/* A program that stages out its checkpoints while it computes. See staging.sh.
 *
 *     cc -o staging staging.c $(pkg-config --cflags --libs cray-datawarp)
 */
#include <datawarp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };

static void check(int result, const char *what, const char *path) {
    if (result == 0) return;
    fprintf(stderr, "%s %s: %s\n", what, path, strerror(-result));
    exit(1);
}

static void checkpoint(const char *path, int step) {
    static char state[SIZE];
    FILE *file = fopen(path, "w");
    memset(state, 'a' + step % 26, sizeof state);
    if (file == NULL || fwrite(state, 1, sizeof state, file) != sizeof state || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

int main(int count, char **words) {
    int steps = count > 1 ? atoi(words[1]) : 5;
    const char *buffer = getenv("DW_JOB_STRIPED");
    char here[2048], path[4096], pfs[4096], before[4096] = "", log[4096];

    if (buffer == NULL || getcwd(here, sizeof here) == NULL) {
        fprintf(stderr, "run it in a job: forebay run staging.sh\n");
        return 1;
    }
    /* The log is staged out as it is when the job ends, also after a crash. */
    snprintf(log, sizeof log, "%slog", buffer);
    snprintf(pfs, sizeof pfs, "%s/log", here);
    FILE *lines = fopen(log, "w");
    if (lines == NULL) {
        perror(log);
        return 1;
    }
    check(dw_stage_file_out(log, pfs, DW_STAGE_AT_JOB_END), "put off", log);

    for (int step = 1; step <= steps; step++) {
        snprintf(path, sizeof path, "%scheckpoint-%d", buffer, step);
        snprintf(pfs, sizeof pfs, "%s/checkpoint-%d", here, step);
        checkpoint(path, step);
        check(dw_stage_file_out(path, pfs, DW_STAGE_IMMEDIATE), "stage out", path);
        /* While that goes out: the one before is safe once its stage is complete, and the buffer
         * has room for the next. */
        if (before[0] != '\0') {
            check(dw_wait_file_stage(before), "wait for", before);
            unlink(before);
        }
        strcpy(before, path);
        fprintf(lines, "step %d\n", step);
        fflush(lines);
    }
    if (before[0] != '\0') check(dw_wait_file_stage(before), "wait for", before);
    return fclose(lines);
}
