/* threads DIR RECORDS: many threads, each with a file of its own, one file that all append to, and one descriptor that all read. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define THREADS 8
#define RECORD 100

static const char *dir, *query;
static int shared, records;
static volatile sig_atomic_t handled;
static pthread_t main_thread;

static void name_of(char *name, size_t size, const char *what, int n)
{
    snprintf(name, size, "%s/%s%d%s", dir, what, n, query);
}

static void handler(int signal)
{
    (void)signal;
    handled = pthread_equal(pthread_self(), main_thread) ? 1 : 2;
}

static void *work(void *number)
{
    int n = *(int *)number, i, fd, all;
    char name[4096], record[RECORD], got[RECORD];
    name_of(name, sizeof name, "own", n);
    fd = as_open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0, "%d", fd);
    name_of(name, sizeof name, "all", 0);
    all = as_open(name, O_WRONLY | O_APPEND);
    CHECK(all >= 0, "%d", all);
    memset(record, 'a' + n, RECORD);
    for (i = 0; i < records; i++) {
        SAME(as_write(fd, record, RECORD), RECORD);
        SAME(as_write(all, record, RECORD), RECORD);
        /* Each read of the shared descriptor gets a record of its own, whole. */
        SAME(as_read(shared, got, RECORD), RECORD);
        SAME(memchr(got, got[0] ^ 1, RECORD) != NULL, 0);
    }
    SAME(as_close(all), 0);
    SAME(as_pread(fd, got, RECORD, (records - 1) * RECORD), RECORD);
    CHECK(!memcmp(got, record, RECORD), "");
    SAME(as_close(fd), 0);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    int numbers[THREADS], counts[THREADS] = {0}, i, all;
    char name[4096], record[RECORD];
    struct sigaction action;
    sigset_t signals;
    struct stat st;
    CHECK(argc == 3, "wrong use");
    records = atoi(argv[2]);
    dir = argv[1];
    query = strchr(dir, '?') ? strdup(strchr(dir, '?')) : "";
    if (*query)
        *strchr(argv[1], '?') = 0;
    name_of(name, sizeof name, "shared", 0);
    shared = as_open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(shared >= 0, "%d", shared);
    for (i = 0; i < THREADS * records; i++) {
        memset(record, 'A' + i % 26, RECORD);
        SAME(as_write(shared, record, RECORD), RECORD);
    }
    SAME(as_lseek(shared, 0, SEEK_SET), 0);
    name_of(name, sizeof name, "all", 0);
    i = as_open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(i >= 0, "%d", i);
    SAME(as_close(i), 0);

    /* Threads with as little of a stack as docs/c.md asks for. */
    SAME(pthread_attr_init(&attributes), 0);
    SAME(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        SAME(pthread_create(&threads[i], &attributes, work, &numbers[i]), 0);
    }
    for (i = 0; i < THREADS; i++)
        SAME(pthread_join(threads[i], NULL), 0);
    /* Where it ended is where all of them together ended. */
    SAME(as_lseek(shared, 0, SEEK_CUR), THREADS * records * RECORD);
    SAME(as_read(shared, record, 1), 0);

    name_of(name, sizeof name, "all", 0);
    all = as_open(name, O_RDONLY);
    SAME(as_fstat(all, &st), 0);
    if (strcmp(query, "?dialect=9P2000") && strcmp(query, "?dialect=9P2000.s")) {
        /* The server appends: nothing was overwritten. */
        SAME(st.st_size, THREADS * records * RECORD);
        while (as_read(all, record, RECORD) == RECORD) {
            int k;
            for (k = 1; k < RECORD; k++)
                SAME(record[k], record[0]);
            counts[record[0] - 'a']++;
        }
        for (i = 0; i < THREADS; i++)
            SAME(counts[i], records);
    }
    SAME(as_close(all), 0);

    /* A signal to the process waits for a thread of the program's: the library's does not take it. */
    main_thread = pthread_self();
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    SAME(sigaction(SIGUSR1, &action, NULL), 0);
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    SAME(pthread_sigmask(SIG_BLOCK, &signals, NULL), 0);
    SAME(kill(getpid(), SIGUSR1), 0);
    SAME(as_pread(shared, record, 1, 0), 1);
    SAME(handled, 0);
    SAME(pthread_sigmask(SIG_UNBLOCK, &signals, NULL), 0);
    SAME(handled, 1);
    report("connected");
    SAME(as_close(shared), 0);
    return 0;
}
