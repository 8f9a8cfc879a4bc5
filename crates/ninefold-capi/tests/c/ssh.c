/* ssh NAME: what is started to reach a server is started with the signals of the thread that opens. NAME is reached by ssh, and is not there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

static volatile int started, deaf;

static void look(void)
{
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    started++;
    if (sigismember(&mask, SIGTERM) || sigismember(&mask, SIGHUP) || sigismember(&mask, SIGCHLD))
        deaf++;
}

/* The library's too, whichever it uses: a process has the mask of the thread that makes it. Some shells clear it, and some do not. */
int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                 char *const arguments[], char *const environment[])
{
    static int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
                       char *const[]);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "posix_spawnp");
    look();
    return real(pid, file, actions, attributes, arguments, environment);
}

pid_t fork(void)
{
    static pid_t (*real)(void);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "fork");
    look();
    return real();
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "wrong use");
    CHECK(as_open(argv[1], O_RDONLY) < 0, "");
    CHECK(started > 0, "");
    SAME(deaf, 0);
    return 0;
}
