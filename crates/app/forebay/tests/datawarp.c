/* One call of libdatawarp a command line, so that a job script can use all of them. */
#include <datawarp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static enum dw_stage_type type(const char *word) {
    if (is(word, "now")) return DW_STAGE_IMMEDIATE;
    if (is(word, "end")) return DW_STAGE_AT_JOB_END;
    if (is(word, "revoke")) return DW_REVOKE_STAGE_AT_JOB_END;
    return DW_ACTIVATE_DEFERRED_STAGE;
}

static int counts(int result, const int *c) {
    if (result == 0) printf("complete %d pending %d deferred %d failed %d\n", c[0], c[1], c[2], c[3]);
    return result;
}

static int run(int n, char **a) {
    int c[4] = {-1, -1, -1, -1};
    const char *what = a[1];
    /* The words behind the second, with the null pointer that ends the arguments. */
    const char **rest = (const char **)a + 2;
    if (is(what, "in")) return dw_stage_file_in(a[2], a[3]);
    if (is(what, "in-directory")) return dw_stage_directory_in(a[2], a[3]);
    if (is(what, "in-list")) return dw_stage_list_in(a[2], (const char **)a + 3);
    if (is(what, "out")) return dw_stage_file_out(a[3], a[4], type(a[2]));
    if (is(what, "out-directory")) return dw_stage_directory_out(a[3], a[4], type(a[2]));
    if (is(what, "out-list")) return dw_stage_list_out((const char **)a + 4, a[3], type(a[2]));
    if (is(what, "query"))
        return counts(dw_query_file_stage(a[2], &c[0], &c[1], &c[2], &c[3]), c);
    if (is(what, "query-directory"))
        return counts(dw_query_directory_stage(a[2], &c[0], &c[1], &c[2], &c[3]), c);
    if (is(what, "query-list"))
        return counts(dw_query_list_stage(rest, &c[0], &c[1], &c[2], &c[3]), c);
    if (is(what, "wait")) return dw_wait_file_stage(a[2]);
    if (is(what, "wait-directory")) return dw_wait_directory_stage(a[2]);
    if (is(what, "wait-list")) return dw_wait_list_stage(rest);
    if (is(what, "stop")) return dw_terminate_file_stage(a[2]);
    if (is(what, "stop-directory")) return dw_terminate_directory_stage(a[2]);
    if (is(what, "stop-list")) return dw_terminate_list_stage(rest);
    if (is(what, "concurrency")) return dw_set_stage_concurrency(a[2], (unsigned)atoi(a[3]));
    if (is(what, "null")) {
        int all = dw_stage_file_in(NULL, "x") == -EINVAL && dw_wait_list_stage(NULL) == -EINVAL
            && dw_query_file_stage(NULL, NULL, NULL, NULL, NULL) == -EINVAL
            && dw_open_failed_stage(a[2], NULL) == -EINVAL
            && dw_close_failed_stage(NULL) == -EINVAL && dw_get_mds_path(NULL, 1) == NULL
            && dw_get_stripe_configuration(-1, NULL, NULL, NULL) == -EBADF;
        return all ? 0 : -1;
    }
    if (is(what, "stripes")) {
        int fd = open(a[2], O_RDONLY);
        int result = dw_get_stripe_configuration(fd, &c[0], &c[1], &c[2]);
        if (result == 0) {
            printf("size %d width %d start %d set %d other %d\n", c[0], c[1], c[2],
                   dw_set_stripe_configuration(fd, c[0], c[1]),
                   -dw_set_stripe_configuration(fd, c[0], c[1] + 1) == EOPNOTSUPP);
        }
        return result;
    }
    if (is(what, "failed")) {
        dw_failed_stage_t *handle;
        char path[4096];
        int why, length, result = dw_open_failed_stage(a[2], &handle);
        if (result != 0) return result;
        if (dw_read_failed_stage(handle, path, 3, &why) == -ERANGE) printf("too long for 3\n");
        while ((length = dw_read_failed_stage(handle, path, sizeof path, &why)) > 0)
            printf("failed %s %d %s\n", path, length == (int)strlen(path), strerror(-why));
        return length < 0 ? length : dw_close_failed_stage(handle);
    }
    if (is(what, "mds")) {
        char *path = dw_get_mds_path(a[2], 7);
        if (path == NULL) return -EINVAL;
        printf("%s\n", path);
        free(path);
        return 0;
    }
    (void)n;
    return -ENOSYS;
}

int main(int n, char **a) {
    int result = n < 2 ? -EINVAL : run(n, a);
    if (result != 0) printf("%s: %s\n", a[1], strerror(-result));
    return result != 0;
}
