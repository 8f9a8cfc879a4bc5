/*
 * forked NAME FIFO: a child has none of its parent's files of servers, is told so at once, and has its own. FIFO is the name of a fifo of
 * the server's.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

/* More than what is between a writer and a fifo that nobody reads. */
#define LARGE (64l << 20)

static unsigned char *large;

/* Has the stream locked until somebody reads all of it, which nobody does. */
static void *writes(void *s)
{
    swrite(s, large, LARGE);
    return NULL;
}

/* A child of a process one of whose threads is within a call on a stream. */
static void during(Stream *s)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        SAME(swrite(s, "x", 1), -EBADF);
        SAME(sclose(s), -EBADF);
        _exit(0);
    }
    CHECK(pid > 0, "%d", errno);
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
}

/* Streams that are locked: of a pipe here, and of a fifo there. */
static void locked(const char *fifo)
{
    int ends[2], fd, other;
    char byte;
    pthread_t thread;
    Stream *s;
    large = calloc(1, LARGE);
    CHECK(large != NULL, "");
    SAME(pipe(ends), 0);
    s = stream(ends[1], 0, 0);
    CHECK(s != NULL, "%d", errno);
    SAME(pthread_create(&thread, NULL, writes, s), 0);
    /* A byte is here: the call that wrote it goes on. */
    SAME(read(ends[0], &byte, 1), 1);
    during(s);

    fd = as_open(fifo, O_RDWR);
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    s = stream(fd, 0, 0);
    CHECK(s != NULL, "%d", errno);
    other = as_open(fifo, O_RDWR);
    CHECK(other >= NF_FD_MIN, "%d", other);
    SAME(pthread_create(&thread, NULL, writes, s), 0);
    SAME(as_read(other, &byte, 1), 1);
    during(s);
}

/* A stream of a file here that nobody has locked is the child's too, with a place of its own. */
static void here(void)
{
    char bytes[5];
    int status = 0;
    pid_t pid;
    FILE *file = tmpfile();
    Stream *s;
    CHECK(file != NULL, "%d", errno);
    s = stream(fileno(file), 0, 0);
    CHECK(s != NULL, "%d", errno);
    SAME(swrite(s, "he", 2), 2);
    pid = fork();
    if (pid == 0) {
        SAME(swrite(s, "llo", 3), 3);
        SAME(sclose(s), 0);
        _exit(0);
    }
    CHECK(pid > 0, "%d", errno);
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
    SAME(swrite(s, "LL", 2), 2);
    SAME(sclose(s), 0);
    SAME(pread(fileno(file), bytes, 5, 0), 5);
    CHECK(!memcmp(bytes, "heLLo", 5), "");
    fclose(file);
}

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
    CHECK(argc == 3, "wrong use");
    here();
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
    locked(argv[2]);
    return 0; /* the threads wait for ever */
}
