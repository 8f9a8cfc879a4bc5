/* calls DIR: what single calls give, on the files of the directory DIR here or at a server. */
#define _GNU_SOURCE
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "ninefold.h"

/* The most bytes of one read. */
#define MOST 0x7ffff000

static const char *in(const char *dir, const char *below)
{
    static char names[4][4096];
    static int next;
    char *name = names[next++ % 4];
    const char *query = strchr(dir, '?');
    int front = query ? (int)(query - dir) : (int)strlen(dir);
    snprintf(name, sizeof names[0], "%.*s/%s%s", front, dir, below, query ? query : "");
    return name;
}

static void refusals(const char *dir)
{
    int missing = as_open(in(dir, "none"), O_RDONLY);
    SAME(missing, -ENOENT);
    SAME(errno, ENOENT);
    SAME(as_open(NULL, O_RDONLY), -EFAULT);
    SAME(as_open(in(dir, "made/"), O_WRONLY | O_CREAT, 0600), -EISDIR);
    SAME(as_open(in(dir, "folder"), O_RDWR), -EISDIR);
    SAME(as_open(in(dir, "folder"), O_RDONLY | O_CREAT, 0700), -EISDIR);
    SAME(as_open(in(dir, "made"), O_RDONLY | O_DIRECTORY), -ENOTDIR);
    SAME(as_open(in(dir, "made/"), O_RDONLY), -ENOTDIR);
    SAME(as_open(in(dir, "made"), O_WRONLY | O_CREAT | O_EXCL, 0600), -EEXIST);
    SAME(as_open("9p://host:99999/x", O_RDONLY), -EINVAL);
    SAME(as_open("9p+unix:/nobody/listens/here:/x", O_RDONLY), -ENOENT);
}

static void closed(int fd)
{
    char byte = 0;
    struct stat st;
    SAME(as_read(fd, &byte, 1), -EBADF);
    SAME(errno, EBADF);
    SAME(as_pread(fd, &byte, 1, 0), -EBADF);
    SAME(as_write(fd, &byte, 1), -EBADF);
    SAME(as_pwrite(fd, &byte, 1, 0), -EBADF);
    SAME(as_lseek(fd, 0, SEEK_SET), -EBADF);
    SAME(as_fstat(fd, &st), -EBADF);
    SAME(as_ftruncate(fd, 0), -EBADF);
    SAME(as_fsync(fd), -EBADF);
    SAME(fdflush(fd), -EBADF);
    SAME(as_close(fd), -EBADF);
    errno = 0;
    CHECK(stream(fd, 0, 1) == NULL, "");
    SAME(errno, EBADF);
}

static void wrong_pointers(int fd)
{
    SAME(as_lseek(fd, 0, SEEK_SET), 0);
    SAME(as_read(fd, NULL, 1), -EFAULT);
    SAME(as_pread(fd, NULL, 1, 0), -EFAULT);
    SAME(as_write(fd, NULL, 1), -EFAULT);
    SAME(as_pwrite(fd, NULL, 1, 0), -EFAULT);
    SAME(as_write(fd, NULL, 0), 0);
    SAME(as_fstat(fd, NULL), -EFAULT);
    SAME(sread(NULL, NULL, 1), -EFAULT);
    SAME(swrite(NULL, NULL, 1), -EFAULT);
    SAME(sclose(NULL), -EFAULT);
}

