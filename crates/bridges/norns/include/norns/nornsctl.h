/* The interface for administrators: link with -lnornsctl.
 *
 * The calls use the control socket, which is accessible to root and to the group norns; others get
 * NORNS_ECONNFAILED. Capacities and quotas are in MiB.
 */
#ifndef __NORNSCTL_LIB_H__
#define __NORNSCTL_LIB_H__ 1

#ifndef NORNSCTL_API_VERSION
#define NORNSCTL_API_VERSION 10
#endif

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "norns_types.h"
#include "norns_error.h"

#ifdef __NORNS_DEBUG__
#include "norns_debug.h"
#endif

#ifndef __THROW
#define __THROW
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A dataspace */
typedef struct {
    int b_type;          /* nornsctl_backend_flags_t */
    bool b_track;        /* count what is there already */
    const char *b_mount; /* its directory */
    uint32_t b_capacity; /* MiB that tasks may store there */
} nornsctl_backend_t;

/* The share of a job in a dataspace */
typedef struct {
    const char *l_nsid;
    uint32_t l_quota; /* MiB that the job's tasks may store there */
} nornsctl_job_limit_t;

/* A job. It may use the dataspaces in its limits. */
typedef struct {
    const char **j_hosts;
    size_t j_nhosts;
    nornsctl_job_limit_t **j_limits;
    size_t j_nlimits;
} nornsctl_job_t;

typedef struct {
    size_t st_running_tasks;
    size_t st_pending_tasks;
    double st_eta; /* seconds until all running tasks are over, from measured rates; or NAN */
} nornsctl_stat_t;

nornsctl_backend_t NORNSCTL_BACKEND(nornsctl_backend_flags_t flags, bool track,
                                    const char *mount_point, uint32_t capacity) __THROW;
void nornsctl_backend_init(nornsctl_backend_t *backend, nornsctl_backend_flags_t flags, bool track,
                           const char *mount_point, uint32_t capacity) __THROW;

nornsctl_job_limit_t NORNSCTL_JOB_LIMIT(const char *nsid, uint32_t quota) __THROW;
void nornsctl_job_limit_init(nornsctl_job_limit_t *limit, const char *nsid, uint32_t quota) __THROW;

nornsctl_job_t NORNSCTL_JOB(const char **hosts, size_t nhosts, nornsctl_job_limit_t **limits,
                            size_t nlimits) __THROW;
void nornsctl_job_init(nornsctl_job_t *job, const char **hosts, size_t nhosts,
                       nornsctl_job_limit_t **limits, size_t nlimits) __THROW;

/* Send a command; args is NULL. */
norns_error_t nornsctl_send_command(nornsctl_command_t command, void *args) __THROW;

/* Count tasks. */
norns_error_t nornsctl_status(nornsctl_stat_t *stats) __THROW;

/* Jobs. An update keeps the processes. Tasks of an unregistered job go on. */
norns_error_t nornsctl_register_job(uint32_t jobid, nornsctl_job_t *job) __THROW;
norns_error_t nornsctl_update_job(uint32_t jobid, nornsctl_job_t *job) __THROW;
norns_error_t nornsctl_unregister_job(uint32_t jobid) __THROW;

/* Processes of a job on this node. Descendants with the same user belong to the job, too. */
norns_error_t nornsctl_add_process(uint32_t jobid, uid_t uid, gid_t gid, pid_t pid) __THROW;
norns_error_t nornsctl_remove_process(uint32_t jobid, uid_t uid, gid_t gid, pid_t pid) __THROW;

/* Dataspaces. They are for jobs that have a limit in them. An update applies to new tasks. A dataspace
 * with unfinished tasks cannot be unregistered (NORNS_ETASKSPENDING); files stay. */
norns_error_t nornsctl_register_namespace(const char *nsid, nornsctl_backend_t *backend) __THROW;
norns_error_t nornsctl_update_namespace(const char *nsid, nornsctl_backend_t *backend) __THROW;
norns_error_t nornsctl_unregister_namespace(const char *nsid) __THROW;

/* Initialize a task. dst is NULL for NORNS_IOTASK_REMOVE. */
void nornsctl_iotask_init(norns_iotask_t *task, norns_op_t operation, norns_resource_t *src,
                          norns_resource_t *dst) __THROW;

/* A task from its operation, its source and, except for NORNS_IOTASK_REMOVE, its destination, a
 * norns_resource_t. The caller's compiler makes this function: its arguments vary. */
static inline norns_iotask_t NORNSCTL_IOTASK(norns_op_t operation, norns_resource_t src, ...)
{
    norns_iotask_t task;
    if (operation == NORNS_IOTASK_REMOVE) {
        nornsctl_iotask_init(&task, operation, &src, 0);
    } else {
        va_list more;
        va_start(more, src);
        norns_resource_t dst = va_arg(more, norns_resource_t);
        va_end(more);
        nornsctl_iotask_init(&task, operation, &src, &dst);
    }
    return task;
}

/* As norns_submit, norns_wait, norns_cancel, norns_error and norns_strerror of norns.h, over the
 * control socket. */
norns_error_t nornsctl_submit(norns_iotask_t *task) __THROW;
norns_error_t nornsctl_wait(norns_iotask_t *task, const struct timespec *timeout) __THROW;
norns_error_t nornsctl_cancel(norns_iotask_t *task) __THROW;
norns_error_t nornsctl_error(norns_iotask_t *task, norns_stat_t *stats) __THROW;
char *nornsctl_strerror(norns_error_t errnum) __THROW;

#ifdef __cplusplus
}
#endif

#endif
