/*
 * reborn NAME: a child that has the number of its parent. It reports where there can be no pid namespace.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

static Stream *reading;

/* The first process of a pid namespace is not killed by what kills others. */
static void hangs(int signal)
{
    (void)signal;
    _exit(2);
}

static void child(const char *name, int fd, pid_t parent)
{
    char byte;
    int own;
    /* None of these may hang. */
    alarm(30);
    SAME(getpid(), parent);
    SAME(as_fsync(fd), -EBADF);
    SAME(as_close(fd), -EBADF);
    SAME(sread(reading, &byte, 1), -EBADF);
    SAME(swrite(reading, &byte, 1), -EBADF);
    SAME(sclose(reading), -EBADF);
    own = as_open(name, O_RDWR);
    CHECK(own >= NF_FD_MIN && own != fd, "%d", own);
    SAME(as_close(own), 0);
    _exit(0);
}

/* The first process of a pid namespace, as its own child is of the next. */
static void first(const char *name)
{
    pid_t pid;
    int fd, status = 0;
    CHECK(getpid() == 1, "%d", (int)getpid());
    alarm(60);
    fd = as_open(name, O_RDWR);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    reading = stream(fd, 0, 1);
    CHECK(reading != NULL, "%d", errno);
    SAME(unshare(CLONE_NEWPID), 0);
    pid = fork();
    if (pid == 0)
        child(name, fd, 1);
    CHECK(pid > 0, "%d", errno);
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
    SAME(sclose(reading), 0);
    SAME(as_close(fd), 0);
    _exit(0);
}

int main(int argc, char **argv)
{
    int status = 0;
    pid_t pid;
    CHECK(argc == 2, "wrong use");
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
        return report("no pid namespace"), 0;
    signal(SIGALRM, hangs);
    pid = fork();
    if (pid == 0)
        first(argv[1]);
    CHECK(pid > 0, "%d", errno);
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
    return 0;
}
