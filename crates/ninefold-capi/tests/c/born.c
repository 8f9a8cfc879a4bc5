/*
 * born NAME: the library's threads take no signals from their first instruction on. NAME has a host by its name, for which a thread may be
 * made.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include "check.h"
#include "ninefold.h"

static volatile int threads, open_to_signals;

/* The library's too: a thread has the mask of who makes it. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    sigset_t mask;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    __sync_fetch_and_add(&threads, 1);
    if (!sigismember(&mask, SIGUSR1) || !sigismember(&mask, SIGINT) || !sigismember(&mask, SIGCHLD))
        __sync_fetch_and_add(&open_to_signals, 1);
    return real(thread, attributes, routine, argument);
}

int main(int argc, char **argv)
{
    char bytes[4];
    sigset_t mask;
    Stream *s;
    int fd;
    CHECK(argc == 2, "wrong use");
    fd = as_open(argv[1], O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0, "%d", fd);
    s = stream(fd, 0, 0);
    CHECK(s != NULL, "%d", errno);
    SAME(swrite(s, "hello", 5), 5);
    SAME(sclose(s), 0);
    SAME(as_pread(fd, bytes, 4, 0), 4);
    SAME(as_close(fd), 0);
    CHECK(threads > 0, "");
    SAME(open_to_signals, 0);
    /* The program's own mask is as it was. */
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGPIPE), "");
    return 0;
}
