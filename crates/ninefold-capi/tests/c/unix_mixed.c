/*
 * unix_mixed DIR SEED OPERATIONS: Unix I/O, regions and standard I/O on one stream, by the stream and by several descriptors of it, beside a plain
 * model: bytes, a length and one offset. Then what goes between processes.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define MOST 50000l
#define NUMBERS 4

static char path[4096];
static unsigned long long state;
static unsigned char model[MOST], bytes[MOST];
static long size, at;

static long random_to(long bound)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (long)((state >> 33) % (unsigned long long)bound);
}

/* How many of count bytes there are at a place. */
static long there(long from, long count)
{
    return from >= size ? 0 : size - from < count ? size - from : count;
}

static void put(long from, const unsigned char *what, long count)
{
    memcpy(model + from, what, (size_t)count);
    if (from + count > size)
        size = from + count;
}

static long fills(long from)
{
    long i, count = 1 + random_to(random_to(8) ? 100 : 9000);
    if (count > MOST - from)
        count = MOST - from;
    for (i = 0; i < count; i++)
        bytes[i] = (unsigned char)random_to(256);
    return count;
}

static void operation(Stream *s, int fd)
{
    struct stat st;
    unsigned char *region;
    long count = 1 + random_to(random_to(8) ? 100 : 9000), length, to;
    switch (random_to(17)) {
    case 0:
        /* A read may give fewer, and none at the end alone. */
        length = as_read(fd, bytes, (size_t)count);
        CHECK(length >= 0 && length <= there(at, count) && (length > 0) == (there(at, count) > 0), "%ld", length);
        CHECK(!memcmp(bytes, model + at, (size_t)length), "at %ld", at);
        at += length;
        break;
    case 1:
        count = fills(at);
        if (count > 0) {
            SAME(as_write(fd, bytes, (size_t)count), count);
            put(at, bytes, count);
            at += count;
        }
        break;
    case 2:
        to = random_to(MOST);
        length = as_pread(fd, bytes, (size_t)count, to);
        SAME(length, there(to, count));
        CHECK(!memcmp(bytes, model + to, (size_t)length), "at %ld", to);
        break;
    case 3:
        to = random_to(size + 1);
        count = fills(to);
        if (count > 0) {
            SAME(as_pwrite(fd, bytes, (size_t)count, to), count);
            put(to, bytes, count);
        }
        break;
    case 4:
        at = random_to(MOST);
        SAME(as_lseek(fd, at, SEEK_SET), at);
        break;
    case 5:
        at = random_to(size + 1);
        SAME(as_lseek(fd, at - size, SEEK_END), at);
        break;
    case 6:
        to = random_to(MOST);
        if (to < size)
            memset(model + to, 0, (size_t)(size - to));
        size = to;
        SAME(as_ftruncate(fd, to), 0);
        break;
    case 7:
    case 8:
        length = count;
        region = (unsigned char *)Salloc(s, SA_READ, &length);
        SAME(length, there(at, count));
        CHECK(length == 0 || !memcmp(region, model + at, (size_t)length), "at %ld", at);
        at += length;
        if (region != NULL)
            SAME(sfree(s, region), 0);
        break;
    case 9:
    case 10:
        count = length = fills(at);
        if (count > 0) {
            region = (unsigned char *)Salloc(s, SA_WRITE, &length);
            CHECK(region != NULL, "%ld", length);
            memcpy(region, bytes, (size_t)count);
            SAME(sfree(s, region), 0);
            put(at, bytes, count);
            at += count;
        }
        break;
    case 11:
        SAME(sgetc(s), at < size ? model[at] : EOF);
        at += at < size;
        break;
    case 12:
        if (at < MOST) {
            bytes[0] = (unsigned char)random_to(256);
            SAME(sputc(bytes[0], s), bytes[0]);
            put(at++, bytes, 1);
        }
        break;
    case 13:
        /* What is put back is read next, by any call. */
        if (at > 0) {
            SAME(sungetc('u', s), 'u');
            SAME(as_read(fd, bytes, 1), 1);
            SAME(bytes[0], 'u');
        }
        break;
    case 14:
        SAME(as_lseek(fd, 0, SEEK_CUR), at);
        SAME(sftell(s), at);
        break;
    case 15:
        SAME(random_to(2) ? sflush(s) : as_fsync(fd) , 0);
        SAME(as_fstat(fd, &st), 0);
        SAME(st.st_size, size);
        break;
    default:
        length = sread(s, bytes, count);
        CHECK(length >= 0 && length <= there(at, count) && (length > 0) == (there(at, count) > 0), "%ld", length);
        CHECK(!memcmp(bytes, model + at, (size_t)length), "at %ld", at);
        at += length;
    }
}

