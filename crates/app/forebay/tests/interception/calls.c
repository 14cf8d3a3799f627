/* Calls of the C library on files of a directory, and their results. The output is the same with and
 * without the interception library, except for the line "library", which says whether a file was
 * opened by it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;

#define SHOW(call)                                                                      \
    do {                                                                                \
        errno = 0;                                                                      \
        long long result_ = (long long)(call);                                          \
        printf("%-60s %lld %s\n", #call, result_, result_ < 0 ? strerror(errno) : "");  \
    } while (0)

/* Contents of a file, read by system calls only: through the mount. */
static void show_file(const char *path)
{
    char text[4096];
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    long count = fd < 0 ? -1 : syscall(SYS_read, fd, text, sizeof text);
    printf("%s: %.*s\n", path, count < 0 ? 6 : (int)count, count < 0 ? "absent" : text);
    if (fd >= 0)
        syscall(SYS_close, fd);
}

/* Whether the kernel knows only the number of a descriptor. */
static int is_of_library(int fd)
{
    return (syscall(SYS_fcntl, fd, F_GETFL) & O_PATH) != 0;
}

static void finish_child(pid_t pid)
{
    int status;
    waitpid(pid, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
}

static void positions_and_vectors(void)
{
    char text[64] = "";
    int fd = open("f", O_CREAT | O_RDWR | O_EXCL, 0640);
    fprintf(stderr, "library %d\n", is_of_library(fd));
    struct iovec parts[2] = {{"one ", 4}, {"two ", 4}};
    SHOW(open("f", O_CREAT | O_RDWR | O_EXCL, 0640));
    SHOW(write(fd, "zero ", 5));
    SHOW(writev(fd, parts, 2));
    SHOW(pwrite(fd, "three", 5, 20));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(lseek(fd, -5, SEEK_END));
    SHOW(read(fd, text, 3));
    printf("%.3s\n", text);
    SHOW(pread(fd, text, 60, 0));
    SHOW(pread(fd, text, 4, -1));
    SHOW(lseek(fd, -1, SEEK_SET));
    SHOW(lseek(fd, 100, SEEK_SET));
    SHOW(read(fd, text, 4));
    struct iovec into[2] = {{text, 2}, {text + 8, 50}};
    SHOW(preadv(fd, into, 2, 1));
    SHOW(ftruncate(fd, 9));
    SHOW(lseek(fd, 0, SEEK_END));
    SHOW(fsync(fd));
    SHOW(fcntl(fd, F_GETFL) & ~O_LARGEFILE);
    SHOW(fcntl(fd, F_GETFD));
    SHOW(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    SHOW(isatty(fd));
    struct termios terminal;
    SHOW(ioctl(fd, TCGETS, &terminal));
    SHOW(close(fd));
    SHOW(close(fd));
    SHOW(read(fd, text, 1));
    fd = open("f", O_WRONLY | O_APPEND);
    SHOW(write(fd, "end", 3));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(read(fd, text, 1));
    SHOW(fcntl(fd, F_SETFL, 0));
    SHOW(pwrite(fd, "ZERO", 4, 0));
    close(fd);
    fd = open("f", O_RDONLY);
    SHOW(write(fd, "x", 1));
    SHOW(ftruncate(fd, 1));
    close(fd);
    show_file("f");
}

static void errors(void)
{
    char name[300];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    mkdir("dir", 0755);
    symlink("f", "link");
    symlink("loop", "loop");
    symlink("dir", "linked-dir");
    SHOW(open("absent", O_RDONLY));
    SHOW(open("absent/f", O_CREAT | O_WRONLY, 0600));
    SHOW(open("f/f", O_RDONLY));
    SHOW(open("dir", O_WRONLY));
    SHOW(open("loop", O_RDONLY));
    SHOW(open("link", O_RDONLY | O_NOFOLLOW));
    SHOW(open(name, O_CREAT | O_WRONLY, 0600));
    SHOW(open("", O_RDONLY));
    SHOW(open("link", O_CREAT | O_EXCL | O_WRONLY, 0600));
    SHOW(close(open("link", O_RDONLY)));
    SHOW(close(open("linked-dir/../f", O_RDONLY)));
    SHOW(close(open("linked-dir/new", O_CREAT | O_WRONLY, 0600)));
    SHOW(access("dir/new", R_OK | W_OK));
    SHOW(access("absent", F_OK));
    SHOW(mkdir("dir", 0755));
    SHOW(rmdir("dir"));
    SHOW(unlink("dir"));
    SHOW(unlink("absent"));
    SHOW(rename("absent", "other"));
    SHOW(rename("f", "dir"));
    SHOW(unlink("dir/new"));
    SHOW(rmdir("dir"));
    SHOW(unlink("linked-dir"));
    SHOW(unlink("loop"));
    SHOW(unlink("link"));
}

static void compare_stat(const char *path)
{
    struct stat own, kernel;
    memset(&own, 0, sizeof own);
    memset(&kernel, 0, sizeof kernel);
    SHOW(stat(path, &own));
    syscall(SYS_newfstatat, AT_FDCWD, path, &kernel, 0);
    printf("equal %d, mode %o, size %ld\n", memcmp(&own, &kernel, sizeof own) == 0,
           own.st_mode, S_ISREG(own.st_mode) ? (long)own.st_size : -1);
    struct statx extended;
    SHOW(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended));
    printf("inode %d, size %d\n", extended.stx_ino == kernel.st_ino,
           (long long)extended.stx_size == (long long)kernel.st_size);
}

static void attributes(void)
{
    umask(027);
    int fd = open("mode", O_CREAT | O_RDWR, 0666);
    struct timespec times[2] = {{1000, 1}, {0, UTIME_OMIT}};
    compare_stat("mode");
    SHOW(fchmod(fd, 0604));
    SHOW(futimens(fd, times));
    struct stat found;
    SHOW(fstat(fd, &found));
    printf("mode %o, atime %ld\n", found.st_mode, (long)found.st_atime);
    compare_stat("mode");
    close(fd);
    SHOW(mkdir("d2", 0777));
    compare_stat("d2");
    umask(022);
}

static void duplicates(void)
{
    char text[16] = "";
    int fd = open("dup", O_CREAT | O_RDWR | O_TRUNC, 0600);
    int other = dup(fd);
    SHOW(write(fd, "abcdef", 6));
    SHOW(lseek(other, 2, SEEK_SET));
    SHOW(read(fd, text, 2));
    printf("%.2s\n", text);
    SHOW(dup2(fd, 77));
    SHOW(close(fd));
    SHOW(read(77, text, 9));
    SHOW(fcntl(77, F_DUPFD, 80));
    SHOW(fcntl(80, F_GETFD));
    SHOW(close_range(70, 90, 0));
    SHOW(read(80, text, 1));
    SHOW(dup2(other, STDERR_FILENO));
    SHOW(lseek(other, 0, SEEK_END));
    fputs("to standard error\n", stderr);
    SHOW(dup2(STDOUT_FILENO, STDERR_FILENO));
    close(other);
    show_file("dup");
    /* The lowest free number. */
    int first = open("dup", O_RDONLY), second = open("dup", O_RDONLY);
    close(first);
    int third = open("dup", O_RDONLY);
    printf("same number %d\n", third == first);
    close(second);
    close(third);
}

static void other_processes(void)
{
    int fd = open("shared", O_CREAT | O_RDWR | O_TRUNC, 0600);
    SHOW(write(fd, "parent ", 7));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        write(fd, "child ", 6);
        int own = open("of-child", O_CREAT | O_WRONLY, 0600);
        _exit(write(own, "x", 1) == 1 ? 3 : 4);
    }
    finish_child(pid);
    SHOW(write(fd, "parent\n", 7));
    SHOW(lseek(fd, 0, SEEK_CUR));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
    char *arguments[] = {"echo", "spawned", NULL};
    SHOW(posix_spawnp(&pid, "echo", &actions, NULL, arguments, environ));
    finish_child(pid);
    close(fd);
    show_file("shared");
    show_file("of-child");
    pid = vfork();
    if (pid == 0)
        _exit(5);
    finish_child(pid);
    SHOW(system("exec 3>by-shell; echo shell >&3"));
    show_file("by-shell");
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int out = open("by-exec", O_CREAT | O_WRONLY, 0600);
        dup2(out, STDOUT_FILENO);
        char *command[] = {"sh", "-c", "echo executed; cat shared", NULL};
        execvp("sh", command);
        _exit(9);
    }
    finish_child(pid);
    show_file("by-exec");
    pid = fork();
    if (pid == 0) {
        dup2(open("by-execl", O_CREAT | O_WRONLY, 0600), 9);
        execlp("sh", "sh", "-c", "echo $0 $1 $2 $3 $4 $5 >&9", "a", "b", "c", "d", "e", "f", NULL);
        _exit(9);
    }
    finish_child(pid);
    show_file("by-execl");
}

