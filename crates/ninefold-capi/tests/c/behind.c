/* behind NAME: writes behind, their errors, and who is told. NAME is of a server that takes no byte beyond 2^44. */
#include "check.h"
#include "ninefold.h"

#define END (1ll << 44)
#define BEYOND (1ll << 45)
#define BYTES 300000
#define LARGE (33l << 20)
#define ROOM (3l << 20)

/* 9P2000 has no word for O_APPEND. */
static int is_plan9(const char *name)
{
    const char *dialect = strstr(name, "dialect=");
    return dialect != NULL && (!strcmp(dialect, "dialect=9P2000") || !strcmp(dialect, "dialect=9P2000.s"));
}

/* Calls that go in several parts, where the error of one part comes up while another is sent. */
static void large(const char *name)
{
    unsigned char *bytes = calloc(1, LARGE);
    struct stat st;
    long result;
    int fd = as_open(name, O_RDWR | OBEHIND);
    CHECK(fd >= 0 && bytes != NULL, "%d", fd);
    /* The last of the first part's bytes go too far. */
    result = as_pwrite(fd, bytes, LARGE, END - (16 << 20) + 10);
    CHECK(result == -EFBIG || (result == LARGE && fdflush(fd) == -EFBIG), "%ld", result);
    SAME(fdflush(fd), 0);
    SAME(as_ftruncate(fd, END - ROOM), 0);
    SAME(as_close(fd), 0);

    /* At the end, where there is room for some messages: what they took is known, where the server finds the end. */
    fd = as_open(name, O_WRONLY | O_APPEND | OBEHIND);
    CHECK(fd >= 0, "%d", fd);
    result = as_write(fd, bytes, LARGE);
    CHECK((result > 0 && result <= ROOM) || (result == -EFBIG && is_plan9(name)), "%ld", result);
    SAME(as_fstat(fd, &st), 0);
    SAME(as_lseek(fd, 0, SEEK_CUR), st.st_size);
    if (!is_plan9(name)) {
        SAME(st.st_size, END - ROOM + result);
        SAME(as_write(fd, bytes, LARGE), -EFBIG);
        SAME(as_lseek(fd, 0, SEEK_CUR), END - ROOM + result);
    }
    SAME(as_ftruncate(fd, 0), 0);
    SAME(as_close(fd), 0);
    free(bytes);
}

int main(int argc, char **argv)
{
    static unsigned char bytes[BYTES], back[BYTES];
    struct stat st;
    Stream *s;
    int fd, n;
    long result;
    CHECK(argc == 2, "wrong use");
    fd = as_open(argv[1], O_RDWR | OBEHIND);
    CHECK(fd >= NF_FD_MIN, "%d", fd);

    /* What was written behind is read, in order, and the buffer is free at once. */
    for (n = 0; n < 10; n++) {
        fill(bytes, (long long)n * BYTES, BYTES);
        SAME(as_write(fd, bytes, BYTES), BYTES);
        memset(bytes, 0, BYTES);
    }
    SAME(as_pread(fd, back, BYTES, BYTES / 2), BYTES);
    SAME(differs(back, BYTES / 2, BYTES), -1);
    SAME(fdflush(fd), 0);
    SAME(as_fstat(fd, &st), 0);
    SAME(st.st_size, 10 * BYTES);

    /* The error is kept for fdflush, and told once. */
    result = as_pwrite(fd, bytes, 10, BEYOND);
    CHECK(result == 10, "a write behind returns before it is answered: %ld", result);
    SAME(fdflush(fd), -EFBIG);
    SAME(errno, EFBIG);
    SAME(fdflush(fd), 0);

    /* Or for the next write, once its reply is here: a read waits for that, and keeps it. */
    SAME(as_pwrite(fd, bytes, 10, BEYOND), 10);
    SAME(as_pread(fd, back, 1, 0), 1);
    SAME(as_pwrite(fd, bytes, 10, 0), -EFBIG);
    SAME(as_pwrite(fd, bytes, 10, 0), 10);
    SAME(as_fsync(fd), 0);

    /* Or for a stream that begins. */
    SAME(as_pwrite(fd, bytes, 10, BEYOND), 10);
    CHECK(stream(fd, 0, 0) == NULL && errno == EFBIG, "%d", errno);

    /* Or for the end, which is one all the same. */
    SAME(as_pwrite(fd, bytes, 10, BEYOND), 10);
    SAME(as_close(fd), -EFBIG);
    SAME(as_close(fd), -EBADF);

    /* A stream that has the file too keeps nothing from being told. */
    fd = as_open(argv[1], O_RDWR | OBEHIND);
    s = stream(fd, 0, 1);
    CHECK(s != NULL, "%d", errno);
    SAME(as_pwrite(fd, bytes, 10, BEYOND), 10);
    SAME(as_close(fd), -EFBIG);
    SAME(sread(s, back, 10), 10);
    SAME(sclose(s), 0);

    large(argv[1]);
    return 0;
}
