/* The interface for programs: link with -lnorns.
 *
 * The service is found by the file that the environment variable NORNS_CONFIG_FILE names, or by
 * /etc/norns/norns.conf. A call without other statement returns NORNS_SUCCESS or a code of
 * norns_error.h. Calls may be made by several threads, each with its own tasks.
 */
#ifndef __NORNS_LIB_H__
#define __NORNS_LIB_H__ 1

#ifndef NORNS_API_VERSION
#define NORNS_API_VERSION 10
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

/* Initialize a task. dst is NULL for NORNS_IOTASK_REMOVE. */
void norns_iotask_init(norns_iotask_t *task, norns_op_t operation, norns_resource_t *src,
                       norns_resource_t *dst) __THROW;

/* A task from its operation, its source and, except for NORNS_IOTASK_REMOVE, its destination, a
 * norns_resource_t. The caller's compiler makes this function: its arguments vary. */
static inline norns_iotask_t NORNS_IOTASK(norns_op_t operation, norns_resource_t src, ...)
{
    norns_iotask_t task;
    if (operation == NORNS_IOTASK_REMOVE) {
        norns_iotask_init(&task, operation, &src, 0);
    } else {
        va_list more;
        va_start(more, src);
        norns_resource_t dst = va_arg(more, norns_resource_t);
        va_end(more);
        norns_iotask_init(&task, operation, &src, &dst);
    }
    return task;
}

/* Submit a task, which sets t_id. The task runs with the permissions of the calling process. A memory
 * region is copied by the call; it may be changed afterwards. Texts need not outlive the call.
 *   NORNS_EACCEPTPAUSED, NORNS_ETOOMANYTASKS   try again later
 *   NORNS_ENOSUCHPROCESS     the process belongs to no job, and the dataspace is not for all
 *   NORNS_ENOSUCHNAMESPACE   no such dataspace, or not one of the job
 *   NORNS_ENOTSUPPORTED      memory as destination; both paths remote; a memory region to remove
 *   NORNS_EBADARGS, NORNS_ECONNFAILED, NORNS_ERPCSENDFAILED, NORNS_ERPCRECVFAILED */
norns_error_t norns_submit(norns_iotask_t *task) __THROW;

/* Wait until a task is over; at most for the timeout, unless that is NULL. NORNS_SUCCESS: it is over,
 * successfully or not. NORNS_ETIMEOUT: it is not. */
norns_error_t norns_wait(norns_iotask_t *task, const struct timespec *timeout) __THROW;

/* Cancel a task that is pending or in progress. It ends soon after, as failed with
 * NORNS_ESYSTEMERROR and ECANCELED, and leaves no incomplete file. A task that is over stays as it
 * is. */
norns_error_t norns_cancel(norns_iotask_t *task) __THROW;

/* Report the state of a task. */
norns_error_t norns_error(norns_iotask_t *task, norns_stat_t *stats) __THROW;

/* A code in words. The text is static and must not be changed. */
char *norns_strerror(norns_error_t errnum) __THROW;

#ifdef __cplusplus
}
#endif

#endif