static void streams(int fd, const char *dir)
{
    static char large[(3 << 20) + 1];
    char bytes[8];
    int error = 0, folder;
    Stream *s;
    CHECK(stream(fd, -1, 1) == NULL && errno == EINVAL, "");
    CHECK(stream(fd, 0, 2) == NULL && errno == EINVAL, "");
    CHECK(nf_stream_range(fd, 0, -1, 1, &error) == NULL, "");
    SAME(error, -EINVAL);
    CHECK(nf_stream_range(fd, 0, -1, 1, NULL) == NULL, "");
    s = stream(fd, 0, 1);
    CHECK(s != NULL, "");
    SAME(swrite(s, "x", 1), -EBADF);
    SAME(sread(s, bytes, -1), -EINVAL);
    SAME(sread(s, NULL, 1), -EFAULT);
    SAME(sread(s, bytes, 0), 0);
    SAME(sread(s, bytes, sizeof bytes), 5);
    CHECK(!memcmp(bytes, "hello", 5), "");
    SAME(sread(s, bytes, sizeof bytes), 0);
    SAME(sread(s, bytes, sizeof bytes), 0);
    SAME(sclose(s), 0);
    s = nf_stream_range(fd, 1, 3, 1, &error);
    CHECK(s != NULL, "%d", error);
    SAME(sread(s, bytes, sizeof bytes), 3);
    CHECK(!memcmp(bytes, "ell", 3), "");
    SAME(sread(s, bytes, sizeof bytes), 0);
    SAME(sclose(s), 0);
    s = nf_stream_range(fd, 5, 3, 0, &error);
    CHECK(s != NULL, "%d", error);
    SAME(sread(s, bytes, 1), -EBADF);
    SAME(swrite(s, "1234", 4), -EFBIG);
    SAME(sclose(s), -EFBIG);
    s = nf_stream_range(fd, 5, 3, 0, &error);
    CHECK(s != NULL, "%d", error);
    SAME(swrite(s, "12", 2), 2);
    SAME(sclose(s), -EPIPE);
    SAME(as_ftruncate(fd, 5), 0);
    /* Of what is refused nothing is written, however much of it would have fitted. */
    s = nf_stream_range(fd, 5, 3 << 20, 0, &error);
    CHECK(s != NULL, "%d", error);
    SAME(swrite(s, large, sizeof large), -EFBIG);
    SAME(sclose(s), -EFBIG);
    SAME(as_lseek(fd, 0, SEEK_END), 5);
    SAME(as_lseek(fd, 0, SEEK_SET), 0);
    folder = as_open(in(dir, "folder"), O_RDONLY | O_DIRECTORY);
    CHECK(folder >= 0, "%d", folder);
    CHECK(stream(folder, 0, 1) == NULL && errno == EISDIR, "%d", errno);
    SAME(as_read(folder, bytes, 1), -EISDIR);
    SAME(as_close(folder), 0);
}

