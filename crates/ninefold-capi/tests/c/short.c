/*
 * short DIR: the short ways of the header are where the library is, and are gone the longer way as soon as they would be wrong.
 * Built with LAYOUT, the places of what the library has, and with calls of nf_salloc, nf_sfree, nf_salloc_line and nf_sgetc wrapped.
 */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define PIECES 1000
#define BYTES 64

static long calls;

void *__real_nf_salloc(NfStream *s, long *length);
void *__real_nf_salloc_line(NfStream *s, long *length);
int __real_nf_sfree(NfStream *s, void *region);
int __real_nf_sgetc(NfStream *s);
void *__wrap_nf_salloc(NfStream *s, long *length);
void *__wrap_nf_salloc_line(NfStream *s, long *length);
int __wrap_nf_sfree(NfStream *s, void *region);
int __wrap_nf_sgetc(NfStream *s);

void *__wrap_nf_salloc(NfStream *s, long *length) { return calls++, __real_nf_salloc(s, length); }
void *__wrap_nf_salloc_line(NfStream *s, long *length) { return calls++, __real_nf_salloc_line(s, length); }
int __wrap_nf_sfree(NfStream *s, void *region) { return calls++, __real_nf_sfree(s, region); }
int __wrap_nf_sgetc(NfStream *s) { return calls++, __real_nf_sgetc(s); }

static Stream *shared;

static void *uses(void *unused)
{
    long length = BYTES;
    void *region = salloc(shared, &length);
    CHECK(region != NULL, "%ld", length);
    SAME(sfree(shared, region), 0);
    return unused;
}

/* Calls that came to the library while so many pieces were read. */
static long counted(Stream *s)
{
    long n, before = calls;
    for (n = 0; n < PIECES; n++) {
        long length = BYTES;
        unsigned char *region = salloc(s, &length);
        CHECK(region != NULL && region[0] == 'a' && region[BYTES - 1] == '\n', "%ld", length);
        SAME(length, BYTES);
        SAME(sfree(s, region), 0);
    }
    return calls - before;
}

int main(int argc, char **argv)
{
    char path[4096];
    int error = 0, granted = 0;
    long n, length, before;
    unsigned char *one, *two;
    pthread_t thread;
    Stream *s;
    CHECK(argc == 2, "short DIR");
    snprintf(path, sizeof path, "%s/short", argv[1]);
#ifdef NF_SHORT_WAYS
    {
        static const size_t is[] = { LAYOUT }, here[] = {
            offsetof(NfBuffer, at), offsetof(NfBuffer, left), offsetof(NfBuffer, lent), offsetof(NfBuffer, freed),
            offsetof(NfBuffer, base), offsetof(NfBuffer, all), offsetof(NfBuffer, seen), offsetof(NfBuffer, changes),
            offsetof(NfBuffer, first), offsetof(NfBuffer, mode), offsetof(NfBuffer, live), offsetof(NfBuffer, loud),
            offsetof(NfBuffer, region), offsetof(NfBuffer, region_bytes), offsetof(NfBuffer, region_mode),
        };
        SAME(sizeof is, sizeof here);
        for (n = 0; n < (long)(sizeof is / sizeof is[0]); n++)
            SAME(here[n], is[n]);
    }
    /* MEMBARRIER_CMD_QUERY, and MEMBARRIER_CMD_PRIVATE_EXPEDITED in what it gives. */
    error = (int)syscall(SYS_membarrier, 0, 0, 0);
    granted = error > 0 && (error & 8);
#endif

    s = sopen(path, O_WRONLY | O_CREAT | O_TRUNC, 0644, &error);
    CHECK(s != NULL, "%d", error);
    for (n = 0; n < 5 * PIECES; n++) {
        length = BYTES;
        one = (unsigned char *)salloc(s, &length);
        CHECK(one != NULL, "%ld", length);
        memset(one, 'a', BYTES);
        one[BYTES - 1] = '\n';
        SAME(sfree(s, one), 0);
    }
    CHECK(!granted || calls < PIECES, "%ld calls of the library while a stream was written", calls);
    SAME(sclose(s), 0);

    shared = s = sopen(path, O_RDONLY, 0, &error);
    CHECK(s != NULL, "%d", error);
    /* Each fill takes one, and so does each region that lies on both sides of the end of a buffer. */
    n = counted(s);
    CHECK(!granted || n < PIECES / 10, "%ld", n);
    before = calls;
    for (n = 0; n < PIECES; n++) {
        one = (unsigned char *)salloc_line(s, &length);
        CHECK(one != NULL, "%ld", length);
        SAME(length, BYTES);
        SAME(sgetc(s), 'a');
        SAME(sungetc('a', s), 'a');
        SAME(sfree(s, one), 0);
    }
    CHECK(!granted || calls - before < PIECES / 10, "%ld", calls - before);

    /* Two at a time: one is the library's to remember. */
    length = BYTES;
    one = (unsigned char *)salloc(s, &length);
    two = (unsigned char *)salloc(s, &length);
    CHECK(one != NULL && two == one + BYTES, "%ld", length);
    SAME(sfree(s, one), 0);
    SAME(sfree(s, one), -EINVAL);
    SAME(sfree(s, two), 0);
    SAME(sfree(s, two), -EINVAL);
    SAME(sfree(s, NULL), -EFAULT);
    SAME(sfree(NULL, two), -EFAULT);
    CHECK(salloc(s, NULL) == NULL && errno == EFAULT, "%d", errno);
    length = -1;
    CHECK(salloc(s, &length) == NULL && length == -EINVAL, "%ld", length);
    length = 0;
    CHECK(salloc(s, &length) == NULL && length == 0, "%ld", length);

    /* Another thread ends the short ways, and they come again when they are claimed. */
    SAME(pthread_create(&thread, NULL, uses, NULL), 0);
    SAME(pthread_join(thread, NULL), 0);
    SAME(counted(s), 2 * PIECES);
    SAME(sclaim(s), 0);
    n = counted(s);
    CHECK(!granted || n < PIECES / 10, "%ld", n);
    SAME(sclose(s), 0);
    return 0;
}
