/* here NAME: streams on a file here: what went wrong is told by the end, whether a call told it or not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define SIZE 100000
#define LARGE (8l << 20)

static unsigned char bytes[2 * SIZE];
static volatile int closes_fail;

/* The library's too: a file system that can write no more says so at close(2). */
int close(int fd)
{
    static int (*real)(int);
    int result;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "close");
    result = real(fd);
    if (result == 0 && closes_fail) {
        errno = EIO;
        return -1;
    }
    return result;
}

static void ticks(int signal)
{
    (void)signal;
}

static Stream *begin(int fd, char isread)
{
    Stream *s = stream(fd, 0, isread);
    CHECK(s != NULL, "%d", errno);
    return s;
}

static int ends[2];

static void *empties(void *unused)
{
    static unsigned char got[1 << 20];
    long all = 0, count;
    while ((count = read(ends[0], got, sizeof got)) > 0)
        all += count;
    SAME(all, 1 + LARGE);
    return unused;
}

/* Into a pipe all of it goes, or nothing of it, whatever comes between. */
static void pipes(int flags)
{
    unsigned char *large = calloc(1, LARGE);
    struct sigaction action;
    sigset_t alarms;
    pthread_t thread;
    Stream *s;
    int n;
    CHECK(large != NULL, "");
    SAME(pipe(ends), 0);
    SAME(fcntl(ends[1], F_SETFL, flags), 0);
    s = begin(ends[1], 0);
    SAME(swrite(s, large, 1), 1);
    if (flags & O_NONBLOCK) {
        /* Others fill it: nothing is taken, and the stream has not failed. */
        for (n = 0; write(ends[1], large, 1) == 1; n++)
            ;
        SAME(swrite(s, large, 1), -EAGAIN);
        for (; n > 0; n--)
            SAME(read(ends[0], large, 1), 1);
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = ticks;
    SAME(sigaction(SIGALRM, &action, NULL), 0);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    SAME(pthread_sigmask(SIG_BLOCK, &alarms, NULL), 0);
    SAME(pthread_create(&thread, NULL, empties, NULL), 0);
    SAME(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL), 0);
    ualarm(1000, 1000);
    SAME(swrite(s, large, LARGE), LARGE);
    ualarm(0, 0);
    SAME(sclose(s), 0);
    SAME(close(ends[1]), 0);
    SAME(pthread_join(thread, NULL), 0);
    SAME(close(ends[0]), 0);
    free(large);
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    int fd, error;
    Stream *s;
    CHECK(argc == 2, "wrong use");
    fd = as_open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0, "%d", fd);
    s = begin(fd, 0);
    SAME(swrite(s, bytes, SIZE), SIZE);
    SAME(sclose(s), 0);

    /* Cut while it is read: it is no whole file. */
    s = begin(fd, 1);
    SAME(sread(s, bytes, 10), 10);
    SAME(as_ftruncate(fd, SIZE / 2), 0);
    SAME(sread(s, bytes, SIZE), SIZE / 2 - 10);
    SAME(sread(s, bytes, SIZE), -ESTALE);
    SAME(errno, ESTALE);
    SAME(sread(s, bytes, SIZE), -ESTALE);
    SAME(sclose(s), -ESTALE);
    /* Cut behind what was asked for: no matter. */
    s = nf_stream_range(fd, 0, 100, 1, &error);
    CHECK(s != NULL, "%d", error);
    SAME(as_ftruncate(fd, 200), 0);
    SAME(sread(s, bytes, SIZE), 100);
    SAME(sread(s, bytes, SIZE), 0);
    SAME(sclose(s), 0);
    /* And who ends before the end has what he wanted. */
    s = begin(fd, 1);
    SAME(as_ftruncate(fd, 100), 0);
    SAME(sread(s, bytes, SIZE), 100);
    SAME(sclose(s), 0);

    /* Files of the kernel's that never have as many bytes as they say. */
    error = as_open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY);
    if (error >= 0) {
        s = begin(error, 1);
        CHECK(sread(s, bytes, SIZE) > 0, "%d", errno);
        SAME(sread(s, bytes, SIZE), 0);
        SAME(sclose(s), 0);
        SAME(as_close(error), 0);
    }

    /* The end is the end, whatever comes to the file then. */
    s = begin(fd, 1);
    SAME(sread(s, bytes, SIZE), 100);
    SAME(sread(s, bytes, SIZE), 0);
    SAME(as_pwrite(fd, bytes, 10, 100), 10);
    SAME(sread(s, bytes, SIZE), 0);
    SAME(sclose(s), 0);

    /* The error behind bytes that were taken. */
    signal(SIGXFSZ, SIG_IGN);
    SAME(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = SIZE;
    SAME(setrlimit(RLIMIT_FSIZE, &limit), 0);
    s = begin(fd, 0);
    SAME(swrite(s, bytes, sizeof bytes), -EFBIG);
    SAME(errno, EFBIG);
    SAME(swrite(s, bytes, 1), -EFBIG);
    SAME(sclose(s), -EFBIG);
    SAME(errno, EFBIG);

    /* The error of the close itself. */
    s = begin(fd, 0);
    SAME(swrite(s, bytes, 10), 10);
    closes_fail = 1;
    error = sclose(s);
    closes_fail = 0;
    SAME(error, -EIO);
    s = begin(fd, 1);
    SAME(sread(s, bytes, 10), 10);
    closes_fail = 1;
    error = sclose(s);
    closes_fail = 0;
    SAME(error, 0);
    SAME(as_close(fd), 0);
    pipes(O_NONBLOCK);
    pipes(0);
    return 0;
}
