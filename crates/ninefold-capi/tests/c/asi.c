/* asi DIR: each call of the Alloc Stream Interface does what the header says. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define SIZE 300000l

static char path[4096];

static Stream *opens(int flags)
{
    int error = 1;
    Stream *s = sopen(path, flags, 0644, &error);
    CHECK(s != NULL, "%d", error);
    return s;
}

/* The region that a call gave is all that was asked for. */
static void *got(void *region, const long *length, long asked)
{
    CHECK(region != NULL, "%ld, %d", *length, errno);
    SAME(*length, asked);
    return region;
}

static void put(Stream *s, const char *text)
{
    long length = (long)strlen(text);
    void *region = salloc(s, &length);
    memcpy(got(region, &length, (long)strlen(text)), text, (size_t)length);
    SAME(sfree(s, region), 0);
}

/* What the file has, as libc reads it. */
static void has(const char *text)
{
    char bytes[100];
    FILE *file = fopen(path, "r");
    size_t n;
    CHECK(file != NULL, "%d", errno);
    n = fread(bytes, 1, sizeof bytes - 1, file);
    bytes[n] = '\0';
    CHECK(!strcmp(bytes, text), "%s, %s", bytes, text);
    fclose(file);
}

static void whole_file(int module)
{
    static const char *const modules[] = {"pread", "pread-random", "mmap"};
    unsigned char *regions[40];
    long length, at = 0, lengths[40];
    int n, count, error;
    Stream *s = sopen_by(path, O_RDONLY, 0, modules[module], &error);
    CHECK(s != NULL, "%d", error);
    CHECK(!strcmp(smodule(s), modules[module]), "%s", smodule(s));
    /* Many at a time, freed in another order; each as it was until then. */
    for (;;) {
        for (count = 0; count < 40; count++) {
            lengths[count] = 1 + (at + count * 37) % 977;
            length = lengths[count];
            regions[count] = salloc(s, &length);
            if (regions[count] == NULL)
                break;
            CHECK(length <= lengths[count], "%ld", length);
            lengths[count] = length;
        }
        for (n = 0; n < count; n++) {
            CHECK(differs(regions[n], at, (size_t)lengths[n]) < 0, "%ld", at);
            at += lengths[n];
        }
        for (n = count - 1; n >= 0; n -= 2)
            SAME(sfree(s, regions[n]), 0);
        for (n = count - 2; n >= 0; n -= 2)
            SAME(sfree(s, regions[n]), 0);
        SAME(sposition(s), at);
        if (count < 40)
            break;
    }
    SAME(length, 0);
    SAME(at, SIZE);
    SAME(sclose(s), 0);
}

static void writes_and_reads(void)
{
    static unsigned char bytes[SIZE];
    unsigned char *region;
    long length, asked, at;
    Stream *s = opens(O_RDWR | O_CREAT | O_TRUNC);
    /* It writes first, as the paper has it. */
    for (at = 0; at < SIZE; at += length) {
        length = 1 + at % 4999;
        if (length > SIZE - at)
            length = SIZE - at;
        asked = length;
        region = got(salloc(s, &length), &length, asked);
        fill(region, at, (size_t)length);
        SAME(sfree(s, region), 0);
    }
    SAME(sposition(s), SIZE);
    /* Read on the same stream, and by others. */
    length = SIZE;
    region = got(SallocAt(s, SA_READ, &length, 0, SEEK_SET), &length, SIZE);
    CHECK(differs(region, 0, SIZE) < 0, "");
    SAME(sfree(s, region), 0);
    SAME(set_stream_mode(s, SA_WRITE), 0);
    SAME(sflush(s), 0);
    SAME(ssync(s), 0);
    SAME(as_pread(open(path, O_RDONLY), bytes, SIZE, 0), SIZE);
    CHECK(differs(bytes, 0, SIZE) < 0, "");
    SAME(sclose(s), 0);
    whole_file(0);
    whole_file(1);
    whole_file(2);
}