/* More than a message holds, at the end of the file. */
static void appends(const char *dir)
{
    static char bytes[(1 << 20) + 5];
    Stream *s;
    int fd = as_open(in(dir, "appended"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
    SAME(as_write(fd, "x", 1), 1);
    SAME(as_write(fd, bytes, sizeof bytes), sizeof bytes);
    SAME(as_lseek(fd, 0, SEEK_CUR), 1 + sizeof bytes);
    SAME(as_lseek(fd, 0, SEEK_END), 1 + sizeof bytes);
    SAME(as_ftruncate(fd, 5), 0);
    /* A stream does too, whatever its offset is. */
    s = stream(fd, 0, 0);
    CHECK(s != NULL, "%d", errno);
    SAME(swrite(s, "end", 3), 3);
    SAME(sclose(s), 0);
    SAME(as_pread(fd, bytes, sizeof bytes, 0), 8);
    CHECK(bytes[0] == 'x' && !memcmp(bytes + 5, "end", 3), "");
    SAME(as_close(fd), 0);
}

static void one_way(const char *dir)
{
    char byte;
    int fd = as_open(in(dir, "made"), O_WRONLY);
    SAME(as_read(fd, &byte, 1), -EBADF);
    SAME(as_pread(fd, &byte, 1, 0), -EBADF);
    SAME(as_pread(fd, &byte, 1, -1), -EINVAL);
    CHECK(stream(fd, 0, 1) == NULL && errno == EBADF, "%d", errno);
    SAME(as_close(fd), 0);
    fd = as_open(in(dir, "made"), O_RDONLY);
    SAME(as_write(fd, "x", 1), -EBADF);
    SAME(as_pwrite(fd, "x", 1, -1), -EINVAL);
    SAME(as_ftruncate(fd, 0), -EINVAL);
    CHECK(stream(fd, 0, 0) == NULL && errno == EBADF, "%d", errno);
    SAME(as_close(fd), 0);
}

/* What comes out of a fifo has no place there. */
static void no_places(const char *dir)
{
    struct stat st;
    char bytes[8] = "";
    int fd = as_open(in(dir, "fifo"), O_RDWR);
    CHECK(fd >= 0, "%d", fd);
    SAME(as_fstat(fd, &st), 0);
    /* 9P2000 calls it a file. */
    if (S_ISFIFO(st.st_mode)) {
        SAME(as_write(fd, "hello", 5), 5);
        SAME(as_lseek(fd, 0, SEEK_CUR), -ESPIPE);
        SAME(as_lseek(fd, 0, SEEK_END), -ESPIPE);
        SAME(as_lseek(fd, 0, SEEK_DATA), -ESPIPE);
        SAME(as_lseek(fd, 0, 77), -EINVAL);
        SAME(as_pread(fd, bytes, 1, 0), -ESPIPE);
        SAME(as_pwrite(fd, bytes, 1, 0), -ESPIPE);
        SAME(as_pread(fd, bytes, 1, -1), -EINVAL);
        /* None of them took anything. */
        SAME(as_read(fd, bytes, sizeof bytes), 5);
        CHECK(!memcmp(bytes, "hello", 5), "");
    }
    SAME(as_close(fd), 0);
}

static void holes(const char *dir)
{
    int fd = as_open(in(dir, "holes"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    long long data, hole;
    SAME(as_write(fd, "x", 1), 1);
    SAME(as_ftruncate(fd, 1 << 20), 0);
    data = as_lseek(fd, 0, SEEK_DATA);
    SAME(data, 0);
    hole = as_lseek(fd, 0, SEEK_HOLE);
    CHECK(hole > 0 && hole <= 1 << 20, "%lld", hole);
    SAME(as_lseek(fd, 0, SEEK_CUR), hole);
    SAME(as_lseek(fd, 1 << 20, SEEK_DATA), -ENXIO);
    SAME(as_close(fd), 0);
}

int main(int argc, char **argv)
{
    const char *dir;
    int fd, closed_fd;
    struct stat st, folder;
    void *large = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char bytes[8] = "";
    CHECK(argc == 2 && large != MAP_FAILED, "wrong use");
    dir = argv[1];

    fd = as_open(in(dir, "made"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0640);
    CHECK(fd >= 0, "%s: %d", in(dir, "made"), fd);
    /* A number of ours is no number of the kernel's. */
    CHECK((fd >= NF_FD_MIN) == (fcntl(fd, F_GETFD) < 0), "%d", fd);
    SAME(as_write(fd, "hello", 5), 5);
    SAME(as_fsync(fd), 0);
    SAME(fdflush(fd), 0);
    SAME(as_fstat(fd, &st), 0);
    SAME(st.st_size, 5);
    CHECK(S_ISREG(st.st_mode), "%o", st.st_mode);
    CHECK(st.st_nlink == 1 && st.st_blksize > 0 && st.st_ino != 0, "");

    /* No byte lies behind the last offset. */
    SAME(as_pread(fd, bytes, 8, LLONG_MAX - 7), -EINVAL);
    SAME(as_pread(fd, bytes, 8, LLONG_MAX), -EINVAL);
    SAME(as_pread(fd, bytes, 8, LLONG_MAX - 8), 0);
    SAME(as_pwrite(fd, bytes, 8, LLONG_MAX - 7), -EINVAL);
    SAME(as_lseek(fd, LLONG_MAX, SEEK_CUR) < 0, 1);
    /* And no count is too large. */
    SAME(as_read(fd, large, SSIZE_MAX), 0);
    SAME(as_pread(fd, large, SSIZE_MAX, 1), 4);
    SAME(as_pread(fd, large, (size_t)-1, 5), 0);
    SAME(munmap(large, MOST), 0);
    SAME(as_lseek(fd, 0, SEEK_CUR), 5);
    wrong_pointers(fd);
    streams(fd, dir);
    /* No stream moved the descriptor. */
    SAME(as_lseek(fd, 0, SEEK_CUR), 0);
    SAME(as_pread(fd, bytes, 8, 1), 4);
    CHECK(!memcmp(bytes, "ello", 4), "");

    closed_fd = as_open(in(dir, "folder"), O_RDONLY);
    SAME(as_fstat(closed_fd, &folder), 0);
    CHECK(S_ISDIR(folder.st_mode) && folder.st_dev == st.st_dev && folder.st_ino != st.st_ino, "");
    SAME(as_close(closed_fd), 0);
    closed(closed_fd);
    closed(-1);
    closed(NF_FD_MIN - 1);
    closed(0x7fffffff);

    SAME(as_close(fd), 0);
    refusals(dir);
    one_way(dir);
    appends(dir);
    no_places(dir);
    holes(dir);
    return 0;
}
