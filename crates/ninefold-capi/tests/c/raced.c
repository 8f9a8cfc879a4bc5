/*
 * raced WHERE DIR: two threads that race, so that who looks for races can be seen to find one: in the `program`, or in the `library`, to which both give one
 * place for what it says. Not run where nobody looks.
 */
#include <pthread.h>

#include "check.h"
#include "ninefold.h"

enum { BYTES = 64, TIMES = 1000 };

static char path[4096];
static int in_library;
static long said;
static unsigned char *region;
static pthread_barrier_t together;

static void *races(void *unused)
{
    int n, error = 0;
    Stream *s = sopen(path, O_RDONLY, 0, &error);
    CHECK(s != NULL, "%d", error);
    pthread_barrier_wait(&together);
    for (n = 0; n < TIMES; n++) {
        if (in_library) {
            void *line = nf_salloc_line(s, &said);
            CHECK(line != NULL, "");
            SAME(nf_sfree(s, line), 0);
        } else {
            region[n % BYTES]++;
        }
    }
    SAME(sclose(s), 0);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    long n, length = BYTES;
    int error = 0;
    Stream *s;
    CHECK(argc == 3, "wrong use");
    in_library = strcmp(argv[1], "library") == 0;
    snprintf(path, sizeof path, "%s/lines", argv[2]);
    s = sopen(path, O_WRONLY | O_CREAT | O_TRUNC, 0600, &error);
    CHECK(s != NULL, "%d", error);
    for (n = 0; n < TIMES; n++)
        SAME(sputs("a line\n", s), 0);
    SAME(sflush(s), 0);
    region = (unsigned char *)salloc(s, &length);
    CHECK(region != NULL, "%ld", length);
    SAME(pthread_barrier_init(&together, NULL, 2), 0);
    for (n = 0; n < 2; n++)
        SAME(pthread_create(&threads[n], NULL, races, NULL), 0);
    for (n = 0; n < 2; n++)
        SAME(pthread_join(threads[n], NULL), 0);
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);
    return 0;
}
