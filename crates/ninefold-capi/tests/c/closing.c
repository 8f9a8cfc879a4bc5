/*
 * closing NAME TIMES: a descriptor is closed while another thread writes behind by it. What either is told is true: where neither is told
 * an error all is in the file. So it is where a stream that reads has the file to the end.
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

/* `streams`: a stream that reads has the file too, and has it longest. */
static void one(const char *name, int streams)
{
    struct stat st;
    pthread_t thread;
    Stream *s = NULL;
    int closed, other = as_open(name, O_RDWR | O_TRUNC);
    CHECK(other >= 0, "%d", other);
    /* An empty file may be synthetic. */
    SAME(as_write(other, "x", 1), 1);
    fd = as_open(name, O_RDWR | OBEHIND);
    CHECK(fd >= 0, "%d", fd);
    if (streams) {
        s = stream(fd, 0, 1);
        CHECK(s != NULL, "%d", errno);
    }
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
    if (streams)
        SAME(sclose(s), 0);
    SAME(as_fstat(other, &st), 0);
    SAME(st.st_size, BYTES);
    SAME(as_close(other), 0);
}

int main(int argc, char **argv)
{
    int times;
    CHECK(argc == 3, "wrong use");
    bytes = malloc(BYTES);
    CHECK(bytes != NULL, "");
    memset(bytes, 'x', BYTES);
    SAME(pthread_barrier_init(&start, NULL, 2), 0);
    for (times = 0; times < 2 * atoi(argv[2]); times++)
        one(argv[1], times % 2);
    free(bytes);
    return 0;
}
