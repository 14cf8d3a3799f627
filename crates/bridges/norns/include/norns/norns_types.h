/* Types of <norns.h> and <nornsctl.h>. */
#ifndef __NORNS_TYPES_H__
#define __NORNS_TYPES_H__ 1

#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t norns_tid_t;
typedef uint32_t norns_flags_t;
typedef int32_t norns_status_t;
typedef int32_t norns_error_t;

/* Types of resources */
#define NORNS_PROCESS_MEMORY 0x0100000
#define NORNS_POSIX_PATH 0x0200000
#define NORNS_NULL_RESOURCE 0x1000000

/* Access to a path: in a dataspace of this node, of another node, or of all nodes */
#define R_LOCAL 0x0000010
#define R_REMOTE 0x0000020
#define R_SHARED 0x0000040

typedef struct {
    void *b_addr;
    size_t b_size; /* bytes */
} norns_memory_region_t;

typedef struct {
    const char *p_nsid; /* dataspace */
    const char *p_host; /* node of a remote path: host name or address, and :port; else NULL */
    const char *p_path; /* file or directory below the dataspace's mount point */
} norns_posix_path_t;

typedef struct {
    norns_flags_t r_flags; /* type and access */
    union {
        norns_memory_region_t r_buffer;
        norns_posix_path_t r_posix_path;
    };
} norns_resource_t;

norns_resource_t NORNS_MEMORY_REGION(void *addr, size_t size);
norns_resource_t NORNS_LOCAL_PATH(const char *nsid, const char *path);
norns_resource_t NORNS_REMOTE_PATH(const char *nsid, const char *host, const char *path);
norns_resource_t NORNS_SHARED_PATH(const char *nsid, const char *path);

typedef enum {
    NORNS_IOTASK_COPY = 0x1,
    NORNS_IOTASK_MOVE = 0x2, /* the source is removed when the copy is on stable storage */
    NORNS_IOTASK_REMOVE = 0x3
} norns_op_t;

typedef struct {
    norns_status_t st_status;    /* NORNS_EPENDING to NORNS_EFINISHEDWERROR */
    norns_error_t st_task_error; /* result of a task that is over */
    int st_sys_errno;            /* if the result is NORNS_ESYSTEMERROR */
    size_t st_pending;           /* bytes not transferred yet */
    size_t st_total;             /* all bytes */
} norns_stat_t;

typedef struct {
    norns_tid_t t_id; /* set by submission */
    norns_op_t t_op;
    norns_resource_t t_src;
    norns_resource_t t_dst;
    norns_stat_t __t_status; /* of the library */
} norns_iotask_t;

/* Types of dataspaces. All of them are directories. */
typedef enum {
    NORNS_BACKEND_NVML = 0x10000001,
    NORNS_BACKEND_LUSTRE = 0x10000002,
    NORNS_BACKEND_ECHOFS = 0x10000003,
    NORNS_BACKEND_POSIX_FILESYSTEM = 0x10000004
} nornsctl_backend_flags_t;

typedef enum {
    NORNSCTL_CMD_PING = 1000,
    NORNSCTL_CMD_PAUSE_LISTEN,  /* refuse new tasks */
    NORNSCTL_CMD_RESUME_LISTEN, /* accept tasks again */
    NORNSCTL_CMD_SHUTDOWN       /* end, unless tasks are pending or in progress */
} nornsctl_command_t;

#ifdef __cplusplus
}
#endif

#endif