static void mixed(long operations)
{
    int error = 0, fds[NUMBERS], n, fd;
    long done;
    Stream *s = sopen(path, O_RDWR | O_CREAT | O_TRUNC, 0644, &error);
    CHECK(s != NULL, "%d", error);
    for (n = 0; n < NUMBERS; n++) {
        fds[n] = n ? as_dup(fds[n - 1]) : sfileno(s);
        CHECK(fds[n] >= NF_FD_MIN, "%d", fds[n]);
        CHECK(as_stream(fds[n], &error) == s, "%d", error);
    }
    for (done = 0; done < operations; done++) {
        n = (int)random_to(NUMBERS);
        if (random_to(1000) == 0) {
            SAME(as_close(fds[n]), 0);
            SAME(as_read(fds[n], bytes, 1), -EBADF);
            fds[n] = random_to(2) ? sfileno(s) : as_dup(fds[(n + 1) % NUMBERS]);
        }
        operation(s, fds[n]);
    }
    /* Freed data that waits for a region: none of the calls that flush may pass it. */
    {
        long one = 10, two = 10;
        void *first = Salloc(s, SA_WRITE, &one), *second = Salloc(s, SA_WRITE, &two);
        CHECK(first != NULL && second != NULL, "%ld %ld", one, two);
        memset(first, '1', 10);
        memset(second, '2', 10);
        SAME(sfree(s, second), 0);
        SAME(as_pread(fds[0], bytes, 1, 0), -EBUSY);
        SAME(sclose(s), -EBUSY);
        SAME(sfree(s, first), 0);
        if (at + 20 <= MOST) {
            memset(bytes, '1', 10);
            memset(bytes + 10, '2', 10);
            put(at, bytes, 20);
        } else {
            SAME(as_ftruncate(fds[0], size), 0);
        }
    }
    SAME(sclose(s), 0);
    for (n = 0; n < NUMBERS; n++) {
        SAME(as_write(fds[n], "x", 1), -EBADF);
        CHECK(as_stream(fds[n], &error) == NULL && error == -EBADF, "%d", error);
        SAME(as_close(fds[n]), -EBADF);
    }
    fd = open(path, O_RDONLY);
    SAME(pread(fd, bytes, MOST, 0), size);
    CHECK(!memcmp(bytes, model, (size_t)size), "the file");
    SAME(close(fd), 0);
}

