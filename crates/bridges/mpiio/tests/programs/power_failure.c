// Keeps what would be left after power failures: a library that is loaded into a program. In the
// directory KEPT, `durable` has the contents of logs and of the file KEPT_FILE at their last fsync or
// fdatasync; those of a log count when its directory was synced, too (NAME.named). A removal counts at
// once. After each of these calls `states/NUMBER` is what a power failure would leave, with a file `mark`
// if SYNCED_MARK exists.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *kept(void) { return getenv("KEPT"); }

static int is_log(const char *path) {
    size_t length = strlen(path);
    return length > 6 && !strcmp(path + length - 6, ".fblog");
}

static int is_kept(const char *path) {
    const char *file = getenv("KEPT_FILE");
    return kept() && (is_log(path) || (file && !strcmp(path, file)));
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Other processes wait until the descriptor is closed.
static int lock(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/lock", kept());
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    flock(fd, LOCK_EX);
    return fd;
}

// Copies a file, without its zeros.
static void copy(int from, const char *to) {
    static char block[1 << 16];
    static const char zeros[1 << 16];
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s.part", to);
    int fd = open(part, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    off_t at = 0;
    ssize_t length;
    while ((length = pread(from, block, sizeof block, at)) > 0) {
        if (memcmp(block, zeros, length) && pwrite(fd, block, length, at) != length) abort();
        at += length;
    }
    if (ftruncate(fd, at)) abort();
    close(fd);
    rename(part, to);
}

static void touch(const char *path) { close(open(path, O_CREAT | O_WRONLY, 0600)); }

static void next_state(void) {
    char state[PATH_MAX], from[PATH_MAX + 300], to[PATH_MAX + 300], durable[PATH_MAX];
    int number = 0;
    do snprintf(state, sizeof state, "%s/states/%04d", kept(), number++);
    while (mkdir(state, 0700));
    snprintf(durable, sizeof durable, "%s/durable", kept());
    DIR *directory = opendir(durable);
    for (struct dirent *entry; (entry = readdir(directory));) {
        snprintf(from, sizeof from, "%s/%s.named", durable, entry->d_name);
        if (entry->d_name[0] == '.' || (is_log(entry->d_name) && access(from, F_OK))) continue;
        snprintf(from, sizeof from, "%s/%s", durable, entry->d_name);
        snprintf(to, sizeof to, "%s/%s", state, entry->d_name);
        if (link(from, to)) abort();
    }
    closedir(directory);
    snprintf(to, sizeof to, "%s/mark", state);
    const char *mark = getenv("SYNCED_MARK");
    if (mark && !access(mark, F_OK)) touch(to);
}

// The logs of a directory have durable names.
static void name_logs(const char *directory) {
    char named[PATH_MAX + 300];
    DIR *logs = opendir(directory);
    for (struct dirent *entry; logs && (entry = readdir(logs));) {
        if (!is_log(entry->d_name)) continue;
        snprintf(named, sizeof named, "%s/durable/%s.named", kept(), entry->d_name);
        touch(named);
    }
    if (logs) closedir(logs);
}

static void keep(int fd) {
    char link[64], path[PATH_MAX], durable[PATH_MAX + 300];
    struct stat found;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!kept() || length < 0 || fstat(fd, &found)) return;
    path[length] = 0;
    if (!S_ISDIR(found.st_mode) && !is_kept(path)) return;
    int held = lock();
    if (S_ISDIR(found.st_mode)) {
        name_logs(path);
    } else {
        int from = open(path, O_RDONLY);
        snprintf(durable, sizeof durable, "%s/durable/%s", kept(), name_of(path));
        if (from >= 0) copy(from, durable);
        close(from);
    }
    next_state();
    close(held);
}

int fsync(int fd) {
    int result = syscall(SYS_fsync, fd);
    if (!result) keep(fd);
    return result;
}

int fdatasync(int fd) {
    int result = syscall(SYS_fdatasync, fd);
    if (!result) keep(fd);
    return result;
}

int unlink(const char *path) {
    int result = syscall(SYS_unlink, path);
    if (!result && is_kept(path)) {
        char durable[PATH_MAX + 300];
        int held = lock();
        snprintf(durable, sizeof durable, "%s/durable/%s", kept(), name_of(path));
        syscall(SYS_unlink, durable);
        next_state();
        close(held);
    }
    return result;
}
