/*
 * unix_io NAME TWIN SEED OPERATIONS: random Unix I/O on NAME by the library and on TWIN, a file here, by libc; both must
 * give the same.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

#define DESCRIPTORS 3
#define BYTES 70000
#define FAR 300000

static unsigned long long state;

/* From 0 to below `end`: splitmix64. */
static long long pick(long long end)
{
    unsigned long long z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (long long)((z ^ (z >> 31)) % (unsigned long long)end);
}

/* libc's result as the library gives it. */
static long long of_libc(long long result)
{
    return result < 0 ? -errno : result;
}

static int ours[DESCRIPTORS], theirs[DESCRIPTORS];
static const char *name, *twin;

static void reopen(int i)
{
    static const int access[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR};
    int flags = access[pick(5)];
    if (pick(4) == 0)
        flags |= O_CREAT;
    if (pick(8) == 0)
        flags |= O_CREAT | O_EXCL;
    if (pick(8) == 0)
        flags |= O_TRUNC;
    if (pick(3) == 0)
        flags |= O_APPEND;
    if (pick(8) == 0)
        flags |= O_SYNC;
    if (pick(8) == 0)
        flags |= O_NOFOLLOW;
    if (pick(16) == 0)
        flags |= O_DIRECTORY;
    if ((flags & O_CREAT) && (flags & O_DIRECTORY))
        flags &= ~O_DIRECTORY; /* what comes of it depends on the kernel's version */
    if (ours[i] >= 0) {
        SAME(as_close(ours[i]), 0);
        SAME(close(theirs[i]), 0);
        /* It is closed once. */
        SAME(as_close(ours[i]), -EBADF);
    }
    if (pick(16) == 0 && unlink(twin) == 0) {
        report("unlink");
        /* The others stay open on the file that has no name any more. */
        flags = (flags | O_CREAT) & ~O_DIRECTORY;
    }
    theirs[i] = (int)of_libc(open(twin, flags, 0646));
    ours[i] = as_open(name, flags, 0646);
    CHECK((ours[i] < 0 ? ours[i] : 0) == (theirs[i] < 0 ? theirs[i] : 0), "flags %o: %d and %d", flags, ours[i], theirs[i]);
}

static void one(int operation)
{
    static unsigned char a[BYTES], b[BYTES];
    static const int whences[] = {SEEK_SET, SEEK_CUR, SEEK_END, 77};
    struct stat ours_stat, theirs_stat;
    int i = (int)pick(DESCRIPTORS), o = ours[i], t = theirs[i];
    size_t n = (size_t)pick(pick(2) ? 100 : BYTES), k;
    long long at = pick(FAR) - 50, r;
    if (o < 0) {
        reopen(i);
        return;
    }
    switch (pick(10)) {
    case 0:
    case 1:
        memset(a, 1, n);
        memset(b, 1, n);
        r = as_read(o, a, n);
        CHECK(r == of_libc(read(t, b, n)) && !memcmp(a, b, n), "operation %d: read of %zu gave %lld", operation, n, r);
        break;
    case 2:
        memset(a, 1, n);
        memset(b, 1, n);
        r = as_pread(o, a, n, at);
        CHECK(r == of_libc(pread(t, b, n, at)) && !memcmp(a, b, n), "operation %d: pread at %lld gave %lld", operation, at, r);
        break;
    case 3:
    case 4:
        for (k = 0; k < n; k++)
            a[k] = (unsigned char)pick(256);
        r = as_write(o, a, n);
        CHECK(r == of_libc(write(t, a, n)), "operation %d: write of %zu gave %lld", operation, n, r);
        break;
    case 5:
        for (k = 0; k < n; k++)
            a[k] = (unsigned char)pick(256);
        r = as_pwrite(o, a, n, at);
        CHECK(r == of_libc(pwrite(t, a, n, at)), "operation %d: pwrite at %lld gave %lld", operation, at, r);
        break;
    case 6:
    case 7: {
        int whence = whences[pick(4)];
        at = whence == SEEK_SET ? at : at - FAR / 2;
        r = as_lseek(o, at, whence);
        CHECK(r == of_libc(lseek(t, at, whence)), "operation %d: lseek to %lld from %d gave %lld", operation, at, whence, r);
        break;
    }
    case 8:
        if (pick(3) == 0) {
            r = as_ftruncate(o, at);
            CHECK(r == of_libc(ftruncate(t, at)), "operation %d: ftruncate to %lld gave %lld", operation, at, r);
        }
        SAME(as_fstat(o, &ours_stat), 0);
        SAME(fstat(t, &theirs_stat), 0);
        SAME(ours_stat.st_size, theirs_stat.st_size);
        SAME(ours_stat.st_mode, theirs_stat.st_mode);
        break;
    default:
        reopen(i);
    }
    if (ours[i] >= 0) {
        /* Where the next byte goes is the same after each of them. */
        r = as_lseek(ours[i], 0, SEEK_CUR);
        CHECK(r == lseek(theirs[i], 0, SEEK_CUR), "operation %d: the place is %lld", operation, r);
    }
}

int main(int argc, char **argv)
{
    int operation, operations, i;
    CHECK(argc == 5, "wrong use");
    name = argv[1];
    twin = argv[2];
    state = strtoull(argv[3], NULL, 10);
    operations = atoi(argv[4]);
    umask(026);
    for (i = 0; i < DESCRIPTORS; i++)
        ours[i] = theirs[i] = -1;
    for (operation = 0; operation < operations; operation++)
        one(operation);
    for (i = 0; i < DESCRIPTORS; i++)
        if (ours[i] >= 0)
            SAME(as_close(ours[i]), 0);
    return 0;
}