static void kernel_operations(void)
{
    int fd = open("map", O_CREAT | O_RDWR | O_TRUNC, 0600);
    char text[16] = "";
    SHOW(write(fd, "0123456789", 10));
    char *map = mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("mapped %.10s\n", map);
    memcpy(map, "MAP", 3);
    msync(map, 10, MS_SYNC);
    SHOW(pread(fd, text, 10, 0));
    printf("%.10s\n", text);
    munmap(map, 10);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    SHOW(fcntl(fd, F_SETLK, &lock));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int own = open("map", O_RDWR);
        _exit(fcntl(own, F_SETLK, &lock) == -1 && errno == EAGAIN ? 1 : 0);
    }
    finish_child(pid);
    int copy = open("copy", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    off_t from = 0;
    SHOW(sendfile(copy, fd, &from, 4));
    from = 4;
    SHOW(copy_file_range(fd, &from, copy, NULL, 6, 0));
    struct pollfd polled = {fd, POLLIN, 0};
    SHOW(poll(&polled, 1, 0));
    printf("events %x\n", polled.revents);
    close(copy);
    copy = open("copy", O_RDWR);
    SHOW(posix_fallocate(copy, 0, 100));
    SHOW(lseek(copy, 0, SEEK_END));
    SHOW(flock(copy, LOCK_EX | LOCK_NB));
    close(copy);
    int formatted = open("formatted", O_CREAT | O_WRONLY, 0600);
    SHOW(dprintf(formatted, "%s %d %.1f %.1f %d %d %d %d\n", "text", 1, 2.5, 3.5, 4, 5, 6, 7));
    close(formatted);
    show_file("formatted");
    int passed = open("formatted", O_RDONLY);
    char name[32];
    snprintf(name, sizeof name, "/dev/fd/%d", passed);
    int again = open(name, O_RDONLY);
    SHOW(read(again, text, 4));
    close(again);
    close(passed);
    close(STDIN_FILENO);
    SHOW(open("formatted", O_RDONLY));
    SHOW(getchar());
    close(fd);
    show_file("copy");
}

