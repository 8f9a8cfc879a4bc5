/* asi_remote_write NAME: regions and standard I/O write a file of a server, which is made; and a stream of the thesis does. */
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define SIZE 3000000l

static unsigned char bytes[SIZE + 1000];
static const char *name;

static Stream *opens(int flags)
{
    int error = 1;
    Stream *s = sopen(name, flags, 0644, &error);
    CHECK(s != NULL, "%d", error);
    return s;
}

/* What the server has. */
static long there(void)
{
    int fd = as_open(name, O_RDONLY);
    long got = 0, n;
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    while ((n = as_read(fd, bytes + got, sizeof bytes - (size_t)got)) > 0)
        got += n;
    SAME(n, 0);
    SAME(as_close(fd), 0);
    return got;
}

static unsigned char *room(Stream *s, long length)
{
    unsigned char *region = salloc(s, &length);
    CHECK(region != NULL, "%ld", length);
    return region;
}

static void by_regions(void)
{
    unsigned char *region, *later, *kept;
    long length, at;
    Stream *s = opens(O_RDWR | O_CREAT | O_TRUNC);
    for (at = 0; at < SIZE; at += 3000) {
        region = room(s, 1000);
        later = room(s, 2000);
        fill(later, at + 1000, 2000);
        SAME(sfree(s, later), 0);
        fill(region, at, 1000);
        SAME(sfree(s, region), 0);
    }
    SAME(sflush(s), 0);
    SAME(there(), SIZE);
    CHECK(differs(bytes, 0, SIZE) < 0, "");
    /* One that is out holds back what is behind it. */
    kept = room(s, 5);
    region = room(s, 5);
    memcpy(region, "later", 5);
    SAME(sfree(s, region), 0);
    SAME(sflush(s), -EBUSY);
    SAME(there(), SIZE);
    memcpy(kept, "first", 5);
    SAME(sfree(s, kept), 0);
    SAME(ssync(s), 0);
    SAME(there(), SIZE + 10);
    CHECK(!memcmp(bytes + SIZE, "firstlater", 10), "");
    /* Read back by the same stream, what is not flushed too. */
    length = 4;
    CHECK((region = sallocAt(s, &length, 10, SEEK_SET)) != NULL, "%ld", length);
    memcpy(region, "here", 4);
    SAME(sfree(s, region), 0);
    length = 20;
    CHECK((region = SallocAt(s, SA_READ, &length, 0, SEEK_SET)) != NULL && length == 20, "%ld", length);
    CHECK(differs(region, 0, 10) < 0 && !memcmp(region + 10, "here", 4) && differs(region + 14, 14, 6) < 0, "");
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);
    SAME(there(), SIZE + 10);
    CHECK(!memcmp(bytes + 10, "here", 4), "");
}

static void by_standard_io(void)
{
    int n;
    Stream *s = sfopen(name, "w");
    CHECK(s != NULL, "%d", errno);
    for (n = 0; n < 1000; n++)
        CHECK(sfprintf(s, "%d\n", n) > 0, "%d", n);
    SAME(sputs("end\n", s) < 0, 0);
    SAME(sfclose(s), 0);
    SAME(there(), 3894);
    CHECK(!memcmp(bytes, "0\n1\n2\n", 6) && !memcmp(bytes + 3886, "999\nend\n", 8), "");
    /* Behind what others append. */
    s = sfopen(name, "a");
    CHECK(s != NULL, "%d", errno);
    SAME(sputc('a', s), 'a');
    SAME(sflush(s), 0);
    {
        int fd = as_open(name, O_WRONLY | O_APPEND);
        CHECK(fd >= NF_FD_MIN, "%d", fd);
        SAME(as_write(fd, "b", 1), 1);
        SAME(as_close(fd), 0);
    }
    SAME(sputc('c', s), 'c');
    SAME(sfclose(s), 0);
    SAME(there(), 3897);
    CHECK(!memcmp(bytes + 3894, "abc", 3), "%.3s", (char *)bytes + 3894);
}

/* swrite and salloc: one place. */
static void of_the_thesis(void)
{
    long at = 0, length;
    unsigned char *region;
    int fd = as_open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    Stream *s;
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    s = stream(fd, 0, 0);
    CHECK(s != NULL, "%d", errno);
    while (at < SIZE) {
        fill(bytes, at, 200000);
        SAME(swrite(s, bytes, 200000), 200000);
        region = room(s, 100000);
        fill(region, at + 200000, 100000);
        SAME(sfree(s, region), 0);
        at += 300000;
        if (at == 600000)
            SAME(sflush(s), 0);
    }
    length = 1;
    CHECK(Salloc(s, SA_READ, &length) == NULL && length == -EBADF, "%ld", length);
    SAME(sread(s, bytes, 1), -EBADF);
    SAME(sclose(s), 0);
    SAME(as_close(fd), 0);
    SAME(there(), SIZE);
    CHECK(differs(bytes, 0, SIZE) < 0, "");
}

/* The end that was told stays the end, whatever comes to the file. */
static void ends(void)
{
    int fd = as_open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    char few[10];
    long length = 10;
    Stream *s;
    CHECK(fd >= NF_FD_MIN, "%d", fd);
    SAME(as_pwrite(fd, "abc", 3, 0), 3);
    s = stream(fd, 0, 1);
    CHECK(s != NULL, "%d", errno);
    SAME(sread(s, few, sizeof few), 3);
    SAME(sread(s, few, sizeof few), 0);
    SAME(as_pwrite(fd, "def", 3, 3), 3);
    CHECK(salloc(s, &length) == NULL && length == 0, "%ld", length);
    SAME(sread(s, few, sizeof few), 0);
    SAME(sgetc(s), EOF);
    SAME(sclose(s), 0);
    SAME(as_close(fd), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "wrong use");
    name = argv[1];
    by_regions();
    by_standard_io();
    of_the_thesis();
    ends();
    return 0;
}
