/*
 * closing NAME TIMES: a descriptor is closed while another thread writes behind by it. What either is told is true: where neither is told
 * an error all is in the file.
 */
#include <pthread.h>

#include "check.h"
#include "ninefold.h"

/* Several parts, so that a close comes in between them. */
#define BYTES (40l << 20)

static unsigned char *bytes;
static int fd;
static long written;
static pthread_barrier_t start;

static void *writes(void *unused)
{
    pthread_barrier_wait(&start);
    written = as_write(fd, bytes, BYTES);
    return unused;
}

int main(int argc, char **argv)
{
    int times, closed;
    CHECK(argc == 3, "wrong use");
    bytes = malloc(BYTES);
    CHECK(bytes != NULL, "");
    memset(bytes, 'x', BYTES);
    SAME(pthread_barrier_init(&start, NULL, 2), 0);
    for (times = atoi(argv[2]); times > 0; times--) {
        struct stat st;
        pthread_t thread;
        int other = as_open(argv[1], O_RDWR | O_TRUNC);
        CHECK(other >= 0, "%d", other);
        /* An empty file may be synthetic. */
        SAME(as_write(other, "x", 1), 1);
        fd = as_open(argv[1], O_RDWR | OBEHIND);
        CHECK(fd >= 0, "%d", fd);
        SAME(pthread_create(&thread, NULL, writes, NULL), 0);
        pthread_barrier_wait(&start);
        /* Its first bytes are on their way. */
        do
            SAME(as_fstat(other, &st), 0);
        while (st.st_size < 2);
        closed = as_close(fd);
        SAME(pthread_join(thread, NULL), 0);
        SAME(closed, 0);
        SAME(written, BYTES);
        SAME(as_fstat(other, &st), 0);
        SAME(st.st_size, BYTES);
        SAME(as_close(other), 0);
    }
    free(bytes);
    return 0;
}