static void names_of_open_files(void)
{
    int fd = open("before", O_CREAT | O_RDWR | O_TRUNC, 0600);
    SHOW(write(fd, "renamed ", 8));
    SHOW(rename("before", "after"));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(write(fd, "child", 5) == 5 ? 0 : 1);
    finish_child(pid);
    show_file("after");
    SHOW(unlink("after"));
    SHOW(write(fd, "!", 1));
    SHOW(lseek(fd, 0, SEEK_END));
    struct stat found;
    SHOW(fstat(fd, &found));
    printf("links %ld\n", (long)found.st_nlink);
    close(fd);
    show_file("after");
}

static void streams(void)
{
    char line[64] = "";
    FILE *stream = fopen("stream", "w+");
    SHOW(fprintf(stream, "line %d\n", 1));
    SHOW(fputs("line 2\n", stream) >= 0);
    SHOW(ftell(stream));
    rewind(stream);
    SHOW(fgets(line, sizeof line, stream) != NULL);
    fputs(line, stdout);
    SHOW(fseek(stream, -2, SEEK_END));
    SHOW(fgetc(stream));
    struct stat found;
    SHOW(fstat(fileno(stream), &found));
    printf("size %ld\n", (long)found.st_size);
    fflush(stdout);
    SHOW(fclose(stream));
    stream = fopen("stream", "a");
    SHOW(fputs("appended\n", stream) >= 0);
    fflush(stream);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        fputs("by child\n", stream);
        exit(fclose(stream));
    }
    finish_child(pid);
    SHOW(fclose(stream));
    int fd = open("stream", O_RDONLY);
    stream = fdopen(fd, "r");
    int lines = 0;
    while (fgets(line, sizeof line, stream))
        lines++;
    printf("lines %d, number %d\n", lines, fileno(stream) == fd);
    fclose(stream);
    SHOW(fopen("absent", "r") == NULL);
    SHOW(fopen("stream", "wx") == NULL);
    DIR *directory = opendir(".");
    int entries = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        entries += entry->d_name[0] != '.';
    closedir(directory);
    printf("entries %d\n", entries);
    /* Not closed: exit writes what is left. */
    stream = fopen("at-exit", "w");
    fputs("flushed by exit\n", stream);
}

int main(int argc, char **argv)
{
    if (argc < 2 || chdir(argv[1])) {
        perror("directory");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    positions_and_vectors();
    errors();
    attributes();
    duplicates();
    other_processes();
    kernel_operations();
    names_of_open_files();
    streams();
    return 0;
}