static void order(void)
{
    char *one, *two, *three, *seen;
    long length = 1;
    Stream *s = opens(O_WRONLY | O_CREAT | O_TRUNC), *other;
    one = salloc(s, &length), two = salloc(s, &length), three = salloc(s, &length);
    CHECK(one && two && three, "%ld", length);
    *one = '1', *two = '2', *three = '3';
    SAME(sfree(s, three), 0);
    /* What was freed is seen here, and in the file in the order of salloc. */
    other = opens(O_RDONLY);
    length = 3;
    CHECK((seen = sallocAt(other, &length, -1, SEEK_END)) != NULL, "%ld", length);
    SAME(length, 1);
    SAME(sflush(s), -EBUSY);
    SAME(errno, EBUSY);
    has("");
    /* It cannot be closed either. */
    SAME(sclose(s), -EBUSY);
    SAME(sfree(s, one), 0);
    SAME(sflush(s), -EBUSY);
    has("1");
    SAME(sfree(s, two), 0);
    SAME(sflush(s), 0);
    has("123");
    SAME(sclose(s), 0);
    length = 1;
    SAME(sclose(other), -EBUSY);
    CHECK(salloc(other, &length) == NULL && length == 0, "%ld", length);
    SAME(sfree(other, seen), 0);
    SAME(sclose(other), 0);
}

static void lengths(void)
{
    char *region, *moved;
    long length = 100;
    Stream *s = opens(O_RDWR | O_CREAT | O_TRUNC);
    region = salloc(s, &length);
    memcpy(got(region, &length, 100), "Hello, world", 12);
    /* A large one, made as short as what was put in it: the next begins behind. */
    CHECK(srealloc(s, region, 5) == region, "%d", errno);
    SAME(sposition(s), 5);
    SAME(sfree(s, region), 0);
    put(s, "!");
    length = 3;
    region = got(salloc(s, &length), &length, 3);
    memcpy(region, "end", 3);
    length = 5l << 20;
    moved = got(sresize(s, region, &length), &length, 5l << 20);
    CHECK(!memcmp(moved, "end", 3), "");
    CHECK(Srealloc(s, SA_READ, moved, 3) == NULL && errno == EINVAL, "%d", errno);
    CHECK((moved = Srealloc(s, SA_WRITE, moved, 3)) != NULL, "%d", errno);
    if (moved != region)
        SAME(sfree(s, region), -EINVAL);
    SAME(sfree(s, moved), 0);
    /* To nothing: it is freed as ever, and nothing else begins there. */
    length = 10;
    region = salloc(s, &length);
    CHECK((region = srealloc(s, region, 0)) != NULL, "%d", errno);
    CHECK(srealloc(s, region, 0) == region, "%d", errno);
    CHECK(srealloc(s, region, 1) == NULL && errno == EINVAL, "%d", errno);
    put(s, ".");
    SAME(sfree(s, region), 0);
    SAME(sfree(s, region), -EINVAL);
    SAME(sflush(s), 0);
    has("Hello!end.");

    length = 4;
    region = got(SallocAt(s, SA_READ, &length, 0, SEEK_SET), &length, 4);
    region = srealloc(s, region, 6);
    CHECK(region != NULL && !memcmp(region, "Hello!", 6), "%d", errno);
    CHECK(srealloc(s, region, 11) == NULL && errno == ENODATA, "%d", errno);
    CHECK(srealloc(s, region, -1) == NULL && errno == EINVAL, "%d", errno);
    length = -1;
    CHECK(sresize(s, region, &length) == NULL && length == -EINVAL, "%ld", length);
    length = 11;
    region = got(sresize(s, region, &length), &length, 10);
    CHECK(!memcmp(region, "Hello!end.", 10), "");
    SAME(sfree(s, region), 0);
    /* Only the latest. */
    length = 1;
    region = SallocAt(s, SA_READ, &length, 0, SEEK_SET);
    moved = salloc(s, &length);
    CHECK(srealloc(s, region, 2) == NULL && errno == EINVAL, "%d", errno);
    SAME(sfree(s, region), 0);
    SAME(sfree(s, moved), 0);
    SAME(sclose(s), 0);
}