/* The kernel's offset goes from one to the other. */
static void handed_over(void)
{
    int error = 0, status = 0, fd = open(path, O_RDWR | O_TRUNC), twin = as_dup(fd);
    long length = 6;
    char *region;
    pid_t pid;
    Stream *s;
    CHECK(fd >= 0 && twin >= 0 && twin < NF_FD_MIN, "%d", errno);
    SAME(write(fd, "0123456789abcdef", 16), 16);
    SAME(lseek(twin, 2, SEEK_SET), 2);
    s = as_stream(fd, &error);
    CHECK(s != NULL, "%d", error);
    SAME(set_stream_mode(s, SA_READ), 0);
    region = (char *)salloc(s, &length);
    CHECK(region != NULL && length == 6 && !memcmp(region, "234567", 6), "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sflush(s), 0);
    SAME(lseek(twin, 0, SEEK_CUR), 8);
    length = 3;
    region = (char *)Salloc(s, SA_WRITE, &length);
    CHECK(region != NULL, "%ld", length);
    memcpy(region, "XYZ", 3);
    SAME(sfree(s, region), 0);
    /* A child goes on with it, and the parent behind the child. */
    pid = fork();
    if (pid == 0) {
        alarm(30);
        SAME(sclose(s), 0);
        SAME(read(fd, bytes, 2), 2);
        CHECK(!memcmp(bytes, "bc", 2), "%.2s", bytes);
        _exit(0);
    }
    CHECK(pid > 0, "%d", errno);
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
    SAME(lseek(twin, 0, SEEK_CUR), 13);
    /* What the child wrote is the parent's too, who has not flushed: the same bytes at the same place. */
    SAME(sclose(s), 0);
    SAME(lseek(twin, 0, SEEK_CUR), 11);
    SAME(pread(fd, bytes, 16, 0), 16);
    CHECK(!memcmp(bytes, "01234567XYZbcdef", 16), "%.16s", bytes);
    SAME(close(fd), 0);
    SAME(close(twin), 0);
    CHECK(as_stream(fd, &error) == NULL && error == -EBADF, "%d", error);
    SAME(as_dup(fd), -EBADF);
}

/* A record by a region, which is filled behind another that was allocated after it. */
static void append_a_region(Stream *s, int n, int byte)
{
    enum { RECORD = 100 };
    long length = RECORD, behind = RECORD;
    unsigned char *first = salloc(s, &length), *second = salloc(s, &behind);
    CHECK(first != NULL && second != NULL && length == RECORD && behind == RECORD, "%ld, %ld", length, behind);
    memset(second, byte, RECORD);
    SAME(sfree(s, second), 0);
    memset(first, byte, RECORD);
    SAME(sfree(s, first), 0);
    if (n % 7 == 0)
        SAME(sflush(s), 0);
}

/* Processes that append: each write is whole, and so are each region and each item. */
static void appended(void)
{
    enum { CHILDREN = 3, RECORDS = 200, RECORD = 100 };
    int child, n, status, fd, counts[CHILDREN] = { 0 };
    static unsigned char all[CHILDREN * RECORDS * RECORD + 1];
    SAME(truncate(path, 0), 0);
    for (child = 0; child < CHILDREN; child++) {
        pid_t pid = fork();
        CHECK(pid >= 0, "%d", errno);
        if (pid == 0) {
            int error = 0;
            Stream *s;
            alarm(60);
            s = sopen(path, O_WRONLY | O_APPEND, 0, &error);
            CHECK(s != NULL, "%d", error);
            fd = sfileno(s);
            memset(bytes, 'a' + child, RECORD);
            for (n = 0; n < RECORDS; n++)
                if (child == 0)
                    SAME(as_write(fd, bytes, RECORD), RECORD);
                else if (child == 1)
                    SAME(sfwrite(bytes, RECORD, 1, s), 1);
                else if (n % 2 == 0)
                    append_a_region(s, n, 'a' + child);
            /* Of as_write nothing is left to be flushed. */
            _exit(child == 0 ? 0 : sclose(s));
        }
    }
    for (child = 0; child < CHILDREN; child++) {
        SAME(wait(&status) > 0, 1);
        SAME(status, 0);
    }
    fd = open(path, O_RDONLY);
    SAME(read(fd, all, sizeof all), CHILDREN * RECORDS * RECORD);
    for (n = 0; n < CHILDREN * RECORDS; n++) {
        unsigned char *record = all + n * RECORD;
        CHECK(record[0] >= 'a' && record[0] < 'a' + CHILDREN, "%d", record[0]);
        CHECK(!memcmp(record, record + 1, RECORD - 1), "record %d", n);
        counts[record[0] - 'a']++;
    }
    for (child = 0; child < CHILDREN; child++)
        SAME(counts[child], RECORDS);
    SAME(close(fd), 0);
}

/* What is taken before an error is told by its number of bytes, and the error by the next call. */
static void limited(void)
{
    enum { LIMIT = 300000, ALL = 1000000 };
    int status = 0;
    pid_t pid = fork();
    CHECK(pid >= 0, "%d", errno);
    if (pid == 0) {
        static char all[ALL];
        struct rlimit limit = { LIMIT, LIMIT };
        int error = 0;
        Stream *s = sopen(path, O_WRONLY | O_TRUNC, 0, &error);
        CHECK(s != NULL, "%d", error);
        signal(SIGXFSZ, SIG_IGN);
        SAME(setrlimit(RLIMIT_FSIZE, &limit), 0);
        errno = 0;
        SAME(swrite(s, all, ALL), LIMIT);
        SAME(errno, EFBIG);
        SAME(swrite(s, all, ALL), -EFBIG);
        SAME(sposition(s), LIMIT);
        /* Of items those that are whole are counted. */
        SAME(sfseek(s, 0, SEEK_SET), 0);
        SAME(sfwrite(all, LIMIT / 2, 3, s), 2);
        SAME(errno, EFBIG);
        SAME(sfseek(s, 0, SEEK_SET), 0);
        SAME(sfwrite(all, ALL, 1, s), -EFBIG);
        SAME(sclose(s), 0);
        _exit(0);
    }
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
}

static void pipes(void)
{
    int error = 0, ends[2], fd;
    struct stat st;
    Stream *s;
    SAME(pipe(ends), 0);
    SAME(write(ends[1], "abc", 3), 3);
    s = as_stream(ends[0], &error);
    CHECK(s != NULL, "%d", error);
    fd = sfileno(s);
    SAME(as_read(fd, bytes, 1), 1);
    SAME(sgetc(s), 'b');
    SAME(as_read(fd, bytes, 10), 1);
    SAME(bytes[0], 'c');
    SAME(as_pread(fd, bytes, 1, 0), -ESPIPE);
    SAME(as_lseek(fd, 0, SEEK_SET), -ESPIPE);
    SAME(as_fstat(fd, &st), -ESPIPE);
    SAME(as_write(fd, "x", 1), -EBADF);
    SAME(as_fsync(fd), -ESPIPE);
    SAME(as_read(fd, NULL, 1), -EFAULT);
    CHECK(stream(fd, 0, 1) == NULL && errno == EOPNOTSUPP, "%d", errno);
    CHECK(sdopen(fd, &error) == NULL && error == -EOPNOTSUPP, "%d", error);
    SAME(as_close(fd), 0);
    SAME(sclose(s), 0);
    SAME(close(ends[0]), 0);
    SAME(close(ends[1]), 0);
    SAME(sfileno(NULL), -EFAULT);
}

/* A close that is refused, for a region is out, leaves the descriptors what they are. */
static void refused(void)
{
    int error = 0, fd;
    long length = 3;
    char *region;
    Stream *s = sopen(path, O_RDWR | O_TRUNC, 0, &error);
    CHECK(s != NULL, "%d", error);
    fd = sfileno(s);
    region = (char *)salloc(s, &length);
    CHECK(region != NULL, "%ld", length);
    SAME(sclose(s), -EBUSY);
    SAME(as_write(fd, "def", 3), 3);
    CHECK(as_stream(fd, &error) == s, "%d", error);
    memcpy(region, "abc", 3);
    SAME(sfree(s, region), 0);
    SAME(as_pread(fd, bytes, 6, 0), 6);
    CHECK(!memcmp(bytes, "abcdef", 6), "%.6s", bytes);
    SAME(sclose(s), 0);
    SAME(as_write(fd, "x", 1), -EBADF);
    CHECK(as_stream(fd, &error) == NULL && error == -EBADF, "%d", error);
    CHECK(as_stream(NF_FD_MIN + 77, &error) == NULL && error == -EBADF, "%d", error);
}

/* Who looks for data moves the stream's offset, and not that of the open file, which others have. */
static void holes(void)
{
    int error = 0, fd = open(path, O_RDWR | O_TRUNC), number;
    Stream *s;
    CHECK(fd >= 0, "%d", errno);
    SAME(write(fd, "0123456789", 10), 10);
    SAME(lseek(fd, 5, SEEK_SET), 5);
    s = sdopen(fd, &error);
    CHECK(s != NULL, "%d", error);
    number = sfileno(s);
    SAME(as_lseek(number, 2, SEEK_DATA), 2);
    SAME(sposition(s), 2);
    SAME(lseek(fd, 0, SEEK_CUR), 5);
    SAME(as_lseek(number, 0, SEEK_HOLE), 10);
    SAME(lseek(fd, 0, SEEK_CUR), 5);
    SAME(as_lseek(number, 100, SEEK_DATA), -ENXIO);
    SAME(lseek(fd, 0, SEEK_CUR), 5);
    SAME(sposition(s), 10);
    SAME(sclose(s), 0);
    SAME(close(fd), 0);
}

static off_t size_now(void)
{
    struct stat st;
    SAME(stat(path, &st), 0);
    return st.st_size;
}

/* An append behind a region that is out waits for it, as what is freed does; each other is in the file, or told. */
static void appends(void)
{
    int status = 0;
    pid_t pid = fork();
    CHECK(pid >= 0, "%d", errno);
    if (pid == 0) {
        struct rlimit limit = { 1000, 1000 };
        static char many[600];
        int error = 0, fd;
        long length = 3;
        char *region;
        Stream *s = sopen(path, O_RDWR | O_TRUNC | O_APPEND, 0, &error);
        CHECK(s != NULL, "%d", error);
        CHECK(!strcmp(smodule(s), "append"), "%s", smodule(s));
        fd = sfileno(s);
        region = (char *)salloc(s, &length);
        CHECK(region != NULL, "%ld", length);
        SAME(as_write(fd, "def", 3), 3);
        SAME(size_now(), 0);
        memcpy(region, "abc", 3);
        SAME(sfree(s, region), 0);
        SAME(as_write(fd, "gh", 2), 2);
        SAME(size_now(), 8);
        SAME(as_lseek(fd, 0, SEEK_CUR), 8);
        SAME(as_lseek(fd, 2, SEEK_SET), 2);
        SAME(as_read(fd, bytes, 6), 6);
        CHECK(!memcmp(bytes, "cdefgh", 6), "%.6s", bytes);
        signal(SIGXFSZ, SIG_IGN);
        SAME(setrlimit(RLIMIT_FSIZE, &limit), 0);
        SAME(as_write(fd, many, 600), 600);
        SAME(as_write(fd, many, 600), 392);
        SAME(as_write(fd, many, 600), -EFBIG);
        SAME(as_close(fd), 0);
        SAME(sclose(s), 0);
        SAME(size_now(), 1000);
        _exit(0);
    }
    SAME(waitpid(pid, &status, 0), pid);
    SAME(status, 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4, "wrong use");
    snprintf(path, sizeof path, "%s/unix", argv[1]);
    state = strtoull(argv[2], NULL, 10);
    mixed(atol(argv[3]));
    handed_over();
    appended();
    limited();
    refused();
    holes();
    appends();
    pipes();
    return 0;
}
