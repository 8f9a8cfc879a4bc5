/*
 * far NAME COPY [local]: places beyond 4 GiB, by every interface, in a file of five that has no data before them. NAME may be a server's;
 * with `local` the modules for files here are taken by their names too. COPY is a file to copy to.
 */
#include "check.h"
#include "ninefold.h"

#define FAR (5ll << 30)
#define FOUR (4ll << 30)

static const char *name;

static Stream *opens(int flags, const char *module)
{
    int error = 1;
    Stream *s = module == NULL ? sopen(name, flags, 0644, &error) : sopen_by(name, flags, 0644, module, &error);
    CHECK(s != NULL, "%d", error);
    return s;
}

static void has(void *region, const long *length, const char *text)
{
    CHECK(region != NULL && *length == (long)strlen(text) && !memcmp(region, text, strlen(text)), "%s, %ld", text, *length);
}

static void writes(const char *module, int reads_too)
{
    long length = 4;
    char *region;
    Stream *s = opens(reads_too ? O_RDWR : O_WRONLY, module);
    region = SallocAt(s, SA_WRITE, &length, FAR, SEEK_SET);
    CHECK(region != NULL, "%ld", length);
    memcpy(region, "far ", 4);
    SAME(sfree(s, region), 0);
    SAME(sposition(s), FAR + 4);
    SAME(sputs("away", s), 0);
    SAME(sflush(s), 0);
    if (reads_too) {
        SAME(sfseek(s, FAR + 1, SEEK_SET), 0);
        SAME(sgetc(s), 'a');
        SAME(sungetc('A', s), 'A');
        SAME(sftell(s), FAR + 1);
        length = 3;
        has(region = Salloc(s, SA_READ, &length), &length, "Ar ");
        SAME(sfree(s, region), 0);
    }
    SAME(sclose(s), 0);
}

static void reads(const char *module)
{
    static char zeros[100000];
    long length = 100, all = 0;
    char *region;
    Stream *s = opens(O_RDONLY, module);
    has(region = sallocAt(s, &length, -4, SEEK_END), &length, "away");
    SAME(sfree(s, region), 0);
    SAME(sposition(s), FAR + 8);
    SAME(sgetc(s), EOF);
    /* Across a boundary of 32 bits. */
    length = sizeof zeros;
    region = sallocAt(s, &length, FOUR - (long)sizeof zeros / 2, SEEK_SET);
    CHECK(region != NULL && length == (long)sizeof zeros && !memcmp(region, zeros, sizeof zeros), "%ld", length);
    SAME(sfree(s, region), 0);
    SAME(sposition(s), FOUR + (long)sizeof zeros / 2);
    /* In order to the end. */
    SAME(sfseek(s, FAR - 300000, SEEK_SET), 0);
    while (length = 7777, (region = salloc(s, &length)) != NULL) {
        all += length;
        CHECK(region[0] == 0 || all > 300000, "%ld", all);
        SAME(sfree(s, region), 0);
    }
    SAME(length, 0);
    SAME(all, 300008);
    SAME(sclose(s), 0);
}

static void by_descriptor(void)
{
    char bytes[20];
    int fd = as_open(name, O_RDWR);
    long length = 4;
    char *region;
    struct stat st;
    Stream *s;
    CHECK(fd >= 0, "%d", fd);
    SAME(as_fstat(fd, &st), 0);
    SAME(st.st_size, FAR + 8);
    SAME(as_lseek(fd, -8, SEEK_END), FAR);
    SAME(as_read(fd, bytes, 4), 4);
    CHECK(!memcmp(bytes, "far ", 4), "%.4s", bytes);
    SAME(as_pread(fd, bytes, 20, FAR + 4), 4);
    CHECK(!memcmp(bytes, "away", 4), "%.4s", bytes);
    s = stream(fd, FAR, 1);
    CHECK(s != NULL, "%d", errno);
    SAME(sread(s, bytes, 4), 4);
    CHECK(!memcmp(bytes, "far ", 4), "%.4s", bytes);
    has(region = salloc(s, &length), &length, "away");
    SAME(sfree(s, region), 0);
    SAME(sclose(s), 0);
    s = stream(fd, FAR + 4, 0);
    CHECK(s != NULL, "%d", errno);
    SAME(swrite(s, "OFF!", 4), 4);
    SAME(sclose(s), 0);
    SAME(as_pwrite(fd, "F", 1, FAR), 1);
    SAME(as_pread(fd, bytes, 20, FAR), 8);
    CHECK(!memcmp(bytes, "Far OFF!", 8), "%.8s", bytes);
    SAME(as_ftruncate(fd, FAR + 3), 0);
    SAME(as_lseek(fd, 0, SEEK_END), FAR + 3);
    SAME(as_close(fd), 0);
}

static void appends(void)
{
    char bytes[20];
    int number;
    Stream *s = opens(O_RDWR | O_APPEND, NULL);
    SAME(swrite(s, "!", 1), 1);
    SAME(sflush(s), 0);
    number = sfileno(s);
    if (number >= 0) {
        SAME(as_write(number, "!", 1), 1);
        SAME(as_pread(number, bytes, 20, FAR), 5);
        SAME(as_lseek(number, 0, SEEK_END), FAR + 5);
    } else {
        SAME(number, -EOPNOTSUPP);
        SAME(swrite(s, "!", 1), 1);
    }
    SAME(sclose(s), 0);
    s = opens(O_RDONLY, NULL);
    SAME(sfseek(s, FAR, SEEK_SET), 0);
    CHECK(sgets(bytes, 20, s) == bytes && !strcmp(bytes, "Far!!"), "%s", bytes);
    SAME(sclose(s), 0);
}

static void copies(const char *here)
{
    char bytes[20];
    int error = 0;
    Stream *from = opens(O_RDONLY, NULL), *to = sopen(here, O_RDWR | O_CREAT | O_TRUNC, 0644, &error);
    CHECK(to != NULL, "%d", error);
    SAME(sfseek(from, FAR - 1000, SEEK_SET), 0);
    SAME(scopy(from, to, FAR), 1005);
    SAME(sposition(from), FAR + 5);
    SAME(sfseek(to, 1000, SEEK_SET), 0);
    CHECK(sgets(bytes, 20, to) == bytes && !strcmp(bytes, "Far!!"), "%s", bytes);
    SAME(sclose(to), 0);
    SAME(sclose(from), 0);
}

int main(int argc, char **argv)
{
    static const char *const both[] = {"read-write", "read-write-random"}, *const read_only[] = {"pread", "pread-random", "mmap"};
    int fd, n;
    CHECK(argc == 3 || argc == 4, "wrong use");
    name = argv[1];
    fd = as_open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0, "%d", fd);
    SAME(as_close(fd), 0);
    writes(NULL, 0);
    writes(NULL, 1);
    reads(NULL);
    if (argc == 4) {
        writes("pwrite", 0);
        for (n = 0; n < 2; n++)
            writes(both[n], 1);
        for (n = 0; n < 3; n++)
            reads(read_only[n]);
    }
    by_descriptor();
    appends();
    copies(argv[2]);
    return 0;
}
