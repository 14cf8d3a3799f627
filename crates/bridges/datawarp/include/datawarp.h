/* Staging between a burst buffer and the parallel file system (PFS) from a running job.
 *
 * Link with -ldatawarp. Paths named dw... are in an instance of the job, below $DW_JOB_STRIPED or
 * $DW_PERSISTENT_STRIPED_name; a private name space cannot be staged. Paths named pfs... are on the
 * PFS. Paths are resolved, and permissions checked, in the calling process; files are copied with the
 * permissions of the job's owner. Paths are UTF-8.
 *
 * Unless stated otherwise, a function returns 0, or a negative number of errno(3):
 *   -EINVAL    a null pointer or an empty list; a dw path outside of the job's instances, or a pfs
 *              path inside one; no stage to which the function applies
 *   -ENOENT    a file or directory does not exist
 *   -EACCES    permission denied, or the caller is neither the job's owner nor root
 *   -EISDIR, -ENOTDIR   a directory instead of a file, or a file instead of a directory
 *   -EBUSY     the path has a stage that is in progress or deferred
 *   -ENODEV    not in a job with a burst buffer
 *   -ENOTCONN  the job is no longer mounted, or its staging service has ended
 *   -ETIMEDOUT the pool's controller is unreachable; it may be restarting
 *
 * A path has one stage at a time; a new one replaces a completed one. A copy gets its name when it is
 * complete, and is on stable storage when its stage is complete.
 */
#ifndef DATAWARP_H
#define DATAWARP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The time of a stage out. */
enum dw_stage_type {
    DW_STAGE_IMMEDIATE = 0,         /* as soon as possible */
    DW_STAGE_AT_JOB_END = 1,        /* when the job ends, however it ends */
    DW_REVOKE_STAGE_AT_JOB_END = 2, /* not when the job ends; the pfs path is ignored */
    DW_ACTIVATE_DEFERRED_STAGE = 3  /* now, not when the job ends; the pfs path is ignored */
};

/* Start a stage in. The target's parent directory must exist. A directory is staged with everything
 * below it: the contents of pfs_directory are then in dw_directory. A list ends with a null pointer;
 * its files keep their names. */
int dw_stage_file_in(const char *dw_path, const char *pfs_path);
int dw_stage_directory_in(const char *dw_directory, const char *pfs_directory);
int dw_stage_list_in(const char *dw_directory, const char **pfs_list);

/* Start a stage out, defer it until the job ends, or change a deferred one. When a function has
 * returned 0, its effect survives the end of the job and a restart of the service. */
int dw_stage_file_out(const char *dw_path, const char *pfs_path, enum dw_stage_type type);
int dw_stage_directory_out(const char *dw_directory, const char *pfs_directory,
                           enum dw_stage_type type);
int dw_stage_list_out(const char **dw_list, const char *pfs_directory, enum dw_stage_type type);

/* Count files by the state of their stages: complete, pending (in progress or waiting), deferred
 * (until the job ends), failed. A file that is copied but not yet read back is pending. Pointers may
 * be null. A file in a staged directory has the state of the directory's stage. A directory counts
 * the files of its own stage found so far (as one file before any is found), and the files below it
 * that have their own stages. -EINVAL: no stage. */
int dw_query_file_stage(const char *dw_path, int *complete, int *pending, int *deferred,
                        int *failed);
int dw_query_directory_stage(const char *dw_directory, int *complete, int *pending, int *deferred,
                             int *failed);
int dw_query_list_stage(const char **dw_list, int *complete, int *pending, int *deferred,
                        int *failed);

/* Wait until stages are complete. If a stage fails, its first error is returned (-ENOSPC, -EACCES,
 * -ENOENT, ..., -EBUSY for a file that changed while it was staged), -ECANCELED if it was stopped.
 * -EINVAL: no stage, or only deferred ones. */
int dw_wait_file_stage(const char *dw_path);
int dw_wait_directory_stage(const char *dw_directory);
int dw_wait_list_stage(const char **dw_list);

/* Stop pending and deferred stages, and forget failed ones. The source is unchanged, and the target
 * gets no incomplete file; files that are already complete remain. -EINVAL: no such stage. */
int dw_terminate_file_stage(const char *dw_path);
int dw_terminate_directory_stage(const char *dw_directory);
int dw_terminate_list_stage(const char **dw_list);

/* Iterate over the files at and below a directory of an instance whose stages failed.
 * dw_read_failed_stage copies the next path, with a terminating zero, to the path_size bytes at path,
 * stores the negative error number in *ret_errno, and returns the length of the path; 0 at the end;
 * -ERANGE if the path is too long, in which case the next call reads the same path. A failure is
 * listed until its stage is stopped or restarted. */
typedef struct dw_failed_stage_t dw_failed_stage_t;
int dw_open_failed_stage(const char *dw_directory, dw_failed_stage_t **handle);
int dw_read_failed_stage(dw_failed_stage_t *handle, char *path, int path_size, int *ret_errno);
int dw_close_failed_stage(dw_failed_stage_t *handle);

/* Limit the job's concurrent stages of an instance; at least 1. The pool may have a lower limit. */
int dw_set_stage_concurrency(const char *dw_instance, unsigned int concurrent_stages);

/* The stripes of an open file or directory: bytes of a stripe, number of storage nodes, and the index
 * of the node with the first stripe. Pointers may be null. */
int dw_get_stripe_configuration(int fd, int *stripe_size, int *stripe_width, int *starting_index);

/* All files of an instance have the same stripes: 0 if these are requested, otherwise -EOPNOTSUPP. */
int dw_set_stripe_configuration(int fd, int stripe_size, int stripe_width);

/* The path of the metadata server for a key: always that of the instance, whose servers forward
 * requests. The caller frees it. NULL if the path is in no instance. */
char *dw_get_mds_path(const char *dw_root, uint64_t key);

/* Wait until a cache has written a file back. -EINVAL: the instance is not a cache. */
int dw_wait_sync_complete(int fd);

#ifdef __cplusplus
}
#endif

#endif
