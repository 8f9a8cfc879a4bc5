/* forked NAME: a child has none of its parent's files of servers, is told so at once, and has its own. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

static void child(const char *name, int fd, Stream *s)
{
    char bytes[10];
    int own;
    /* None of these may hang: the thread that would answer is the parent's. */
    alarm(30);
    SAME(as_read(fd, bytes, 1), -EBADF);
    SAME(as_fsync(fd), -EBADF);
    SAME(fdflush(fd), -EBADF);
    SAME(sread(s, bytes, 1), -EBADF);
    SAME(sclose(s), -EBADF);
    own = as_open(name, O_RDONLY);
    CHECK(own >= NF_FD_MIN && own != fd, "%d", own);
    SAME(as_read(fd, bytes, 1), -EBADF);
    SAME(as_close(fd), -EBADF);
    SAME(as_read(own, bytes, 5), 5);
    CHECK(!memcmp(bytes, "hello", 5), "");
    s = stream(own, 1, 1);
    CHECK(s != NULL, "%d", errno);
    SAME(sread(s, bytes, 4), 4);
    SAME(sclose(s), 0);
    SAME(as_close(own), 0);
    _exit(0); /* what the parent had is not the child's to free */
}

int main(int argc, char **argv)
{
    char bytes[10];
    int fd, status = 0;
    Stream *s;
    pid_t pid;
    CHECK(argc == 2, "wrong use");
    fd = as_open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    SAME(as_write(fd, "hello", 5), 5);
    s = stream(fd, 0, 1);
    CHECK(s != NULL, "%d", errno);
    SAME(sread(s, bytes, 1), 1);
    pid = fork();
    if (pid == 0)
        child(argv[1], fd, s);
    CHECK(pid > 0, "%d", errno);
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
    /* The parent's are as they were. */
    SAME(as_pread(fd, bytes, 5, 0), 5);
    SAME(sread(s, bytes, 4), 4);
    SAME(sread(s, bytes, 4), 0);
    SAME(sclose(s), 0);
    SAME(as_close(fd), 0);
    return 0;
}