static void places(void)
{
    char *region, bytes[10];
    long length = 4;
    Stream *s = opens(O_RDWR | O_CREAT | O_TRUNC);
    put(s, "0123456789");
    CHECK(!memcmp(region = got(SallocAt(s, SA_READ, &length, 2, SEEK_SET), &length, 4), "2345", 4), "");
    SAME(sfree(s, region), 0);
    CHECK(!memcmp(region = got(sallocAt(s, &length, -3, SEEK_CUR), &length, 4), "3456", 4), "");
    SAME(sfree(s, region), 0);
    CHECK((region = sallocAt(s, &length, -2, SEEK_END)) != NULL, "");
    SAME(length, 2);
    CHECK(!memcmp(region, "89", 2), "");
    SAME(sfree(s, region), 0);
    length = 4;
    CHECK(sallocAt(s, &length, 0, SEEK_END) == NULL, "");
    SAME(length, 0);
    /* What is wrong moves nothing. */
    length = 4;
    CHECK(sallocAt(s, &length, -1, SEEK_SET) == NULL && length == -EINVAL, "%ld", length);
    length = 4;
    CHECK(sallocAt(s, &length, -11, SEEK_CUR) == NULL && length == -EINVAL, "%ld", length);
    length = 4;
    CHECK(sallocAt(s, &length, 0, 99) == NULL && length == -EINVAL, "%ld", length);
    SAME(sposition(s), 10);
    /* Of no length it only moves. */
    length = 0;
    CHECK(sallocAt(s, &length, 5, SEEK_SET) == NULL && length == 0, "%ld", length);
    SAME(sposition(s), 5);
    /* Copies with Unix I/O's ease, and modes that are named. */
    SAME(sread(s, bytes, 3), 3);
    CHECK(!memcmp(bytes, "567", 3), "");
    SAME(swrite(s, "AB", 2), 2);
    length = 2;
    memcpy(region = got(SallocAt(s, SA_WRITE, &length, 0, SEEK_SET), &length, 2), "ab", 2);
    SAME(sflush(s), 0);
    has("01234567AB");
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);
    has("ab234567AB");
}

/* A read region is the reader's to spoil, and nobody else's. */
static void spoils(void)
{
    char *region;
    long length = 5;
    Stream *s = opens(O_RDWR | O_CREAT | O_TRUNC);
    put(s, "0123456789");
    region = got(SallocAt(s, SA_READ, &length, 0, SEEK_SET), &length, 5);
    memcpy(region, "xxxxx", 5);
    SAME(sfree(s, region), 0);
    region = got(sallocAt(s, &length, 2, SEEK_SET), &length, 5);
    CHECK(!memcmp(region, "23456", 5), "");
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);
    has("0123456789");
}

