/* Staging between a burst buffer and the parallel file system from a running job.
 *
 * Link with -ldatawarp. Paths named dw... are in an instance of the job, below $DW_JOB_STRIPED or
 * $DW_PERSISTENT_STRIPED_name; a private name space cannot be staged. Paths named pfs... are on the
 * parallel file system. They are judged in the calling process, with its rights; the files are then
 * moved with the rights of the job's owner. Paths are UTF-8.
 *
 * Unless it says otherwise, a function returns 0, or a negative number of errno(3):
 *   -EINVAL    a null pointer or an empty list; a path that is in no instance of the job, or in one
 *              where a pfs path is wanted; no stage where one is wanted
 *   -ENOENT    a file or a directory does not exist
 *   -EACCES    the caller may not read or write there, or is not the job's owner (nor root)
 *   -EISDIR, -ENOTDIR   a directory where a file is wanted, or the other way round
 *   -EBUSY     the path is being staged already, or waits for the job's end
 *   -ENODEV    not in a job with a burst buffer
 *   -ENOTCONN  the job is not mounted any more, or the service that stages for it has ended
 *   -ETIMEDOUT the pool's controller does not answer; it may be starting again
 *
 * A path has one stage at a time; a later one takes the place of one that is over. A copy gets its
 * name when all of it is there, and is on stable storage when its stage is complete.
 */
#ifndef DATAWARP_H
#define DATAWARP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When, for stages out. */
enum dw_stage_type {
    DW_STAGE_IMMEDIATE = 0,         /* as soon as possible */
    DW_STAGE_AT_JOB_END = 1,        /* when the job ends, however it ends */
    DW_REVOKE_STAGE_AT_JOB_END = 2, /* not when the job ends; the pfs path is not looked at */
    DW_ACTIVATE_DEFERRED_STAGE = 3  /* now, not when the job ends; the pfs path is not looked at */
};

/* Begin a stage in. The directory that gets the copy must exist. A directory is staged with all
 * below it: what is in pfs_directory is then in dw_directory. A list ends with a null pointer; its
 * files keep their names. */
int dw_stage_file_in(const char *dw_path, const char *pfs_path);
int dw_stage_directory_in(const char *dw_directory, const char *pfs_directory);
int dw_stage_list_in(const char *dw_directory, const char **pfs_list);

/* Begin a stage out, put it off to the job's end, or change one that was put off. When a function
 * returns 0, what was asked for survives the end of the job and of the service. */
int dw_stage_file_out(const char *dw_path, const char *pfs_path, enum dw_stage_type type);
int dw_stage_directory_out(const char *dw_directory, const char *pfs_directory,
                           enum dw_stage_type type);
int dw_stage_list_out(const char **dw_list, const char *pfs_directory, enum dw_stage_type type);

/* Count files by the state of their stages: complete, pending (moved now or soon), deferred (put
 * off to the job's end), failed. One that is copied and still to be read back is pending. Pointers
 * may be null. A file in a directory that is staged counts as that does; a directory counts the
 * files of its own stage, as far as they were found (as one while they are not), and those below it
 * that were staged by themselves. -EINVAL: nothing there was staged. */
int dw_query_file_stage(const char *dw_path, int *complete, int *pending, int *deferred,
                        int *failed);
int dw_query_directory_stage(const char *dw_directory, int *complete, int *pending, int *deferred,
                             int *failed);
int dw_query_list_stage(const char **dw_list, int *complete, int *pending, int *deferred,
                        int *failed);

/* Wait until stages are complete. If one fails: the number of what was first in its way (-ENOSPC,
 * -EACCES, -ENOENT, ..., -EBUSY for a file that changed meanwhile); -ECANCELED if it was stopped.
 * -EINVAL: nothing there is or was staged, or all of it waits for the job's end. */
int dw_wait_file_stage(const char *dw_path);
int dw_wait_directory_stage(const char *dw_directory);
int dw_wait_list_stage(const char **dw_list);

/* Stop stages that are pending or deferred, and forget failed ones; the source stays as it is, and
 * the target gets no file that is not whole. -EINVAL: there are none. */
int dw_terminate_file_stage(const char *dw_path);
int dw_terminate_directory_stage(const char *dw_directory);
int dw_terminate_list_stage(const char **dw_list);

/* Walk through the files at and below a directory of an instance that could not be staged.
 * dw_read_failed_stage copies the next one's path, with a terminating zero, to path_size bytes at
 * path, puts the (negative) error number into *ret_errno, and returns the path's length; 0: there
 * are no more; -ERANGE: the path is too long, and will be read again. A failure is remembered until
 * its stage is stopped or begun anew. */
typedef struct dw_failed_stage_t dw_failed_stage_t;
int dw_open_failed_stage(const char *dw_directory, dw_failed_stage_t **handle);
int dw_read_failed_stage(dw_failed_stage_t *handle, char *path, int path_size, int *ret_errno);
int dw_close_failed_stage(dw_failed_stage_t *handle);

/* Limit how many of this job's stages of the instance at this path are moved at a time; at least 1.
 * The pool may have a lower limit. */
int dw_set_stage_concurrency(const char *dw_instance, unsigned int concurrent_stages);

/* How an open file or directory of an instance is striped: bytes in a stripe, storage nodes that
 * stripes are on, and which of these has the first. Pointers may be null. */
int dw_get_stripe_configuration(int fd, int *stripe_size, int *stripe_width, int *starting_index);

/* All files of an instance are striped the same way: 0 if that is the way asked for, else
 * -EOPNOTSUPP. */
int dw_set_stripe_configuration(int fd, int stripe_size, int stripe_width);

/* The path by which the metadata server for a key is reached: the one path of the instance, whose
 * servers find each other. The caller frees it. Null: not in an instance. */
char *dw_get_mds_path(const char *dw_root, uint64_t key);

/* Wait until a cache has written a file back. -EINVAL: the instance is not a cache. */
int dw_wait_sync_complete(int fd);

#ifdef __cplusplus
}
#endif

#endif
