// To be preloaded: prints when a log is removed, and when a directory is synced, with the process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void print(const char *what) {
    char line[100];
    int length = snprintf(line, sizeof line, "%d %s\n", (int)getpid(), what);
    if (write(1, line, length) != length) _exit(1);
}

int unlink(const char *path) {
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    int result = real(path);
    if (result == 0 && strstr(path, ".fblog")) print("removes a log");
    return result;
}

int fsync(int file) {
    struct stat found;
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    int result = real(file);
    if (result == 0 && fstat(file, &found) == 0 && S_ISDIR(found.st_mode)) print("syncs a directory");
    return result;
}