static void parts(void)
{
    char *region, *lines[3];
    long length, align;
    Stream *s = opens(O_RDWR | O_CREAT | O_TRUNC), *copy;
    int n, ends[2];
    put(s, "one\ntwo\n\nfour:five");
    SAME(set_stream_mode(s, SA_READ), 0);
    length = 0;
    CHECK(sallocAt(s, &length, 0, SEEK_SET) == NULL && length == 0, "%ld", length);
    for (n = 0; n < 3; n++) {
        length = 0;
        lines[n] = salloc_line(s, &length);
        CHECK(lines[n] != NULL, "%ld", length);
        SAME(length, n == 2 ? 1 : 4);
    }
    CHECK(!memcmp(lines[1], "two\n", 4), "");
    for (n = 0; n < 3; n++)
        SAME(sfree(s, lines[n]), 0);
    length = 3;
    CHECK(!memcmp(region = got(salloc_until(s, &length, ':'), &length, 3), "fou", 3), "");
    SAME(sfree(s, region), 0);
    length = 100;
    CHECK(!memcmp(region = got(salloc_until(s, &length, ':'), &length, 2), "r:", 2), "");
    SAME(sfree(s, region), 0);
    CHECK(!memcmp(region = got(salloc_line(s, &length), &length, 4), "five", 4), "");
    SAME(sfree(s, region), 0);
    CHECK(salloc_line(s, &length) == NULL && length == 0, "%ld", length);

    for (align = 1; align <= 4096; align *= 2) {
        length = 3;
        region = sallocAt(s, &length, 1, SEEK_SET);
        SAME(sfree(s, region), 0);
        length = 3;
        region = got(salloc_aligned(s, &length, align), &length, 3);
        CHECK((unsigned long)region % (unsigned long)align == 0 && !memcmp(region, "two", 3), "%ld", align);
        SAME(sfree(s, region), 0);
    }
    for (align = -4; align <= 8192; align = align < 0 ? 0 : align == 0 ? 3 : align == 3 ? 8192 : 8193) {
        length = 3;
        CHECK(salloc_aligned(s, &length, align) == NULL && length == -EINVAL, "%ld, %ld", align, length);
    }

    /* Some, and all that there is. */
    strcat(path, ".copy");
    copy = opens(O_RDWR | O_CREAT | O_TRUNC);
    length = 0;
    sallocAt(s, &length, 4, SEEK_SET);
    SAME(scopy(s, copy, 4), 4);
    SAME(scopy(s, copy, 0x7fffffffffffffffll), 10);
    SAME(scopy(s, copy, 1), 0);
    SAME(scopy(s, copy, -1), -EINVAL);
    SAME(scopy(s, NULL, 1), -EFAULT);
    SAME(sclose(copy), 0);
    has("two\n\nfour:five");
    unlink(path);
    path[strlen(path) - 5] = '\0';
    SAME(sclose(s), 0);

    /* Of a pipe what is there, or all. */
    SAME(pipe(ends), 0);
    s = sdopen(ends[0], &n);
    CHECK(s != NULL, "%d", n);
    CHECK(!strcmp(smodule(s), "pipe"), "%s", smodule(s));
    SAME(write(ends[1], "abc", 3), 3);
    length = 100;
    region = got(salloc(s, &length), &length, 3);
    SAME(sfree(s, region), 0);
    SAME(write(ends[1], "defghi", 6), 6);
    length = 2;
    region = got(salloc(s, &length), &length, 2);
    SAME(sfree(s, region), 0);
    length = 1;
    CHECK(sallocAt(s, &length, 0, SEEK_SET) == NULL && length == -ESPIPE, "%ld", length);
    SAME(ssync(s), -ESPIPE);
    SAME(close(ends[1]), 0);
    length = 100;
    CHECK(!memcmp(region = got(salloc_full(s, &length), &length, 4), "fghi", 4), "");
    SAME(sfree(s, region), 0);
    CHECK(salloc(s, &length) == NULL && length == 0, "%ld", length);
    SAME(sclose(s), 0);
    SAME(close(ends[0]), 0);
}

static void modules(void)
{
    /* printf 'hello\n' | gzip -n */
    static const unsigned char zipped[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0xe7, 2, 0, 0x20, 0x30,
                                           0x3a, 0x36, 6, 0, 0, 0};
    /* printf 'hello\n' | zstd */
    static const unsigned char zstd[] = {0x28, 0xb5, 0x2f, 0xfd, 4,    0x58, 0x31, 0,    0,   0x68,
                                         0x65, 0x6c, 0x6c, 0x6f, 0x0a, 0x53, 0x88, 0xbd, 0x91};
    char *region;
    long length = sizeof zipped;
    Stream *s = opens(O_RDWR | O_CREAT | O_TRUNC);
    memcpy(region = got(salloc(s, &length), &length, sizeof zipped), zipped, sizeof zipped);
    SAME(spush(s, "gzip"), -EBUSY);
    SAME(sfree(s, region), 0);
    length = 0;
    sallocAt(s, &length, 0, SEEK_SET);
    SAME(spush(s, "prefetch"), 0);
    SAME(spush(s, "gzip"), 0);
    CHECK(!strcmp(smodule(s), "gzip"), "%s", smodule(s));
    CHECK(!memcmp(region = got(salloc_line(s, &length), &length, 6), "hello\n", 6), "");
    SAME(sfree(s, region), 0);
    CHECK(salloc_line(s, &length) == NULL && length == 0, "%ld", length);
    SAME(set_stream_mode(s, SA_WRITE), -EBADF);
    SAME(spop(s), 0);
    SAME(spop(s), 0);
    SAME(spop(s), -EINVAL);
    SAME(sposition(s), sizeof zipped);
    SAME(spush(s, "none"), -EINVAL);
    SAME(spush(s, "\xff"), -EINVAL);
    SAME(spush(s, NULL), -EFAULT);
    /* Cut: an error and no end. */
    length = 0;
    sallocAt(s, &length, 0, SEEK_SET);
    SAME(truncate(path, sizeof zipped - 1), 0);
    SAME(spush(s, "gzip"), 0);
    length = 7;
    CHECK(salloc(s, &length) == NULL && length == -EBADMSG, "%ld", length);
    SAME(sclose(s), 0);

    s = opens(O_RDWR | O_CREAT | O_TRUNC);
    length = sizeof zstd;
    memcpy(region = got(salloc(s, &length), &length, sizeof zstd), zstd, sizeof zstd);
    SAME(sfree(s, region), 0);
    SAME(sfseek(s, 0, SEEK_SET), 0);
    SAME(spush(s, "zstd"), 0);
    CHECK(!strcmp(smodule(s), "zstd"), "%s", smodule(s));
    CHECK(!memcmp(region = got(salloc_line(s, &length), &length, 6), "hello\n", 6), "");
    SAME(sfree(s, region), 0);
    SAME(sgetc(s), EOF);
    SAME(spop(s), 0);
    SAME(sposition(s), sizeof zstd);
    SAME(sclose(s), 0);
}

