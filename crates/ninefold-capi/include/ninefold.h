/*
 * ninefold.h - Unix I/O and streams, on files here and on files of 9P servers.
 *
 * Link with -lninefold (pkg-config --cflags --libs ninefold). docs/c.md and the manual pages as_open(3) and stream(3) say more.
 *
 * Names. Where a call takes the name of a file it takes an address too: 9p://HOST[:PORT]/PATH, 9ps://HOST[:PORT]/PATH, 9p+unix:/SOCKET:/PATH,
 * 9p+ssh://[USER@]HOST/PATH, or HOST:/PATH, which is the same by ssh; with ?aname=NAME or ?dialect=NAME behind all but the last.
 * A word without a scheme is an address only if a ":/" comes before its first '/', so a:b is a file here, and so is ./a:/b.
 *
 * Errors. A call that fails gives the negative number of the error (-ENOENT), and sets errno to the number besides. Calls that
 * give pointers give NULL, and the number in errno.
 *
 * Threads. All calls may be made from any thread at any time. All files of a server share one connection.
 *
 * fork(2). A child has none of the parent's files of servers: for it their descriptors and streams are EBADF, at once, and it
 * may open its own. exec(3) passes none on.
 *
 * Only names that begin with nf_, NF_ or Nf are defined where NF_NO_SHORT_NAMES is; else the short names are too, as functions,
 * so that they hide nothing: a variable, a member or a parameter may be called stream.
 */
#ifndef NINEFOLD_H
#define NINEFOLD_H

#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Descriptors of files of servers are NF_FD_MIN or more: the kernel gives no such number. Smaller ones are the kernel's own: what
 * as_open gives for a file here can be used with any system call, and every as_ call works on descriptors that open(2), pipe(2)
 * or dup(2) gave.
 */
#define NF_FD_MIN 0x40000000

/* A flag for as_open: writes return when they are sent. See fdflush. open(2) has given this bit to nothing. */
#define NF_OBEHIND 0x40000000

/*
 * Opens a file, as open(2): flags are O_RDONLY, O_WRONLY or O_RDWR with O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_SYNC,
 * O_DSYNC, O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_NOATIME and OBEHIND; mode is looked at with O_CREAT, and the umask is taken from
 * it. On a server O_DIRECT, O_PATH, O_TMPFILE and O_ASYNC are -EINVAL. O_APPEND: see docs/c.md for what servers can.
 */
int nf_as_open(const char *name, int flags, unsigned int mode);

/*
 * read(2), pread(2), write(2), pwrite(2). From a server fewer bytes come at the end of the file, or where it gives fewer at a
 * time; 0 is the end. Counts over 0x7ffff000 are cut to it.
 */
ssize_t nf_as_read(int fd, void *buf, size_t count);
ssize_t nf_as_pread(int fd, void *buf, size_t count, long long offset);
ssize_t nf_as_write(int fd, const void *buf, size_t count);
ssize_t nf_as_pwrite(int fd, const void *buf, size_t count, long long offset);

/* lseek(2). SEEK_DATA and SEEK_HOLE: a server that does not know holes has one, at the end. */
long long nf_as_lseek(int fd, long long offset, int whence);

/* fstat(2). st_dev of a file of a server is no device of this machine, and the same for all files of one server. */
int nf_as_fstat(int fd, struct stat *st);

/* ftruncate(2) and fsync(2). */
int nf_as_ftruncate(int fd, long long length);
int nf_as_fsync(int fd);

/*
 * close(2). The number is not given again soon. An error is of what was written with OBEHIND and not told yet, or what the server
 * says to the end; the descriptor is closed all the same.
 */
int nf_as_close(int fd);

/*
 * Waits until all that was written with OBEHIND is written, and gives the first error that was not told yet. An error that comes
 * up between two calls is kept, and told once: by the next write, fdflush or as_close.
 */
int nf_fdflush(int fd);

/*
 * A stream: the bytes of a file in order, over a connection of their own where the server has that, else by many
 * requests at a time (compatibility mode); here by pread(2) and pwrite(2), or read(2) and write(2) where there are no offsets.
 */
typedef struct NfStream NfStream;

/*
 * Begins to read (isread 1) or write (isread 0) the file that fd is, open for that, from offset on, 0 or more. The stream's place is its own: it
 * neither follows nor moves the descriptor's. as_close of the descriptor leaves the stream to its end.
 * NULL: errno says why.
 */
NfStream *nf_stream(int fd, long long offset, char isread);

/*
 * The same for length bytes, or to the end with 0. Writing, more than that is -EFBIG, and less is -EPIPE from sclose. Where it gives
 * NULL, *error is the negative number, unless error is NULL.
 */
NfStream *nf_stream_range(int fd, long long offset, long long length, char isread, int *error);

/*
 * The next bytes, as many as are there and at most n. 0 is the end: the stream has been compared with what the server sent, and is
 * whole. A stream that was cut short gives an error there, and for ever.
 */
long nf_sread(NfStream *s, void *buf, long n);

/* Takes n bytes, all of them unless it fails. An error may be of earlier ones; it is given for ever. */
long nf_swrite(NfStream *s, const void *buf, long n);

/*
 * Ends and frees it; the file stays open. Writing, it waits until all bytes are in the file. The error is what went wrong with
 * the stream on either side, told before or not. A read stream may be ended before its end.
 */
int nf_sclose(NfStream *s);

#ifdef __cplusplus
}
#endif

#ifndef NF_NO_SHORT_NAMES

#define OBEHIND NF_OBEHIND

typedef NfStream Stream;

static inline int as_open(const char *name, int flags, ...)
{
    unsigned int mode = 0;
    int takes_mode = (flags & O_CREAT) != 0;
#ifdef O_TMPFILE
    takes_mode = takes_mode || (flags & O_TMPFILE) == O_TMPFILE;
#endif
    if (takes_mode) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, unsigned int);
        va_end(rest);
    }
    return nf_as_open(name, flags, mode);
}

static inline ssize_t as_read(int fd, void *buf, size_t count) { return nf_as_read(fd, buf, count); }
static inline ssize_t as_pread(int fd, void *buf, size_t count, long long offset) { return nf_as_pread(fd, buf, count, offset); }
static inline ssize_t as_write(int fd, const void *buf, size_t count) { return nf_as_write(fd, buf, count); }
static inline ssize_t as_pwrite(int fd, const void *buf, size_t count, long long offset) { return nf_as_pwrite(fd, buf, count, offset); }
static inline long long as_lseek(int fd, long long offset, int whence) { return nf_as_lseek(fd, offset, whence); }
static inline int as_fstat(int fd, struct stat *st) { return nf_as_fstat(fd, st); }
static inline int as_ftruncate(int fd, long long length) { return nf_as_ftruncate(fd, length); }
static inline int as_fsync(int fd) { return nf_as_fsync(fd); }
static inline int as_close(int fd) { return nf_as_close(fd); }
static inline int fdflush(int fd) { return nf_fdflush(fd); }

static inline Stream *stream(int fd, long long offset, char isread) { return nf_stream(fd, offset, isread); }
static inline long sread(Stream *s, void *buf, long n) { return nf_sread(s, buf, n); }
static inline long swrite(Stream *s, const void *buf, long n) { return nf_swrite(s, buf, n); }
static inline int sclose(Stream *s) { return nf_sclose(s); }

#endif /* NF_NO_SHORT_NAMES */

#endif /* NINEFOLD_H */
