/* One call of libnorns or libnornsctl, or several, named by the arguments. Prints what it learns. */
#include <errno.h>
#include <norns.h>
#include <nornsctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static norns_resource_t resource(char *text)
{
    /* memory:TEXT, local:NSID:PATH, shared:NSID:PATH, remote:HOST:NSID:PATH */
    char *rest = strchr(text, ':');
    if (!rest)
        exit(9);
    *rest++ = 0;
    if (!strcmp(text, "memory") && !strcmp(rest, "unreadable"))
        return NORNS_MEMORY_REGION((void *)0x42, 100);
    if (!strcmp(text, "memory"))
        return NORNS_MEMORY_REGION(rest, strlen(rest));
    char *host = NULL;
    if (!strcmp(text, "remote")) {
        /* The host is HOST@PORT, because of the colons. */
        host = rest;
        rest = strchr(rest, ':');
        *rest++ = 0;
        if (strchr(host, '@'))
            *strchr(host, '@') = ':';
    }
    char *path = strchr(rest, ':');
    *path++ = 0;
    if (host)
        return NORNS_REMOTE_PATH(rest, host, path);
    return strcmp(text, "shared") ? NORNS_LOCAL_PATH(rest, path) : NORNS_SHARED_PATH(rest, path);
}

static int report(norns_iotask_t *task)
{
    norns_stat_t stat;
    int code = norns_error(task, &stat);
    if (code != NORNS_SUCCESS) {
        printf("error %d\n", code);
        return 1;
    }
    printf("status %d result %d errno %d pending %zu total %zu\n", stat.st_status,
           stat.st_task_error, stat.st_sys_errno, stat.st_pending, stat.st_total);
    return stat.st_status != NORNS_EFINISHED;
}

static int transfer(int argc, char **argv)
{
    /* copy|move|remove [start|cancel] SOURCE [DESTINATION] */
    norns_op_t operation = !strcmp(argv[1], "copy")   ? NORNS_IOTASK_COPY
                           : !strcmp(argv[1], "move") ? NORNS_IOTASK_MOVE
                                                      : NORNS_IOTASK_REMOVE;
    char *mode = argc > 2 && !strchr(argv[2], ':') ? argv[2] : "";
    char **at = argv + (*mode ? 3 : 2);
    norns_iotask_t task = operation == NORNS_IOTASK_REMOVE
                              ? NORNS_IOTASK(operation, resource(at[0]))
                              : NORNS_IOTASK(operation, resource(at[0]), resource(at[1]));
    int code = norns_submit(&task);
    if (code != NORNS_SUCCESS) {
        printf("submit %d %s\n", code, norns_strerror(code));
        return 1;
    }
    if (!strcmp(mode, "start")) {
        printf("task %u\n", task.t_id);
        return 0;
    }
    if (!strcmp(mode, "cancel")) {
        struct timespec soon = {0, 50 * 1000 * 1000};
        printf("wait %d\n", norns_wait(&task, &soon));
        printf("cancel %d\n", norns_cancel(&task));
    }
    code = norns_wait(&task, NULL);
    if (code != NORNS_SUCCESS) {
        printf("wait %d\n", code);
        return 1;
    }
    return report(&task);
}

static int task(char **argv)
{
    /* await|cancel NUMBER: a task of an earlier call */
    norns_iotask_t task;
    norns_iotask_init(&task, NORNS_IOTASK_COPY, NULL, NULL);
    task.t_id = (norns_tid_t)atoi(argv[2]);
    if (!strcmp(argv[1], "cancel-task")) {
        int code = norns_cancel(&task);
        printf("cancel %d\n", code);
        return code != 0;
    }
    int code = norns_wait(&task, NULL);
    if (code != NORNS_SUCCESS) {
        printf("wait %d\n", code);
        return 1;
    }
    return report(&task);
}

static int control(int argc, char **argv)
{
    int code = NORNS_EBADARGS;
    if (!strcmp(argv[1], "space") && argc == 5) {
        nornsctl_backend_t backend = NORNSCTL_BACKEND(NORNS_BACKEND_POSIX_FILESYSTEM, false,
                                                      argv[3], (uint32_t)atoi(argv[4]));
        code = nornsctl_register_namespace(argv[2], &backend);
    } else if (!strcmp(argv[1], "no-space")) {
        code = nornsctl_unregister_namespace(argv[2]);
    } else if (!strcmp(argv[1], "job") || !strcmp(argv[1], "update-job")) {
        /* JOB NSID QUOTA */
        const char *hosts[] = {"localhost", NULL};
        nornsctl_job_limit_t limit = NORNSCTL_JOB_LIMIT(argv[3], (uint32_t)atoi(argv[4]));
        nornsctl_job_limit_t *limits[] = {&limit, NULL};
        nornsctl_job_t job = NORNSCTL_JOB(hosts, 1, limits, 1);
        uint32_t number = (uint32_t)atoi(argv[2]);
        code = argv[1][0] == 'j' ? nornsctl_register_job(number, &job)
                                 : nornsctl_update_job(number, &job);
    } else if (!strcmp(argv[1], "no-job")) {
        code = nornsctl_unregister_job((uint32_t)atoi(argv[2]));
    } else if (!strcmp(argv[1], "process")) {
        /* JOB UID PID */
        uid_t uid = (uid_t)atoi(argv[3]);
        code = nornsctl_add_process((uint32_t)atoi(argv[2]), uid, uid, atoi(argv[4]));
    } else if (!strcmp(argv[1], "no-process")) {
        uid_t uid = (uid_t)atoi(argv[3]);
        code = nornsctl_remove_process((uint32_t)atoi(argv[2]), uid, uid, atoi(argv[4]));
    } else if (!strcmp(argv[1], "command")) {
        code = nornsctl_send_command((nornsctl_command_t)atoi(argv[2]), NULL);
    } else if (!strcmp(argv[1], "status")) {
        nornsctl_stat_t stat;
        code = nornsctl_status(&stat);
        printf("running %zu pending %zu eta %f\n", stat.st_running_tasks, stat.st_pending_tasks,
               stat.st_eta);
    }
    printf("%s %d %s\n", argv[1], code, nornsctl_strerror(code));
    return code != 0;
}

static int misuse(void)
{
    norns_iotask_t task;
    norns_stat_t stat;
    norns_iotask_init(&task, NORNS_IOTASK_COPY, NULL, NULL);
    struct timespec wrong = {0, -1};
    int codes[] = {norns_submit(NULL),
                   norns_submit(&task),
                   norns_wait(NULL, NULL),
                   norns_wait(&task, NULL),
                   norns_wait(&task, &wrong),
                   norns_cancel(&task),
                   norns_error(&task, NULL),
                   norns_error(&task, &stat),
                   nornsctl_send_command(NORNSCTL_CMD_PING, &task),
                   nornsctl_status(NULL),
                   nornsctl_register_job(1, NULL),
                   nornsctl_register_namespace(NULL, NULL),
                   nornsctl_unregister_namespace(NULL)};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] != NORNS_EBADARGS) {
            printf("call %zu: %d\n", i, codes[i]);
            return 1;
        }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 9;
    if (!strcmp(argv[1], "misuse"))
        return misuse();
    if (!strcmp(argv[1], "await") || !strcmp(argv[1], "cancel-task"))
        return task(argv);
    if (!strcmp(argv[1], "copy") || !strcmp(argv[1], "move") || !strcmp(argv[1], "remove"))
        return transfer(argc, argv);
    return control(argc, argv);
}