static void locks(void)
{
    char *region;
    long length = 3;
    Stream *s = opens(O_RDWR | O_CREAT | O_TRUNC);
    SAME(UnlockAsfStream(s), -EPERM);
    SAME(LockAsfStream(s), 0);
    SAME(LockAsfStream(s), 0);
    memcpy(region = got(u_salloc(s, &length), &length, 3), "abc", 3);
    CHECK(u_srealloc(s, region, 2) == region, "%d", errno);
    SAME(u_sfree(s, region), 0);
    length = 1;
    *(region = got(u_sallocAt(s, &length, 0, SEEK_SET), &length, 1)) = 'A';
    SAME(u_sfree(s, region), 0);
    SAME(u_sflush(s), 0);
    SAME(u_set_stream_mode(s, SA_READ), 0);
    SAME(*(region = got(u_salloc(s, &length), &length, 1)), 'b');
    SAME(u_sfree(s, region), 0);
    *(region = got(u_Salloc(s, SA_WRITE, &length), &length, 1)) = 'C';
    SAME(u_sfree(s, region), 0);
    SAME(*(region = got(u_SallocAt(s, SA_READ, &length, 0, SEEK_SET), &length, 1)), 'A');
    SAME(u_sfree(s, region), 0);
    SAME(UnlockAsfStream(s), 0);
    SAME(UnlockAsfStream(s), 0);
    SAME(UnlockAsfStream(s), -EPERM);
    SAME(sclaim(s), 0);
    /* It may be closed with the lock. */
    SAME(LockAsfStream(s), 0);
    SAME(sclose(s), 0);
    has("AbC");
}

/* A file system that takes no more: told by the call that meets it, kept, and written when it can be. */
static void full(void)
{
    struct rlimit limit, low;
    long length, at = 0;
    int error = 0;
    void *region;
    Stream *s = opens(O_WRONLY | O_CREAT | O_TRUNC);
    signal(SIGXFSZ, SIG_IGN);
    SAME(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = limit;
    low.rlim_cur = 100000;
    SAME(setrlimit(RLIMIT_FSIZE, &low), 0);
    while (error == 0 && at < SIZE) {
        length = 1000;
        region = salloc(s, &length);
        if (region == NULL) {
            error = (int)length;
            break;
        }
        fill(region, at, 1000);
        error = sfree(s, region);
        at += 1000;
    }
    SAME(error, -EFBIG);
    SAME(sflush(s), -EFBIG);
    SAME(setrlimit(RLIMIT_FSIZE, &limit), 0);
    SAME(sflush(s), 0);
    SAME(sclose(s), 0);
    s = opens(O_RDONLY);
    length = SIZE;
    CHECK((region = salloc(s, &length)) != NULL && differs(region, 0, (size_t)at) < 0, "");
    SAME(length, at);
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);

    SAME(setrlimit(RLIMIT_FSIZE, &low), 0);
    s = opens(O_WRONLY | O_CREAT | O_TRUNC);
    length = 100001;
    SAME(sfree(s, memset(salloc(s, &length), 'x', 100001)), 0);
    SAME(sclose(s), -EFBIG);
    SAME(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "wrong use");
    snprintf(path, sizeof path - 10, "%s/asi", argv[1]);
    writes_and_reads();
    order();
    lengths();
    places();
    spoils();
    parts();
    modules();
    locks();
    full();
    return 0;
}
